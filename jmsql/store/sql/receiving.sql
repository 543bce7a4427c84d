-- What consumers ask beside their scans, and how messages leave their queues once they are received. `removed by` stands
-- for roles that may not delete, since they could then lock the tables: they ask for a removal, which keeps history where
-- there is one.

-- name: highest_sequences
-- The highest sequence of each priority, read before a scan: what the scan does not return up to there does not match,
-- or cannot be had now.
select array(
    select coalesce((select m.sequence from jmsql_internal.message m
                     where m.queue_id = %(queue_id)s and m.inverse_priority = p.inverse_priority
                     order by m.queue_id desc, m.inverse_priority desc, m.sequence desc limit 1), 0)
    from generate_series(0, 9) as p (inverse_priority) order by p.inverse_priority);

-- name: ask_to_dequeue
-- For roles that may not delete. A trigger does it, once for all policies.
insert into jmsql_internal.dequeue (queue_id, lowest, connection_id)
values (%(queue_id)s, %(lowest)s::bigint[], %(connection_id)s::bigint)
returning {columns}, null;

-- name: has_groups
select exists (select from jmsql_internal.grouped_queue where queue_id = %(queue_id)s);

-- name: isolation
select current_setting('transaction_isolation');

-- name: delete_locked
-- The rows are locked by this transaction, so that their addresses hold.
delete from jmsql_internal.message where ctid = any(%(addresses)s::tid[]);

-- name: delete_one
-- A single message, without an array: for one of one element the server takes a plan that it has made for it alone to be
-- better than one that it can keep. It would plan for each message, which takes longer than to delete it.
delete from jmsql_internal.message where ctid = %(address)s::tid;

-- name: delete_locked_with_history
with {history}
delete from jmsql_internal.message where ctid = any(%(addresses)s::tid[]) and {recorded};

-- name: delete_last
-- What goes with a commit, which must not take effect if messages are missing: the count would come too late. No cast of
-- a text that is no number succeeds.
with {more} deleted as (delete from jmsql_internal.message where ctid = any(%(addresses)s::tid[]) {condition} returning 1)
select case when count(*) <> pg_catalog.cardinality(%(addresses)s::tid[])
            then ((pg_catalog.cardinality(%(addresses)s::tid[]) - count(*))::text || ' of '
                  || pg_catalog.cardinality(%(addresses)s::tid[])::text || ' messages were taken away')::integer end
from deleted;

-- name: delete_last_one
with deleted as (delete from jmsql_internal.message where ctid = %(address)s::tid returning 1)
select case when count(*) = 0 then ((1 - count(*))::text || ' of 1 messages were taken away')::integer end from deleted;

-- name: lock_claimed
-- Where claimed messages are now, which the open transaction is about to delete.
select m.address::text
from unnest(%(queue_ids)s::integer[], %(inverse_priorities)s::smallint[], %(sequences)s::bigint[])
    with ordinality as k (queue_id, inverse_priority, sequence, position)
cross join lateral (
    select t.ctid as address from jmsql_internal.message t
    where (t.queue_id, t.inverse_priority, t.sequence) = (k.queue_id, k.inverse_priority, k.sequence)
    for update) m
order by k.position;

-- name: delete_last_claimed
-- What goes with a commit, if the messages lie close together: it fails if a claim is lost, whose message others may have by
-- now. No lock keeps the messages at their addresses; what is deleted tells if the table was rewritten meanwhile.
with forgotten as ({forget_claimed} returning 1),
deleted as (
    delete from jmsql_internal.message
    where ctid = any(%(addresses)s::tid[])
    returning sequence)
select case when f.messages <> pg_catalog.cardinality(%(addresses)s::tid[])
              or d.sequences is distinct from %(sequences)s::bigint[]::text
            then ((pg_catalog.cardinality(%(addresses)s::tid[]) - f.messages)::text || ' of '
                  || pg_catalog.cardinality(%(addresses)s::tid[])::text || ' claims were lost')::integer end
from (select count(*) as messages from forgotten) f,
     (select pg_catalog.array_agg(sequence order by sequence)::text as sequences from deleted) d;

-- name: ask_to_delete_locked
with removed as (
    insert into jmsql_internal.removal (messages, connection_id, is_exact)
    values (%(addresses)s::tid[], %(connection_id)s::bigint, true))
select from pg_catalog.unnest(%(addresses)s::tid[]);

-- name: present
select k.*
from unnest(%(queue_ids)s::integer[], %(inverse_priorities)s::smallint[], %(sequences)s::bigint[])
    as k (queue_id, inverse_priority, sequence)
cross join {message_of_k};

