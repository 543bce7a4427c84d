-- What the process asks that writes an archive.

-- name: begin
-- A transaction that keeps no snapshot between its statements.
set transaction isolation level read committed;

-- name: lock
select pg_try_advisory_xact_lock(hashtextextended(%(name)s, 0::bigint));

-- name: check
select;

-- name: keys
-- What tells the messages apart that left their destinations in a span of time, in the order of their places.
select h.*
from (select {columns} from jmsql_internal.message_history m
      where m.acknowledged_at >= %(since)s::timestamptz and m.acknowledged_at < %(until)s::timestamptz) h
where %(destinations)s::text[] is null or h.destination = any(%(destinations)s::text[])
order by h.transaction_id, h.sequence;

-- name: waiting
select w.*, %(subscription)s::text as subscription, %(client_id)s::text as subscription_client_id from ({read}) w;
