-- Facts that tell whether the store is well and whether messages move, for `jmsql doctor`.

-- name: server
select current_setting('server_version'), current_database(), current_setting('server_encoding'),
       pg_is_in_recovery(), current_setting('fsync')::boolean,
       current_setting('full_page_writes')::boolean, current_setting('synchronous_commit'),
       current_setting('autovacuum')::boolean and current_setting('track_counts')::boolean,
       current_setting('autovacuum_naptime'), pg_has_role('pg_read_all_stats'::name, 'usage');

-- name: maintenance
select exists (select from jmsql_internal.leadership
               where expires_at > statement_timestamp()
                 and jmsql_internal.is_connected(connection_id)),
       (select count(*) from (
            select from jmsql_internal.message m
            where m.jms_expiration < jmsql_internal.current_milliseconds() - 60000 and {is_sent}
            order by m.jms_expiration
            limit %(most_rows)s::bigint) f);

-- name: snapshot_holders
select 'session', pid, application_name, usename::text, state,
       extract(epoch from clock_timestamp() - coalesce(xact_start, backend_start))::float8,
       greatest(age(backend_xid), age(backend_xmin)), query
from pg_catalog.pg_stat_activity
where (backend_xmin is not null or backend_xid is not null) and pid <> pg_backend_pid()
  and (datname = current_database() or backend_type = 'walsender')
  and backend_type <> 'autovacuum worker'
union all
select 'replication slot', active_pid, slot_name::text, null,
       case when active then 'active' else 'inactive' end, null::float8, age(xmin), null
from pg_catalog.pg_replication_slots where xmin is not null
union all
select 'prepared transaction', null, gid, owner::text, 'prepared',
       extract(epoch from clock_timestamp() - prepared)::float8, age(transaction), null
from pg_catalog.pg_prepared_xacts where database = current_database()
order by 7 desc;

-- name: tables
select c.relname::text, s.n_live_tup, s.n_dead_tup, pg_total_relation_size(c.oid::regclass), s.last_autovacuum,
       not coalesce('autovacuum_enabled=false' = any(c.reloptions), false)
           and not coalesce('autovacuum_enabled=off' = any(c.reloptions), false),
       coalesce(c.reloptions, '{}')
from pg_catalog.pg_class c
join pg_catalog.pg_stat_all_tables s on s.relid = c.oid
where c.relnamespace = 'jmsql_internal'::regnamespace::oid and c.relname in ('message', 'delivery')
order by c.relname desc;

-- name: tables_without_pages
select name from jmsql_internal.tables_without_pages() as name;

-- name: notification_queue_usage
select pg_notification_queue_usage();

-- name: clock
select extract(epoch from clock_timestamp())::float8;

-- name: transactions
select a.pid, a.application_name, a.usename::text, a.state,
       extract(epoch from clock_timestamp() - a.xact_start)::float8,
       extract(epoch from clock_timestamp() - a.state_change)::float8, a.query
from pg_catalog.pg_stat_activity a
where a.xact_start is not null and a.pid <> pg_backend_pid() and exists (
    select from pg_catalog.pg_locks l
    where l.pid = a.pid and l.locktype = 'relation' and l.granted
      and l.mode in ('RowShareLock', 'RowExclusiveLock')
      and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
      and l.relation in (select c.oid from pg_catalog.pg_class c
                         where c.relnamespace = to_regnamespace('jmsql_internal')::oid
                           and c.relname in ('message', 'delayed_message')))
order by a.xact_start;

-- name: claims
select c.connection_id, c.client_id, c.host, c.process_id, h.claimed,
       extract(epoch from clock_timestamp() - h.claimed_at)::float8, coalesce(q.name, o.name)
from (select d.connection_id, count(*) as claimed, min(d.claimed_at) as claimed_at,
             (pg_catalog.array_agg(d.queue_id order by d.claimed_at))[1] as queue_id
      from (select * from jmsql_internal.delivery limit %(most_rows)s::bigint) d
      where d.claim_id is not null group by d.connection_id) h
join jmsql_internal.connection c using (connection_id)
left join jmsql_internal.queue q using (queue_id)
left join jmsql_internal.subscription s using (queue_id)
left join jmsql_internal.topic o on o.topic_id = s.topic_id
where jmsql_internal.is_connected(c.connection_id)
order by h.claimed_at;

-- name: prepared_transactions
select x.gid, x.owner::text, extract(epoch from clock_timestamp() - x.prepared)::float8,
       exists (select from pg_catalog.pg_locks t join pg_catalog.pg_locks l using (virtualtransaction)
               where t.transactionid = x.transaction and t.pid is null and l.pid is null
                 and l.relation = (select c.oid from pg_catalog.pg_class c
                                   where c.relnamespace = to_regnamespace('jmsql_internal')::oid
                                     and c.relname = 'message'))
