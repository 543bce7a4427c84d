-- Subscriptions, and who receives from them.

-- name: lock_topic
-- Two consumers that make the same subscription at once wait for each other here, as long as there is no row to lock.
-- Where their topics differ, the later one meets the other's name in the index.
select from jmsql_internal.topic where topic_id = %(topic_id)s for no key update;

-- name: lock_named
-- The lock keeps others from attaching to it, changing it or removing it until the transaction ends. It is had by a
-- statement of its own: one that waits for it does not see what others did until then.
select from jmsql_internal.subscription s
where s.durable = %(durable)s and s.client_id is not distinct from %(client_id)s::text and s.name = %(name)s
for update;

-- name: find
select s.queue_id, s.topic_id, t.name, s.selector, s.shared, s.no_local,
       exists (select from jmsql_internal.subscriber c
               where c.queue_id = s.queue_id
                 and (c.connection_id = %(connection_id)s::bigint or jmsql_internal.is_connected(c.connection_id)))
from jmsql_internal.subscription s
join jmsql_internal.topic t using (topic_id)
where s.durable = %(durable)s and s.client_id is not distinct from %(client_id)s::text and s.name = %(name)s;

-- name: create
-- A trigger makes its queue.
insert into jmsql_internal.subscription (topic_id, client_id, name, selector, durable, shared, no_local)
values (%(topic_id)s::integer, %(client_id)s::text, %(name)s::text, %(selector)s::text, %(durable)s::boolean,
        %(shared)s::boolean, %(no_local)s::boolean)
returning queue_id;

-- name: redefine
update jmsql_internal.subscription set selector = %(selector)s::text, no_local = %(no_local)s::boolean
where queue_id = %(queue_id)s;

-- name: rejoin
-- Several numbers may have joined the same subscription. A trigger removes the rows of the former ones. The new rows refer to
-- the subscription. It is locked first, as by a client that ends it.
with former as (
    select c.queue_id, c.connection_id, c.consumers
    from jmsql_internal.subscription s
    join jmsql_internal.subscriber c using (queue_id)
    where c.connection_id = any(%(former_ids)s::bigint[]) and c.connection_id <> %(connection_id)s::bigint
    order by c.queue_id
    for key share of s
    for update of c),
left_behind as (
    update jmsql_internal.subscriber s set consumers = 0 from former f
    where (s.queue_id, s.connection_id) = (f.queue_id, f.connection_id)),
joined as (
    insert into jmsql_internal.subscriber as s (queue_id, connection_id, consumers)
    select queue_id, %(connection_id)s::bigint, sum(consumers) from former group by queue_id
    on conflict (queue_id, connection_id) do update set consumers = s.consumers + excluded.consumers
    returning queue_id)
select queue_id from joined
union select queue_id from jmsql_internal.subscriber where connection_id = %(connection_id)s::bigint;

-- name: attach
insert into jmsql_internal.subscriber as c (queue_id, connection_id, consumers)
values (%(queue_id)s, %(connection_id)s, 1)
on conflict (queue_id, connection_id) do update set consumers = c.consumers + 1;

-- name: lock
-- What is sent meanwhile waits for the transaction's end, and then finds the subscription gone or attached.
select from jmsql_internal.subscription where queue_id = %(queue_id)s for update;

-- name: find_use
select s.shared, s.name, exists (
           select from jmsql_internal.subscriber c
           where c.queue_id = s.queue_id and c.connection_id <> %(connection_id)s
             and jmsql_internal.is_connected(c.connection_id)),
       exists (select from jmsql_internal.subscriber c
               where c.queue_id = s.queue_id and c.connection_id = %(connection_id)s)
from jmsql_internal.subscription s where s.queue_id = %(queue_id)s;

-- name: detach
-- A trigger removes the row with the last consumer.
update jmsql_internal.subscriber set consumers = consumers - 1
where queue_id = %(queue_id)s and connection_id = %(connection_id)s;

-- name: is_abandoned
select from jmsql_internal.subscription s
where s.queue_id = %(queue_id)s and not s.durable
  and not exists (select from jmsql_internal.subscriber c where c.queue_id = s.queue_id);

-- name: remove
-- Triggers delete it, and have its messages go later, in small steps.
update jmsql_internal.subscription set ended = true where queue_id = %(queue_id)s;

-- name: count_messages
select (select count(*) from jmsql_internal.message m where m.queue_id = %(queue_id)s and {is_sent})
     + (select count(*) from jmsql_internal.delayed_message where queue_id = %(queue_id)s);

-- name: count_held_messages
select (select count(*) from jmsql_internal.message m where m.queue_id = %(queue_id)s and {is_sent})
     - (select count(*) from (
            select from jmsql_internal.message m where m.queue_id = %(queue_id)s and {is_sent}
            for update skip locked) as unlocked)
     + (select count(*) from jmsql_internal.delivery where queue_id = %(queue_id)s and claim_id is not null);
