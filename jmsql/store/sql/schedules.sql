-- Schedules: which ticks are due, and what administrators do with them.

-- name: next_ticks
-- Those that are due, and those that soon are; the time goes along, since the client's clock may be another.
select s.name, s.revision, s.cron, s.every, s.time_zone, s.missed, s.destination like 'topic://%%', s.next_at, clock_timestamp()
from jmsql_internal.schedule s
where not s.paused and s.next_at <= clock_timestamp() + %(within)s::interval and s.name <> all(%(postponed)s::text[])
order by s.next_at
limit %(most)s;

-- name: fire
select outcome, message_id
from jmsql_internal.fire_schedule(%(name)s, %(revision)s, %(due)s, %(next_due)s, %(tick)s, %(left_out)s, %(is_sent)s);

-- name: outgoing
select s.destination, s.inverse_priority, s.last_message_id::text,
       (extract(epoch from clock_timestamp()) * 1000::numeric)::bigint,
       (extract(epoch from clock_timestamp()) * 1000::numeric)::bigint + s.time_to_live, 2, s.message_type::text,
       s.jms_correlation_id, s.jms_reply_to, s.jms_type,
       jmsql_internal.scheduled_properties(s.properties, s.name, %(tick)s, %(left_out)s)::text, s.property_types::text,
       s.text_body, s.json_body::text, s.body_types::text, s.bytes_body
from jmsql_internal.schedule s where s.name = %(name)s;

-- name: note_failure
update jmsql_internal.schedule set last_error = %(error)s, failed_at = clock_timestamp() where name = %(name)s;

-- name: keep_declared
update jmsql_internal.schedule set declared_at = clock_timestamp()
where name = any(%(names)s::text[]) and declared_at < clock_timestamp() - interval '4 minutes';

-- name: lock
-- Also a schedule that is not there yet is locked, so that no two transactions make it at once: by a row that administrators
-- alone can lock, since every role can take any advisory lock.
select from jmsql_internal.configuration for no key update;

-- name: look
-- After the wait for the lock: a statement does not see commits from after its beginning.
select s.cron, s.every, s.time_zone, s.next_at, s.paused, s.declared_at is not null, clock_timestamp()
from (select) one left join (
    select * from jmsql_internal.schedule where name = %(name)s for update) s on true;

-- name: define
insert into jmsql_internal.schedule as s (
    name, cron, every, time_zone, destination, missed, overlap, inverse_priority, time_to_live, message_type,
    jms_correlation_id, jms_reply_to, jms_type, properties, property_types, text_body, json_body, body_types, bytes_body,
    next_at, declared_at)
values (
    %(name)s, %(cron)s, %(every)s, %(time_zone)s, %(destination)s, %(missed)s, %(overlap)s, %(inverse_priority)s,
    %(time_to_live)s, %(message_type)s::jmsql_internal.message_type, %(correlation_id)s, %(reply_to)s, %(type)s,
    %(properties)s::jsonb, %(property_types)s::jsonb, %(text_body)s, %(json_body)s::jsonb, %(body_types)s::jsonb,
    %(bytes_body)s, %(next_at)s, case when %(declared)s then clock_timestamp() end)
on conflict (name) do update
set revision = s.revision + 1, cron = excluded.cron, every = excluded.every, time_zone = excluded.time_zone,
    destination = excluded.destination, missed = excluded.missed, overlap = excluded.overlap,
    inverse_priority = excluded.inverse_priority, time_to_live = excluded.time_to_live,
    message_type = excluded.message_type, jms_correlation_id = excluded.jms_correlation_id,
    jms_reply_to = excluded.jms_reply_to, jms_type = excluded.jms_type, properties = excluded.properties,
    property_types = excluded.property_types, text_body = excluded.text_body, json_body = excluded.json_body,
    body_types = excluded.body_types, bytes_body = excluded.bytes_body, next_at = excluded.next_at,
    declared_at = excluded.declared_at
where (s.cron, s.every, s.time_zone, s.destination, s.missed, s.overlap, s.inverse_priority, s.time_to_live,
       s.message_type, s.jms_correlation_id, s.jms_reply_to, s.jms_type, s.properties, s.property_types, s.text_body,
       s.json_body, s.body_types, s.bytes_body, s.declared_at is null)
   is distinct from
      (excluded.cron, excluded.every, excluded.time_zone, excluded.destination, excluded.missed, excluded.overlap,
       excluded.inverse_priority, excluded.time_to_live, excluded.message_type, excluded.jms_correlation_id,
       excluded.jms_reply_to, excluded.jms_type, excluded.properties, excluded.property_types, excluded.text_body,
       excluded.json_body, excluded.body_types, excluded.bytes_body, excluded.declared_at is null);

-- name: set_paused
update jmsql_internal.schedule
set paused = %(paused)s, next_at = %(next_at)s, revision = revision + 1, last_error = null, failed_at = null
where name = %(name)s;

-- name: delete
delete from jmsql_internal.schedule where name = %(name)s;

-- name: send_now
with sent as materialized (
    select jmsql_internal.send_scheduled(s, now(), 0) as message_id, s.name, s.destination
    from (select * from jmsql_internal.schedule where name = %(name)s for update) s),
noted as materialized (
    select jmsql_internal.note_activity(
        'send schedule'::text, null::integer, 1::bigint, array[s.message_id], 'done'::text, null::integer, s.name, s.destination)
    from sent s)
select s.message_id, now(), s.destination like 'topic://%%' from sent s where (select count(*) from noted) > 0;

-- name: schedules
select schedule, cron, every, time_zone, destination, missed, overlap, paused, declared, next_at, last_at, last_message_id,
       sent, missed_ticks, overlapped_ticks, last_error, failed_at, declared_at, created_at
from jmsql.schedules
where %(name)s::text is null or schedule = %(name)s
order by schedule;
