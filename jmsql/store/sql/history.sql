-- The history: its partitions, one a day, and what is in them.

-- name: days
select day, partition::text, estimated_messages, bytes, settled from jmsql.history_days order by day;

-- name: today
select (jmsql_internal.history_clock() at time zone 'UTC')::date;

-- name: missing_days
select d.day from (
    select (jmsql_internal.history_clock() at time zone 'UTC')::date + n as day
    from generate_series(0, %(days_ahead)s::integer) as n) d
where exists (select from jmsql_internal.queue where history) and to_regclass(jmsql_internal.history_partition(d.day)) is null
order by d.day;

-- name: make_partition
select jmsql_internal.make_history_partition(%(day)s);

-- name: oldest_wanted
select (jmsql_internal.history_clock() at time zone 'UTC')::date - min(history_days) from jmsql_internal.queue;

-- name: detach
alter table jmsql_internal.message_history detach partition {partition} concurrently;

-- name: finish_detaching
alter table jmsql_internal.message_history detach partition {partition} finalize;

-- name: lock
-- Who gives privileges on all tables looks them up under this lock, and finds none that is gone when he comes to it.
lock table jmsql_internal.message_history in share update exclusive mode;

-- name: drop
drop table {partition};

-- name: delete
delete from {partition} where ctid = any(array(
    select ctid from {partition}
    where destination = any(%(destinations)s::text[]) and is_topic = coalesce(%(is_topic)s::boolean, is_topic)
    limit %(limit)s for update skip locked));

-- name: destinations
-- The index is read by leaps, from each name to the next.
with recursive known (name) as (
    select min(destination) from {partition}
    union all
    select (select min(h.destination) from {partition} h where h.destination > known.name)
    from known where known.name is not null)
select name,
       coalesce((jmsql_internal.history_clock() at time zone 'UTC')::date - %(day)s > jmsql_internal.history_retention(name), false)
from known where name is not null;

-- name: cursors_before
select c::text from jmsql_internal.cursors_before(%(partition)s, %(destinations)s::text[]) c;

-- name: note_loss
select jmsql_internal.note_history_loss(%(partition)s, %(destinations)s::text[]);

-- name: partitions_to_drop
-- What was being detached when a connection or somebody's patience ended.
select c.oid::regclass::text, coalesce(i.inhdetachpending, false)
from pg_catalog.pg_class c
left join pg_catalog.pg_inherits i on i.inhrelid = c.oid
where c.relnamespace = (
    select h.relnamespace from pg_catalog.pg_class h where h.oid = 'jmsql_internal.message_history'::regclass::oid)
  and c.relkind = 'r' and c.relname::text ~ '^message_history_[0-9]{8}$'
  and (i.inhrelid is null or i.inhdetachpending);

-- name: limit_patience
select set_config('lock_timeout', %(timeout)s, %(local)s::boolean);

-- name: patience
-- That of a control connection is not the server's default.
select current_setting('lock_timeout');

-- name: count
select count(*) from jmsql_internal.message_history m where {chosen};

-- name: read
select {columns}, null, greatest(m.delivery_count - 1, 0), null,
       m.transaction_id::text, m.destination, case when m.is_topic then 'topic' else 'queue' end,
       m.subscription, m.acknowledged_at, m.outcome::text, m.delivery_count,
       m.acknowledged_at - jmsql_internal.to_timestamp(greatest(m.jms_timestamp, m.jms_delivery_time)),
       m.connection_id, m.client_id, m.user_name
from jmsql_internal.message_history m
where (m.transaction_id, m.sequence) < (%(transaction)s::xid8, %(sequence)s::bigint) and {chosen}
order by m.transaction_id desc, m.sequence desc
limit %(limit)s;

-- name: see_no_changes
-- What is pruned meanwhile is still there for this transaction.
set transaction isolation level repeatable read;

-- name: find_replayed
-- A message of a topic is in the history of each subscription that had it.
declare replayed scroll cursor for
select transaction_id::text, sequence from (
    select distinct on ({identity}) m.transaction_id, m.sequence
    from jmsql_internal.message_history m where {chosen} order by {identity}, m.sequence) k
order by sequence;

-- name: count_replayed
move forward all in replayed;

-- name: rewind_replayed
move absolute 0 in replayed;

-- name: next_replayed
fetch forward 5000 from replayed;

-- name: identity
coalesce(m.jms_message_id::text, m.sequence::text);

-- name: replay
select jmsql_internal.replay_messages(
    %(source)s, %(transactions)s::xid8[], %(sequences)s::bigint[], %(since)s::timestamptz, %(until)s::timestamptz,
    %(target)s::integer, %(keep_ids)s);

-- name: note_replayed
select jmsql_internal.note_activity(
    'replay'::text, null::integer, %(sent)s::bigint, target => %(target)s::integer, destination => %(destination)s::text);

-- name: note_pruned
select jmsql_internal.note_activity(
    'prune'::text, null::integer, %(messages)s::bigint, outcome => %(outcome)s::text, destination => %(destination)s::text,
    details => %(details)s::text);

-- name: notify
select jmsql_internal.notify(%(queue)s::text);
