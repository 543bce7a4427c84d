"""Roles of PostgreSQL, one for each kind of access."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

PASSWORD = secrets.token_hex()

KINDS: dict[str, tuple[str | None, str | None]] = {
    "stranger": (None, None),
    "sender": ("send", "orders"),
    "receiver": ("receive", "orders"),
    "browser": ("browse", "orders"),
    "sender to all": ("send", None),
    "receiver from all": ("receive", None),
    "browser of all": ("browse", None),
    "administrator": ("administer", None),
}
"""What each may do, and with which queue; None: with all destinations."""


class _Roles(dict[str, str]):
    """The names of roles, by kind; each role is made when it is first asked for.

    Args:
        database: The owner's connection, in autocommit mode. The schema is ``jmsql``.
    """

    def __init__(self, database: psycopg.Connection[Any]) -> None:
        super().__init__()
        self._database = database
        self._suffix = secrets.token_hex(4)

    def __missing__(self, kind: str) -> str:
        action, queue = KINDS[kind]
        name = f"jmsql_test_{kind.replace(' ', '_')}_{self._suffix}"
        self._database.execute(
            sql.SQL("create role {} login password {}").format(sql.Identifier(name), sql.Literal(PASSWORD))
        )
        self[kind] = name
        if queue is not None:
            self._database.execute("select jmsql.grant_access(%s, %s, %s)", [queue, name, action])
        elif action is not None:
            self._database.execute("select jmsql_internal.permit(%s, array[%s], null)", [name, action])
        return name


@contextmanager
def roles_of_each_kind(database: psycopg.Connection[Any]) -> Iterator[dict[str, str]]:
    """Return the names of roles by kind; the queue is there, and one role has a permission, so that rows are protected.

    Args:
        database: The owner's connection, in autocommit mode. The schema is ``jmsql``.
    """
    database.execute("select jmsql.create_queue('orders')")
    roles = _Roles(database)
    try:
        assert roles["sender"]
        yield roles
    finally:
        for name in roles.values():
            database.execute(sql.SQL("drop owned by {}").format(sql.Identifier(name)))
            database.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))
