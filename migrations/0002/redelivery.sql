-- What handlers say of messages: a rejected one is a dead letter with a reason of its own, and one that is put off has not
-- failed, nor has one whose handler was interrupted since the worker ended. That has a table of its own, since nothing may lock `delivery` while clients work.

create table jmsql_internal.delivery_outcome (
    sequence           bigint not null,
    queue_id           integer not null,
    retry_count        integer not null default 0 check (retry_count between 0 and 1000000),
    interruption_count integer not null default 0 check (interruption_count between 0 and retry_count),
    inverse_priority   smallint not null,
    dead_letter_reason text check (dead_letter_reason in ('maximum retries', 'rejected', 'unreadable')),
    primary key (queue_id, inverse_priority, sequence)
) with (vacuum_truncate = off);
comment on table jmsql_internal.delivery_outcome is
    'What handlers have said of messages in the table delivery. Maintenance forgets it when a message is gone.';
comment on column jmsql_internal.delivery_outcome.retry_count is
    'How many of its deliveries have not failed, but were to be made again later.';
comment on column jmsql_internal.delivery_outcome.interruption_count is
    'How many of those a worker has interrupted, since it ended.';
comment on column jmsql_internal.delivery_outcome.dead_letter_reason is
    'Why it is about to move to the dead-letter queue; null: it was delivered as often as it may be.';

create policy may_delete on jmsql_internal.delivery_outcome for delete
    using ((select jmsql_internal.has_access_to_all('administer', current_user)));
create policy may_select on jmsql_internal.delivery_outcome for select
    using (queue_id = any ((select jmsql_internal.accessible_queues('browse', current_user))::integer[])
           or (select jmsql_internal.has_access_to_all('browse', current_user)));
create policy may_insert on jmsql_internal.delivery_outcome for insert
    with check (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
                or (select jmsql_internal.has_access_to_all('receive', current_user)));
create policy may_update on jmsql_internal.delivery_outcome for update
    using (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
           or (select jmsql_internal.has_access_to_all('receive', current_user)));
alter table jmsql_internal.delivery_outcome enable row level security;

create or replace function jmsql_internal.bury_dead_letters(most integer)
    returns table (dead_letter_queue integer, moved bigint)
    language plpgsql volatile strict security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