-- name: forget_deliveries
delete from jmsql_internal.delivery where ctid = any(array(
    select d.address
    from unnest(%(queue_ids)s::integer[], %(inverse_priorities)s::smallint[], %(sequences)s::bigint[])
        as k (queue_id, inverse_priority, sequence)
    cross join {delivery_of_k}));

-- name: forget_claimed
-- The claims hold what was delivered, which lies close together: one scan finds what the other looks up one by one.
delete from jmsql_internal.delivery
where queue_id = %(queue_id)s::integer and inverse_priority = %(inverse_priority)s::smallint
  and sequence between %(first_sequence)s::bigint and %(last_sequence)s::bigint
  and claim_id = any(%(claim_ids)s::bigint[]);

-- name: ask_to_forget_deliveries
insert into jmsql_internal.removal (deliveries)
select pg_catalog.array_agg(d.address)
from unnest(%(queue_ids)s::integer[], %(inverse_priorities)s::smallint[], %(sequences)s::bigint[])
    as k (queue_id, inverse_priority, sequence)
cross join {delivery_of_k}
having count(*) > 0;

-- name: fails_if_lost
-- What an acknowledgement returns that goes with a commit, as `delete_last` does.
case when count(*) <> pg_catalog.cardinality(%(claim_ids)s::bigint[])
     then ((pg_catalog.cardinality(%(claim_ids)s::bigint[]) - count(*))::text || ' of '
           || pg_catalog.cardinality(%(claim_ids)s::bigint[])::text || ' claims were lost')::integer end;

-- name: acknowledge
with acknowledged as (
    delete from jmsql_internal.delivery d
    using unnest(%(queue_ids)s::integer[], %(inverse_priorities)s::smallint[], %(sequences)s::bigint[],
                 %(claim_ids)s::bigint[]) as k (queue_id, inverse_priority, sequence, claim_id)
    cross join {claimed_of_k}
    where d.ctid = found.address and d.claim_id = found.claim_id
    returning d.queue_id, d.inverse_priority, d.sequence, d.delivery_count, d.connection_id),
deleted as (
    delete from jmsql_internal.message where ctid = any(array(
        select m.address from acknowledged a cross join {message_of_a})))
select {outcome} from acknowledged;

-- name: acknowledge_one
-- Without arrays, as `delete_one`.
with acknowledged as (
    delete from jmsql_internal.delivery
    where (queue_id, inverse_priority, sequence)
            = (%(queue_id)s::integer, %(inverse_priority)s::smallint, %(sequence)s::bigint)
      and claim_id = %(claim_id)s::bigint
    returning 1),
deleted as (
    delete from jmsql_internal.message
    where (queue_id, inverse_priority, sequence)
            = (%(queue_id)s::integer, %(inverse_priority)s::smallint, %(sequence)s::bigint)
      and exists (select from acknowledged))
select {outcome} from acknowledged;

-- name: fails_if_one_is_lost
case when count(*) = 0 then ((1 - count(*))::text || ' of 1 claims were lost')::integer end;

-- name: acknowledge_with_history
with acknowledged as (
    delete from jmsql_internal.delivery d
    using unnest(%(queue_ids)s::integer[], %(inverse_priorities)s::smallint[], %(sequences)s::bigint[],
                 %(claim_ids)s::bigint[]) as k (queue_id, inverse_priority, sequence, claim_id)
    cross join {claimed_of_k}
    where d.ctid = found.address and d.claim_id = found.claim_id
    returning d.queue_id, d.inverse_priority, d.sequence, d.delivery_count, d.connection_id),
found as materialized (
    select m.address, a.delivery_count, a.connection_id from acknowledged a cross join {message_of_a}),
{history},
deleted as (
    delete from jmsql_internal.message where ctid = any(array(select address from found)) and {recorded})
select {outcome} from acknowledged;

-- name: ask_to_acknowledge
with acknowledged as materialized (
    select d.*
    from unnest(%(queue_ids)s::integer[], %(inverse_priorities)s::smallint[], %(sequences)s::bigint[],
                %(claim_ids)s::bigint[]) as k (queue_id, inverse_priority, sequence, claim_id)
    cross join lateral (
        select t.ctid as address, t.queue_id, t.inverse_priority, t.sequence, t.connection_id
        from jmsql_internal.delivery t
        where (t.queue_id, t.inverse_priority, t.sequence) = (k.queue_id, k.inverse_priority, k.sequence)
          and t.claim_id = k.claim_id
        for update) d),
removed as (
    insert into jmsql_internal.removal (messages, deliveries, connection_id)
    select array(select m.address from acknowledged a cross join {message_of_a}),
           pg_catalog.array_agg(a.address), max(a.connection_id)
    from acknowledged a having count(*) > 0)
select {outcome} from acknowledged;
