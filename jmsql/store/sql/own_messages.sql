-- What the open transaction has sent itself, and which no consumer can have before its commit: for tests of handlers that
-- run in the transaction of the test. Or all that is committed, for tests without one.

-- name: sent_by_transaction
m.queue_id = %(queue_id)s and m.transaction_id = (select pg_current_xact_id_if_assigned())

-- name: committed
m.queue_id = %(queue_id)s and {is_sent}

-- name: take
with first as materialized (
    select m.ctid as address from jmsql_internal.message m
    where {own} and {has_not_expired} and m.sequence <> all(%(excluded)s::bigint[]) {chosen}
    order by m.queue_id, m.inverse_priority, m.sequence
    limit 1)
delete from jmsql_internal.message m using first where m.ctid = first.address
returning {columns}, null::integer, null::integer, null, null;

-- name: due
select min(m.jms_delivery_time) from jmsql_internal.delayed_message m
where {own} and m.sequence <> all(%(excluded)s::bigint[]) {chosen};

-- name: take_delayed
with first as materialized (
    select m.ctid as address from jmsql_internal.delayed_message m
    where {own} and m.sequence <> all(%(excluded)s::bigint[]) {chosen}
    order by m.jms_delivery_time, m.sequence
    limit 1)
delete from jmsql_internal.delayed_message m using first where m.ctid = first.address
returning {columns}, null::integer, null::integer, null, null;

-- name: read
select {columns}, null::integer, null::integer, null, null
from (select m.* from jmsql_internal.message m where {own}) m {shared_body}
order by m.inverse_priority, m.sequence;

-- name: read_delayed
select {columns}, null::integer, null::integer, null, null
from (select m.* from jmsql_internal.delayed_message m where {own}) m {shared_body}
order by m.jms_delivery_time, m.sequence;

-- name: empty
with deliveries as (delete from jmsql_internal.delivery),
    outcomes as (delete from jmsql_internal.delivery_outcome),
    results as (delete from jmsql_internal.result),
    progress as (delete from jmsql_internal.reported_progress),
    delayed as (delete from jmsql_internal.delayed_message),
    history as (delete from jmsql_internal.message_history),
    bodies as (delete from jmsql_internal.body)
delete from jmsql_internal.message;

-- name: decide_batches
set constraints jmsql_internal.batch_may_have_ended immediate;

-- name: defer_batches
set constraints jmsql_internal.batch_may_have_ended deferred;

-- name: set_savepoint
savepoint jmsql_handler;

-- name: release_savepoint
release savepoint jmsql_handler;

-- name: undo_savepoint
rollback to savepoint jmsql_handler;
