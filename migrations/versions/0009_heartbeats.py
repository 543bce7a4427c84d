"""Clients behind a pooler, which cannot hold a lock, show by heartbeats that they live."""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

COLUMN = """
alter table {schema}.connection add column heartbeat_at timestamptz;
comment on column {schema}.connection.heartbeat_at is
    'When a client behind a pooler last showed that it lives; null: its advisory lock shows it.';
comment on table {schema}.connection is
    'The open connections of clients. Each holds an advisory lock for as long as it lives, or has heartbeats.';

create function {schema}.heartbeat_timeout() returns interval
    language sql immutable parallel safe
    return interval '15 seconds';
comment on function {schema}.heartbeat_timeout() is
    'A client behind a pooler that has shown no heartbeat for so long is taken for dead.';
"""

LOCKED = """exists (
        select from pg_catalog.pg_locks l
        where l.locktype = 'advisory' and l.granted and l.objsubid = 2
          and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
          and l.classid::bigint = {schema}.advisory_class() and l.objid::bigint = connection % 2147483647)"""
BEATING = """exists (
        select from {schema}.connection c
        where c.connection_id = connection and c.heartbeat_at > statement_timestamp() - {schema}.heartbeat_timeout())"""
IS_CONNECTED = """
create or replace function {schema}.is_connected(connection bigint) returns boolean
    language sql stable
    return {condition};
comment on function {schema}.is_connected(bigint) is '{comment}';
"""

CLIENTS = """
create view {schema}.clients as
select c.connection_id, c.client_id, c.user_name, c.host, c.process_id, c.started_at,
       {schema}.is_connected(c.connection_id) as connected,
       (select count(*) from {schema}.delivery d where d.connection_id = c.connection_id) as claimed{more}
from {schema}.connection c;
comment on view {schema}.clients is 'One row a connection of a client.';
"""


def _is_connected(schema: str, condition: str, comment: str) -> str:
    return IS_CONNECTED.format(schema=schema, condition=condition.format(schema=schema), comment=comment)


def upgrade() -> None:
    schema = target_schema()
    op.execute(COLUMN.format(schema=schema))
    op.execute(
        _is_connected(schema, f"{LOCKED} or {BEATING}", "Whether the connection lives: by its lock or heartbeats.")
    )
    op.execute(f"drop view {schema}.clients")
    op.execute(CLIENTS.format(schema=schema, more=", c.heartbeat_at"))


def downgrade() -> None:
    schema = target_schema()
    op.execute(f"drop view {schema}.clients")
    op.execute(_is_connected(schema, LOCKED, "Whether the connection still holds its advisory lock."))
    op.execute(f"drop function {schema}.heartbeat_timeout(); alter table {schema}.connection drop column heartbeat_at")
    op.execute(CLIENTS.format(schema=schema, more=""))
