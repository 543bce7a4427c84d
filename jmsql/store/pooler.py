"""Telling where a connection leads: to PostgreSQL itself, or to a pooler, which lends its connections."""

from __future__ import annotations

import uuid
from typing import Any

import psycopg
import sqlalchemy

from jmsql.exceptions import JMSException

__all__ = ["check_same_database", "is_pooled", "keeps_prepared_statements"]

_DATABASE = sqlalchemy.text(
    "select pg_postmaster_start_time(), oid from pg_catalog.pg_database where datname = current_database()"
)


def is_pooled(connection: psycopg.Connection[Any]) -> bool:
    """Tell whether a pooler answers, by the number of the process that it gave when the connection was made.

    PostgreSQL gives that of the process which serves the connection. A pooler does not know yet which one will, and
    gives one that it has thought up, for requests to cancel. A pooler in session mode cannot be told from one in
    transaction mode.

    Args:
        connection: A connection in autocommit mode.
    """
    row = connection.execute("select pg_catalog.pg_backend_pid()").fetchone()
    assert row is not None
    return bool(row[0] != connection.info.backend_pid)


def keeps_prepared_statements(connection: psycopg.Connection[Any]) -> bool:
    """Tell whether a pooler prepares a client's statements on whatever server process it lends (PgBouncer since 1.22).

    Such a pooler gives them names of its own. Where the server knows a statement by the client's name, the pooler knows
    nothing of it, and the next transaction may miss it, or meet that of another client.

    Args:
        connection: A connection through a pooler, in autocommit mode.
    """
    if not psycopg.capabilities.has_send_close_prepared():
        return False  # psycopg would end statements by SQL, with names that the server does not know
    name = f"jmsql_{uuid.uuid4().hex}"
    with connection.transaction():
        connection.pgconn.prepare(name.encode(), b"select 1")
        found = connection.execute(
            "select from pg_catalog.pg_prepared_statements where name = %s", [name], prepare=False
        )
        if found.rowcount:
            connection.execute(f"deallocate {name}", prepare=False)
        return not found.rowcount


def check_same_database(engine: sqlalchemy.Engine, control_engine: sqlalchemy.Engine) -> None:
    """Make sure that two ways lead to one database: else each client's claims would look like those of a dead one.

    Raises:
        JMSException: They do not.
    """
    with engine.connect() as one, control_engine.connect() as other:
        if one.execute(_DATABASE).one() != other.execute(_DATABASE).one():
            raise JMSException(
                "control_url leads to another database than url. Both lead to the same database of the same server, "
                "url perhaps through a pooler, control_url past it."
            )
