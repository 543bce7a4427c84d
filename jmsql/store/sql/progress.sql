-- The progress of messages, as their handlers report it.

-- name: report
-- Of messages that are still claimed as they were when their handlers said so. The commit need not reach the disk.
with commit as materialized (select set_config('synchronous_commit', 'off', true))
insert into jmsql_internal.reported_progress as p
    (queue_id, inverse_priority, sequence, claim_id, fraction, note, reported_at)
select k.queue_id, k.inverse_priority, k.sequence, k.claim_id, k.fraction, k.note, statement_timestamp()
from commit
cross join unnest({keys}, %(claim_ids)s::bigint[], %(fractions)s::float8[], %(notes)s::text[])
    as k (queue_id, inverse_priority, sequence, claim_id, fraction, note)
cross join {claimed_of_k}
where found.claim_id = k.claim_id
order by k.queue_id, k.inverse_priority, k.sequence
on conflict (queue_id, inverse_priority, sequence) do update
set claim_id = excluded.claim_id, fraction = excluded.fraction, note = excluded.note, reported_at = excluded.reported_at;

-- name: forget
delete from jmsql_internal.reported_progress p
where not exists (
    select from jmsql_internal.delivery d
    where (d.queue_id, d.inverse_priority, d.sequence) = (p.queue_id, p.inverse_priority, p.sequence)
      and d.claim_id = p.claim_id
    offset 0);

-- name: running
select coalesce(q.name, t.name), s.name, 'ID:' || m.jms_message_id, p.fraction, p.note, d.claimed_at, p.reported_at
from (select p.* from jmsql_internal.reported_progress p
      where %(queue_id)s::integer is null or p.queue_id = %(queue_id)s::integer
      order by p.reported_at desc, p.queue_id, p.sequence limit 1000) p
cross join lateral (
    select d.claimed_at from jmsql_internal.delivery d
    where (d.queue_id, d.inverse_priority, d.sequence) = (p.queue_id, p.inverse_priority, p.sequence)
      and d.claim_id = p.claim_id
    offset 0) d
cross join lateral (
    select m.jms_message_id from jmsql_internal.message m
    where (m.queue_id, m.inverse_priority, m.sequence) = (p.queue_id, p.inverse_priority, p.sequence)
    offset 0) m
cross join lateral (select q.name from jmsql_internal.queue q where q.queue_id = p.queue_id offset 0) q
left join lateral (
    select s.name, s.topic_id from jmsql_internal.subscription s where s.queue_id = p.queue_id offset 0) s on true
left join lateral (select t.name from jmsql_internal.topic t where t.topic_id = s.topic_id offset 0) t on true
where %(like)s::text is null or coalesce(q.name, t.name) like %(like)s::text or s.name like %(like)s::text
order by d.claimed_at, p.sequence
limit %(most)s;
