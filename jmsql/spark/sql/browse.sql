-- What a batch read of a queue asks. It consumes nothing.

-- name: find_subscription
select s.queue_id from jmsql_internal.subscription s join jmsql_internal.topic t using (topic_id)
where t.name = %(topic)s and s.name = %(subscription)s and s.client_id is not distinct from %(client_id)s
order by s.durable desc limit 1;

-- name: ends
-- The ends of each priority are read from the key.
select min(sequence), max(sequence)
from (
    select (select m.sequence from jmsql_internal.message m
            where m.queue_id = %(queue_id)s and m.inverse_priority = p.inverse_priority
            order by m.queue_id, m.inverse_priority, m.sequence limit 1)
    from generate_series(0, 9) as p (inverse_priority)
    union all
    select (select m.sequence from jmsql_internal.message m
            where m.queue_id = %(queue_id)s and m.inverse_priority = p.inverse_priority
            order by m.queue_id desc, m.inverse_priority desc, m.sequence desc limit 1)
    from generate_series(0, 9) as p (inverse_priority)
    union all
    select sequence from jmsql_internal.delayed_message where queue_id = %(queue_id)s) as ends (sequence);

-- name: read
-- The messages of a queue with sequences in a range, that are there to be delivered. Few queues have deliveries that
-- are under way or have failed. For the others, no message is looked up there.
select {columns}
from unnest('{0,1,2,3,4,5,6,7,8,9}'::smallint[]) as p (inverse_priority)
cross join lateral (
    select m.*, d.delivery_count
    from jmsql_internal.message m
    left join lateral (
        select k.* from {delivery}
        where (select exists (select from jmsql_internal.delivery k where k.queue_id = %(queue_id)s)) offset 0) d on true
    where m.queue_id = %(queue_id)s and m.inverse_priority = p.inverse_priority
      and m.sequence between %(first)s and %(last)s and d.claim_id is null and {is_alive} and {is_sent} {chosen}
    offset 0) m
where true {filter}
union all
select {columns}
from (
    select m.*, 0 as delivery_count
    from jmsql_internal.delayed_message m
    where m.queue_id = %(queue_id)s and m.sequence between %(first)s and %(last)s and {is_alive} {chosen}) m
where true {filter};

-- name: begin_snapshot
set transaction isolation level repeatable read, read only;

-- name: export_snapshot
select pg_export_snapshot();

-- name: clear_statistics
select from pg_stat_clear_snapshot();

-- name: is_used
select exists (select from pg_stat_activity where application_name like %(name)s);
