-- The clients that are connected, how others know that they live, and which of them does the maintenance for all.

create table jmsql_internal.connection (
    connection_id     bigint generated always as identity primary key,
    client_id         text unique,
    host              text not null,
    process_id        integer not null,
    user_name         text not null default current_user,
    started_at        timestamptz not null default now(),
    heartbeat_at      timestamptz,
    heartbeat_timeout interval not null default '15 seconds'
                      check (heartbeat_timeout > '0' and heartbeat_timeout <= '15 seconds'),
    lock_key          bigint unique,
    server_process_id integer,
    closing           boolean not null default false
);
comment on table jmsql_internal.connection is
    'The open connections of clients. Each holds an advisory lock for as long as it lives, or has heartbeats.';
comment on column jmsql_internal.connection.heartbeat_at is
    'When a client behind a pooler last showed that it lives; null: its advisory lock shows it.';
comment on column jmsql_internal.connection.heartbeat_timeout is
    'A client behind a pooler that has shown no heartbeat for so long is taken for dead: 15 seconds or less.';
comment on column jmsql_internal.connection.lock_key is
    'The key of the advisory lock that the client''s control connection holds; null: it sends heartbeats.';
comment on column jmsql_internal.connection.server_process_id is
    'The server process of the control connection. The lock counts only while this process holds it.';
comment on column jmsql_internal.connection.closing is 'Set to true, it removes the row.';

-- A server's clock that is set back: what was noted before may lie ahead.
-- A heartbeat that lies ahead is from before: a client that is alive sends another one.
create function jmsql_internal.is_connected(connection bigint) returns boolean
    language sql stable
    return exists (
        select from jmsql_internal.connection c
        where c.connection_id = connection
          and (c.heartbeat_at > statement_timestamp() - c.heartbeat_timeout
               and c.heartbeat_at < statement_timestamp() + c.heartbeat_timeout
               or exists (
        select from pg_catalog.pg_locks l
        where l.locktype = 'advisory' and l.granted and l.objsubid = 1 and l.mode = 'ExclusiveLock'
          and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
          and l.classid::bigint = (c.lock_key >> 32) & 4294967295 and l.objid::bigint = c.lock_key & 4294967295
          and l.pid = c.server_process_id)));
comment on function jmsql_internal.is_connected(bigint) is 'Whether the client lives: by its lock or heartbeats.';

-- In one transaction: who sees the row finds the lock held.
create function jmsql_internal.connect_client(client_host text, client_process_id integer) returns bigint
    language plpgsql volatile strict
    set search_path = pg_catalog, pg_temp
as $$
declare
    key bigint;
    number bigint;
begin
    loop
        key := ('x' || right(replace(gen_random_uuid()::text, '-', ''), 16))::bit(64)::bigint;
        exit when pg_try_advisory_lock(key);
    end loop;
    insert into jmsql_internal.connection (host, process_id, lock_key, server_process_id)
    values (client_host, client_process_id, key, pg_backend_pid())
    returning connection_id into number;
    execute format('listen %I', jmsql_internal.channel());
    return number;
end
$$;
comment on function jmsql_internal.connect_client(text, integer) is
    'Makes a client known, which lives for as long as this session does, has it listen, and returns its number.';

create function jmsql_internal.free_client_id() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    -- The rest of it stays for the same client to take over; maintenance forgets what nobody wants.
    update jmsql_internal.connection c set client_id = null
    where c.client_id = new.client_id and c.connection_id <> new.connection_id
      and not jmsql_internal.is_connected(c.connection_id);
    return new;
end
$$;
comment on function jmsql_internal.free_client_id() is 'Takes a client identifier from a connection that is gone.';
create trigger client_ids_of_the_dead_are_free before update of client_id on jmsql_internal.connection
    for each row when (new.client_id is not null) execute function jmsql_internal.free_client_id();

