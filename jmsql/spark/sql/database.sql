-- What reads and writes of Spark need of the database, and what they have left undone there.

-- name: version
select version_num from jmsql.schema_version;

-- name: rights
select jmsql_internal.may_administer(current_user), current_user, pg_is_in_recovery();

-- name: unlimited_idleness
select set_config(name, '0', true) from pg_catalog.pg_settings
where name in ('idle_in_transaction_session_timeout', 'transaction_timeout');

-- name: waiting_streams
select source_id::text, destination, claimed, extract(epoch from clock_timestamp() - since)::float8
from (
    -- A batch that is not frozen loses its claims with its driver.
    select b.source_id, coalesce(q.name, t.name) as destination, sum(c.messages)::bigint as claimed,
           min(b.claimed_at) as since
    from jmsql_internal.spark_batch b
    join jmsql_internal.spark_source s using (source_id)
    cross join lateral (
        select count(*) as messages from jmsql_internal.delivery d
        where d.queue_id = s.queue_id and d.claim_id in (b.claim_id, - b.claim_id)) c
    join jmsql_internal.queue q using (queue_id)
    left join jmsql_internal.subscription n using (queue_id)
    left join jmsql_internal.topic t on t.topic_id = n.topic_id
    where c.messages > 0
    group by b.source_id, q.queue_id, t.topic_id
    union all
    select source_id, destination, 0, used_at from jmsql_internal.spark_cursor where holds) streams
where since < clock_timestamp() - %(seconds)s::float8 * interval '1 second'
order by since, destination, source_id;
