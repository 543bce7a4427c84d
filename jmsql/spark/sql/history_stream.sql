-- What a streaming read of the history asks.
--
-- A place is a pair (transaction_id, sequence). What is between two places is read by the index
-- (destination, transaction_id, sequence), also for all destinations: their names are found by leaps from each to the
-- next, and the rows of each by a scan of its own. `oldest_day` is the start of a day, before which there is nothing in
-- the range: PostgreSQL then leaves the partitions of days before it alone.

-- name: end
select pg_snapshot_xmin(pg_current_snapshot())::text;

-- name: forget_unused
-- Those that Spark has never noted hold nothing, and no driver comes back for them.
delete from jmsql_internal.spark_cursor where not holds and used_at < now() - interval '1 day';

-- name: create
insert into jmsql_internal.spark_cursor (
    destination, is_topic, subscription, subscription_client_id, since, transaction_id, sequence,
    last_transaction_id, last_sequence)
values (%(destination)s, %(is_topic)s, %(subscription)s, %(client)s, %(since)s, %(transaction)s::xid8, 0,
        %(transaction)s::xid8, 0)
returning source_id::text;

-- name: adopt
-- What its checkpoint says is then beyond what was given out.
insert into jmsql_internal.spark_cursor (
    source_id, destination, is_topic, subscription, subscription_client_id, since, transaction_id, sequence,
    last_transaction_id, last_sequence)
values (%(source_id)s, %(destination)s, %(is_topic)s, %(subscription)s, %(client)s, %(since)s,
        %(transaction)s::xid8, %(sequence)s, '0', 0)
on conflict (source_id) do nothing;

-- name: origin
select destination, is_topic, subscription, subscription_client_id
from jmsql_internal.spark_cursor where source_id = %(source_id)s;

-- name: begin_epoch
update jmsql_internal.spark_cursor set epoch = epoch + 1, used_at = now() where source_id = %(source_id)s
returning epoch, since;

-- name: lock
select epoch, transaction_id::text::bigint, sequence, last_transaction_id::text::bigint, last_sequence, lost_at
from jmsql_internal.spark_cursor where source_id = %(source_id)s for update;

-- name: hold
update jmsql_internal.spark_cursor set holds = true, used_at = now() where source_id = %(source_id)s and not holds;

-- name: forgive_loss
update jmsql_internal.spark_cursor set lost_at = null where source_id = %(source_id)s;

-- name: pass_to
update jmsql_internal.spark_cursor
set transaction_id = %(transaction)s::xid8, sequence = %(sequence)s, used_at = now(),
    passed_at = coalesce(%(passed_at)s, passed_at)
where source_id = %(source_id)s;

-- name: give_out
update jmsql_internal.spark_cursor
set last_transaction_id = %(transaction)s::xid8, last_sequence = %(sequence)s, used_at = now()
where source_id = %(source_id)s
  and (last_transaction_id, last_sequence) < (%(transaction)s::xid8, %(sequence)s::bigint);

-- name: note_all_passed
update jmsql_internal.spark_cursor set passed_at = %(passed_at)s, used_at = now() where source_id = %(source_id)s;

-- name: clock
select clock_timestamp();

-- name: days
select d.day::timestamp at time zone 'UTC', d.settled from jmsql.history_days d
where d.day::timestamp at time zone 'UTC' >= coalesce(%(oldest_day)s::timestamptz, '-infinity')
order by d.day;

-- name: first
select transaction_id::text::bigint, sequence
from ({found}) f order by f.transaction_id, f.sequence limit 1;

-- name: end_of_batch
-- The row at which a batch is full that starts with the range, or else the last one in the range: how many rows there
-- are up to there and their size, the place, and whether the batch is full.
select n, total::bigint, transaction_id::text::bigint, sequence, is_full
from (select r.*, n >= %(messages)s or total >= %(size)s as is_full
      from (select transaction_id, sequence, row_number() over w as n, sum(size) over w as total
            from ({found}) f window w as (order by transaction_id, sequence)) r) r
order by is_full desc, case when is_full then n else -n end limit 1;

-- name: end_of_messages
-- How many rows there are, and, if they are more than a limit, the last row up to there: to count keys is a fraction of
-- the work of putting them in order.
select c.n, l.transaction_id, l.sequence
from (select count(*) as n from ({counted}) f) c
left join lateral (
    select f.transaction_id::text::bigint as transaction_id, f.sequence from ({found}) f where c.n > %(messages)s
    order by f.transaction_id, f.sequence offset %(messages)s::bigint - 1 limit 1) l on true;

-- name: count
select count(*) from ({found}) f;

-- name: backlog
select count(*), coalesce(sum(size), 0)::bigint,
       coalesce(extract(epoch from clock_timestamp() - min(acknowledged_at)), 0)::float8
from ({found}) f;

-- name: parts
-- Parts of the same number of rows: how many each has, and where it begins.
select count(*), (pg_catalog.min(array[transaction_id::text::bigint, sequence]))[1],
       (pg_catalog.min(array[transaction_id::text::bigint, sequence]))[2]
from (select f.*, pg_catalog.ntile(%(partitions)s) over (order by transaction_id, sequence) as part
      from ({found}) f) f
group by part order by part;

-- name: of_days
-- Where keys are enough, the index alone is read, of all days: that is less than looking at the rows.
{row}.acknowledged_at >= coalesce(%(oldest_day)s::timestamptz, '-infinity')
and {row}.acknowledged_at < coalesce(%(until)s::timestamptz, 'infinity');

-- name: scan
select {wanted} from jmsql_internal.message_history m
where (m.transaction_id, m.sequence) >= (%(first_transaction)s::xid8, %(first_sequence)s::bigint)
  and (m.transaction_id, m.sequence) < (%(end_transaction)s::xid8, %(end_sequence)s::bigint)
  and {of_days} {of_origin} {chosen};

-- name: known
with recursive known (name) as (
    select min(h.destination) from jmsql_internal.message_history h where {of_days}
    union all
    select (select min(h.destination) from jmsql_internal.message_history h
            where h.destination > known.name and {of_days})
    from known where known.name is not null);

-- name: scan_each
select l.* from known cross join lateral (
    {scan} and m.destination = known.name {order} offset 0) l where known.name is not null;
