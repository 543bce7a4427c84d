-- What consumers ask beside their scans, and how messages leave their queues once they are received. `removed by` stands
-- for roles that may not delete, since they could then lock the tables: they ask for a removal, which keeps history where
-- there is one.

-- name: highest_sequences
-- The highest sequence of each priority, read before a scan: what the scan does not return up to there does not match,
-- or cannot be had now. Where the bounds will move, the transaction gets a number, which tells which ones had begun.
select highest.sequences, pg_current_snapshot()::text || case
    when pg_current_xact_id_if_assigned() is not null then '-' || pg_current_xact_id_if_assigned()::text
    when exists (select from unnest(highest.sequences, %(lowest)s::bigint[]) as p (sequence, lowest) where p.sequence >= p.lowest)
    then '+' || pg_current_xact_id()::text
    else '-' end
from (select array(
    select coalesce((select m.sequence from jmsql_internal.message m
                     where m.queue_id = %(queue_id)s and m.inverse_priority = p.inverse_priority
                     order by m.queue_id desc, m.inverse_priority desc, m.sequence desc limit 1), 0)
    from generate_series(0, 9) as p (inverse_priority) order by p.inverse_priority) as sequences
    offset 0) highest;

-- name: running
select pg_current_snapshot()::text || '-' || coalesce(pg_current_xact_id_if_assigned()::text, '');

-- name: ask_to_dequeue
-- For roles that may not delete. A trigger does it, once for all policies.
insert into jmsql_internal.dequeue (queue_id, lowest, connection_id)
values (%(queue_id)s, %(lowest)s::bigint[], %(connection_id)s::bigint)
returning {columns}, null, snapshot;

-- name: has_groups
select exists (select from jmsql_internal.grouped_queue where queue_id = %(queue_id)s);

-- name: isolation
select current_setting('transaction_isolation');

-- name: delete_locked
-- The rows are locked by this transaction, so that their addresses hold.
delete from jmsql_internal.message where ctid = any({addresses});

-- name: delete_locked_with_history
with {history}
delete from jmsql_internal.message where ctid = any({addresses}) and {recorded};

-- name: delete_last
-- It goes with a commit, which must not take effect if messages are missing: their number would come too late.
with {more} deleted as (delete from jmsql_internal.message where ctid = any({addresses}) {condition} returning 1)
select case when count(*) <> pg_catalog.cardinality(%(addresses)s::tid[])
            then jmsql_internal.refuse(
                'JMS05', (pg_catalog.cardinality(%(addresses)s::tid[]) - count(*))::text || ' of '
                || pg_catalog.cardinality(%(addresses)s::tid[])::text || {taken_away}) end
from deleted;

-- name: lock_claimed
-- Where claimed messages are now, which the open transaction is about to delete.
select m.address::text
from unnest({keys}) with ordinality as k (queue_id, inverse_priority, sequence, position)
cross join lateral (
    select t.ctid as address from jmsql_internal.message t
    where (t.queue_id, t.inverse_priority, t.sequence) = (k.queue_id, k.inverse_priority, k.sequence)
    for update) m
order by k.position;

-- name: ask_to_delete_locked
with removed as (
    insert into jmsql_internal.removal (messages, connection_id, is_exact)
    values (%(addresses)s::tid[], %(connection_id)s::bigint, true))
select from pg_catalog.unnest(%(addresses)s::tid[]);

-- name: present
select k.*
from unnest({keys}) as k (queue_id, inverse_priority, sequence)
cross join {message_of_k};

-- name: forget_deliveries
delete from jmsql_internal.delivery where ctid = any(array(
    select d.address
    from unnest({keys}) as k (queue_id, inverse_priority, sequence)
    cross join {delivery_of_k}));

-- name: ask_to_forget_deliveries
insert into jmsql_internal.removal (deliveries)
select pg_catalog.array_agg(d.address)
from unnest({keys}) as k (queue_id, inverse_priority, sequence)
cross join {delivery_of_k}
having count(*) > 0;

-- name: close_together
-- The claims on messages of one queue and priority that lie close together: one scan finds them, in a third of the time that
-- a look-up for each takes. The sequences are in order, and their claims stand at the same places.
{range} and sequence = (%(sequences)s::bigint[])[{place}] and claim_id = (%(claim_ids)s::bigint[])[{place}];

-- name: whole
-- All messages of a claim, between the first and the last of them.
{range} and claim_id = %(claim_id)s::bigint;

-- name: range
queue_id = %(queue_id)s::integer and inverse_priority = %(inverse_priority)s::smallint
and sequence between (%(sequences)s::bigint[])[1]
                 and (%(sequences)s::bigint[])[pg_catalog.cardinality(%(sequences)s::bigint[])];

-- name: place
-- Where the highest of the sequences stands that is not above that of a row.
pg_catalog.width_bucket(sequence, %(sequences)s::bigint[]);

-- name: anywhere
-- The claims on any messages. Their numbers are asked for once more where the delete had to wait for a row.
ctid = any(array(
    select found.address
    from unnest({keys}, %(claim_ids)s::bigint[]) as k (queue_id, inverse_priority, sequence, claim_id)
    cross join {claimed_of_k}))
and claim_id = any(%(claim_ids)s::bigint[]);

-- name: fails_if_lost
-- What an acknowledgement returns that goes with a commit, as `delete_last` does.
case when count(*) <> {number}
     then jmsql_internal.refuse(
         'JMS05', 'The message was taken away, and is delivered again: it was held for longer than its visibility timeout, '
         'or the server took this client for gone.') end;

-- name: acknowledge
-- Asked whether that is true, the planner does not look up each sequence, which it would take to read more than the table has
-- where its index is bloated.
with acknowledged as (
    delete from jmsql_internal.delivery where {claimed} returning sequence),
deleted as (
    delete from jmsql_internal.message where {range} and (sequence in (select sequence from acknowledged)) is true)
select {outcome} from acknowledged;

-- name: acknowledge_with_history
with acknowledged as (
    delete from jmsql_internal.delivery where {claimed}
    returning queue_id, inverse_priority, sequence, delivery_count, connection_id),
found as materialized (
    select m.address, a.delivery_count, a.connection_id from acknowledged a cross join {message_of_a}),
{history},
deleted as (
    delete from jmsql_internal.message where ctid = any(array(select address from found)) and {recorded})
select {outcome} from acknowledged;

-- name: ask_to_acknowledge
with acknowledged as materialized (
    select ctid as address, queue_id, inverse_priority, sequence, connection_id
    from jmsql_internal.delivery where {claimed} for update),
removed as (
    insert into jmsql_internal.removal (messages, deliveries, connection_id)
    select array(select m.address from acknowledged a cross join {message_of_a}),
           pg_catalog.array_agg(a.address), max(a.connection_id)
    from acknowledged a having count(*) > 0)
select {outcome} from acknowledged;
