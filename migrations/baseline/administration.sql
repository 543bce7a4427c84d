-- Destinations made, changed, paused and deleted.
--
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

create function jmsql_internal.settings_row(destination text) returns integer
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
comment on function jmsql_internal.settings_row(text) is
    'The row of the table queue with the settings of a queue or topic.';

create function jmsql_internal.create_destination(destination text, settings jsonb) returns boolean
    language plpgsql volatile security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    named record := jmsql_internal.parse_destination(destination);
    made boolean;
begin
    if named.kind = 'topic' then
        insert into jmsql_internal.topic (name) values (named.name) on conflict do nothing;
    else
        insert into jmsql_internal.queue (name) values (named.name) on conflict do nothing;
    end if;
    made := found;
    if settings is distinct from '{}' then
        perform jmsql.alter_destination(destination, settings);
    end if;
    return made;
exception when check_violation then
    raise exception 'The name "%" is reserved for temporary destinations.', named.name using errcode = 'JMS01';
end
$$;
comment on function jmsql_internal.create_destination(text, jsonb) is
    'Makes the queue or topic of a URI, if it is not there, and changes the settings that are named. Returns whether it '
    'was made.';

create function jmsql.create_queue(name text, settings jsonb default '{}') returns boolean
    language sql volatile
begin atomic
    select jmsql_internal.create_destination('queue://' || name, settings);
end;
comment on function jmsql.create_queue(text, jsonb) is
    'Makes a queue, if it is not there, and changes the settings that are named. Returns whether it was made.';

create function jmsql.create_topic(name text, settings jsonb default '{}') returns boolean
    language sql volatile
begin atomic
    select jmsql_internal.create_destination('topic://' || name, settings);
end;
comment on function jmsql.create_topic(text, jsonb) is
    'Makes a topic, if it is not there, and changes the settings that are named. Returns whether it was made.';

create function jmsql.alter_destination(destination text, settings jsonb) returns void
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
    -- A subscription that is not committed yet has the settings from before: it keeps a key-share lock of its topic, and the
    -- next statement sees it.
    perform from jmsql_internal.topic t
    where t.topic_id = (select q.topic_id from jmsql_internal.queue q where q.queue_id = settings_id) for update;
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
comment on function jmsql.alter_destination(text, jsonb) is
    'Changes settings of a queue or topic: those named, null to what they are by default.';

create function jmsql.pause(destination text) returns void
    language sql volatile
begin atomic
    select jmsql.alter_destination(destination, '{"paused": true}');
end;
comment on function jmsql.pause(text) is 'Stops the delivery of messages from a queue, or a topic''s subscriptions.';

create function jmsql.resume(destination text) returns void
    language sql volatile
begin atomic
    select jmsql.alter_destination(destination, '{"paused": false}');
end;
comment on function jmsql.resume(text) is 'Goes on with the delivery of messages that a pause has stopped.';

create function jmsql.delete_destination(destination text, force boolean default false) returns void
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
    -- The topic first, as alter_destination does: else the two could deadlock.
    perform from jmsql_internal.topic t where t.topic_id = found_topic for update;
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
comment on function jmsql.delete_destination(text, boolean) is
    'Deletes a queue with its messages, or a topic with its subscriptions and their messages; not while somebody '
    'receives from it, unless forced.';
