"""Setting up a new connection, to PostgreSQL itself or to a pooler, which lends its connections."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import psycopg

from jmsql.concurrency.tasks import in_thread
from jmsql.exceptions import JMSException
from jmsql.store.connections._async.cursor import OwnCursor
from jmsql.store.connections.forks import close_in_forked_children
from jmsql.store.connections.keepalives import keepalive_settings
from jmsql.timings import Timings

ENCODING = "UTF8"
"""The encoding of databases that can hold every text."""
_READ_COMMITTED = "read committed"
_REPLICA = "replica"
_BEGIN = """
    select process_id <> {process_id}, pg_catalog.current_setting('server_encoding'),
           case when process_id = {process_id}
                then pg_catalog.set_config('default_transaction_isolation', 'read committed', false)
                else pg_catalog.current_setting('default_transaction_isolation') end,
           case when process_id = {process_id}
                then pg_catalog.set_config('array_nulls', 'on', false) end,
           case when process_id = {process_id}
                     and pg_catalog.current_setting('session_replication_role') = 'replica'
                     and pg_catalog.has_parameter_privilege('session_replication_role', 'set')
                then pg_catalog.set_config('session_replication_role', 'origin', false)
                else pg_catalog.current_setting('session_replication_role') end{settings}
    from pg_catalog.pg_backend_pid() as process_id"""
_AT_MOST = """,
           case when process_id = {process_id} then pg_catalog.set_config('{name}',
               least(nullif(pg_catalog.current_setting('{name}')::integer, 0), {value})::text, false) end"""


async def make_fit(connection: psycopg.AsyncConnection[Any], timings: Timings) -> bool:
    """Set up a new connection, and return whether it goes through a pooler.

    Raises:
        JMSException: The database's encoding is not UTF8, or triggers do not run. Or a pooler answers, and the default
            is another isolation level than READ COMMITTED.
    """
    close_in_forked_children(connection)
    is_pooled = await _begin(connection, keepalive_settings(connection, timings))
    if is_pooled and not await _keeps_prepared_statements(connection):
        connection.prepare_threshold = None
    return is_pooled


async def _begin(connection: psycopg.AsyncConnection[Any], settings: Mapping[str, int]) -> bool:
    """Have a new connection's transactions run in READ COMMITTED, and tell whether a pooler answers.

    In a stricter isolation level, which database or role may have as their default, a transaction does not see later
    claims of other consumers, and would deliver their messages a second time.

    A pooler is told by the number of the process that it gave when the connection was made. PostgreSQL returns the
    process that serves the connection. A pooler does not know yet which one will, and gives one that it has thought up,
    for requests to cancel. A pooler in session mode cannot be told from one in transaction mode. Nothing is set on its
    connections, which others use as well.

    Raises:
        JMSException: The encoding is not UTF8, or triggers do not run. Or a pooler answers, and the default is another
            isolation level.
    """
    await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)  # of transactions; not in autocommit
    process_id = connection.info.backend_pid
    lowered = "".join(
        _AT_MOST.format(process_id=process_id, name=name, value=value) for name, value in settings.items()
    )
    cursor = OwnCursor(connection)
    await cursor.execute(_BEGIN.format(process_id=process_id, settings=lowered).encode())
    row = await cursor.fetchone()
    assert row is not None
    is_pooled, encoding, isolation_level, _, replication_role, *_ = row
    if encoding != ENCODING:
        raise JMSException(
            f"The database {connection.info.dbname!r} has the encoding {encoding}, which cannot hold every text. jmsql "
            f"needs {ENCODING}: `create database NAME encoding '{ENCODING}' template template0`."
        )
    if isolation_level != _READ_COMMITTED:
        raise JMSException(
            f"The database or the role has default_transaction_isolation = '{isolation_level}'. Through a pooler jmsql "
            "needs 'read committed': `alter role … set default_transaction_isolation = 'read committed'`."
        )
    if replication_role == _REPLICA:
        # Subscriptions, groups, batches and the ends of queues rest on triggers and foreign keys.
        raise JMSException(
            f"The role or the database has session_replication_role = '{_REPLICA}', and PostgreSQL runs no triggers. "
            "jmsql needs them: `alter role … set session_replication_role = 'origin'`."
        )
    return bool(is_pooled)


async def _keeps_prepared_statements(connection: psycopg.AsyncConnection[Any]) -> bool:
    """Return whether a pooler prepares statements on each server process that it lends (PgBouncer since 1.22).

    Such a pooler gives them names of its own. Where the server knows a statement by the client's name, the pooler knows
    nothing of it, and the next transaction may miss it, or meet another client's.
    """
    if not psycopg.capabilities.has_send_close_prepared():
        return False  # psycopg would end statements by SQL, with names that the server does not know
    name = f"jmsql_{uuid.uuid4().hex}"
    async with connection.transaction():
        await in_thread(connection.pgconn.prepare, name.encode(), b"select 1")
        found = OwnCursor(connection)
        await found.execute("select from pg_catalog.pg_prepared_statements where name = %s", [name], prepare=False)
        if found.rowcount:
            await connection.execute(f"deallocate {name}", prepare=False)
        return not found.rowcount
