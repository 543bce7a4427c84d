-- Limits on waits for locks, and who holds the locks that are waited for.

-- name: limit
-- A shorter limit of the role's own stays. It is for the transaction of the statement alone.
select set_config('lock_timeout', %(limit)s::text, true)
where current_setting('lock_timeout') = '0' or current_setting('lock_timeout')::interval > %(limit)s::text::interval;

-- name: holders
-- Statements queue behind a lock that somebody waits for, as they do behind one that is held.
select a.pid, a.usename::text, a.application_name, a.query
from (select l.pid, bool_or(l.granted) as granted
      from pg_catalog.pg_locks l join pg_catalog.pg_class c on c.oid = l.relation
      where l.locktype = 'relation' and l.pid <> pg_backend_pid()
        and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
        and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
        and c.relnamespace in ('jmsql'::regnamespace::oid, 'jmsql_internal'::regnamespace::oid)
      group by l.pid) h
join pg_catalog.pg_stat_activity a using (pid)
order by h.granted, a.query_start
limit 3;
