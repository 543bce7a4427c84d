-- Batches: opening, adding and closing; the maintenance, and what administrators do.

-- name: open
insert into jmsql_internal.batch (name, keep)
values (%(name)s::text, %(keep)s::float8 * interval '1 second')
returning batch_id;

-- name: add_callback
insert into jmsql_internal.batch_callback
    (batch_id, event, queue_id, message_type, jms_type, properties, property_types, text_body, json_body, body_types, bytes_body)
values (%(batch)s::bigint, %(event)s::text, %(queue_id)s::integer, %(message_type)s::jmsql_internal.message_type,
        %(jms_type)s::text, %(properties)s::jsonb, %(property_types)s::jsonb, %(text_body)s::text, %(json_body)s::jsonb,
        %(body_types)s::jsonb, %(bytes_body)s::bytea);

-- name: close
update jmsql_internal.batch set closed = true where batch_id = %(batch)s::bigint and not closed;

-- name: delete
-- Its messages stay, as messages of no batch.
with members as (delete from jmsql_internal.batch_member where batch_id = %(batch)s::bigint)
delete from jmsql_internal.batch where batch_id = %(batch)s::bigint;

-- name: hold
select jmsql_internal.hold_batch(%(batch)s::bigint);

-- name: progress
select total, done, failed, expired, cancelled, waiting, state = 'open', state = 'ended'
from jmsql.batches where batch = %(batch)s::bigint;

-- name: batches
select batch, name, role, state, total, done, failed, expired, cancelled, waiting, opened_at, ended_at, kept_until
from jmsql.batches
-- The members of no other batches are read.
where batch = any(array(
    select b.batch_id from jmsql_internal.batch b
    where (%(batch)s::bigint is null or b.batch_id = %(batch)s::bigint)
      and (%(name)s::text is null or b.name = %(name)s::text)
      and (%(before)s::bigint is null or b.batch_id < %(before)s::bigint)
    order by b.batch_id desc
    limit %(limit)s::integer))
order by batch desc;

-- name: callback_queues
select c.event, c.queue from jmsql_internal.batch_callback c where c.batch_id = %(batch)s::bigint order by c.event;

-- name: check
select jmsql_internal.check_batches(%(limit)s::integer);

-- name: remove
select jmsql_internal.remove_batches(%(limit)s::integer);
