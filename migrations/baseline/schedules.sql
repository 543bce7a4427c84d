-- Schedules: a message at each tick. Clients compute the ticks; a row says when the next one is due, and a tick is one
-- transaction that changes the row and inserts the message. So any client may do it, and one does.

create table jmsql_internal.schedule (
    name                  text primary key check (name <> '' and length(name) <= 255),
    revision              integer not null default 1,
    cron                  text,
    every                 interval check (every >= interval '1 second'),
    time_zone             text not null default 'UTC',
    destination           text not null,
    missed                text not null default 'once' check (missed in ('once', 'skip', 'all')),
    overlap               boolean not null default true,
    paused                boolean not null default false,
    inverse_priority      smallint not null default 5 check (inverse_priority between 0 and 9),
    time_to_live          bigint check (time_to_live > 0),
    message_type          jmsql_internal.message_type not null,
    jms_correlation_id    text,
    jms_reply_to          text,
    jms_type              text,
    properties            jsonb,
    property_types        jsonb,
    text_body             text,
    json_body             jsonb,
    body_types            jsonb,
    bytes_body            bytea,
    next_at               timestamptz,
    last_at               timestamptz,
    last_message_id       uuid,
    last_queue_id         integer,
    last_inverse_priority smallint,
    last_sequence         bigint,
    sent                  bigint not null default 0,
    missed_ticks          bigint not null default 0,
    overlapped_ticks      bigint not null default 0,
    last_error            text,
    failed_at             timestamptz,
    declared_at           timestamptz,
    created_at            timestamptz not null default clock_timestamp(),
    check ((cron is null) <> (every is null))
);
comment on table jmsql_internal.schedule is 'The schedules, with the message of each.';
comment on column jmsql_internal.schedule.revision is 'Grows with each change, so that no tick follows the former times.';
comment on column jmsql_internal.schedule.time_to_live is 'In milliseconds; null: its messages do not expire.';
comment on column jmsql_internal.schedule.next_at is 'The next tick; null: there is none.';
comment on column jmsql_internal.schedule.last_sequence is 'With the two columns before, the key of its last message.';
comment on column jmsql_internal.schedule.declared_at is
    'The last time at which a worker has declared it, to five minutes; null: an administrator has made it';

create view jmsql.schedules with (security_invoker) as
select s.name as schedule, s.cron, s.every, s.time_zone, s.destination, s.missed, s.overlap, s.paused,
       s.declared_at is not null as declared, s.next_at, s.last_at, 'ID:' || s.last_message_id as last_message_id, s.sent,
       s.missed_ticks, s.overlapped_ticks, s.last_error, s.failed_at, s.declared_at, s.created_at
from jmsql_internal.schedule s;
comment on view jmsql.schedules is 'One row a schedule, with its next tick and its last one.';
comment on column jmsql.schedules.schedule is 'Its name';
comment on column jmsql.schedules.cron is 'Its times, as cron''s text; null: it has an interval';
comment on column jmsql.schedules.every is 'The interval between two ticks; null: it has cron''s text';
comment on column jmsql.schedules.time_zone is 'The time zone of cron''s text';
comment on column jmsql.schedules.destination is 'Where its messages go, as queue:// or topic:// and a name';
comment on column jmsql.schedules.missed is 'Which ticks are sent late: once, skip or all';
comment on column jmsql.schedules.overlap is 'False: a tick is left out while the last message is in its queue';
comment on column jmsql.schedules.paused is 'Whether it has no ticks for now';
comment on column jmsql.schedules.next_at is 'The next tick; null while it is paused';
comment on column jmsql.schedules.last_at is 'The last tick whose message was sent, or when it was last sent by hand';
comment on column jmsql.schedules.last_message_id is 'JMSMessageID of the last message';
comment on column jmsql.schedules.sent is 'How many messages were sent';
comment on column jmsql.schedules.last_error is 'Why the last tick has failed, which is tried again; null: it has not';
comment on column jmsql.schedules.failed_at is 'When it has failed';
comment on column jmsql.schedules.declared_at is 'When a worker has last declared it, to five minutes';
comment on column jmsql.schedules.created_at is 'When it was made';
comment on column jmsql.schedules.declared is 'Whether it is declared in an application''s code; else an administrator has made it';
comment on column jmsql.schedules.missed_ticks is 'How many ticks were left out, since no client ran; up to 1,000 at a time.';
comment on column jmsql.schedules.overlapped_ticks is
    'How many ticks were left out, since the last message was still in its queue.';

create function jmsql_internal.last_one_waits(s jmsql_internal.schedule) returns boolean
    language sql stable
begin atomic
    select exists (
        select from jmsql_internal.message m
        where m.queue_id = s.last_queue_id and m.inverse_priority = s.last_inverse_priority
          and m.sequence = s.last_sequence);
