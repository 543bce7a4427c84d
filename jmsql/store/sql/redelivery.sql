-- Messages that are delivered again, or go to a dead-letter queue.

-- name: policy
-- The settings of a queue `q`, as the fields of jmsql.store.receiving.redelivery.QueuePolicy.of_columns.
q.maximum_deliveries, q.redelivery_delay, q.redelivery_multiplier, q.maximum_redelivery_delay, q.redelivery_jitter,
q.dead_letter_queue_id, (select d.queue_id from jmsql_internal.queue d where d.name = 'DLQ'), q.visibility_timeout;

-- name: next_attempt
-- What is on its way to a dead-letter queue waits for ever until it is there.
case when {outcome}.dead_letter_queue_id is not null then 'infinity'
     when {outcome}.delay > 0::float8 then statement_timestamp() + {outcome}.delay * interval '1 second' end;

-- name: outcomes_of_released
-- What a handler has said of messages that are released.
, said as (
    insert into jmsql_internal.delivery_outcome as o
        (queue_id, inverse_priority, sequence, retry_count, interruption_count, dead_letter_reason)
    select r.queue_id, r.inverse_priority, r.sequence, r.retry_count, r.interruption_count, r.dead_letter_reason
    from released r
    order by r.queue_id, r.inverse_priority, r.sequence
    on conflict (queue_id, inverse_priority, sequence) do update
    set retry_count = o.retry_count + excluded.retry_count,
        interruption_count = o.interruption_count + excluded.interruption_count,
        dead_letter_reason = excluded.dead_letter_reason);

-- name: outcomes_of_locked
with said as (
    insert into jmsql_internal.delivery_outcome as o
        (queue_id, inverse_priority, sequence, retry_count, interruption_count, dead_letter_reason)
    select k.queue_id, k.inverse_priority, k.sequence, k.retry_count, k.interruption_count, k.dead_letter_reason
    from unnest({keys}, %(retry_counts)s::integer[], %(interruption_counts)s::integer[], %(dead_letter_reasons)s::text[])
        as k (queue_id, inverse_priority, sequence, retry_count, interruption_count, dead_letter_reason)
    order by k.queue_id, k.inverse_priority, k.sequence
    on conflict (queue_id, inverse_priority, sequence) do update
    set retry_count = o.retry_count + excluded.retry_count,
        interruption_count = o.interruption_count + excluded.interruption_count,
        dead_letter_reason = excluded.dead_letter_reason)
;

-- name: interruptions_of_d
coalesce((
    select o.interruption_count from jmsql_internal.delivery_outcome o
    where (o.queue_id, o.inverse_priority, o.sequence) = (d.queue_id, d.inverse_priority, d.sequence)), 0);

-- name: retries_of_d
coalesce((
    select o.retry_count from jmsql_internal.delivery_outcome o
    where (o.queue_id, o.inverse_priority, o.sequence) = (d.queue_id, d.inverse_priority, d.sequence)), 0);

-- name: find_policy
select {policy} from jmsql_internal.queue q where q.queue_id = %(queue_id)s;

-- name: record_first_deliveries
-- Of messages about whose deliveries nothing was known when the caller's open transaction locked them: a plain insertion
-- takes half the time of one that looks for what is there. The commit need not reach the disk, as that of any claim.
with claim as materialized (
    select set_config('synchronous_commit', 'off', true), nextval('jmsql_internal.claim_sequence'::regclass) as claim_id,
           clock_timestamp() as claimed_at),
recorded as (
    insert into jmsql_internal.delivery
        (queue_id, inverse_priority, sequence, group_hash, claim_id, connection_id, claimed_at)
    select %(queue_id)s::integer, k.inverse_priority, k.sequence, k.group_hash, claim.claim_id, %(connection_id)s::bigint,
           claim.claimed_at
    from claim
    cross join unnest(%(inverse_priorities)s::smallint[], %(sequences)s::bigint[], %(group_hashes)s::bigint[])
        as k (inverse_priority, sequence, group_hash))
select claim_id from claim;

-- name: record_deliveries
-- While the caller's open transaction locks the messages, so that no other session claims them.
with claim as materialized (
    select set_config('synchronous_commit', 'off', true), nextval('jmsql_internal.claim_sequence'::regclass) as claim_id),
recorded as (
    insert into jmsql_internal.delivery as d
        (queue_id, inverse_priority, sequence, group_hash, claim_id, connection_id, claimed_at)
    select k.queue_id, k.inverse_priority, k.sequence, k.group_hash, claim.claim_id, %(connection_id)s, clock_timestamp()
    from claim
    cross join unnest({keys}, %(group_hashes)s::bigint[])
        as k (queue_id, inverse_priority, sequence, group_hash)
    order by k.queue_id, k.inverse_priority, k.sequence
    on conflict (queue_id, inverse_priority, sequence) do update
    set claim_id = excluded.claim_id, connection_id = excluded.connection_id, claimed_at = excluded.claimed_at,
        next_attempt = null)