from pg_catalog.pg_prepared_xacts x where x.database = current_database()
order by x.prepared;

-- name: selective_consumers
select q.name, c.selector, c.consumers, least(m.depth, %(most)s)
from (select queue_id, selector, sum(consumers)::integer as consumers from jmsql_internal.consumer
      where selector <> '' group by queue_id, selector) c
join jmsql_internal.queue q using (queue_id)
cross join lateral (
    select count(*) as depth
    from (select from jmsql_internal.message m where m.queue_id = c.queue_id and {is_sent} limit %(most)s) found) m
where q.name is not null and m.depth >= %(depth)s
order by q.name, c.selector;

-- name: unattended_queues
select q.name, m.ready, m.seconds
from jmsql_internal.queue q
cross join lateral (
    select count(*) as ready,
           case when min(f.jms_timestamp) is not null
                then greatest(0, jmsql_internal.current_milliseconds() - min(f.jms_timestamp))::float8 / 1000::float8
           end as seconds
    from (select m.jms_timestamp from jmsql_internal.message m
          where m.queue_id = q.queue_id and {is_sent}
          order by m.queue_id, m.inverse_priority, m.sequence limit 1000) f) m
where q.name is not null and q.connection_id is null and q.name <> 'DLQ' and m.ready > 0 and not q.paused
  and not exists (select from jmsql_internal.consumer c where c.queue_id = q.queue_id)
  and q.queue_id not in (select o.dead_letter_queue_id from jmsql_internal.queue o
                         where o.dead_letter_queue_id is not null
                         union select o.expiry_queue_id from jmsql_internal.queue o
                         where o.expiry_queue_id is not null)
order by q.name;

-- name: paused
select case when q.topic_id is null then 'queue' else 'topic' end,
       coalesce(q.name, 'topic://' || (select t.name from jmsql_internal.topic t where t.topic_id = q.topic_id)),
       (select count(*) from (select from jmsql_internal.message m where m.queue_id = q.queue_id and {is_sent} limit 1000) f)
from jmsql_internal.queue q
where q.paused and (q.name is not null or q.topic_id is not null)
order by 1, 2;

-- name: sees_all_messages
select not row_security_active('jmsql_internal.message'::regclass::oid)
    or jmsql_internal.has_access_to_all('browse', current_user);

-- name: blockers
-- Who reads waits for exclusive locks alone: for those that are held, and behind those that others wait for.
with exclusive as materialized (
    select l.pid, l.granted from pg_locks l join pg_class c on c.oid = l.relation
    where l.locktype = 'relation' and l.mode = 'AccessExclusiveLock' and l.pid <> pg_backend_pid()
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and c.relnamespace in ('jmsql'::regnamespace, 'jmsql_internal'::regnamespace)),
blocker as (
    select pid, 1 as rank from exclusive where granted
    union all
    select pg_catalog.unnest(pg_catalog.pg_blocking_pids(e.pid)), 2 from exclusive e where not e.granted
    union all
    select pid, 3 from exclusive where not granted)
select a.pid, a.usename::text, a.application_name, a.state, a.query_start, a.query
from (select pid, min(rank) as rank from blocker group by pid) b join pg_stat_activity a using (pid)
order by b.rank, a.xact_start;

-- name: limit_look
-- What is read to a limit is read by an index, and not sorted before: see the same of looks.
select set_config('lock_timeout', '500ms', true), set_config('statement_timeout', %(timeout)s, true),
       set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true);

-- name: failing
select coalesce(q.name, o.name), sum(d.failing)::bigint, max(d.errors), sum(d.waiting)::bigint,
       extract(epoch from max(d.next_attempt) - statement_timestamp())::float8
from (
    select queue_id, count(*) as failing, max(error_count) as errors,
           count(*) filter (where next_attempt > statement_timestamp()) as waiting,
           max(next_attempt) filter (
               where next_attempt > statement_timestamp() and next_attempt < 'infinity') as next_attempt
    from (select queue_id, error_count, next_attempt from jmsql_internal.delivery limit %(most_rows)s::bigint) a
    where error_count > 0
    group by queue_id) d
cross join lateral (
    select q.name from jmsql_internal.queue q where q.queue_id = d.queue_id and q.deleted_at is null offset 0) q
left join lateral (select s.topic_id from jmsql_internal.subscription s where s.queue_id = d.queue_id offset 0) s on true
left join lateral (select o.name from jmsql_internal.topic o where o.topic_id = s.topic_id offset 0) o on true
group by coalesce(q.name, o.name)
order by 2 desc, 1;

-- name: dead_letters
select queue, count(*), extract(epoch from clock_timestamp() - min(died_at))::float8
from jmsql.dead_letters group by queue order by queue;
