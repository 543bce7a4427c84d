-- The maintenance, which one client does for all: what has expired or has become due, what dead clients held, what was
-- deleted.

-- name: limit_idleness
-- Of the transaction: a client that is frozen in it holds up others no longer than that.
select set_config('idle_in_transaction_session_timeout', %(timeout)s, true);

-- name: forget_dead_connections
-- A client's row is seen only once its lock is held. Along come the names of what is to be done besides, and whether
-- each task has anything to do: one statement instead of one for each. What the dead leave behind shows only in the
-- next statement's snapshot, so if a client is dead there may be everything to do.
with forgotten as (
    delete from jmsql_internal.connection c
    where c.connection_id <> %(connection_id)s
      and (c.heartbeat_at is null
           or c.heartbeat_at < statement_timestamp() - c.heartbeat_timeout
           or c.heartbeat_at > statement_timestamp() + c.heartbeat_timeout)  -- the clock was set back since
      and not exists (
        select from pg_catalog.pg_locks l
        where l.locktype = 'advisory' and l.granted and l.objsubid = 1 and l.mode = 'ExclusiveLock'
          and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
          and l.classid::bigint = (c.lock_key >> 32) & 4294967295
          and l.objid::bigint = c.lock_key & 4294967295
          and l.pid = c.server_process_id)
    returning c.connection_id)
select array(select name from jmsql_internal.maintenance_task order by name),
       exists (select from forgotten),
       exists (select from jmsql_internal.delivery d where d.claim_id is not null),
       exists (select from jmsql_internal.delivery d where d.dead_letter_queue_id is not null),
       exists (select from jmsql_internal.message m
               where m.jms_expiration between 0 and (select jmsql_internal.current_milliseconds()) and {is_sent}),
       exists ({find_abandoned}),
       exists (select from jmsql_internal.topic t where t.connection_id is not null)
           or exists (select from jmsql_internal.queue q where q.connection_id is not null),
       exists (select from jmsql_internal.queue q where q.deleted_at is not null),
       exists (select from jmsql_internal.body),
       exists (select from jmsql_internal.batch_check);

-- name: forget_orphans
delete from jmsql_internal.delivery d
where d.claim_id is null
  and not exists (
    select from jmsql_internal.message m
    where (m.queue_id, m.inverse_priority, m.sequence) = (d.queue_id, d.inverse_priority, d.sequence)
    offset 0);

-- name: reap_expired
with expired as materialized (
    select m.ctid as address, m.*, q.expiry_queue_id
    from jmsql_internal.message m
    -- Fenced: else a plan could begin with the queues, and read all their messages.
    cross join lateral (
        select q.expiry_queue_id from jmsql_internal.queue q where q.queue_id = m.queue_id offset 0) q
    where m.jms_expiration between 0 and (select jmsql_internal.current_milliseconds()) and {is_sent}
      and not exists (
        select from jmsql_internal.delivery d
        where (d.queue_id, d.inverse_priority, d.sequence) = (m.queue_id, m.inverse_priority, m.sequence)
          and d.claim_id is not null
        offset 0)
    order by m.jms_expiration
    limit %(limit)s
    for update of m skip locked),
state as materialized (
    select d.* from (select queue_id, pg_catalog.array_agg(inverse_priority) as inverse_priorities,
                            pg_catalog.array_agg(sequence) as sequences from expired group by queue_id) e
    cross join lateral jmsql_internal.delivery_state(e.queue_id, e.inverse_priorities, e.sequences) d),
free as materialized (
    select e.*, s.delivery_count
    from expired e
    left join state s using (queue_id, inverse_priority, sequence)
    where s.claim_id is null),
{history},
deleted as (
    delete from jmsql_internal.message m using free e
    where m.ctid = e.address and {recorded} and (select jmsql_internal.note_ending('expired'))
    returning m.queue_id, m.inverse_priority, m.sequence),
forgotten as (
    delete from jmsql_internal.delivery where ctid = any(array(
        select d.address from deleted m cross join {delivery_of_m}))),
