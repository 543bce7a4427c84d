-- What writes of Spark ask: tasks commit messages that nobody sees, and the driver sends those of all tasks at once.

-- name: begin_task
-- COPY knows no row security.
select not row_security_active('jmsql_internal.message'::regclass::oid),
       nextval('jmsql_internal.message_sequence'::regclass);

-- name: plan
-- Tasks that have begun before have lower sequences.
select nextval('jmsql_internal.message_sequence'::regclass);

-- name: current_milliseconds
select jmsql_internal.current_milliseconds();

-- name: copy_messages
copy jmsql_internal.message ({columns}) from stdin (format binary);

-- name: stage
copy jmsql_internal.spark_staging ({columns}) from stdin (format binary);

-- name: send_staged
insert into jmsql_internal.message (queue_id, {columns})
select %(queue_id)s, {values}
from jmsql_internal.spark_staging s
where {is_staged}
order by s.position;

-- name: staged_messages
-- A relation with the columns of a publication and `position`.
(select {values}, s.position from jmsql_internal.spark_staging s where {is_staged}) as m ({columns}, position);

-- name: is_staged
s.transaction_id = pg_current_xact_id() and s.destination = %(destination)s;

-- name: forget_staged
delete from jmsql_internal.spark_staging where transaction_id = pg_current_xact_id();

-- name: end_task
-- With the task's commit, its messages are there, and nobody sees them.
insert into jmsql_internal.pending_transaction (write_id, queue_ids, first_sequence, last_sequence)
select %(write_id)s,
       array(
           select pg_catalog.unnest(%(queue_ids)s::integer[])
           union all
           select s.queue_id
           from jmsql_internal.subscription s join jmsql_internal.topic t using (topic_id)
           where t.name = any(%(topics)s::text[])),
       %(first_sequence)s, nextval('jmsql_internal.message_sequence'::regclass)
returning transaction_id::text;

-- name: abandon_before
-- What drivers before have left. Another task has locked what it gives up.
update jmsql_internal.pending_transaction set abandoned = true
where transaction_id = any(array(
    select p.transaction_id from jmsql_internal.pending_transaction p
    where p.write_id = %(write_id)s and p.first_sequence < %(planned)s and not p.abandoned
    for update skip locked));

-- name: enter
insert into jmsql_internal.spark_write (write_id, batch_id, messages, expires_at)
values (%(write_id)s, %(batch_id)s, %(messages)s, now() + %(days)s::float8 * interval '1 day')
on conflict do nothing;

-- name: known
-- With how many messages, and when, a batch was written, and the last batch that was.
select w.messages, w.written_at::text,
       (select max(l.batch_id) from jmsql_internal.spark_write l where l.write_id = w.write_id)
from jmsql_internal.spark_write w where w.write_id = %(write_id)s and w.batch_id = %(batch_id)s;

-- name: forget_batches
delete from jmsql_internal.spark_write where write_id = %(write_id)s and batch_id < %(batch_id)s;

-- name: hold_queues
-- Those of the queues that are there. They are not deleted before the transaction ends.
select q.queue_id from jmsql_internal.queue q
where q.queue_id = any(%(queue_ids)s::integer[]) and q.deleted_at is null
order by q.queue_id for key share;

-- name: delay
-- What is delivered later was hidden among what is delivered at once.
with delayed as (
    delete from jmsql_internal.message where ctid = any(array(
        select m.address
        from jmsql_internal.pending_transaction t cross join {message_of_t}
        where t.transaction_id = any(%(transactions)s::xid8[]) and m.jms_delivery_time is not null))
    returning *)
insert into jmsql_internal.delayed_message (queue_id, body_id, {columns})
select queue_id, body_id, {columns} from delayed order by sequence;

-- name: send
delete from jmsql_internal.pending_transaction
where transaction_id = any(%(transactions)s::xid8[]) and not abandoned
returning transaction_id::text;

-- name: abandon
-- Also what a driver has left that has died, and tasks that others were faster than.
update jmsql_internal.pending_transaction set abandoned = true
where (write_id = %(write_id)s or transaction_id = any(%(transactions)s::xid8[])) and not abandoned;

-- name: message_of_t
-- The messages of a transaction `t`.
pg_catalog.unnest(t.queue_ids) q (queue_id)
cross join pg_catalog.unnest('{0,1,2,3,4,5,6,7,8,9}'::smallint[]) p (inverse_priority)
cross join lateral (
    select m.ctid as address, m.jms_delivery_time
    from jmsql_internal.message m
    where m.queue_id = q.queue_id and m.inverse_priority = p.inverse_priority
      and m.sequence between t.first_sequence and t.last_sequence and m.transaction_id = t.transaction_id
    offset 0) m;

-- name: remove_abandoned
-- Some messages of one transaction. What is decided to be removed cannot be sent any more.
with abandoned as materialized (
    select * from jmsql_internal.pending_transaction
    where abandoned or committed_at < statement_timestamp() - interval '1 day'
    order by transaction_id limit 1
    for update skip locked),
-- Counted are those that are found, not those that are deleted: others may delete some of them at the same time.
found as materialized (select m.address from abandoned t cross join {message_of_t} limit %(limit)s),
removed as (delete from jmsql_internal.message where ctid = any(array(select address from found))),
marked as (
    update jmsql_internal.pending_transaction p set abandoned = true from abandoned a
    where p.transaction_id = a.transaction_id and (select count(*) from found) >= %(limit)s),
forgotten as (
    delete from jmsql_internal.pending_transaction p using abandoned a
    where p.transaction_id = a.transaction_id and (select count(*) from found) < %(limit)s)
select count(*) from abandoned;

-- name: forget_writes
delete from jmsql_internal.spark_write where expires_at < now();
