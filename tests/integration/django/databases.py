"""A URL as Django wants it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections
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


@contextmanager
def changed_database(alias: str = "default", **changes: Any) -> Iterator[None]:
    """Other settings of a database, for as long as a block lasts."""
    settings = connections.settings[alias]
    connections.close_all()
    connections.settings[alias] = settings | changes
    connections[alias] = connections.create_connection(alias)
    try:
        yield
    finally:
        connections.close_all()
        connections.settings[alias] = settings
        connections[alias] = connections.create_connection(alias)
