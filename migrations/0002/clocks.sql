-- A server's clock that is set back: what was noted before may lie ahead.

-- A heartbeat that lies ahead is from before: a client that is alive sends another one.
create or replace function jmsql_internal.is_connected(connection bigint) returns boolean
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
