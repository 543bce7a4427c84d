-- Messages of all queues and subscriptions, in the order of their keys: a window of them with each statement.

-- name: present
select {shown}, {held}
from (
    select m.* from jmsql_internal.message m
    where (m.queue_id, m.inverse_priority, m.sequence)
          > (%(queue_id)s::integer, %(first)s::smallint, %(sequence)s::bigint)
    order by m.queue_id, m.inverse_priority, m.sequence
    limit %(window)s) m
left join lateral ({delivery_of_m}) d on true
cross join lateral ({holder}) h
where {is_sent} {chosen}
order by m.queue_id, m.inverse_priority, m.sequence
limit %(limit)s;

-- name: end_of_present
select m.queue_id, m.inverse_priority, m.sequence from jmsql_internal.message m
where (m.queue_id, m.inverse_priority, m.sequence) > (%(queue_id)s::integer, %(first)s::smallint, %(sequence)s::bigint)
order by m.queue_id, m.inverse_priority, m.sequence
limit 1 offset %(window)s::integer - 1;

-- name: delayed
select {shown}, {held}
from (
    select m.* from jmsql_internal.delayed_message m
    where (m.queue_id, m.jms_delivery_time, m.sequence)
          > (%(queue_id)s::integer, %(first)s::bigint, %(sequence)s::bigint)
    order by m.queue_id, m.jms_delivery_time, m.sequence
    limit %(window)s) m
cross join lateral ({holder}) h
where true {chosen}
order by m.queue_id, m.jms_delivery_time, m.sequence
limit %(limit)s;

-- name: end_of_delayed
select m.queue_id, m.jms_delivery_time, m.sequence from jmsql_internal.delayed_message m
where (m.queue_id, m.jms_delivery_time, m.sequence) > (%(queue_id)s::integer, %(first)s::bigint, %(sequence)s::bigint)
order by m.queue_id, m.jms_delivery_time, m.sequence
limit 1 offset %(window)s::integer - 1;

-- name: held
m.queue_id, h.queue, h.topic, h.subscription, h.client_id

-- name: holder
-- The queue, or the topic and subscription, of a message `m`; no row where it is deleted.
select q.name as queue, t.name as topic, s.name as subscription, s.client_id
from jmsql_internal.queue q
left join jmsql_internal.subscription s on s.queue_id = q.queue_id
left join jmsql_internal.topic t on t.topic_id = s.topic_id
where q.queue_id = m.queue_id and q.deleted_at is null and (q.name is not null or t.name is not null)
offset 0