moved as (
    insert into jmsql_internal.message (queue_id, body_id, {columns})
    select e.expiry_queue_id, e.body_id, {moved}
    from expired e
    join deleted d using (queue_id, inverse_priority, sequence)
    left join state s using (queue_id, inverse_priority, sequence)
    join jmsql_internal.queue q
      on q.queue_id = e.expiry_queue_id and q.name is not null and q.connection_id is null
    order by e.sequence){kept}
select count(*){count_of_told} from deleted;

-- name: note_rates
select jmsql_internal.note_rates();

-- name: restore_pages
select name from jmsql_internal.restore_pages() as name;

-- name: find_abandoned
select s.queue_id from jmsql_internal.subscription s
where not s.durable and not exists (select from jmsql_internal.subscriber c where c.queue_id = s.queue_id);

-- name: forget_temporary
-- By the number that each had in this snapshot: a client that connects again binds its destinations to a new number,
-- of which the snapshot may know nothing, though the update meets the row with that number in it.
with abandoned_queue as materialized (
    select q.queue_id, q.connection_id from jmsql_internal.queue q
    where q.connection_id is not null
      and not exists (select from jmsql_internal.connection c where c.connection_id = q.connection_id)),
abandoned_topic as materialized (
    select t.topic_id, t.connection_id from jmsql_internal.topic t
    where t.connection_id is not null
      and not exists (select from jmsql_internal.connection c where c.connection_id = t.connection_id)
      and not exists (select from jmsql_internal.subscription s where s.topic_id = t.topic_id)),
topics as (
    delete from jmsql_internal.topic t using abandoned_topic a
    where t.topic_id = a.topic_id and t.connection_id = a.connection_id)
update jmsql_internal.queue q set connection_id = null from abandoned_queue a
where q.queue_id = a.queue_id and q.connection_id = a.connection_id;

-- name: purge_deleted
with candidate as materialized (
    select found.*
    from jmsql_internal.queue q
    cross join lateral (
        select m.ctid as address, m.queue_id, m.inverse_priority, m.sequence, d.address as delivery
        from jmsql_internal.message m
        left join {delivery_of_m} on true
        where m.queue_id = q.queue_id and d.claim_id is null
        order by m.queue_id, m.inverse_priority, m.sequence
        limit %(limit)s
        for update of m skip locked) found
    where q.deleted_at is not null
    limit %(limit)s),
forgotten as (
    delete from jmsql_internal.delivery where ctid = any(array(select delivery from candidate)))
delete from jmsql_internal.message
where ctid = any(array(select address from candidate)) and (select jmsql_internal.note_ending('cancelled'));

-- name: forget_deleted
-- A transaction that is older than the deletion may still send to the queue, unless it is autovacuum's. It is not always
-- to be seen: see `find_lost`.
delete from jmsql_internal.queue q
where q.deleted_at is not null
  and (select m.sequence from jmsql_internal.message m where m.queue_id = q.queue_id
       order by m.queue_id, m.inverse_priority, m.sequence limit 1) is null
  and not exists (select from jmsql_internal.delayed_message d where d.queue_id = q.queue_id)
  and not exists (select from pg_catalog.pg_stat_activity a
                  where a.datname = current_database() and a.xact_start <= q.deleted_at
                    and a.backend_type <> 'autovacuum worker' and a.pid <> pg_backend_pid());

-- name: find_lost
-- What was sent by a transaction that saw the queue, and committed after the queue was forgotten. The queues' numbers
-- are read from the indexes by leaps.
with recursive message_queue (queue_id) as (
    select min(queue_id) from jmsql_internal.message
    union all
    select (select min(m.queue_id) from jmsql_internal.message m where m.queue_id > q.queue_id)
    from message_queue q where q.queue_id is not null),
delayed_message_queue (queue_id) as (
    select min(queue_id) from jmsql_internal.delayed_message
    union all
    select (select min(m.queue_id) from jmsql_internal.delayed_message m where m.queue_id > q.queue_id)
    from delayed_message_queue q where q.queue_id is not null)
