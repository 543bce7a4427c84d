-- Facts that tell whether the store is well and whether messages move, for `jmsql doctor`.

-- name: server
select current_setting('server_version'), current_database(),
       pg_is_in_recovery(), current_setting('fsync')::boolean,
       current_setting('full_page_writes')::boolean, current_setting('synchronous_commit'),
       current_setting('autovacuum')::boolean and current_setting('track_counts')::boolean,
       current_setting('autovacuum_naptime'), pg_has_role('pg_read_all_stats'::name, 'usage'), current_user,
       current_setting('default_transaction_read_only')::boolean,
       (select pg_catalog.array_agg(
                   'alter '::text
                   || case when s.setrole <> 0::oid then 'role '::text || quote_ident(pg_get_userbyid(s.setrole)::text)
                           when s.setdatabase = 0::oid then 'role all'::text else ''::text end
                   || case when s.setrole <> 0::oid and s.setdatabase <> 0::oid then ' in '::text else ''::text end
                   || case when s.setdatabase <> 0::oid then 'database '::text || quote_ident(current_database()::text)
                           else ''::text end
                   || ' reset session_replication_role'::text)
        from pg_catalog.pg_db_role_setting s
        where s.setdatabase in (0::oid, (select d.oid from pg_catalog.pg_database d where d.datname = current_database()))
          and 'session_replication_role=replica'::text in (select pg_catalog.unnest(s.setconfig)));

-- name: maintenance
-- Among the newest connections, if few rows are to be read: those of dead clients stay until maintenance forgets them.
with client as materialized (
    select c.connection_id, c.user_name::name as user_name
    from (select connection_id, user_name from jmsql_internal.connection
          order by connection_id desc limit %(most_rows)s::bigint / 2) c
    where jmsql_internal.is_connected(c.connection_id))
select exists (select from jmsql_internal.leadership
               where expires_at > statement_timestamp()
                 and jmsql_internal.is_connected(connection_id)),
       (select count(*) from (
            select from jmsql_internal.message m
            where m.jms_expiration < jmsql_internal.current_milliseconds() - 60000 and {is_sent}
            order by m.jms_expiration
            limit %(most_rows)s::bigint) f),
       (select count(*) from (
            select from jmsql_internal.delayed_message m
            where m.due < (select jmsql_internal.current_milliseconds() - 60000)
            order by m.due
            limit %(most_rows)s::bigint) f),
       (select count(*) from client),
       array(select distinct c.user_name::text from client c
             where c.user_name is not null and not jmsql_internal.may_administer(c.user_name)
             order by 1 limit 5);

-- name: connections
-- How many connections there are, of how many that may be, and which program has most.
with session as materialized (
    select a.datname, a.usename, a.application_name from pg_catalog.pg_stat_activity a
    where a.datid is not null and coalesce(a.backend_type, 'client backend') = 'client backend'),
place as (
    select 'server' as kind, '' as name, null::name as datname, null::name as usename,
           current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
           - coalesce(current_setting('reserved_connections', true)::integer, 0) as most
    union all
    select 'database', d.datname, d.datname, null, d.datconnlimit
    from pg_catalog.pg_database d where d.datname = current_database() and d.datconnlimit >= 0
    union all
    select 'role', r.rolname, null, r.rolname, r.rolconnlimit
    from pg_catalog.pg_roles r where r.rolconnlimit >= 0 and not r.rolsuper)
select p.kind, p.name, u.used, p.most, l.application_name, l.usename::text, l.used
from place p
cross join lateral (
    select count(*) as used from session s
    where s.datname = coalesce(p.datname, s.datname) and s.usename = coalesce(p.usename, s.usename)) u
cross join lateral (
    select s.application_name, s.usename, count(*) as used from session s
    where s.datname = coalesce(p.datname, s.datname) and s.usename = coalesce(p.usename, s.usename)
    group by s.application_name, s.usename order by 3 desc, 1, 2 limit 1) l
order by p.kind desc, p.name;

-- name: idle_slots
-- Replication slots that nothing reads, and how many bytes of the write-ahead log the server keeps for each.
select s.slot_name::text, pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)::bigint
from pg_catalog.pg_replication_slots s
where not s.active and s.restart_lsn is not null and not pg_is_in_recovery()
order by 2 desc, 1;

