-- Messages that wait for their next attempt or their delivery time, and their delivery now.

-- name: waiting_keys
-- The deliveries are read, of which there are few, and not the messages.
select k.inverse_priority, k.sequence
from (
    select d.inverse_priority, d.sequence, d.claim_id is null and d.next_attempt > statement_timestamp()
           and isfinite(d.next_attempt) as waits
    from jmsql_internal.delivery d
    where d.queue_id = %(queue_id)s::integer and (d.inverse_priority, d.sequence) > (%(first)s::smallint, %(sequence)s::bigint)
    order by d.queue_id, d.inverse_priority, d.sequence
    limit %(window)s) k
cross join lateral (
    select m.* from jmsql_internal.message m
    where (m.queue_id, m.inverse_priority, m.sequence) = (%(queue_id)s::integer, k.inverse_priority, k.sequence)
    offset 0) m
where k.waits and m.sequence <= %(newest)s::bigint and (m.jms_expiration > jmsql_internal.current_milliseconds()) is not false
      {chosen}
order by k.inverse_priority, k.sequence;

-- name: end_of_waiting
select d.inverse_priority, d.sequence from jmsql_internal.delivery d
where d.queue_id = %(queue_id)s::integer and (d.inverse_priority, d.sequence) > (%(first)s::smallint, %(sequence)s::bigint)
order by d.queue_id, d.inverse_priority, d.sequence
limit 1 offset %(window)s::integer - 1;

-- name: deliver_waiting
select jmsql_internal.deliver_waiting(%(queue_id)s::integer, %(firsts)s::smallint[], %(sequences)s::bigint[]);

-- name: deliver_delayed
select jmsql_internal.deliver_delayed(%(queue_id)s::integer, %(firsts)s::bigint[], %(sequences)s::bigint[]);
