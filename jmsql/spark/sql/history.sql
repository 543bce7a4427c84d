-- What a batch read of the history asks.

-- name: hold
-- Who reads it keeps its days from being dropped, as long as the transaction lasts.
lock table jmsql_internal.message_history in access share mode;

-- name: days
select (d.day::timestamp at time zone 'UTC'),
       pg_relation_size(d.partition) / current_setting('block_size')::bigint
from jmsql.history_days d
where (d.day + 1)::timestamp at time zone 'UTC' > %(since)s::timestamptz
  and d.day::timestamp at time zone 'UTC' < %(until)s::timestamptz
order by d.day;

-- name: queue_is_known
exists (select from jmsql_internal.queue q where q.name = %(destination)s);

-- name: topic_is_known
exists (select from jmsql_internal.topic t where t.name = %(destination)s);

-- name: subscription_is_known
exists (
    select from jmsql_internal.subscription s join jmsql_internal.topic t using (topic_id)
    where t.name = %(destination)s and s.name = %(subscription)s and s.client_id is not distinct from %(client)s);

-- name: find
select {is_known} or exists (select from jmsql_internal.message_history m where true {of_origin}),
       exists (
           select from jmsql_internal.queue q left join jmsql_internal.topic t using (topic_id)
           where q.history
             and case when %(is_topic)s then t.name = %(destination)s else q.name = %(destination)s end);

-- name: cuts
-- Where parts of about the same size begin, by a sample.
select distinct on (part) transaction_id::text, sequence
from (
    select m.transaction_id, m.sequence,
           pg_catalog.ntile(%(partitions)s) over (order by m.transaction_id, m.sequence) as part
    from jmsql_internal.message_history m tablesample system (%(share)s)
    where m.acknowledged_at >= %(since)s::timestamptz and m.acknowledged_at < %(until)s::timestamptz
      {of_origin}) as sampled
order by part, transaction_id, sequence;

-- name: read
select {columns} from jmsql_internal.message_history m
where {part} {of_origin} {chosen};
