"""A URL as Django wants it."""

from __future__ import annotations

from typing import Any

from psycopg.conninfo import conninfo_to_dict


def database_settings(url: str) -> dict[str, Any]:
    """What `DATABASES` says of a URL."""
    parameters = conninfo_to_dict(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parameters.pop("dbname"),
        "USER": parameters.pop("user", ""),
        "PASSWORD": parameters.pop("password", ""),
        "HOST": parameters.pop("host", ""),
        "PORT": parameters.pop("port", ""),
        "OPTIONS": parameters,
    }
