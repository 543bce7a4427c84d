-- What consumers ask beside their scans.

-- name: highest_sequences
-- The highest sequence of each priority, read before a scan: what the scan does not return up to there does not match,
-- or cannot be had now.
select array(
    select coalesce((select m.sequence from jmsql_internal.message m
                     where m.queue_id = %(queue_id)s and m.inverse_priority = p.inverse_priority
                     order by m.queue_id desc, m.inverse_priority desc, m.sequence desc limit 1), 0)
    from generate_series(0, 9) as p (inverse_priority) order by p.inverse_priority);

-- name: ask_to_dequeue
-- For roles that may not delete. A trigger does it, once for all policies.
insert into jmsql_internal.dequeue (queue_id, lowest, connection_id)
values (%(queue_id)s, %(lowest)s::bigint[], %(connection_id)s::bigint)
returning {columns}, null;

-- name: has_groups
select exists (select from jmsql_internal.grouped_queue where queue_id = %(queue_id)s);

-- name: isolation
select current_setting('transaction_isolation');
