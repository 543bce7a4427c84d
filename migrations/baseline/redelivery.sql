-- Where messages go whose deliveries have failed, and how they come back.

-- Outcomes that handlers decide: a rejected message is a dead letter with a reason of its own, and one that is put off has
-- not failed, nor has one whose handler was interrupted since the worker ended. Few messages have one, so that `delivery`
-- stays narrow.

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

-- Only dead letters are in this index.
create index message_dead_letter on jmsql_internal.message (queue_id, sequence)
    where properties ? 'JMS_jmsql_DeadLetterReason';

create function jmsql_internal.check_dead_letter_queue() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    way integer[] := array[new.queue_id];
    next_id integer := new.dead_letter_queue_id;
begin
    if exists (select from jmsql_internal.queue q
               where q.queue_id in (new.dead_letter_queue_id, new.expiry_queue_id) and q.connection_id is not null) then
        raise check_violation using message = 'a temporary queue takes no messages of other queues';
    end if;
    while next_id is not null loop
        if next_id = any(way) then
            raise check_violation using message =
                'dead letters would go round: ' || (
                    select string_agg(coalesce(q.name, 'a subscription'), ' -> ' order by w.number)
                    from unnest(way || next_id) with ordinality as w (queue_id, number)
                    join jmsql_internal.queue q on q.queue_id = w.queue_id);
        end if;
        way := way || next_id;
        select q.dead_letter_queue_id into next_id from jmsql_internal.queue q where q.queue_id = next_id;
    end loop;
    return new;
end
$$;
comment on function jmsql_internal.check_dead_letter_queue() is
    'Refuses dead-letter queues that lead back to themselves.';
create trigger dead_letters_do_not_go_round
    before insert or update of dead_letter_queue_id, expiry_queue_id on jmsql_internal.queue
    for each row when (new.dead_letter_queue_id is not null or new.expiry_queue_id is not null)
    execute function jmsql_internal.check_dead_letter_queue();

-- It is there from the first, so that nobody can make a temporary queue of that name to collect the messages of others.
insert into jmsql_internal.queue (name) values ('DLQ');

-- PostgreSQL holds 268,435,455 bytes in a jsonb, which a property may have nearly filled. A value that takes less than a million
-- bytes as it is stored is small: no compression is that good.
create function jmsql_internal.properties_with_room(properties jsonb) returns jsonb
    language sql stable
begin atomic
    select case
        when properties is null or pg_column_size(properties) < 1000000
            or pg_column_size(properties || '{}'::jsonb) < 266000000 then properties
        else (
            select jsonb_object_agg(e.key, e.value)
            from (select p.key, p.value,
                         sum(pg_column_size(p.value) + octet_length(p.key))
                             over (order by pg_column_size(p.value), p.key) as total
                  from jsonb_each(properties) p) e
            where e.total < 200000000)
        end;
end;
comment on function jmsql_internal.properties_with_room(jsonb) is
    'Properties to which those of a dead letter can be added: without the largest, where they fill what PostgreSQL can hold.';

create function jmsql_internal.dead_letter_properties(
        properties jsonb, queue integer, reason text, deliveries integer, first_failed_at timestamptz, error text,
        expiration bigint) returns jsonb
    language sql stable
begin atomic
    select jsonb_strip_nulls(jsonb_build_object(
               'JMS_jmsql_OriginalDestination', coalesce('queue://' || q.name, 'topic://' || t.name),
               'JMS_jmsql_OriginalSubscription', s.name,
               'JMS_jmsql_OriginalClientID', s.client_id,
               'JMS_jmsql_OriginalExpiration', expiration))
           || coalesce(jmsql_internal.properties_with_room(properties), '{}')
              - '{JMS_jmsql_Deliveries,JMS_jmsql_FirstFailure,JMS_jmsql_LastError}'::text[]
           || jsonb_strip_nulls(jsonb_build_object(
               'JMS_jmsql_DeadLetterReason', reason,
               'JMS_jmsql_DeadLetterTime', jmsql_internal.current_milliseconds(),
               'JMS_jmsql_Deliveries', deliveries,
               'JMS_jmsql_FirstFailure',
               case when isfinite(first_failed_at) then floor(extract(epoch from first_failed_at) * 1000)::bigint end,
               'JMS_jmsql_LastError', left(error, 100000)))
    from jmsql_internal.queue q
    left join jmsql_internal.subscription s using (queue_id)
    left join jmsql_internal.topic t on t.topic_id = s.topic_id
    where q.queue_id = queue;
end;
comment on function jmsql_internal.dead_letter_properties(jsonb, integer, text, integer, timestamptz, text, bigint) is
    'The properties of a dead letter: those it had, where it comes from, and why it is dead.';

create function jmsql_internal.bury_dead_letters(max_messages integer)
    returns table (dead_letter_queue integer, moved bigint)
    language plpgsql volatile strict security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off
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
            limit max_messages),
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
comment on function jmsql_internal.bury_dead_letters(integer) is
    'Moves messages whose deliveries have all failed to their dead-letter queues: at most so many at once.';

-- What is delivered again has not ended: its former result goes with the dead letter.
create function jmsql_internal.without_dead_letter_properties(properties jsonb) returns jsonb
    language sql immutable
begin atomic
    select properties - array['JMS_jmsql_OriginalDestination', 'JMS_jmsql_OriginalSubscription',
                              'JMS_jmsql_OriginalClientID', 'JMS_jmsql_OriginalExpiration',
                              'JMS_jmsql_DeadLetterReason', 'JMS_jmsql_DeadLetterTime', 'JMS_jmsql_Deliveries',
                              'JMS_jmsql_FirstFailure', 'JMS_jmsql_LastError'];