insert into jmsql_internal.queue (queue_id, deleted_at) overriding system value
select found.queue_id, statement_timestamp()
from (select queue_id from message_queue union select queue_id from delayed_message_queue) as found
where found.queue_id is not null
  and not exists (select from jmsql_internal.queue q where q.queue_id = found.queue_id)
on conflict do nothing;

-- name: forget_bodies
-- In windows of the key, so that a run takes little time however many there are.
with looked_at as materialized (
    select body_id from jmsql_internal.body where body_id > %(after)s::bigint order by body_id limit %(limit)s),
in_history as materialized (
    select distinct h.body_id from jmsql_internal.message_history h
    where h.body_id > %(after)s::bigint and h.body_id <= (select max(body_id) from looked_at)),
forgotten as (
    delete from jmsql_internal.body b using looked_at l
    where b.body_id = l.body_id
      and not exists (select from jmsql_internal.message m where m.body_id = b.body_id)
      and not exists (select from jmsql_internal.delayed_message d where d.body_id = b.body_id)
      and not exists (select from in_history h where h.body_id = b.body_id)
    returning b.body_id)
select coalesce(max(body_id), 0), (select count(*) from forgotten) from looked_at;

-- name: expired_properties
-- Of an expired message `e` with its state `s`, as it moves to its expiry queue.
jmsql_internal.dead_letter_properties(
    e.properties, e.queue_id, 'expired', coalesce(s.delivery_count, 0), s.first_failed_at, s.last_error,
    e.jms_expiration);

-- name: request_tasks
insert into jmsql_internal.maintenance_task (name) select pg_catalog.unnest(%(names)s::text[]) on conflict do nothing;

-- name: milliseconds_to_next_due
select d.due - jmsql_internal.current_milliseconds() from jmsql_internal.delayed_message d order by d.due, d.sequence limit 1;

-- name: move_due
-- The planner takes a range with two ends for short, and one with a single end for worth a sort. The range of sequences
-- says nothing new, but counts once more.
-- In the order of delivery time, then of sending: they get new sequences, and queue up behind what is there. What has
-- expired meanwhile goes the same way, and is then removed as any other message is. Those of a deleted queue stay for
-- `purge_deleted_delayed`, which counts them as cancelled in their batches.
with due as materialized (
    select d.ctid as address, d.* from jmsql_internal.delayed_message d
    where d.due between 0 and (select jmsql_internal.current_milliseconds()) - 1
      and d.sequence between 0 and {last_sequence}
      and (select q.deleted_at is null from jmsql_internal.queue q where q.queue_id = d.queue_id)
    order by d.due, d.sequence
    limit %(limit)s
    for update skip locked),
deleted as (
    delete from jmsql_internal.delayed_message where ctid = any(array(select address from due))),
moved as (
    insert into jmsql_internal.message (queue_id, body_id, {columns})
    select d.queue_id, d.body_id, {values}
    from due d
    order by d.due, d.sequence
    returning queue_id, inverse_priority, sequence, jms_message_id),
-- A message with a key is known by its place. A sender that has locked it has another one sent.
keyed as materialized (
    select c.ctid as address, c.queue_id, c.jms_message_id from jmsql_internal.coalescing c
    where c.jms_delivery_time is not null and c.jms_message_id = any(array(select jms_message_id from due))
    for update skip locked),
noted as (
    update jmsql_internal.coalescing c
    set inverse_priority = m.inverse_priority, sequence = m.sequence, jms_delivery_time = null
    from keyed k join moved m using (queue_id, jms_message_id)
    where c.ctid = k.address)
select queue_id, count(*) from due group by queue_id;

-- name: purge_deleted_delayed
delete from jmsql_internal.delayed_message where ctid = any(array(
    select d.ctid from jmsql_internal.queue q
    join jmsql_internal.delayed_message d using (queue_id)
    where q.deleted_at is not null
    limit %(limit)s
    for update of d skip locked)) and (select jmsql_internal.note_ending('cancelled'));

-- name: forget_activity
select jmsql_internal.forget_activity(%(limit)s);
