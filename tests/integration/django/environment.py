"""Where the tests' project finds its settings and its database."""

from __future__ import annotations


def environment_of(url: str) -> dict[str, str]:
    """Return what a process of the project finds in its environment, with its tables in a database."""
    return {"SHOP_DATABASE": url, "DJANGO_SETTINGS_MODULE": "tests.integration.django.settings"}
