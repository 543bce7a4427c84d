"""Who lives and who does the maintenance, so that strangers can neither pretend to live nor hold maintenance off.

Any role may take any advisory lock. A client therefore holds one with a key that nobody can guess, and it counts only
while the server process that has made the client's row holds it. Maintenance is done by who has the lease.
"""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

COLUMNS = """
alter table {schema}.connection
    add column lock_key bigint unique,
    add column server_process_id integer;
comment on column {schema}.connection.lock_key is
    'The key of the advisory lock that the client''s control connection holds; null: it sends heartbeats.';
comment on column {schema}.connection.server_process_id is
    'The server process of the control connection. The lock counts only while this process holds it.';
"""

# In one transaction: who sees the row finds the lock held.
CONNECT = """
create function {schema}.connect_client(client_host text, client_process_id integer) returns bigint
    language plpgsql volatile strict
as $$
declare
    key bigint;
    number bigint;
begin
    loop
        key := ('x' || right(replace(gen_random_uuid()::text, '-', ''), 16))::bit(64)::bigint;
        exit when pg_try_advisory_lock(key);
    end loop;
    insert into {schema}.connection (host, process_id, user_name, lock_key, server_process_id)
    values (client_host, client_process_id, {schema}.caller(), key, pg_backend_pid())
    returning connection_id into number;
    return number;
end
$$;
comment on function {schema}.connect_client(text, integer) is
    'Makes a client known, which lives for as long as this session does, and returns its number.';
"""

HOLDER = """
        select from pg_catalog.pg_locks l
        where l.locktype = 'advisory' and l.granted and l.objsubid = 1 and l.mode = 'ExclusiveLock'
          and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
          and l.classid::bigint = (c.lock_key >> 32) & 4294967295 and l.objid::bigint = c.lock_key & 4294967295
          and l.pid = c.server_process_id"""
IS_CONNECTED = f"""
create or replace function {{schema}}.is_connected(connection bigint) returns boolean
    language sql stable
    return exists (
        select from {{schema}}.connection c
        where c.connection_id = connection
          and (c.heartbeat_at > statement_timestamp() - {{schema}}.heartbeat_timeout() or exists ({HOLDER})));
comment on function {{schema}}.is_connected(bigint) is 'Whether the client lives: by its lock or heartbeats.';
"""
FORMER_IS_CONNECTED = """
create or replace function {schema}.is_connected(connection bigint) returns boolean
    language sql stable
    return exists (
        select from pg_catalog.pg_locks l
        where l.locktype = 'advisory' and l.granted and l.objsubid = 2
          and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
          and l.classid::bigint = {schema}.advisory_class() and l.objid::bigint = connection % 2147483647) or exists (
        select from {schema}.connection c
        where c.connection_id = connection and c.heartbeat_at > statement_timestamp() - {schema}.heartbeat_timeout());
comment on function {schema}.is_connected(bigint) is 'Whether the connection lives: by its lock or heartbeats.';
"""
ADVISORY_CLASS = """
create function {schema}.advisory_class() returns integer
    language sql stable parallel safe
    return ('{schema}.connection'::regclass::oid::bigint % 2147483647)::integer;
comment on function {schema}.advisory_class() is
    'The first half of every advisory lock''s key, so that they do not meet the application''s own.';
"""

LEADERSHIP = """
create table {schema}.leadership (
    singleton     boolean primary key default true check (singleton),
    connection_id bigint,
    expires_at    timestamptz not null
);
comment on table {schema}.leadership is
    'The lease of the client that does the maintenance for all; no row: the next that asks gets it.';
comment on column {schema}.leadership.connection_id is
    'Who has the lease; null: nobody gets it before it expires, which suspends the maintenance.';

create function {schema}.lease_duration() returns interval
    language sql immutable parallel safe
    return interval '5 seconds';
comment on function {schema}.lease_duration() is
    'How long a client may do the maintenance without renewing its lease. It does so about every second.';

-- Looking takes no lock and writes nothing.
create function {schema}.lead(connection bigint) returns boolean
    language plpgsql volatile strict
as $$
declare
    present constant timestamptz := clock_timestamp();
    lease constant interval := {schema}.lease_duration();
    held {schema}.leadership;
begin
    if not {schema}.may_administer(current_user)
       or not has_table_privilege('{literal}.leadership', 'insert')
       or not has_table_privilege('{literal}.leadership', 'update') then
        return false;
    end if;
    select * into held from {schema}.leadership;
    if found and not {schema}.may_take_lease(held, connection, present) then
        return false;
    end if;
    perform set_config('synchronous_commit', 'off', true);
    insert into {schema}.leadership as l (connection_id, expires_at) values (connection, present + lease)
    on conflict (singleton) do update set connection_id = excluded.connection_id, expires_at = excluded.expires_at
        where {schema}.may_take_lease(l, connection, present);
    return found;
end
$$;
comment on function {schema}.lead(bigint) is
    'Takes or renews the lease for a client, and returns whether it has it.';
"""

# A client behind a pooler cannot do all of the maintenance, and leaves it to one that can. A lease that ends later than
# any that is given is from before the clock was set back. Whether a leader is dead whose row is there is looked up only
# when it has missed a renewal: that reads all of the server's locks.
MAY_TAKE_LEASE = """
create function {schema}.may_take_lease(held {schema}.leadership, connection bigint, present timestamptz)
    returns boolean
    language sql stable
    return held.connection_id = connection
        or held.expires_at < present
        or held.connection_id is not null and (
            held.expires_at > present + {schema}.lease_duration()
            or not exists (select from {schema}.connection c where c.connection_id = held.connection_id)
            or held.expires_at < present + {schema}.lease_duration() - interval '1.5 seconds'
                and not {schema}.is_connected(held.connection_id)
            or exists (select from {schema}.connection c
                       where c.connection_id = held.connection_id and c.heartbeat_at is not null)
                and exists (select from {schema}.connection c
                            where c.connection_id = connection and c.heartbeat_at is null));
comment on function {schema}.may_take_lease({schema}.leadership, bigint, timestamptz) is
    'Whether a client gets the lease that is held by itself or by another.';
"""

PRIVILEGES = """
insert into {schema}.required_privilege (action, privilege, object)
select action, 'select', '{literal}.leadership' from unnest(array['send', 'receive', 'browse']) as action;
select {schema}.renew_privileges();
"""


def upgrade() -> None:
    schema = target_schema()
    literal = schema.replace("'", "''")
    for script in (COLUMNS, CONNECT, IS_CONNECTED, LEADERSHIP, MAY_TAKE_LEASE, PRIVILEGES):
        op.execute(script.format(schema=schema, literal=literal))
    op.execute(f"drop function {schema}.advisory_class()")


def downgrade() -> None:
    schema = target_schema()
    literal = schema.replace("'", "''")
    op.execute(ADVISORY_CLASS.format(schema=schema))
    op.execute(FORMER_IS_CONNECTED.format(schema=schema))
    op.execute(
        f"""
        delete from {schema}.required_privilege where object = '{literal}.leadership';
        drop function {schema}.lead(bigint), {schema}.may_take_lease({schema}.leadership, bigint, timestamptz),
            {schema}.lease_duration(), {schema}.connect_client(text, integer);
        drop table {schema}.leadership;
        alter table {schema}.connection drop column lock_key, drop column server_process_id;
        """
    )