-- name: limit_memory
select set_config('work_mem', '64kB', true),
       set_config('temp_tablespaces', coalesce((
           select t.spcname::text from pg_catalog.pg_class c join pg_catalog.pg_tablespace t on t.oid = c.reltablespace
           where c.oid = to_regclass('jmsql_internal.message')::oid), ''), true);

-- name: write_file
-- It writes 16 MB to a temporary file, as much as the next segment of the write-ahead log takes.
select count(*) from pg_catalog.unnest(pg_catalog.array_fill(repeat('x', 8000), array[2000]));

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
order by 7 desc, 1, 2, 3;

-- name: tables
select c.relname::text, s.n_live_tup, s.n_dead_tup, pg_total_relation_size(c.oid::regclass), s.last_autovacuum,
       coalesce((select o.option_value::boolean from pg_catalog.pg_options_to_table(c.reloptions) o
                 where o.option_name = 'autovacuum_enabled'), true),
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
order by a.xact_start, a.pid;

-- name: claims
select c.connection_id, c.client_id, c.host, c.process_id, h.claimed,
       extract(epoch from clock_timestamp() - h.claimed_at)::float8, coalesce(q.name, o.name)
from (select d.connection_id, count(*) as claimed, min(d.claimed_at) as claimed_at,
             (pg_catalog.array_agg(d.queue_id order by d.claimed_at, d.queue_id))[1] as queue_id
      from (select * from jmsql_internal.delivery limit %(most_rows)s::bigint) d
      where d.claim_id is not null group by d.connection_id) h
join jmsql_internal.connection c using (connection_id)
left join jmsql_internal.queue q using (queue_id)
left join jmsql_internal.subscription s using (queue_id)
left join jmsql_internal.topic o on o.topic_id = s.topic_id
where jmsql_internal.is_connected(c.connection_id)
order by h.claimed_at, c.connection_id;

-- name: prepared_transactions
select x.gid, x.owner::text, extract(epoch from clock_timestamp() - x.prepared)::float8,
       exists (select from pg_catalog.pg_locks t join pg_catalog.pg_locks l using (virtualtransaction)
               where t.transactionid = x.transaction and t.pid is null and l.pid is null
                 and l.relation = (select c.oid from pg_catalog.pg_class c
                                   where c.relnamespace = to_regnamespace('jmsql_internal')::oid
                                     and c.relname = 'message'))
from pg_catalog.pg_prepared_xacts x where x.database = current_database()
order by x.prepared, x.gid;

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

-- name: ready
-- Of a queue `q`: how many of its first messages there are, and for how long the oldest of them has been.
cross join lateral (
    select count(*) as ready,
           case when min(f.jms_timestamp) is not null
                then greatest(0, jmsql_internal.current_milliseconds() - min(f.jms_timestamp))::float8 / 1000::float8
           end as seconds
    from (select m.jms_timestamp from jmsql_internal.message m
          where m.queue_id = q.queue_id and {is_sent}
          order by m.queue_id, m.inverse_priority, m.sequence limit 1000) f) m;

-- name: unattended_queues
select q.name, m.ready, m.seconds
from jmsql_internal.queue q
{ready}
where q.name is not null and q.connection_id is null and q.name <> 'DLQ' and m.ready > 0 and not q.paused
  and not exists (select from jmsql_internal.consumer c where c.queue_id = q.queue_id)
  and q.queue_id not in (select o.dead_letter_queue_id from jmsql_internal.queue o
                         where o.dead_letter_queue_id is not null
                         union select o.expiry_queue_id from jmsql_internal.queue o
                         where o.expiry_queue_id is not null)
order by q.name;

-- name: schedules
-- Those that fail, or are overdue, or that no worker has declared for a while.
select s.name, s.last_error, extract(epoch from clock_timestamp() - s.next_at)::float8,
       extract(epoch from clock_timestamp() - s.declared_at)::float8, s.paused
from jmsql_internal.schedule s
order by s.name;

-- name: limits
select l.destination, l.subscription, l.kind, l.most, l.per, l.by, l.value, l.is_met,
       extract(epoch from l.free_at - clock_timestamp())::float8
from jmsql.limits l
order by not l.is_met, l.destination, l.subscription, l.selector, l.kind, l.value;

