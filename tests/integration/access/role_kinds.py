"""Roles of PostgreSQL, one for each kind of access."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

__all__ = ["KINDS", "PASSWORD", "roles_of_each_kind"]

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


@contextmanager
def roles_of_each_kind(database: psycopg.Connection[Any]) -> Iterator[dict[str, str]]:
    """Make a role of each kind, and return their names; the queue is made too.

    Args:
        database: The owner's connection, in autocommit mode. The schema is ``jmsql``.
    """
    suffix = secrets.token_hex(4)
    names = {kind: f"jmsql_test_{kind.replace(' ', '_')}_{suffix}" for kind in KINDS}
    for name in names.values():
        database.execute(
            sql.SQL("create role {} login password {}").format(sql.Identifier(name), sql.Literal(PASSWORD))
        )
    try:
        for kind, (action, queue) in KINDS.items():
            if queue is not None:
                database.execute("select jmsql.create_queue(%s)", [queue])
                database.execute("select jmsql.grant_access(%s, %s, %s)", [queue, names[kind], action])
            elif action is not None:
                database.execute("select jmsql_internal.permit(%s, array[%s], null)", [names[kind], action])
        yield names
    finally:
        for name in names.values():
            database.execute(sql.SQL("drop owned by {}").format(sql.Identifier(name)))
            database.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))
