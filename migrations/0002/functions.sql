-- The functions of the contract take what Python takes, in the same meaning, and refuse all else with a SQLSTATE of jmsql. So
-- none of them is strict: a null that nobody meant would have been a call that does nothing and says nothing.

create function jmsql_internal.parse_destination(destination text, out kind text, out name text)
    language plpgsql immutable
    set search_path = pg_catalog, pg_temp
as $$
begin
    kind := case when strpos(destination, '://') > 0 then split_part(destination, '://', 1) else 'queue' end;
    name := case when strpos(destination, '://') > 0 then substr(destination, strpos(destination, '://') + 3)
                 else destination end;
    if (kind in ('queue', 'topic', 'temp-queue', 'temp-topic') and length(name) between 1 and 255) is not true then
        raise exception 'Expected a destination such as orders, queue://orders or topic://prices, got %.',
            coalesce(quote_literal(left(destination, 300)), 'null')
            using errcode = 'JMS01', hint = 'Its name has 1 to 255 characters.';
    end if;
end
$$;
comment on function jmsql_internal.parse_destination(text) is
    'The kind and the name of a destination that is given as text: the name of a queue, or kind://name.';

create or replace function jmsql_internal.queue_number(queue text) returns integer
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    named record := jmsql_internal.parse_destination(queue);
    found_id integer;
begin
    if named.kind in ('topic', 'temp-topic') then
        raise exception 'Expected a queue, got "%".', queue using errcode = 'JMS01';
    end if;
    select q.queue_id into found_id from jmsql_internal.queue q where q.name = named.name;
    if found_id is null then
        raise exception 'There is no queue "%".', named.name using errcode = 'JMS01',
            hint = 'Make it with create_queue; the view destinations lists those there are.';
    end if;
    return found_id;
end
$$;

create or replace function jmsql_internal.settings_row(destination text) returns integer
    language plpgsql volatile security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    named record := jmsql_internal.parse_destination(destination);
    found_id integer;
    found_topic integer;
begin
    if named.kind not in ('topic', 'temp-topic') then
        return jmsql_internal.queue_number(destination);
    end if;
    select t.topic_id into found_topic from jmsql_internal.topic t where t.name = named.name;
    if found_topic is null then
        raise exception 'There is no topic "%".', named.name using errcode = 'JMS01',
            hint = 'Make it with create_topic; the view destinations lists those there are.';
    end if;
    insert into jmsql_internal.queue (topic_id) values (found_topic) on conflict (topic_id) do nothing;
    select q.queue_id into found_id from jmsql_internal.queue q where q.topic_id = found_topic;
    return found_id;
end
$$;

create function jmsql_internal.chosen_messages(chosen bigint[], most bigint) returns bigint[]
    language plpgsql immutable
    set search_path = pg_catalog, pg_temp
as $$
begin
    -- What array_agg makes of nothing would choose all.
    if chosen is null then
        raise exception 'Expected sequences of messages, got null.' using errcode = 'JMS03',
            hint = 'Choose with array(select sequence …), which is empty where nothing matches; for all messages, leave it out.';
    end if;
    if most < 0 then
        raise exception 'Expected a number of messages from 0 on, got %.', most using errcode = 'JMS03',
            hint = 'Leave it out for all.';
    end if;
    return nullif(chosen, '{-1}');
end
$$;
comment on function jmsql_internal.chosen_messages(bigint[], bigint) is
    'The sequences that move and purge are given, null for all. A null that is given is refused, and so is a negative most.';

create function jmsql_internal.check_actions(actions text[]) returns void
    language plpgsql immutable
    set search_path = pg_catalog, pg_temp
as $$
begin
    if (actions <@ array['send', 'receive', 'browse'] and cardinality(actions) > 0) is not true then
        raise exception 'Expected one or several of send, receive and browse, got %.',
            coalesce(nullif(array_to_string(actions, ', ', 'null'), ''), 'nothing') using errcode = 'JMS03';
    end if;
end
$$;
comment on function jmsql_internal.check_actions(text[]) is 'Refuses what nobody can have access for.';

-- Making, changing and deleting destinations.

