"""Telling where a connection leads: to PostgreSQL itself, or to a pooler, which lends its connections."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import psycopg

from jmsql.exceptions import JMSException
from jmsql.store.statement import Query, SqlFile, Steps

__all__ = ["begin_connection", "find_database", "keeps_prepared_statements", "require_same_database"]

_READ_COMMITTED = "read committed"
_BEGIN = """
    select process_id <> {process_id},
           case when process_id = {process_id}
                then pg_catalog.set_config('default_transaction_isolation', 'read committed', false)
                else pg_catalog.current_setting('default_transaction_isolation') end{settings}
    from pg_catalog.pg_backend_pid() as process_id"""
_AT_MOST = """,
           case when process_id = {process_id} then pg_catalog.set_config('{name}',
               least(nullif(pg_catalog.current_setting('{name}')::integer, 0), {value})::text, false) end"""

_database = SqlFile("control").statement("database", "looking for the database", lambda result: result.rows[0])


def begin_connection(connection: psycopg.Connection[Any], settings: Mapping[str, int]) -> bool:
    """Have a new connection's transactions run in READ COMMITTED, and tell whether a pooler answers.

    In a stricter isolation level, which database or role may have as their default, a transaction does not see what
    others have claimed since it began, and would deliver it a second time.

    A pooler is told by the number of the process that it gave when the connection was made. PostgreSQL gives that of
    the process which serves the connection. A pooler does not know yet which one will, and gives one that it has
    thought up, for requests to cancel. A pooler in session mode cannot be told from one in transaction mode. Nothing is
    set on its connections, which others use as well.

    Args:
        connection: A connection in autocommit mode.
        settings: Settings of the server's for the session, and the most that each is to be.

    Raises:
        JMSException: A pooler answers, and the default is another isolation level.
    """
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # of transactions; the rest is for autocommit
    process_id = connection.info.backend_pid
    lowered = "".join(
        _AT_MOST.format(process_id=process_id, name=name, value=value) for name, value in settings.items()
    )
    row = connection.execute(_BEGIN.format(process_id=process_id, settings=lowered).encode()).fetchone()
    assert row is not None
    is_pooled, isolation_level, *_ = row
    if isolation_level != _READ_COMMITTED:
        raise JMSException(
            f"The database or the role has default_transaction_isolation = '{isolation_level}'. Through a pooler jmsql "
            "needs 'read committed': `alter role … set default_transaction_isolation = 'read committed'`."
        )
    return bool(is_pooled)


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
