-- The ledger of Spark's writes tells apart the queries that write under one name.

alter table jmsql_internal.spark_write add column query_id text;
comment on column jmsql_internal.spark_write.query_id is
    'The streaming query that has written the batch, as its checkpoint names it; null: a batch write, or the release '
    'before wrote it.';

-- A batch that was not frozen loses its claims when its driver dies, and keeps its row: the claims count, not the row.
create or replace view jmsql.spark_sources with (security_invoker) as
select s.source_id, q.name as queue, t.name as topic, n.name as subscription, s.epoch, s.acknowledged as last_batch,
       coalesce(sum(b.claimed), 0)::bigint as claimed, s.created_at, s.used_at, false as history,
       null::text as position, null::interval as lag
from jmsql_internal.spark_source s
join jmsql_internal.queue q using (queue_id)
left join jmsql_internal.subscription n using (queue_id)
left join jmsql_internal.topic t on t.topic_id = n.topic_id
left join lateral (
    select (select count(*) from jmsql_internal.delivery d
            where d.queue_id = s.queue_id and d.claim_id in (b.claim_id, - b.claim_id)) as claimed
    from jmsql_internal.spark_batch b where b.source_id = s.source_id) b on true
group by s.source_id, q.queue_id, n.queue_id, t.topic_id
union all
select c.source_id, case when not c.is_topic then c.destination end, case when c.is_topic then c.destination end,
       c.subscription, c.epoch, null, 0, c.created_at, c.used_at, true,
       format('%s/%s', c.transaction_id, c.sequence), greatest(now() - c.passed_at, interval '0')
from jmsql_internal.spark_cursor c
where c.holds;