create or replace function jmsql.alter_destination(destination text, settings jsonb) returns void
    language plpgsql volatile security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    settings_id integer := jmsql_internal.settings_row(destination);
    concerned integer[];
    setting text;
    wanted jsonb;
    in_column text;
    expected text;
begin
    if jsonb_typeof(settings) is distinct from 'object' then
        raise exception 'Expected the settings as a JSON object such as {"maximum_deliveries": 5}, got %.',
            coalesce(left(settings::text, 300), 'null') using errcode = 'JMS03';
    end if;
    select array_agg(q.queue_id) into concerned from jmsql_internal.queue q
    where q.queue_id = settings_id
       or q.queue_id in (
            select s.queue_id from jmsql_internal.subscription s
            join jmsql_internal.queue t on t.topic_id = s.topic_id where t.queue_id = settings_id);
    for setting, wanted in select * from jsonb_each(settings) loop
        select c into in_column from jmsql_internal.setting_columns() c
        where regexp_replace(c, '_queue_id$', '_queue') = setting;
        if in_column is null then
            raise exception 'A destination has no setting "%".', setting using errcode = 'JMS03',
                hint = 'There are: ' || (select string_agg(regexp_replace(c, '_queue_id$', '_queue'), ', ')
                                         from jmsql_internal.setting_columns() c) || '.';
        end if;
        select case when in_column <> setting then 'string' when a.atttypid = 'boolean'::regtype then 'boolean'
                    else 'number' end
        into expected
        from pg_attribute a where a.attrelid = 'jmsql_internal.queue'::regclass and a.attname = in_column;
        if jsonb_typeof(wanted) not in (expected, 'null') then
            raise exception 'The setting "%" cannot be %: expected a JSON %.', setting, left(wanted::text, 300), expected
                using errcode = 'JMS03';
        end if;
        if in_column <> setting and wanted <> 'null' then
            wanted := to_jsonb(jmsql_internal.queue_number(wanted #>> '{}'));
            if wanted::integer = any(concerned) then
                raise exception 'A queue cannot be its own %.', replace(setting, '_', ' ') using errcode = 'JMS03';
            end if;
        end if;
        begin
            if wanted = 'null' then
                execute format('update jmsql_internal.queue set %I = default where queue_id = any($1)', in_column)
                    using concerned;
            else
                execute format(
                    'update jmsql_internal.queue q set %1$I = s.%1$I '
                    'from jsonb_populate_record(null::jmsql_internal.queue, $1) s '
                    'where q.queue_id = any($2)', in_column)
                    using jsonb_build_object(in_column, wanted), concerned;
            end if;
        exception when data_exception or check_violation then
            raise exception 'The setting "%" cannot be %: %.', setting, left(wanted::text, 300), left(sqlerrm, 300)
                using errcode = 'JMS03';
        end;
    end loop;
end
$$;

create or replace function jmsql.pause(destination text) returns void
    language sql volatile
begin atomic
    select jmsql.alter_destination(destination, '{"paused": true}');
end;

create or replace function jmsql.resume(destination text) returns void
    language sql volatile
begin atomic
    select jmsql.alter_destination(destination, '{"paused": false}');
end;

create or replace function jmsql.delete_destination(destination text, force boolean default false) returns void
    language plpgsql volatile security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    settings_id integer := jmsql_internal.settings_row(destination);
    found_topic integer;
    concerned integer[];
    clients bigint;
begin
    if force is null then
        raise exception 'Expected true or false for force, got null.' using errcode = 'JMS03';
    end if;
    select q.topic_id into found_topic from jmsql_internal.queue q where q.queue_id = settings_id;
    concerned := case when found_topic is null then array[settings_id]
                      else array(select s.queue_id from jmsql_internal.subscription s
                                 where s.topic_id = found_topic) end;
    if not force then
        select count(*) into clients from jmsql_internal.connection c
        where jmsql_internal.is_connected(c.connection_id)
          and (exists (select from jmsql_internal.consumer n
                       where n.queue_id = any(concerned) and n.connection_id = c.connection_id)
               or exists (select from jmsql_internal.delivery d
                          where d.queue_id = any(concerned) and d.connection_id = c.connection_id));
        if clients > 0 then
            raise exception 'The destination "%" has consumers, of % client(s).', destination, clients
                using errcode = 'JMS02', hint = 'Close them first, or force it.';
        end if;
    end if;
    delete from jmsql_internal.permission p where p.queue_id = settings_id;
    delete from jmsql_internal.subscription s where s.queue_id = any(concerned);
    -- Their messages go later, in small steps; those that a session holds when it has let go of them.
    update jmsql_internal.queue q set name = null, connection_id = null, deleted_at = statement_timestamp()
    where q.queue_id = any(concerned);
    delete from jmsql_internal.topic t where t.topic_id = found_topic;
end
$$;

-- Sending.

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

create or replace function jmsql.send(
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
            perform pg_notify(jmsql_internal.channel(),
                              format('%s %s %s', asked.queue_ids[1], asked.known_priorities[1], asked.known_sequences[1]))
            where asked.known_sequences[1] is not null and (select pg_notification_queue_usage()) < 0.9;
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
        perform pg_notify(jmsql_internal.channel(), '0') where pg_notification_queue_usage() < 0.9;
    else
        insert into jmsql_internal.message (
            queue_id, inverse_priority, jms_message_id, jms_timestamp, jms_expiration, jms_delivery_mode,
            message_type, jms_correlation_id, jms_reply_to, jms_type, properties, text_body)
        select t, 9 - priority, message_id, sent_at, expiration, 2, 'TextMessage', correlation_id, reply_to, jms_type,
               nullif(properties, '{}'), body
        from unnest(targets) t
        where pg_current_xact_id() is not null;  -- before a sequence: by that, consumers know what may still come
        -- Where the server's queue of notifications is full, the caller's commit would fail.
        perform pg_notify(jmsql_internal.channel(), t::text) from unnest(targets) t
        where (select pg_notification_queue_usage()) < 0.9;
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

-- Moving, purging and sending again.

create or replace function jmsql.move(source text, target text, chosen bigint[] default '{-1}', most bigint default null)
    returns bigint
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    source_id integer := jmsql_internal.queue_number(source);
    target_id integer := jmsql_internal.queue_number(target);
    moved bigint;
begin
    chosen := jmsql_internal.chosen_messages(chosen, most);
    moved := jmsql_internal.move_step(source_id, target_id, chosen, 9223372036854775807, most, false);
    return moved + jmsql_internal.move_step(source_id, target_id, chosen, 9223372036854775807, most - moved, true);
end
$$;

create or replace function jmsql.purge(queue text, chosen bigint[] default '{-1}', most bigint default null) returns bigint
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    number integer := jmsql_internal.queue_number(queue);
    addresses tid[];
    deliveries integer[];
    deleted bigint;
    deleted_delayed bigint;
begin
    chosen := jmsql_internal.chosen_messages(chosen, most);
    select coalesce(array_agg(m.address), '{}'), coalesce(array_agg(m.deliveries), '{}')
    into addresses, deliveries
    from jmsql_internal.lock_free_messages(number, chosen, 9223372036854775807, most) m;
    if (select q.history from jmsql_internal.queue q where q.queue_id = number) then
        perform jmsql_internal.keep_history(addresses, deliveries, 'purged', null);
    end if;
    perform jmsql_internal.forget_deliveries(addresses);
    delete from jmsql_internal.message where ctid = any(addresses);
    get diagnostics deleted = row_count;
    delete from jmsql_internal.delayed_message where ctid = any(array(
        select m.ctid from jmsql_internal.delayed_message m
        where m.queue_id = number and (chosen is null or m.sequence = any(chosen))
        limit most - deleted
        for update skip locked));
    get diagnostics deleted_delayed = row_count;
    return deleted + deleted_delayed;
end
$$;

create or replace function jmsql.retry(queue text, most bigint default null) returns bigint
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    number integer := jmsql_internal.queue_number(queue);
begin
    perform jmsql_internal.chosen_messages('{}', most);
    return (
        select coalesce(sum(r.returned), 0)
        from (select array_agg(d.inverse_priority) as inverse_priorities, array_agg(d.sequence) as sequences
              from (select m.inverse_priority, m.sequence from jmsql_internal.message m
                    where m.queue_id = number and m.properties ? 'JMS_jmsql_DeadLetterReason'
                    order by m.inverse_priority, m.sequence
                    limit most) d) k
        cross join lateral jmsql_internal.return_dead_letters(number, k.inverse_priorities, k.sequences) r);
end
$$;

create or replace function jmsql.replay(
    source text, target text, since timestamptz, until timestamptz default 'infinity',
    outcomes text[] default '{acknowledged}', keep_ids boolean default false) returns bigint
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    named record := jmsql_internal.parse_destination(source);
    target_id integer := jmsql_internal.queue_number(target);
    transactions xid8[];
    numbers bigint[];
    replayed bigint;
begin
    if since is null or until is null or keep_ids is null then
        raise exception 'Expected a range of time, and true or false for keep_ids, got null.' using errcode = 'JMS03',
            hint = 'A range from -infinity to infinity is all of the history.';
    end if;
    if (outcomes <@ enum_range(null::jmsql_internal.outcome)::text[]) is not true then
        raise exception 'Expected outcomes of %, got %.', enum_range(null::jmsql_internal.outcome),
            coalesce(array_to_string(outcomes, ', ', 'null'), 'null') using errcode = 'JMS03';
    end if;
    select array_agg(k.transaction_id order by k.sequence), array_agg(k.sequence order by k.sequence)
    into transactions, numbers
    from (
        select distinct on (coalesce(m.jms_message_id::text, m.sequence::text)) m.transaction_id, m.sequence
        from jmsql_internal.message_history m
        where m.destination = named.name and m.is_topic = (named.kind in ('topic', 'temp-topic'))
          and m.acknowledged_at >= since and m.acknowledged_at < until
          and m.outcome = any(outcomes::jmsql_internal.outcome[])
        order by coalesce(m.jms_message_id::text, m.sequence::text), m.sequence) k;
    replayed := jmsql_internal.replay_messages(named.name, transactions, numbers, since, until, target_id, keep_ids);
    perform pg_notify(jmsql_internal.channel(), target_id::text) where pg_notification_queue_usage() < 0.9;
    return replayed;
end
$$;

-- Access, and streams of Spark.

create or replace function jmsql.grant_access(destination text, role name, variadic actions text[]) returns void
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform jmsql_internal.check_actions(actions);
    perform jmsql_internal.permit(role, actions, jmsql_internal.settings_row(destination));
end
$$;

create or replace function jmsql.revoke_access(destination text, role name, variadic actions text[]) returns void
    language plpgsql volatile security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    settings_id integer := jmsql_internal.settings_row(destination);
begin
    perform jmsql_internal.check_actions(actions);
    if not exists (select from pg_roles r where r.rolname = role) then
        raise exception 'There is no role "%".', role using errcode = 'JMS03';
    end if;
    lock table jmsql_internal.permission in share row exclusive mode;
    delete from jmsql_internal.permission p
    where p.grantee = quote_ident(role)::regrole and p.queue_id = settings_id and p.action = any(actions);
    perform jmsql_internal.set_privileges(role);
end
$$;

create or replace function jmsql.forget_spark_source(source uuid) returns bigint
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    released bigint;
begin
    if not exists (select from jmsql_internal.spark_source s where s.source_id = source
                   union all select from jmsql_internal.spark_cursor c where c.source_id = source) then
        raise exception 'There is no streaming read "%".', source using errcode = 'JMS03',
            hint = 'The view spark_sources lists those there are.';
    end if;
    perform from jmsql_internal.spark_source s where s.source_id = source for update;
    update jmsql_internal.delivery d set claim_id = null, connection_id = null, claimed_at = null
    from jmsql_internal.spark_source s join jmsql_internal.spark_batch b using (source_id)
    where s.source_id = source and d.queue_id = s.queue_id and d.claim_id in (b.claim_id, - b.claim_id);
    get diagnostics released = row_count;
    delete from jmsql_internal.spark_source s where s.source_id = source;
    delete from jmsql_internal.spark_cursor c where c.source_id = source;
    return released;
end
$$;
