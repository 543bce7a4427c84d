"""Where the database is if nobody says."""

from __future__ import annotations

import os

__all__ = ["default_url"]


def default_url(schema: str) -> str:
    """Return the URL of the database to use where none is named.

    That is what the environment variable ``JMSQL_URL`` says, else the embedded server, which is started if need be. As
    nobody else looks after that one, its schema is made and brought up to date.

    Args:
        schema: The PostgreSQL schema of jmsql's tables.

    Raises:
        ResourceAllocationException: There is no embedded server, or it does not start.
    """
    if url := os.environ.get("JMSQL_URL"):
        return url
    from jmsql.embedded import start_server  # an extra, imported where it is used
    from jmsql.store.schema.migration import migrate  # loads SQLAlchemy

    url = start_server().url
    migrate(url, schema)
    return url