select claim_id from claim;

-- name: release
with commit as materialized (select set_config('synchronous_commit', 'off', true)),
released as (
    select {key_of_k}d.address, d.delivery_count, k.attempts, k.delay, k.error, k.error_count, k.dead_letter_queue_id{said_of_k}
    from commit
    cross join unnest({keys}, %(claim_ids)s::bigint[], {outcomes}{said})
        as k (queue_id, inverse_priority, sequence, claim_id, attempts, delay, error, error_count,
              dead_letter_queue_id{said_names})
    cross join lateral (
        select d.ctid as address, d.delivery_count from jmsql_internal.delivery d
        where (d.queue_id, d.inverse_priority, d.sequence) = (k.queue_id, k.inverse_priority, k.sequence)
          and d.claim_id = k.claim_id
        for update) d),
kept as materialized (
    select r.* from released r
    where r.attempts > 0 or r.delivery_count > 0 or r.dead_letter_queue_id is not null),
forgotten as ({forget}){said_of_released}
update jmsql_internal.delivery d
set claim_id = null, connection_id = null, claimed_at = null, claim_expires_at = null,
    delivery_count = d.delivery_count + r.attempts,
    error_count = d.error_count + r.error_count,
    next_attempt = {next_attempt},
    last_error = coalesce(r.error, d.last_error),
    first_failed_at = coalesce(d.first_failed_at, case when r.attempts > {retries_of_r} then statement_timestamp() end),
    dead_letter_queue_id = r.dead_letter_queue_id
from kept r
where d.ctid = r.address
returning d.sequence;

-- name: forget_released
delete from jmsql_internal.delivery where ctid = any(array(
    select r.address from released r
    where r.attempts = 0 and r.delivery_count = 0 and r.dead_letter_queue_id is null));

-- name: ask_to_forget_released
-- For roles that may not delete.
insert into jmsql_internal.removal (deliveries)
select pg_catalog.array_agg(r.address) from released r
where r.attempts = 0 and r.delivery_count = 0 and r.dead_letter_queue_id is null
having count(*) > 0;

-- name: record_attempts
-- Recorded while the caller's open transaction still locks the messages, which it then releases.
{said_of_locked}insert into jmsql_internal.delivery as d
    (queue_id, inverse_priority, sequence, group_hash, delivery_count, error_count, next_attempt, last_error,
     first_failed_at, dead_letter_queue_id)
select k.queue_id, k.inverse_priority, k.sequence, m.group_hash, k.attempts, k.error_count, {next_attempt}, k.error,
       case when k.attempts > {retries_of_k} then statement_timestamp() end, k.dead_letter_queue_id
from unnest({keys}, {outcomes}{said})
    as k (queue_id, inverse_priority, sequence, attempts, delay, error, error_count, dead_letter_queue_id{said_names})
left join {message_of_k} on true
order by k.queue_id, k.inverse_priority, k.sequence
on conflict (queue_id, inverse_priority, sequence) do update
set delivery_count = d.delivery_count + excluded.delivery_count,
    error_count = d.error_count + excluded.error_count,
    next_attempt = excluded.next_attempt,
    last_error = coalesce(excluded.last_error, d.last_error),
    first_failed_at = coalesce(d.first_failed_at, excluded.first_failed_at),
    dead_letter_queue_id = excluded.dead_letter_queue_id;

-- name: extend_claims
update jmsql_internal.delivery d
set claim_expires_at = clock_timestamp() + k.seconds * interval '1 second'
from unnest({keys}, %(claim_ids)s::bigint[], %(seconds)s::float8[])
    as k (queue_id, inverse_priority, sequence, claim_id, seconds)
cross join {claimed_of_k}
where d.ctid = found.address and d.claim_id = found.claim_id;

-- name: find_earlier_deliveries
select k.position, d.error_count, {retries_of_d}, {interruptions_of_d}
from unnest({keys}) with ordinality as k (queue_id, inverse_priority, sequence, position)
cross join {delivery_of_k};

-- name: forget_outcomes
delete from jmsql_internal.delivery_outcome o
where not exists (
    select from jmsql_internal.delivery d
    where (d.queue_id, d.inverse_priority, d.sequence) = (o.queue_id, o.inverse_priority, o.sequence)
    offset 0);

-- name: find_lost_claims
-- Claims without a connection are those of Spark's batches, which outlive their driver.
select d.queue_id, d.inverse_priority, d.sequence, d.group_hash, d.claim_id,
       d.delivery_count - {retries_of_d}, d.claim_expires_at <= clock_timestamp(), {policy}
from jmsql_internal.delivery d
left join jmsql_internal.queue q using (queue_id)
where d.claim_id is not null
  and (d.claim_expires_at <= clock_timestamp()
       or d.connection_id is not null
          and not exists (select from jmsql_internal.connection c where c.connection_id = d.connection_id))
limit %(limit)s;

-- name: bury
select dead_letter_queue from jmsql_internal.bury_dead_letters(%(limit)s);
