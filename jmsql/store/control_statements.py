"""Every SQL statement of a control connection, made once for each schema."""

from __future__ import annotations

from functools import cache

from jmsql.store.identifier import quote_identifier

__all__ = ["ControlStatements", "control_statements"]

_TIMEOUT = "4s"
"""Less than the lease of the client that does the maintenance."""


class ControlStatements:
    """The statements for one schema.

    Args:
        schema_name: The plain name of the schema.
    """

    def __init__(self, schema_name: str) -> None:
        schema = quote_identifier(schema_name)
        # No longer does a statement wait for a lock, or a transaction that was left open hold up others.
        self.configure = f"""
            select set_config('synchronous_commit', 'off', false), set_config('lock_timeout', '{_TIMEOUT}', false),
                   set_config('idle_in_transaction_session_timeout', '{_TIMEOUT}', false)"""
        self.listen = f"listen {schema}"
        self.notify = "select pg_notify(%(channel)s, payload) from unnest(%(payloads)s::text[]) as payload"
        self.connect = f"select {schema}.connect_client(%(host)s, %(process_id)s)"
        self.connect_with_heartbeat = f"""
            insert into {schema}.connection (host, process_id, heartbeat_at)
            values (%(host)s, %(process_id)s, clock_timestamp())
            returning connection_id"""
        # It need not reach the disk: a crash of the server is one for all clients.
        self.beat = f"""
            with commit as materialized (select set_config('synchronous_commit', 'off', true))
            update {schema}.connection c set heartbeat_at = clock_timestamp()
            from commit
            where c.connection_id = %(connection_id)s and c.heartbeat_at is not null"""
        # A trigger deletes the row, which restricted roles cannot.
        self.disconnect = f"update {schema}.connection set closing = true where connection_id = %(connection_id)s"
        # A trigger takes it from a connection that is gone.
        self.set_client_id = f"""
            update {schema}.connection set client_id = %(client_id)s where connection_id = %(connection_id)s"""


@cache
def control_statements(schema_name: str) -> ControlStatements:
    """Return the statements for a schema."""
    return ControlStatements(schema_name)
