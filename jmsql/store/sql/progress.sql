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