as $$
begin
    if exists (
            select from jmsql_internal.delivery d
            where d.dead_letter_queue_id is not null
              and not exists (select from jmsql_internal.queue q
                              where q.queue_id = d.dead_letter_queue_id
                                and q.name is not null and q.connection_id is null)) then
        insert into jmsql_internal.queue (name) values ('DLQ') on conflict (name) do nothing;
    end if;
    return query
        with exhausted as materialized (
            select d.ctid as delivery, d.delivery_count, d.first_failed_at, d.last_error, m.*,
                   coalesce(o.retry_count, 0) as retry_count, o.dead_letter_reason,
                   coalesce(t.queue_id, (select f.queue_id from jmsql_internal.queue f where f.name = 'DLQ')) as target
            from jmsql_internal.delivery d
            left join jmsql_internal.queue t
              on t.queue_id = d.dead_letter_queue_id and t.name is not null and t.connection_id is null
            cross join lateral (
                select n.ctid as address, n.* from jmsql_internal.message n
                where (n.queue_id, n.inverse_priority, n.sequence) = (d.queue_id, d.inverse_priority, d.sequence)
                offset 0
                for update skip locked) m
            left join jmsql_internal.delivery_outcome o
              on (o.queue_id, o.inverse_priority, o.sequence) = (d.queue_id, d.inverse_priority, d.sequence)
            where d.dead_letter_queue_id is not null and d.claim_id is null
            limit most),
        history as materialized (
            select case when exists (select from jmsql_internal.queue q
                                     where q.history and q.queue_id in (select c.queue_id from exhausted c))
                   then jmsql_internal.keep_history(
                       array(select c.address from exhausted c where c.target <> c.queue_id),
                       array(select c.delivery_count from exhausted c where c.target <> c.queue_id),
                       'dead-lettered', null) end),
        spared as (
            update jmsql_internal.delivery set dead_letter_queue_id = null, next_attempt = null
            where ctid = any(array(select c.delivery from exhausted c where c.target = c.queue_id))),
        forgotten as (
            delete from jmsql_internal.delivery
            where ctid = any(array(select c.delivery from exhausted c where c.target <> c.queue_id))),
        deleted as (
            delete from jmsql_internal.message
            where ctid = any(array(select c.address from exhausted c where c.target <> c.queue_id))
              and (select true from history)),
        buried as (
            insert into jmsql_internal.message (
                queue_id, properties, body_id, inverse_priority, jms_message_id, jms_timestamp, jms_delivery_mode,
                jms_delivery_time, message_type, jms_correlation_id, jms_reply_to, jms_type, property_types, text_body,
                json_body, body_types, bytes_body)
            select c.target,
                   jmsql_internal.dead_letter_properties(
                       c.properties, c.queue_id, coalesce(c.dead_letter_reason, 'maximum deliveries'),
                       c.delivery_count - c.retry_count, c.first_failed_at, c.last_error, c.jms_expiration),
                   body_id, inverse_priority, jms_message_id, jms_timestamp, jms_delivery_mode, jms_delivery_time,
                   message_type, jms_correlation_id, jms_reply_to, jms_type, property_types, text_body, json_body,
                   body_types, bytes_body
            from exhausted c
            where c.target <> c.queue_id
            order by c.sequence
            returning queue_id),
        -- A message may have been replayed under its identifier, and be there twice.
        kept as (
            insert into jmsql_internal.result as r (
                message_id, queue_id, deliveries, sent_at, finished_at, kept_until, state, error, jms_type, properties,
                text_body)
            select distinct on (c.jms_message_id, c.queue_id)
                   c.jms_message_id, c.queue_id, c.delivery_count, jmsql_internal.to_timestamp(c.jms_timestamp),
                   clock_timestamp(), clock_timestamp() + k.seconds * interval '1 second', 'failed',
                   coalesce(c.last_error, 'The message was delivered as often as it may be, and never acknowledged.'),
                   case when k.keeps_message then c.jms_type end, case when k.keeps_message then c.properties end,
                   case when k.keeps_message then c.text_body end
            from exhausted c
            join jmsql_internal.result_keeping k on k.queue_id = c.queue_id
            where c.target <> c.queue_id and c.jms_message_id is not null
            on conflict (message_id, queue_id) do update
            set deliveries = excluded.deliveries, sent_at = excluded.sent_at, started_at = excluded.started_at,
                finished_at = excluded.finished_at, kept_until = excluded.kept_until, state = excluded.state,
                value = excluded.value, error = excluded.error, jms_type = excluded.jms_type,
                properties = excluded.properties, text_body = excluded.text_body
            returning r.message_id),
        -- A requestor waits for the reply. By the version of the UUID in its name, the queue is a requestor's.
        answered as (
            insert into jmsql_internal.message (
                queue_id, inverse_priority, jms_message_id, jms_timestamp, jms_delivery_mode, message_type,
                jms_correlation_id, properties, text_body)
            select q.queue_id, c.inverse_priority, gen_random_uuid(), jmsql_internal.current_milliseconds(), 1,
                   'TextMessage', coalesce(c.jms_correlation_id, 'ID:' || c.jms_message_id),
                   '{"JMS_jmsql_RequestFailed": true}', coalesce(c.last_error, '')
            from exhausted c
            join jmsql_internal.queue q on q.name = substr(c.jms_reply_to, 14) and q.connection_id is not null
            where c.target <> c.queue_id and c.jms_reply_to ~ '^temp-queue://temporary-[0-9a-f]{8}-[0-9a-f]{4}-8'
            returning queue_id)
        select n.number, sum(n.messages)::bigint
        from (select b.queue_id, 1 from buried b
              union all
              select a.queue_id, 1 from answered a
              union all
              select jmsql_internal.result_channel(k.message_id), 1 from kept k) as n (number, messages)
        group by n.number;
end
$$;

comment on column jmsql.dead_letters.reason is
    'maximum deliveries, maximum retries, rejected or unreadable (see redelivery), or expired';
