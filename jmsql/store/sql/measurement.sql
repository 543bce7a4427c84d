-- How much waits where, and how fast it moves: read again and again by `jmsql top` and by metrics.

-- name: destinations
-- Each is counted for itself, as in the view `queues`: the planner does not know how many messages each has.
with consumers as materialized (
    select queue_id, sum(consumers) as consumers from jmsql_internal.consumer group by queue_id),
measured as (
    select q.queue_id as number, case when s.queue_id is null then 'queue' else 'subscription' end as kind,
           coalesce(q.name, o.name) as destination, s.name as subscription, s.client_id,
           p.all_of_them - p.expired - y.claimed - y.waiting as ready, y.claimed, y.waiting,
           l.delayed, p.expired, y.redelivered, p.oldest, y.oldest_claim, c.consumers, t.sent,
           t.acknowledged, t.rolled_back, t.redelivered as redeliveries, t.waited, t.calls, t.handled,
           q.paused, {is_browsable} as is_browsable
    from jmsql_internal.queue q
    left join jmsql_internal.subscription s using (queue_id)
    left join jmsql_internal.topic o on o.topic_id = s.topic_id
    cross join lateral (
        select count(*) as all_of_them,
               count(*) filter (where m.jms_expiration <= (select jmsql_internal.current_milliseconds())) as expired,
               min(greatest(m.jms_timestamp, m.jms_delivery_time)) as oldest
        from jmsql_internal.message m where m.queue_id = q.queue_id and {is_sent}) p
    cross join lateral (
        select count(*) as delayed from jmsql_internal.delayed_message m where m.queue_id = q.queue_id) l
    cross join lateral (
        select count(*) filter (where d.claim_id is not null and m.is_fresh) as claimed,
               count(*) filter (where d.claim_id is null and m.is_fresh
                                  and d.next_attempt > statement_timestamp()) as waiting,
               count(*) filter (where d.delivery_count > 0) as redelivered,
               min(d.claimed_at) as oldest_claim
        from jmsql_internal.delivery d
        cross join lateral (
            select (n.jms_expiration <= (select jmsql_internal.current_milliseconds())) is not true as is_fresh
            from jmsql_internal.message n
            where (n.queue_id, n.inverse_priority, n.sequence) = (d.queue_id, d.inverse_priority, d.sequence)
            offset 0) m
        where d.queue_id = q.queue_id) y
    left join consumers c on c.queue_id = q.queue_id
    left join jmsql_internal.destination_counters t on t.destination_id = q.queue_id
    where q.deleted_at is null and coalesce(q.name, o.name) is not null
      and q.connection_id is null and o.connection_id is null
    union all
    select -o.topic_id, 'topic', o.name, null, null, 0, 0, 0, 0, 0, 0, null, null, 0,
           t.sent, t.acknowledged, t.rolled_back, t.redelivered, 0, 0, 0,
           coalesce((select s.paused from jmsql_internal.queue s where s.topic_id = o.topic_id), false), true
    from jmsql_internal.topic o
    left join jmsql_internal.destination_counters t on t.destination_id = -o.topic_id
    where o.connection_id is null)
select min(number), kind, destination, subscription, client_id,
       coalesce(sum(ready), 0)::bigint, coalesce(sum(claimed), 0)::bigint,
       coalesce(sum(waiting), 0)::bigint, coalesce(sum(delayed), 0)::bigint,
       coalesce(sum(expired), 0)::bigint, coalesce(sum(redelivered), 0)::bigint,
       min(oldest), min(oldest_claim),
       coalesce(sum(consumers), 0)::integer,
       coalesce(sum(sent), 0)::bigint, coalesce(sum(acknowledged), 0)::bigint,
       coalesce(sum(rolled_back), 0)::bigint, coalesce(sum(redeliveries), 0)::bigint,
       coalesce(sum(waited), 0)::float8, coalesce(sum(calls), 0)::bigint, coalesce(sum(handled), 0)::float8,
       bool_or(paused), bool_and(is_browsable)
from measured
where (%(kind)s::text is null or kind = %(kind)s::text)
  and (%(pattern)s::text is null or destination like %(pattern)s::text or subscription like %(pattern)s::text)
group by kind, destination, subscription, client_id
order by kind, destination, subscription, client_id;

-- name: store
with held as (
    select distinct on (l.pid) l.pid, a.xact_start
    from pg_catalog.pg_locks l
    join pg_catalog.pg_stat_activity a using (pid)
    where l.locktype = 'relation' and l.granted and l.pid <> pg_backend_pid()
      and l.relation in ('jmsql_internal.message'::regclass::oid, 'jmsql_internal.delayed_message'::regclass::oid)
      and l.mode in ('RowShareLock', 'RowExclusiveLock')
      and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())),
lock as materialized (
    select l.pid, l.classid::bigint as high, l.objid::bigint as low from pg_catalog.pg_locks l
    where l.locktype = 'advisory' and l.granted and l.objsubid = 1 and l.mode = 'ExclusiveLock'
      and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())),
client as (
    select coalesce(c.heartbeat_at > statement_timestamp() - c.heartbeat_timeout, false)
           or coalesce((c.server_process_id, (c.lock_key >> 32) & 4294967295, c.lock_key & 4294967295)
                       in (select l.pid, l.high, l.low from lock l), false) as connected
    from (select c.* from jmsql_internal.connection c limit 10000) c),
waiting as (
    select extract(epoch from clock_timestamp() - x.prepared)::float8 as seconds
    from pg_catalog.pg_prepared_xacts x where x.database = current_database())
select extract(epoch from clock_timestamp())::float8,
       (select count(*) from client where connected), (select count(*) from client where not connected),
       (select count(*) from held),
       coalesce((select extract(epoch from clock_timestamp() - min(xact_start)) from held), 0)::float8,
       (select count(*) from waiting), (select coalesce(max(seconds), 0) from waiting),
       pg_notification_queue_usage(),
       (select count(*) from (
            select from jmsql_internal.delayed_message m
            where m.due < (select jmsql_internal.current_milliseconds() - 5000) order by m.due limit 5000) l);

-- name: tables
select c.relname::text, s.n_live_tup, s.n_dead_tup, pg_total_relation_size(c.oid::regclass)
from pg_catalog.pg_class c
join pg_catalog.pg_stat_all_tables s on s.relid = c.oid
where c.relnamespace = 'jmsql_internal'::regnamespace::oid
  and c.relname in ('message', 'delivery', 'delayed_message')
order by c.relname;
