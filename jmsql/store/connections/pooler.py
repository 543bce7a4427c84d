"""Telling where a connection leads: to PostgreSQL itself, or to a pooler, which lends its connections."""

from __future__ import annotations

from typing import Any

from jmsql.exceptions import JMSException
from jmsql.store.statement import Query, SqlFile, Steps

__all__ = ["find_database", "require_same_database"]

_database = SqlFile("control").statement("database", "looking for the database", lambda result: result.rows[0])


def find_database() -> Query[tuple[Any, ...]]:
    """Return what tells the database that a connection leads to from all others: the server's start, and its number."""
    return _database.bind()


def require_same_database(database: tuple[Any, ...]) -> Steps[None]:
    """Make sure that two ways lead to one database: else each client's claims would look like those of a dead one.

    Args:
        database: Where the other way leads.

    Raises:
        JMSException: They do not.
    """
    if (yield from find_database()) != database:
        raise JMSException(
            "control_url leads to another database than url. Both lead to the same database of the same server, "
            "url perhaps through a pooler, control_url past it."
        )
