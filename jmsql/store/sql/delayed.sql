-- Messages that wait for their delivery time.

-- name: milliseconds_to_next
select d.due - jmsql_internal.current_milliseconds() from jmsql_internal.delayed_message d order by d.due, d.sequence limit 1;

-- name: move_due
-- The planner takes a range with two ends for short, and one with a single end for worth a sort. The range of sequences
-- says nothing new, but counts once more.
-- In the order of delivery time, then of sending: they get new sequences, and queue up behind what is there. What has
-- expired meanwhile goes the same way, and is then removed as any other message is.
with due as materialized (
    select d.ctid as address, d.* from jmsql_internal.delayed_message d
    where d.due between 0 and (select jmsql_internal.current_milliseconds()) - 1
      and d.sequence between 0 and {last_sequence}
    order by d.due, d.sequence
    limit %(limit)s
    for update skip locked),
deleted as (
    delete from jmsql_internal.delayed_message where ctid = any(array(select address from due))),
moved as (
    insert into jmsql_internal.message (queue_id, body_id, {columns})
    select d.queue_id, d.body_id, {values}
    from due d
    join jmsql_internal.queue q using (queue_id)
    where q.deleted_at is null
    order by d.due, d.sequence)
select queue_id, count(*) from due group by queue_id;

-- name: purge_deleted
delete from jmsql_internal.delayed_message where ctid = any(array(
    select d.ctid from jmsql_internal.queue q
    join jmsql_internal.delayed_message d using (queue_id)
    where q.deleted_at is not null
    limit %(limit)s
    for update of d skip locked));
