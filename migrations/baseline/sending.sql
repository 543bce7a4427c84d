-- Messages sent by SQL alone.

create function jmsql_internal.check_properties(properties jsonb) returns void
    language plpgsql immutable
    set search_path = pg_catalog, pg_temp
as $$
declare
    wrong record;
begin
    if properties is null then
        return;
    end if;
    if jsonb_typeof(properties) <> 'object' then
        raise exception 'Expected the properties as a JSON object such as {"color": "blue"}, got %.',
            left(properties::text, 300) using errcode = 'JMS03';
    end if;
    select e.name, e.reason into wrong
    from (select p.key as name, case
              when p.key !~ '^[[:alpha:]_$][[:alnum:]_$]*$'
                   or upper(p.key) in ('NULL', 'TRUE', 'FALSE', 'NOT', 'AND', 'OR', 'BETWEEN', 'LIKE', 'IN', 'IS', 'ESCAPE')
                  then 'a name is a letter, _ or $, then letters and digits, and no word of selectors'
              when jsonb_typeof(p.value) not in ('string', 'number', 'boolean')
                  then 'expected a string, a number or a boolean'
              when p.key = 'JMSXGroupID' then case
                  when jsonb_typeof(p.value) <> 'string' then 'expected a string' end
              when p.key = 'JMSXGroupSeq' then case
                  when p.value::text !~ '^[1-9][0-9]{0,9}$' or p.value::bigint > 2147483647
                      then 'expected an integer from 1' end
              when p.key in ('JMS_jmsql_DeduplicationID', 'JMS_jmsql_Coalesce', 'JMS_jmsql_CoalesceBody') then case
                  when jsonb_typeof(p.value) <> 'string' then 'expected a string'
                  when p.key = 'JMS_jmsql_CoalesceBody' and p.value #>> '{}' not in ('first', 'latest')
                      then 'expected first or latest'
                  when length(p.value #>> '{}') not between 1 and 255 then 'expected 1 to 255 characters' end
              when starts_with(p.key, 'JMS') and (not starts_with(p.key, 'JMS_') or starts_with(p.key, 'JMS_jmsql'))
                  then 'names that begin with JMS are the provider''s'
              when jsonb_typeof(p.value) = 'number' then case
                  when p.value::numeric between -2147483648 and 2147483647 then null
                  when strpos(p.value::text, '.') = 0
                       and p.value::numeric not between -9223372036854775808 and 9223372036854775807
                      then 'the integer does not fit 64 bits'
                  when abs(p.value::numeric) > 1.7976931348623157e308
                      then 'the number does not fit a double' end
              end as reason
          from jsonb_each(properties) p) e
    where e.reason is not null
    order by e.name
    limit 1;
    if found then
        raise exception 'The property "%" cannot be %: %.', left(wrong.name, 300),
            left((properties -> wrong.name)::text, 300), wrong.reason using errcode = 'JMS03';
    end if;
end
$$;
comment on function jmsql_internal.check_properties(jsonb) is 'Refuses properties that a client could not set.';

create function jmsql.send(
    destination text, body text, properties jsonb default null, priority integer default 4,
    time_to_live interval default null, delivery_delay interval default null, correlation_id text default null,
    reply_to text default null, jms_type text default null) returns text
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    message_id uuid := gen_random_uuid();
    sent_at bigint := extract(epoch from clock_timestamp()) * 1000;
    lifetime numeric := extract(epoch from time_to_live);
    delay numeric := extract(epoch from delivery_delay);
    due bigint;
    expiration bigint;
    named record := jmsql_internal.parse_destination(destination);
    answer record;
    is_topic boolean := named.kind in ('topic', 'temp-topic');
    targets integer[];
    wrong text;
    patience text := current_setting('lock_timeout');
    conditions constant text[] := array['JMS_jmsql_DeduplicationID', 'JMS_jmsql_Coalesce', 'JMS_jmsql_CoalesceBody'];
    coalesce_key constant text := properties ->> 'JMS_jmsql_Coalesce';
    asked record;
begin
    if priority is null or priority not between 0 and 9 then
        raise exception 'The priority is 0 to 9, not %.', priority using errcode = 'JMS03';
    end if;
    if lifetime < 0 then
        raise exception 'The time to live is an interval from 0 on, not %.', time_to_live using errcode = 'JMS03',
            hint = '0 and all above a hundred years are for ever.';
    end if;
    if delay not between 0 and 3153600000 then
        raise exception 'The delivery delay is an interval from 0 to a hundred years, not %.', delivery_delay
            using errcode = 'JMS03';
    end if;
    if lifetime > 0 and lifetime <= 3153600000 then
        expiration := sent_at + lifetime * 1000;
    end if;
    due := sent_at + delay * 1000;
    perform jmsql_internal.check_properties(properties);
    if coalesce(octet_length(body), 0) + coalesce(pg_column_size(properties), 0) + coalesce(octet_length(correlation_id), 0)
       + coalesce(octet_length(jms_type), 0) > 268435456 then
        raise exception 'The message has more than 268,435,456 bytes.' using errcode = 'JMS03',
            hint = 'Store its content elsewhere and send a reference.';
    end if;
    if reply_to is not null then
        answer := jmsql_internal.parse_destination(reply_to);
        reply_to := answer.kind || '://' || answer.name;
    end if;
    if named.kind in ('queue', 'topic')
       and not exists (select from jmsql_internal.queue q where not is_topic and q.name = named.name
                       union all select from jmsql_internal.topic t where is_topic and t.name = named.name)
       and (select c.automatic_creation from jmsql_internal.configuration c) then
        begin
            -- Others who make the same wait until the caller's transaction ends, and it may wait for them.
            if patience = '0' or patience::interval > interval '4 s' then
                perform set_config('lock_timeout', '4s', true);
            end if;
            if is_topic then
                insert into jmsql_internal.topic (name) values (named.name) on conflict do nothing;
            else
                insert into jmsql_internal.queue (name) values (named.name) on conflict do nothing;
            end if;
            perform set_config('lock_timeout', patience, true);
        exception
            when lock_not_available then
                raise exception 'The % "%" was not created in time: another transaction that has not ended creates it, too.',
                    named.kind, named.name using errcode = 'lock_not_available',
                    hint = 'End that, or create destinations beforehand, with create_queue or create_topic.';
            when check_violation then
                raise exception 'The name "%" is reserved for temporary destinations.', named.name using errcode = 'JMS01';
            when insufficient_privilege then
                raise exception 'There is no % "%", and the role "%" may not make it.', named.kind, named.name, current_user
                    using errcode = 'JMS04', hint = 'Only access to all destinations makes them by their use.';
        end;
    end if;
    if is_topic then
        if not exists (select from jmsql_internal.topic t where t.name = named.name) then
            raise exception 'There is no topic "%".', named.name using errcode = 'JMS01',
                hint = 'Make it with create_topic; the view destinations lists those there are.';
        end if;
        select s.selector into wrong
        from jmsql_internal.subscription s join jmsql_internal.topic t using (topic_id)
        where t.name = named.name and s.selector is not null
        limit 1;
        if wrong is not null then
            raise exception 'A subscription to "%" has the selector %, which SQL does not evaluate.', destination, wrong
                using errcode = 'JMS02', hint = 'Publish through a client, or send to a queue.';
        end if;
        targets := array(
            select s.queue_id from jmsql_internal.subscription s join jmsql_internal.topic t using (topic_id)
            where t.name = named.name);
    else
        select array[q.queue_id] into targets from jmsql_internal.queue q where q.name = named.name;
        if targets is null then
            targets := array[jmsql_internal.queue_number(destination)];  -- which says that there is none
        end if;
    end if;
    if row_security_active('jmsql_internal.message'::regclass)
       and not targets <@ jmsql_internal.accessible_queues('send', current_user)
       and not jmsql_internal.has_access_to_all('send', current_user) then
        raise exception 'The role "%" may not send to "%".', current_user, destination using errcode = 'JMS04',
            hint = 'Give it access with `jmsql destination grant`, or the function grant_access.';
    end if;
    if coalesce_key is not null and is_topic then
        raise exception 'A message to % cannot coalesce: each subscription may have handled the last one or not.', destination
            using errcode = 'JMS01', hint = 'Coalesce messages to queues.';
    end if;
    if properties ?| conditions then
        insert into jmsql_internal.admission as a (
            topic, queues, message_ids, deduplication_ids, coalesce_keys, replacing, expiring, delivery_times)
        values (case when is_topic then named.name end, array[named.name], array[message_id],
                array[properties ->> 'JMS_jmsql_DeduplicationID'], array[coalesce_key],
                array[properties ->> 'JMS_jmsql_CoalesceBody' is not distinct from 'latest'], array[expiration is not null],
                array[case when due > sent_at then due end])
        returning a.* into asked;
        if asked.outcomes[1] <> 0 then
            if asked.known_sequences[1] is not null then
                perform jmsql_internal.notify(
                    format('%s %s %s', asked.queue_ids[1], asked.known_priorities[1], asked.known_sequences[1]));
            end if;
            return 'ID:' || asked.known_ids[1];
        end if;
        properties := properties - conditions;
    end if;
    if due > sent_at then
        insert into jmsql_internal.delayed_message (
            queue_id, inverse_priority, jms_message_id, jms_timestamp, jms_expiration, jms_delivery_mode,
            jms_delivery_time, message_type, jms_correlation_id, jms_reply_to, jms_type, properties, text_body)
        select t, 9 - priority, message_id, sent_at, expiration, 2, due, 'TextMessage', correlation_id, reply_to, jms_type,
               nullif(properties, '{}'), body
        from unnest(targets) t;
        perform jmsql_internal.notify('0');
    else
        insert into jmsql_internal.message (
            queue_id, inverse_priority, jms_message_id, jms_timestamp, jms_expiration, jms_delivery_mode,
            message_type, jms_correlation_id, jms_reply_to, jms_type, properties, text_body)
        select t, 9 - priority, message_id, sent_at, expiration, 2, 'TextMessage', correlation_id, reply_to, jms_type,
               nullif(properties, '{}'), body
        from unnest(targets) t
        where pg_current_xact_id() is not null;  -- before a sequence: by that, consumers know what may still come
        perform jmsql_internal.notify(variadic targets::text[]);
    end if;
    if coalesce_key is not null then
        insert into jmsql_internal.admission (
            queues, message_ids, coalesce_keys, delivery_times, inverse_priorities, first_sequence)
        values (array[named.name], array[message_id], array[coalesce_key], array[case when due > sent_at then due end],
                array[9 - priority], asked.first_sequence);
    end if;
    return 'ID:' || message_id;
end
$$;
comment on function jmsql.send(text, text, jsonb, integer, interval, interval, text, text, text) is
    'Sends a TextMessage with the transaction that it is called in, and returns its JMSMessageID. To a topic only if '
    'no subscription to it has a selector.';

-- A literal of unknown type is text: PostgreSQL prefers strings.
create function jmsql.send(
    destination text, body jsonb, properties jsonb default null, priority integer default 4,
    time_to_live interval default null, delivery_delay interval default null, correlation_id text default null,
    reply_to text default null, jms_type text default null) returns text
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
begin
    return jmsql.send(destination, body::text, properties, priority, time_to_live, delivery_delay, correlation_id,
                         reply_to, jms_type);
end
$$;
comment on function jmsql.send(text, jsonb, jsonb, integer, interval, interval, text, text, text) is
    'Sends JSON as a TextMessage, as the function of the same name for text does.';
