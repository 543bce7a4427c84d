-- Messages sent by SQL alone.

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
    due bigint := sent_at + extract(epoch from delivery_delay) * 1000;
    expiration bigint := sent_at + extract(epoch from time_to_live) * 1000;
    is_topic boolean := destination like 'topic://%';
    plain_name text := regexp_replace(destination, '^(queue|topic)://', '');
    targets integer[];
    wrong text;
begin
    if priority is null or priority not between 0 and 9 then
        raise exception 'The priority is 0 to 9, not %.', priority using errcode = 'JMS03';
    end if;
    select p.key into wrong from jsonb_each(properties) p
    where p.key !~ '^[[:alpha:]_$][[:alnum:]_$]*$' or jsonb_typeof(p.value) not in ('string', 'number', 'boolean')
       or p.key ~ '^JMS' or upper(p.key) in ('NULL', 'TRUE', 'FALSE', 'NOT', 'AND', 'OR', 'BETWEEN', 'LIKE', 'IN', 'IS',
                                             'ESCAPE')
    limit 1;
    if wrong is not null and wrong not in ('JMSXGroupID', 'JMSXGroupSeq') then
        raise exception 'The property "%" has a name that is none, or a value that is no string, number or boolean.',
            wrong using errcode = 'JMS03';
    end if;
    if is_topic then
        select s.selector into wrong
        from jmsql_internal.subscription s join jmsql_internal.topic t using (topic_id)
        where t.name = plain_name and s.selector is not null
        limit 1;
        if wrong is not null then
            raise exception 'A subscription to "%" has the selector %, which SQL does not evaluate.', destination, wrong
                using errcode = 'JMS02', hint = 'Publish through a client, or send to a queue.';
        end if;
        targets := array(
            select s.queue_id from jmsql_internal.subscription s join jmsql_internal.topic t using (topic_id)
            where t.name = plain_name);
    else
        insert into jmsql_internal.queue (name)
        select plain_name
        where (select c.automatic_creation from jmsql_internal.configuration c)
          and not exists (select from jmsql_internal.queue q where q.name = plain_name)
        on conflict do nothing;
        targets := array[jmsql_internal.queue_number(plain_name)];
    end if;
    if due > sent_at then
        insert into jmsql_internal.delayed_message (
            queue_id, inverse_priority, jms_message_id, jms_timestamp, jms_expiration, jms_delivery_mode,
            jms_delivery_time, message_type, jms_correlation_id, jms_reply_to, jms_type, properties, text_body)
        select t, 9 - priority, message_id, sent_at, expiration, 2, due, 'TextMessage', correlation_id,
               case when reply_to ~ '^(temp-)?(queue|topic)://' then reply_to else 'queue://' || reply_to end, jms_type,
               nullif(properties, '{}'), body
        from unnest(targets) t;
        perform pg_notify(jmsql_internal.channel(), '0');
    else
        insert into jmsql_internal.message (
            queue_id, inverse_priority, jms_message_id, jms_timestamp, jms_expiration, jms_delivery_mode,
            message_type, jms_correlation_id, jms_reply_to, jms_type, properties, text_body)
        select t, 9 - priority, message_id, sent_at, expiration, 2, 'TextMessage', correlation_id,
               case when reply_to ~ '^(temp-)?(queue|topic)://' then reply_to else 'queue://' || reply_to end, jms_type,
               nullif(properties, '{}'), body
        from unnest(targets) t;
        perform pg_notify(jmsql_internal.channel(), t::text) from unnest(targets) t;
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
