"""An administrator who locks tables, and clients that do not wait for long."""

from __future__ import annotations

import contextlib

import psycopg
import pytest
from psycopg import sql

LIMITS = pytest.mark.parametrize(
    ("limit", "code"), [("lock_timeout", "55P03"), ("statement_timeout", "57014")], ids=["lock", "statement"]
)
"""PostgreSQL's settings, and the code with which a statement ends that reaches the limit."""


def lock(connection: psycopg.Connection, *tables: str) -> None:
    """Lock tables against all others until the transaction ends."""
    connection.execute("select 1")  # begins the transaction, so that the block is a savepoint
    while True:
        # Maintenance may have locked one of them, and wait for another.
        with contextlib.suppress(psycopg.errors.DeadlockDetected), connection.transaction():
            for table in tables:
                connection.execute(
                    sql.SQL("lock table {} in access exclusive mode").format(sql.Identifier("jmsql_internal", table))
                )
            return
