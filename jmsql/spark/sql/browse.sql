-- What a batch read of a queue asks. It consumes nothing.

-- name: find_subscription
select s.queue_id from jmsql_internal.subscription s join jmsql_internal.topic t using (topic_id)
where t.name = %(topic)s and s.name = %(subscription)s and s.client_id is not distinct from %(client_id)s
order by s.durable desc limit 1;

-- name: is_there
-- Asked once all is read: a queue that was deleted since the planning has some of its messages yet, or none.
select exists (select from jmsql_internal.queue where queue_id = %(queue_id)s and deleted_at is null);

-- name: by_index
-- Until the transaction ends. Statistics of a time when the queue was short would have each step read the rest of it.
select set_config('enable_bitmapscan', 'off', true);

-- name: samples
-- Each so-many-th message of a queue: first those that are ready, then those that are delayed, each by the key of an
-- index, which alone is read, from one sample to the next.
with recursive ready (inverse_priority, sequence) as (
    select (-1)::smallint, 0::bigint
    union all
    select next.* from ready cross join lateral (
        select m.inverse_priority, m.sequence from jmsql_internal.message m
        where m.queue_id = %(queue_id)s and (m.inverse_priority, m.sequence) > (ready.inverse_priority, ready.sequence)
        order by m.queue_id, m.inverse_priority, m.sequence offset %(step)s - 1 limit 1) next),
delayed (jms_delivery_time, sequence) as (
    select (-1)::bigint, 0::bigint
    union all
    select next.* from delayed cross join lateral (
        select m.jms_delivery_time, m.sequence from jmsql_internal.delayed_message m
        where m.queue_id = %(queue_id)s
          and (m.jms_delivery_time, m.sequence) > (delayed.jms_delivery_time, delayed.sequence)
        order by m.queue_id, m.jms_delivery_time, m.sequence offset %(step)s - 1 limit 1) next)
select false, inverse_priority::bigint, sequence from ready where inverse_priority >= 0
union all
select true, jms_delivery_time, sequence from delayed where jms_delivery_time >= 0;

-- name: read
-- The messages of a part of a queue, that are there to be delivered. Few queues have deliveries that are under way or
-- have failed. For the others, no message is looked up there.
select {columns}
from unnest(%(priorities)s::smallint[], %(firsts)s::bigint[], %(lasts)s::bigint[])
    as p (inverse_priority, first_sequence, last_sequence)
cross join lateral (
    select m.*, d.delivery_count
    from jmsql_internal.message m
    left join lateral (
        select k.* from {delivery}
        where (select exists (select from jmsql_internal.delivery k where k.queue_id = %(queue_id)s)) offset 0) d on true
    where m.queue_id = %(queue_id)s and m.inverse_priority = p.inverse_priority
      and m.sequence between p.first_sequence and p.last_sequence and d.claim_id is null and {is_alive} and {is_sent}
      {chosen}
    offset 0) m
union all
select {columns}
from (
    select m.*, 0 as delivery_count
    from jmsql_internal.delayed_message m
    where m.queue_id = %(queue_id)s
      and (m.jms_delivery_time, m.sequence) > (%(delayed_after)s::bigint, %(delayed_after_sequence)s::bigint)
      and (m.jms_delivery_time, m.sequence) <= (%(delayed_until)s::bigint, %(delayed_until_sequence)s::bigint)
      and {is_alive} {chosen}) m;
