-- What clients do at this moment, from what they write anyway: consumers, claims and the progress of handlers.

-- name: consumers
-- The slow ones first: those that hold a message for longest, then those with messages to receive that have ended none for
-- longest. Claims are read up to a limit; what an open transaction has locked, no other session sees.
with held as materialized (
    select f.connection_id, f.queue_id, count(*) as messages, min(f.claimed_at) as since,
           (pg_catalog.array_agg(f.inverse_priority order by f.claimed_at, f.inverse_priority, f.sequence))[1] as inverse_priority,
           (pg_catalog.array_agg(f.sequence order by f.claimed_at, f.inverse_priority, f.sequence))[1] as sequence
    from (select d.connection_id, d.queue_id, d.claimed_at, d.claim_id, d.inverse_priority, d.sequence
          from jmsql_internal.delivery d limit %(window)s) f
    where f.claim_id is not null and f.connection_id is not null
      and (%(connection_id)s::bigint is null or f.connection_id = %(connection_id)s::bigint)
    group by f.connection_id, f.queue_id),
consuming as materialized (
    select f.connection_id, f.queue_id, sum(f.consumers)::integer as consumers, max(f.acknowledged) as acknowledged,
           max(f.rolled_back) as rolled_back, max(f.last_at) as last_at,
           case when count(*) = 1 then max(nullif(f.selector, ''::text)) else count(*)::text || ' selectors'::text end as selector,
           string_agg(f.listeners, ', '::text order by f.selector) as listeners
    from (select c.* from jmsql_internal.consumer c
          where %(connection_id)s::bigint is null or c.connection_id = %(connection_id)s::bigint limit %(window)s) f
    group by f.connection_id, f.queue_id),
listed as materialized (
    select b.*, case when b.held_since is null and b.consumers > 0 then exists (
               select from jmsql_internal.message m where m.queue_id = b.queue_id) else false end as has_messages
    from (select coalesce(h.connection_id, n.connection_id) as connection_id, coalesce(h.queue_id, n.queue_id) as queue_id,
                 coalesce(n.consumers, 0) as consumers, n.selector, n.listeners, coalesce(n.acknowledged, 0) as acknowledged,
                 coalesce(n.rolled_back, 0) as rolled_back, n.last_at, coalesce(h.messages, 0) as held, h.since as held_since,
                 h.inverse_priority, h.sequence
          from held h full join consuming n using (connection_id, queue_id)
          order by h.since nulls last, n.last_at nulls first, connection_id, queue_id limit 2000) b)
select b.connection_id, k.client_id, k.user_name, k.host, k.process_id, b.queue_id, coalesce(q.name, t.name), s.name, s.client_id,
       b.consumers, b.selector, b.listeners, b.acknowledged, b.rolled_back, b.last_at, b.held, b.held_since, b.inverse_priority, b.sequence,
       'ID:'::text || m.message_id, p.fraction, p.note, p.reported_at
from (select b.* from listed b
      order by b.held_since nulls last, b.has_messages desc, b.last_at nulls first, b.connection_id, b.queue_id
      limit %(limit)s) b
left join lateral (
    select k.client_id, k.user_name, k.host, k.process_id from jmsql_internal.connection k
    where k.connection_id = b.connection_id offset 0) k on true
cross join lateral (
    select q.name from jmsql_internal.queue q where q.queue_id = b.queue_id and q.deleted_at is null offset 0) q
left join lateral (
    select s.name, s.client_id, s.topic_id from jmsql_internal.subscription s where s.queue_id = b.queue_id offset 0) s on true
left join lateral (select t.name from jmsql_internal.topic t where t.topic_id = s.topic_id offset 0) t on true
left join lateral (
    select n.jms_message_id::text as message_id from jmsql_internal.message n
    where (n.queue_id, n.inverse_priority, n.sequence) = (b.queue_id, b.inverse_priority, b.sequence) offset 0) m on true
left join lateral (
    select r.fraction, r.note, r.reported_at from jmsql_internal.reported_progress r
    where (r.queue_id, r.inverse_priority, r.sequence) = (b.queue_id, b.inverse_priority, b.sequence)
      and exists (select from jmsql_internal.delivery d
                  where (d.queue_id, d.inverse_priority, d.sequence) = (r.queue_id, r.inverse_priority, r.sequence)
                    and d.claim_id = r.claim_id)
    offset 0) p on true
where %(like)s::text is null or coalesce(q.name, t.name) like %(like)s::text or s.name like %(like)s::text
order by b.held_since nulls last, b.has_messages desc, b.last_at nulls first, b.connection_id, b.queue_id;

-- name: connection
select c.connection_id, c.client_id, c.user_name, c.host, c.process_id, c.started_at, jmsql_internal.is_connected(c.connection_id)
from jmsql_internal.connection c where c.connection_id = %(connection_id)s::bigint;

-- name: held_messages
-- What a connection holds, the oldest claim first.
select d.queue_id, d.inverse_priority, d.sequence, d.claimed_at, d.delivery_count, 'ID:'::text || m.message_id, p.fraction, p.note
from (select f.* from (select d.* from jmsql_internal.delivery d limit %(window)s) f
      where f.claim_id is not null and f.connection_id = %(connection_id)s::bigint
      order by f.claimed_at, f.queue_id, f.inverse_priority, f.sequence limit %(limit)s) d
cross join lateral (
    select n.jms_message_id::text as message_id from jmsql_internal.message n
    where (n.queue_id, n.inverse_priority, n.sequence) = (d.queue_id, d.inverse_priority, d.sequence) offset 0) m
left join lateral (
    select r.fraction, r.note from jmsql_internal.reported_progress r
    where (r.queue_id, r.inverse_priority, r.sequence) = (d.queue_id, d.inverse_priority, d.sequence) and r.claim_id = d.claim_id
    offset 0) p on true
order by d.claimed_at, d.queue_id, d.inverse_priority, d.sequence;

-- name: usual_times
-- The mean time of the calls of workers' handlers, in seconds, as the clients count them.
select t.destination_id, t.handled / t.calls::float8 / 1000000::float8
from jmsql_internal.destination_counters t
where t.destination_id = any(%(numbers)s::integer[]) and t.calls > 0;
