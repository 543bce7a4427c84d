-- Facts by which a list of destinations is sorted. Each statement reads at most 20,000 rows.

-- name: numbers_of
-- The numbers of queues and subscriptions by which dead letters name their origins.
select n.position, coalesce(q.queue_id, s.queue_id)
from unnest(%(names)s::text[], %(topics)s::boolean[], %(subscriptions)s::text[], %(clients)s::text[])
    with ordinality as n (name, is_topic, subscription, client_id, position)
left join lateral (
    select q.queue_id from jmsql_internal.queue q
    where q.name = n.name and not n.is_topic and q.deleted_at is null limit 1) q on true
left join lateral (
    select s.queue_id
    from jmsql_internal.topic o
    join jmsql_internal.subscription s on s.topic_id = o.topic_id
    where o.name = n.name and n.is_topic and s.name = n.subscription
      and s.client_id is not distinct from n.client_id limit 1) s on true
where coalesce(q.queue_id, s.queue_id) is not null;

-- name: topic_of_name
select o.topic_id from jmsql_internal.topic o where o.name = %(name)s::text;

-- name: most_consumers
select f.queue_id
from (select c.queue_id, c.consumers from jmsql_internal.consumer c limit 20000) f
group by f.queue_id
having sum(f.consumers) > 0
order by sum(f.consumers) desc, f.queue_id
limit %(limit)s::integer;

-- name: lagging
-- Of each topic, how many subscriptions it has, of the first hundred, and the one whose first message is the oldest.
select t.topic_id, pg_catalog.count(s.queue_id),
       (pg_catalog.array_agg(s.queue_id order by f.sequence) filter (where f.sequence is not null))[1]
from pg_catalog.unnest(%(topic_ids)s::integer[]) as t (topic_id)
left join lateral (
    select s.queue_id from jmsql_internal.subscription s where s.topic_id = t.topic_id limit 100) s on true
left join lateral (
    select m.sequence from jmsql_internal.message m
    where m.queue_id = s.queue_id
    order by m.queue_id, m.inverse_priority, m.sequence limit 1) f on true
group by t.topic_id;

-- name: queue_names
select q.name from (
    select q.name, q.connection_id, q.deleted_at from jmsql_internal.queue q
    where q.name is not null order by q.name limit %(limit)s::integer) q
where q.connection_id is null and q.deleted_at is null;

-- name: totals
-- What clients have counted of all destinations, and how many connections receive.
select coalesce(sum(t.sent), 0)::bigint, coalesce(sum(t.acknowledged), 0)::bigint, coalesce(sum(t.rolled_back), 0)::bigint,
       (select count(*) from (
            select distinct f.connection_id
            from (select c.connection_id, c.consumers from jmsql_internal.consumer c limit 10000) f
            where f.consumers > 0) r)
from (select t.sent, t.acknowledged, t.rolled_back from jmsql_internal.destination_counters t limit 10000) t;