end;
comment on function jmsql_internal.without_dead_letter_properties(jsonb) is
    'Properties but for those that `dead_letter_properties` adds.';

create function jmsql_internal.return_dead_letters(queue integer, inverse_priorities smallint[], sequences bigint[])
    returns table (destination text, subscription text, returned bigint)
    language plpgsql volatile strict
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform jmsql_internal.note_ending('retried');
    return query
        with chosen as materialized (
            select m.* from unnest(inverse_priorities, sequences) as k (inverse_priority, sequence)
            cross join lateral (
                select n.ctid as address, n.* from jmsql_internal.message n
                where (n.queue_id, n.inverse_priority, n.sequence) = (queue, k.inverse_priority, k.sequence)
                  and n.properties ? 'JMS_jmsql_DeadLetterReason'
                offset 0
                for update skip locked) m),
        state as materialized (
            select s.* from jmsql_internal.delivery_state(queue,
                (select array_agg(c.inverse_priority) from chosen c), (select array_agg(c.sequence) from chosen c)) s),
        found as materialized (
            select c.*, o.queue_id as origin_id, c.properties ->> 'JMS_jmsql_OriginalDestination' as origin,
                   c.properties ->> 'JMS_jmsql_OriginalSubscription' as origin_subscription
            from chosen c
            left join state s using (inverse_priority, sequence)
            cross join lateral (
                select q.queue_id from jmsql_internal.queue q
                where c.properties ->> 'JMS_jmsql_OriginalDestination' like 'queue://%'
                  and q.name = substr(c.properties ->> 'JMS_jmsql_OriginalDestination', 9)
                union all
                (select s.queue_id
                 from jmsql_internal.subscription s
                 join jmsql_internal.topic t using (topic_id)
                 where c.properties ->> 'JMS_jmsql_OriginalDestination' like 'topic://%'
                   and t.name = substr(c.properties ->> 'JMS_jmsql_OriginalDestination', 9)
                   and s.name = c.properties ->> 'JMS_jmsql_OriginalSubscription'
                   and s.client_id is not distinct from c.properties ->> 'JMS_jmsql_OriginalClientID'
                 order by s.durable desc)
                limit 1) o
            where s.claim_id is null),
        forgotten as (
            delete from jmsql_internal.delivery where ctid = any(array(
                select d.address from found f
                cross join lateral (
                    select t.ctid as address from jmsql_internal.delivery t
                    where (t.queue_id, t.inverse_priority, t.sequence) = (f.queue_id, f.inverse_priority, f.sequence)
                    offset 0) d))),
        deleted as (
            delete from jmsql_internal.message where ctid = any(array(select f.address from found f))),
        forgotten_results as (
            delete from jmsql_internal.result
            where message_id = any(array(select f.jms_message_id from found f))),
        back as (
            insert into jmsql_internal.message (
                queue_id, jms_expiration, properties, body_id, inverse_priority, jms_message_id, jms_timestamp,
                jms_delivery_mode, jms_delivery_time, message_type, jms_correlation_id, jms_reply_to, jms_type,
                property_types, text_body, json_body, body_types, bytes_body)
            select f.origin_id,
                   case when jmsql_internal.whole_number(f.properties ->> 'JMS_jmsql_OriginalExpiration')
                             > jmsql_internal.current_milliseconds()
                        then jmsql_internal.whole_number(f.properties ->> 'JMS_jmsql_OriginalExpiration') end,
                   nullif(jmsql_internal.without_dead_letter_properties(f.properties), '{}'),
                   body_id, inverse_priority, jms_message_id, jms_timestamp, jms_delivery_mode, jms_delivery_time,
                   message_type, jms_correlation_id, jms_reply_to, jms_type, property_types, text_body, json_body,
                   body_types, bytes_body
            from found f
            order by f.inverse_priority, f.sequence),
        noted as materialized (
            select jmsql_internal.note_activity('retry', queue, count(*), array_agg(f.jms_message_id)) from found f),
        told as materialized (
            select jmsql_internal.notify(f.origin_id::text) from found f group by f.origin_id)
        select f.origin, f.origin_subscription, count(*) from found f
        where (select count(*) from told) >= 0 and (select count(*) from noted) > 0
        group by f.origin, f.origin_subscription;
    perform jmsql_internal.note_ending('');
end
$$;
comment on function jmsql_internal.return_dead_letters(integer, smallint[], bigint[]) is
    'Moves dead letters back to where they come from, but for those that a session holds or whose origin is gone.';

create function jmsql.retry(queue text, max_messages bigint default null) returns bigint
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    number integer := jmsql_internal.queue_number(queue);
begin
    perform jmsql_internal.chosen_messages('{}', max_messages);
    return (
        select coalesce(sum(r.returned), 0)
        from (select array_agg(d.inverse_priority) as inverse_priorities, array_agg(d.sequence) as sequences
              from (select m.inverse_priority, m.sequence from jmsql_internal.message m
                    where m.queue_id = number and m.properties ? 'JMS_jmsql_DeadLetterReason'
                    order by m.inverse_priority, m.sequence
                    limit max_messages) d) k
        cross join lateral jmsql_internal.return_dead_letters(number, k.inverse_priorities, k.sequences) r);
end
$$;
comment on function jmsql.retry(text, bigint) is
    'Moves the dead letters in a queue back to where they come from, the first so many; returns how many went.';
