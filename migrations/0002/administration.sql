-- Queues and topics are made by one function.

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

create or replace function jmsql.create_queue(name text, settings jsonb default '{}') returns boolean
    language sql volatile
begin atomic
    select jmsql_internal.create_destination('queue://' || name, settings);
end;

create or replace function jmsql.create_topic(name text, settings jsonb default '{}') returns boolean
    language sql volatile
begin atomic
    select jmsql_internal.create_destination('topic://' || name, settings);
end;