end;
comment on function jmsql_internal.last_one_waits(jmsql_internal.schedule) is
    'Whether the message for which the ticks of a schedule without overlap wait is in its queue.';

create function jmsql_internal.send_scheduled(s jmsql_internal.schedule, tick timestamptz, left_out integer) returns uuid
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    message_id uuid := gen_random_uuid();
    sent_at bigint := extract(epoch from clock_timestamp()) * 1000;
    named record := jmsql_internal.parse_destination(s.destination);
    target integer;
    place bigint;
begin
    if named.kind = 'queue' then
        select q.queue_id into target from jmsql_internal.queue q where q.name = named.name;
        if target is null and (select c.automatic_creation from jmsql_internal.configuration c) then
            perform jmsql_internal.create_destination(s.destination, '{}');
        end if;
        target := coalesce(target, jmsql_internal.queue_number(s.destination));
        insert into jmsql_internal.message (
            queue_id, inverse_priority, jms_message_id, jms_timestamp, jms_expiration, jms_delivery_mode, message_type,
            jms_correlation_id, jms_reply_to, jms_type, properties, property_types, text_body, json_body, body_types,
            bytes_body)
        select target, s.inverse_priority, message_id, sent_at, sent_at + s.time_to_live, 2, s.message_type,
               s.jms_correlation_id, s.jms_reply_to, s.jms_type,
               jmsql_internal.scheduled_properties(s.properties, s.name, tick, left_out), s.property_types,
               s.text_body, s.json_body, s.body_types, s.bytes_body
        where pg_current_xact_id() is not null  -- before a sequence: by that, consumers know what may still come
        returning sequence into place;
        perform jmsql_internal.notify(target::text);
    end if;
    update jmsql_internal.schedule u
    set last_at = tick, last_message_id = message_id, sent = u.sent + 1, missed_ticks = u.missed_ticks + left_out,
        last_error = null, failed_at = null
    where u.name = s.name;
    -- Sent by hand beside a tick's message, which the next ticks wait for.
    if s.overlap or not jmsql_internal.last_one_waits(s) then
        update jmsql_internal.schedule u
        set last_queue_id = target, last_inverse_priority = s.inverse_priority, last_sequence = place
        where u.name = s.name;
    end if;
    return message_id;
end
$$;
comment on function jmsql_internal.send_scheduled(jmsql_internal.schedule, timestamptz, integer) is
    'Sends the message of a schedule to its queue, and notes it; if it goes to a topic, the caller publishes it.';

create function jmsql_internal.scheduled_properties(own jsonb, schedule text, tick timestamptz, left_out integer) returns jsonb
    language sql immutable
begin atomic
    select coalesce(own, '{}') || jsonb_build_object(
        'JMS_jmsql_Schedule', schedule, 'JMS_jmsql_ScheduledTime', (extract(epoch from tick) * 1000)::bigint,
        'JMS_jmsql_MissedTicks', left_out);
end;
comment on function jmsql_internal.scheduled_properties(jsonb, text, timestamptz, integer) is
    'The properties of a message of a schedule.';

create function jmsql_internal.fire_schedule(
    schedule text, revision integer, due timestamptz, next_due timestamptz, tick timestamptz, left_out integer, is_sent boolean)
    returns table (outcome text, message_id uuid)
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    s jmsql_internal.schedule;
begin
    -- A transaction that has it locked does this tick, or changes the schedule.
    select r.* into s from jmsql_internal.schedule r
    where r.name = fire_schedule.schedule and r.revision = fire_schedule.revision and r.next_at = due and not r.paused
    for update skip locked;
    if not found then
        return query select 'lost', null::uuid;
        return;
    end if;
    update jmsql_internal.schedule u set next_at = next_due where u.name = s.name;
    if not is_sent then
        update jmsql_internal.schedule u
        set missed_ticks = u.missed_ticks + left_out + 1, last_error = null, failed_at = null
        where u.name = s.name;
        return query select 'missed', null::uuid;
    elsif not s.overlap and jmsql_internal.last_one_waits(s) then
        update jmsql_internal.schedule u
        set overlapped_ticks = u.overlapped_ticks + 1, missed_ticks = u.missed_ticks + left_out, last_error = null,
            failed_at = null
        where u.name = s.name;
        return query select 'overlapped', null::uuid;
    else
        return query select 'sent', jmsql_internal.send_scheduled(s, tick, left_out);
    end if;
end
$$;
comment on function jmsql_internal.fire_schedule(text, integer, timestamptz, timestamptz, timestamptz, integer, boolean) is
    'Does a tick of a schedule, if none has done it and the schedule has not changed: compares the tick, sets the next '
    'one, and sends the message.';
