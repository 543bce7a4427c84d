-- How much has gone through destinations.

create table jmsql_internal.destination_counters (
    destination_id integer primary key,
    sent           bigint not null default 0,
    acknowledged   bigint not null default 0,
    rolled_back    bigint not null default 0,
    redelivered    bigint not null default 0,
    waited         double precision not null default 0,
    calls          bigint not null default 0,
    handled        double precision not null default 0
) with (fillfactor = 50, vacuum_truncate = off);
comment on table jmsql_internal.destination_counters is
    'What went through a queue, or a topic (minus its number), as the clients count it: once a second.';

comment on column jmsql_internal.destination_counters.waited is
    'Microseconds from the time when acknowledged messages could be delivered to their acknowledgement, in all.';
comment on column jmsql_internal.destination_counters.calls is 'Calls of handlers.';
comment on column jmsql_internal.destination_counters.handled is 'Microseconds that the calls took, in all.';

create function jmsql_internal.forget_counters() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    if tg_argv[0] = 'queue' then
        delete from jmsql_internal.destination_counters t using removed q where t.destination_id = q.queue_id;
    else
        delete from jmsql_internal.destination_counters t using removed o where t.destination_id = -o.topic_id;
    end if;
    return null;
end
$$;
create trigger counters_go_with_their_queue after delete on jmsql_internal.queue
    referencing old table as removed for each statement execute function jmsql_internal.forget_counters('queue');
create trigger counters_go_with_their_topic after delete on jmsql_internal.topic
    referencing old table as removed for each statement execute function jmsql_internal.forget_counters('topic');