create function jmsql_internal.remove_updated_row() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    case tg_table_name
        when 'connection' then
            delete from jmsql_internal.connection c where c.connection_id = new.connection_id;
        when 'consumer' then
            delete from jmsql_internal.consumer c
            where c.connection_id = new.connection_id and c.queue_id = new.queue_id and c.selector = new.selector;
        when 'subscriber' then
            delete from jmsql_internal.subscriber s
            where s.connection_id = new.connection_id and s.queue_id = new.queue_id;
    end case;
    return null;
end
$$;
comment on function jmsql_internal.remove_updated_row() is
    'Deletes a row that its role has no privilege to delete: with that, it could lock the whole table.';
create trigger connections_close after update of closing on jmsql_internal.connection
    for each row when (new.closing) execute function jmsql_internal.remove_updated_row();

create table jmsql_internal.leadership (
    singleton     boolean primary key default true check (singleton),
    connection_id bigint,
    expires_at    timestamptz not null,
    duration      interval not null default '5 seconds' check (duration > '0' and duration <= '5 seconds')
);
comment on table jmsql_internal.leadership is
    'The lease of the client that does the maintenance for all; no row: the next that asks gets it.';
comment on column jmsql_internal.leadership.connection_id is
    'Who has the lease; null: nobody gets it before it expires, which suspends the maintenance.';
comment on column jmsql_internal.leadership.duration is
    'How long a client may do the maintenance without renewing its lease, 5 seconds or less; it renews it more often.';

create table jmsql_internal.maintenance_task (
    name         text primary key,
    requested_at timestamptz not null default now()
);
comment on table jmsql_internal.maintenance_task is
    'The tasks that the client with the lease does besides its own, by the names under which programs know them.';

-- A client behind a pooler cannot do all of the maintenance, and leaves it to one that can. A lease that ends later
-- than any that is given is from before the clock was set back. Whether a leader is dead whose row is there is
-- looked up only when it has missed a renewal, after three tenths of its lease: that reads all of the server's locks.
create function jmsql_internal.may_take_lease(held jmsql_internal.leadership, connection bigint, present timestamptz)
    returns boolean
    language sql stable
    return held.connection_id = connection
        or held.expires_at < present
        or held.connection_id is not null and (
            held.expires_at > present + held.duration
            or not exists (select from jmsql_internal.connection c where c.connection_id = held.connection_id)
            or held.expires_at < present + 0.7 * held.duration
                and not jmsql_internal.is_connected(held.connection_id)
            or exists (select from jmsql_internal.connection c
                       where c.connection_id = held.connection_id and c.heartbeat_at is not null)
                and exists (select from jmsql_internal.connection c
                            where c.connection_id = connection and c.heartbeat_at is null));
comment on function jmsql_internal.may_take_lease(jmsql_internal.leadership, bigint, timestamptz) is
    'Whether a client gets the lease that is held by itself or by another.';

-- Looking takes no lock and writes nothing.
create function jmsql_internal.lead(connection bigint, lease interval) returns boolean
    language plpgsql volatile strict
    set search_path = pg_catalog, pg_temp
as $$
declare
    present constant timestamptz := clock_timestamp();
    held jmsql_internal.leadership;
begin
    if not jmsql_internal.may_administer(current_user)
       or not has_table_privilege('jmsql_internal.leadership'::regclass, 'insert')
       or not has_table_privilege('jmsql_internal.leadership'::regclass, 'update') then
        return false;
    end if;
    select * into held from jmsql_internal.leadership;
    if found and not jmsql_internal.may_take_lease(held, connection, present) then
        return false;
    end if;
    perform set_config('synchronous_commit', 'off', true);
    insert into jmsql_internal.leadership as l (connection_id, expires_at, duration)
    values (connection, present + lease, lease)
    on conflict (singleton) do update
        set connection_id = excluded.connection_id, expires_at = excluded.expires_at, duration = excluded.duration
        where jmsql_internal.may_take_lease(l, connection, present);
    return found;
end
$$;
comment on function jmsql_internal.lead(bigint, interval) is
    'Takes or renews the lease for a client and so long a time, and returns whether it has it.';
