-- Sends under conditions: which messages of a batch are to be sent, and where those with a key are. A trigger of the view has
-- the owner's rights, which it takes to see and lock what waits.

-- name: admit
insert into jmsql_internal.admission (
    topic, queues, message_ids, deduplication_ids, coalesce_keys, replacing, expiring, delivery_times)
values (%(topic)s::text, %(queues)s::text[], %(message_ids)s::uuid[], %(deduplication_ids)s::text[],
        %(coalesce_keys)s::text[], %(replacing)s::boolean[], %(expiring)s::boolean[], %(delivery_times)s::bigint[])
returning first_sequence, outcomes, known_ids, queue_ids, known_priorities, known_sequences;

-- name: note_sent
insert into jmsql_internal.admission (
    queues, message_ids, coalesce_keys, delivery_times, inverse_priorities, first_sequence)
values (%(queues)s::text[], %(message_ids)s::uuid[], %(coalesce_keys)s::text[], %(delivery_times)s::bigint[],
        %(inverse_priorities)s::smallint[], %(first_sequence)s::bigint);

-- name: forget_ids
-- The oldest of each destination, as its window says.
delete from jmsql_internal.deduplication where ctid = any(array(
    select d.ctid
    from (select q.queue_id as destination_id, q.deduplication_window from jmsql_internal.queue q where q.name is not null
          union all
          select -t.topic_id, q.deduplication_window
          from jmsql_internal.topic t left join jmsql_internal.queue q using (topic_id)) w
    cross join lateral (
        select f.ctid from jmsql_internal.deduplication f
        where f.destination_id = w.destination_id
          and f.sent_at < clock_timestamp() - coalesce(w.deduplication_window, 86400::float8) * interval '1 second'
        order by f.destination_id, f.sent_at
        limit %(limit)s
        for update skip locked) d
    limit %(limit)s));

-- name: forget_keys
-- Those whose message is gone.
delete from jmsql_internal.coalescing where ctid = any(array(
    select c.ctid from jmsql_internal.coalescing c
    where c.jms_message_id is not null
      and not exists (
        select from jmsql_internal.message m
        where (m.queue_id, m.inverse_priority, m.sequence) = (c.queue_id, c.inverse_priority, c.sequence) offset 0)
      and (c.jms_delivery_time is null or not exists (
        select from jmsql_internal.delayed_message d
        where (d.queue_id, d.jms_delivery_time, d.sequence) = (c.queue_id, c.jms_delivery_time, c.sequence) offset 0))
    limit %(limit)s
    for update of c skip locked));
