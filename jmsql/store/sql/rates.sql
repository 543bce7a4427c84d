-- What went through a destination, by slots of a span.

-- name: slots
select floor((extract(epoch from r.minute)::float8 - %(start)s::float8) / %(seconds)s::float8)::integer,
       sum(r.sent)::bigint, sum(r.acknowledged)::bigint, sum(r.rolled_back)::bigint, sum(r.waited)::float8,
       sum(r.calls)::bigint, sum(r.handled)::float8
from (
    select r.* from jmsql_internal.rate r
    where r.destination_id = %(destination_id)s::integer and r.minute >= to_timestamp(%(start)s::float8)
    order by r.destination_id, r.minute limit 20000) r
group by 1;

-- name: days
select c.rates_days from jmsql_internal.configuration c;

-- name: rates
-- Each destination by the key: the last rows of few are found among a million.
with named (destination_id, kind, destination, subscription, client_id) as (
    select 0, 'all', null::text, null::text, null::text where %(name)s::text is null
    union all
    select q.queue_id, 'queue', q.name, null, null from jmsql_internal.queue q
    where q.name = %(name)s::text and q.deleted_at is null
    union all
    select -o.topic_id, 'topic', o.name, null, null from jmsql_internal.topic o where o.name = %(name)s::text
    union all
    select s.queue_id, 'subscription', o.name, s.name, s.client_id
    from jmsql_internal.topic o join jmsql_internal.subscription s using (topic_id) where o.name = %(name)s::text)
select n.kind, n.destination, n.subscription, n.client_id, r.minute, r.sent, r.acknowledged, r.rolled_back, r.redelivered,
       r.calls, r.waited::float8 / nullif(r.acknowledged::float8, 0::float8) / 1000000::float8,
       r.handled::float8 / nullif(r.calls::float8, 0::float8) / 1000000::float8
from named n
cross join lateral (
    select r.* from jmsql_internal.rate r where r.destination_id = n.destination_id
    order by r.destination_id, r.minute desc limit %(limit)s::bigint) r
order by r.minute desc, n.kind, n.subscription, n.client_id
limit %(limit)s::bigint;

-- name: keep
select jmsql.keep_rates(%(days)s::integer);
