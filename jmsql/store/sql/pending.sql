-- Pending transactions: committed messages that no statement returns until their write is sent.

-- name: next_sequence
select nextval('jmsql_internal.message_sequence'::regclass);

-- name: hold_back
-- With the commit, its messages are stored, and no statement returns them.
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
-- What earlier runs of the write have left. Another transaction has locked what it gives up.
update jmsql_internal.pending_transaction set abandoned = true
where transaction_id = any(array(
    select p.transaction_id from jmsql_internal.pending_transaction p
    where p.write_id = %(write_id)s and p.first_sequence < %(planned)s and not p.abandoned
    for update skip locked));

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

-- name: waiting_writes
with pending as materialized (select * from jmsql_internal.pending_transaction where not abandoned),
hidden as materialized (
    select m.transaction_id, count(*) as messages
    from jmsql_internal.message m
    where m.queue_id = any(array(select pg_catalog.unnest(p.queue_ids) from pending p))
      and m.sequence between (select min(first_sequence) from pending) and (select max(last_sequence) from pending)
      and m.transaction_id = any(array(select p.transaction_id from pending p))
    group by m.transaction_id)
select p.write_id, count(*), extract(epoch from clock_timestamp() - min(p.committed_at))::float8,
       coalesce(sum(h.messages), 0)::bigint
from pending p left join hidden h using (transaction_id)
group by p.write_id
order by min(p.committed_at);