-- name: unread_subscriptions
-- Durable subscriptions with messages and without consumers, but for those of which something is claimed, as by Spark.
select o.name, s.name, s.client_id, m.ready, m.seconds,
       exists (select from jmsql_internal.destination_counters t
               where t.destination_id = s.queue_id and t.acknowledged + t.rolled_back > 0)
from jmsql_internal.subscription s
join jmsql_internal.queue q using (queue_id)
join jmsql_internal.topic o on o.topic_id = s.topic_id
{ready}
where s.durable and not s.ended and q.deleted_at is null and not q.paused and m.ready > 0
  and not exists (select from jmsql_internal.consumer c where c.queue_id = q.queue_id)
  and not exists (select from jmsql_internal.delivery d where d.queue_id = q.queue_id and d.claim_id is not null)
order by o.name, s.name, s.client_id;

-- name: selective_queues
-- Queues that are received from with selectors alone.
select q.queue_id, q.name, c.selectors
from (select c.queue_id, pg_catalog.array_agg(distinct c.selector) as selectors
      from jmsql_internal.consumer c group by c.queue_id
      having bool_and(c.selector <> '')) c
join jmsql_internal.queue q using (queue_id)
where q.name is not null and q.connection_id is null and not q.paused
order by q.name limit 100;

-- name: unmatched
-- How many of the first messages of a queue some of its consumers want, how many none does, and the age of the oldest of
-- those.
select count(*) filter (where f.is_wanted), count(*) filter (where not f.is_wanted),
       (greatest(0, jmsql_internal.current_milliseconds() - min(f.jms_timestamp) filter (where not f.is_wanted)))::float8
       / 1000::float8
from (
    select coalesce(({chosen}), false) as is_wanted, m.jms_timestamp from (
        select m.* from jmsql_internal.message m
        where m.queue_id = %(queue_id)s::integer and {is_sent}
        order by m.queue_id, m.inverse_priority, m.sequence limit 1000) m
    where (m.jms_expiration <= jmsql_internal.current_milliseconds()) is not true) f;

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

-- name: has_lost_privileges
-- The first grant has switched row security on; before, the owner alone gets at the functions.
select c.relrowsecurity and jmsql_internal.has_lost_privileges()
from pg_catalog.pg_class c where c.oid = 'jmsql_internal.message'::regclass::oid;

-- name: blockers
-- The locks with which nothing can be sent, and some with which nothing can be read: those that are held, and those that
-- others wait for, behind which everything waits.
with exclusive as materialized (
    select l.pid, l.granted from pg_locks l join pg_class c on c.oid = l.relation
    where l.locktype = 'relation' and l.pid <> pg_backend_pid()
      and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and c.relnamespace in (to_regnamespace('jmsql')::oid, to_regnamespace('jmsql_internal')::oid)),
blocker as (
    select pid, 1 as rank from exclusive where granted
    union all
    select pg_catalog.unnest(pg_catalog.pg_blocking_pids(e.pid)), 2 from exclusive e where not e.granted
    union all
    select pid, 3 from exclusive where not granted)
select a.pid, a.usename::text, a.application_name, a.state, a.query_start, a.query
from (select pid, min(rank) as rank from blocker group by pid) b join pg_stat_activity a using (pid)
order by b.rank, a.xact_start, a.pid;

-- name: limit_look
-- What is read to a limit is read by an index, and not sorted before: see the same of looks.
select set_config('lock_timeout', '500ms', true), set_config('statement_timeout', %(timeout)s, true),
       set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true);

-- name: failing
select case when q.name is null then 'topic://' || o.name else q.name end, max(q.maximum_deliveries),
       bool_and(q.maximum_deliveries is not null), sum(d.failing)::bigint, max(d.errors), sum(d.waiting)::bigint,
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
    select q.name, q.maximum_deliveries from jmsql_internal.queue q
    where q.queue_id = d.queue_id and q.deleted_at is null offset 0) q
left join lateral (select s.topic_id from jmsql_internal.subscription s where s.queue_id = d.queue_id offset 0) s on true
left join lateral (select o.name from jmsql_internal.topic o where o.topic_id = s.topic_id offset 0) o on true
group by 1
order by 4 desc, 1;

-- name: dead_letters
select queue, count(*), extract(epoch from clock_timestamp() - min(died_at))::float8
from jmsql.dead_letters group by queue order by queue;
