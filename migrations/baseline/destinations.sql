-- Queues and topics, what is set for them, and who receives from them.

create table jmsql_internal.topic (
    topic_id      integer generated always as identity primary key,
    name          text collate "C" not null unique check (length(name) between 1 and 255),
    connection_id bigint,
    created_at    timestamptz not null default now(),
    user_name     name not null default current_user,
    -- Names of temporary destinations are of a form that no other name has.
    constraint temporary_names_are_reserved
        check ((connection_id is not null) = (name ~ '^temporary-[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$'))
);
comment on table jmsql_internal.topic is
    'A topic. What is published on it goes to the queue of each of its subscriptions.';
comment on column jmsql_internal.topic.connection_id is 'The connection with which a temporary topic goes.';
comment on column jmsql_internal.topic.user_name is 'The role that has made it, whose alone it is if it is temporary.';
create index topic_temporary on jmsql_internal.topic (connection_id) where connection_id is not null;

create table jmsql_internal.queue (
    queue_id                 integer generated always as identity primary key,
    name                     text collate "C" unique check (length(name) between 1 and 255),
    expiry_queue_id          integer references jmsql_internal.queue on delete set null,
    created_at               timestamptz not null default now(),
    connection_id            bigint,
    deleted_at               timestamptz,
    topic_id                 integer unique references jmsql_internal.topic on delete cascade,
    history                  boolean not null default false,
    history_days             integer check (history_days > 0),
    paused                   boolean not null default false,
    maximum_deliveries       integer check (maximum_deliveries > 0),
    redelivery_delay         double precision check (redelivery_delay between 0 and 3153600000),
    redelivery_multiplier    double precision
        check (redelivery_multiplier >= 1 and redelivery_multiplier < 'infinity'),
    maximum_redelivery_delay double precision check (maximum_redelivery_delay between 0 and 3153600000),
    redelivery_jitter        double precision check (redelivery_jitter between 0 and 1),
    dead_letter_queue_id     integer references jmsql_internal.queue on delete set null,
    visibility_timeout       double precision check (visibility_timeout between 1 and 3153600000),
    deduplication_window     double precision check (deduplication_window between 0 and 3153600000),
    user_name                name not null default current_user,
    constraint temporary_names_are_reserved check (
        name is null
        or (connection_id is not null) = (name ~ '^temporary-[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$'))
);
comment on table jmsql_internal.queue is
    'A queue. Messages that expire in it move to its expiry queue, if it names one.';
comment on column jmsql_internal.queue.name is
    'Null for the queue of a subscription, and for one that is being deleted.';
comment on column jmsql_internal.queue.connection_id is 'The connection with which a temporary queue goes.';
comment on column jmsql_internal.queue.deleted_at is 'Since when its messages are being removed; the row goes last.';
comment on column jmsql_internal.queue.topic_id is
    'This is no queue, but what its subscriptions begin with: the settings of the topic.';
comment on column jmsql_internal.queue.history is 'Whether messages go to message_history when they leave the queue.';
comment on column jmsql_internal.queue.history_days is
    'How many days of it are kept; null: all, until somebody removes it.';
comment on column jmsql_internal.queue.paused is 'The queue takes messages and delivers none.';
comment on column jmsql_internal.queue.maximum_deliveries is
    'After so many deliveries that failed, a message moves to the dead-letter queue; null: never.';
comment on column jmsql_internal.queue.redelivery_delay is 'Seconds before the first redelivery; null: none.';
comment on column jmsql_internal.queue.redelivery_multiplier is 'What each further delay is multiplied with; null: 1.';
comment on column jmsql_internal.queue.maximum_redelivery_delay is 'The longest delay in seconds; null: any.';
comment on column jmsql_internal.queue.redelivery_jitter is 'The share by which delays vary at random; null: 0.';
comment on column jmsql_internal.queue.dead_letter_queue_id is 'Where messages go at last; null: the queue DLQ.';
comment on column jmsql_internal.queue.visibility_timeout is
    'After so many seconds a claim that nobody extends is taken away; null: never.';
comment on column jmsql_internal.queue.deduplication_window is
    'For how many seconds a deduplication id counts; null: a day. 0: not at all.';
comment on column jmsql_internal.queue.user_name is 'The role that has made it, whose alone it is if it is temporary.';
create index queue_deleted on jmsql_internal.queue (queue_id) where deleted_at is not null;
create index queue_temporary on jmsql_internal.queue (connection_id) where connection_id is not null;
-- A client that acknowledges looks here, and finds nothing to read while nobody keeps history.
create index queue_history on jmsql_internal.queue (queue_id) where history;

create table jmsql_internal.subscription (
    queue_id   integer primary key references jmsql_internal.queue on delete cascade,
    topic_id   integer not null references jmsql_internal.topic on delete cascade,
    client_id  text collate "C",
    name       text collate "C",
    selector   text,
    durable    boolean not null,
    shared     boolean not null,
    no_local   boolean not null,
    created_at timestamptz not null default now(),
    ended      boolean not null default false,
    check (name is not null or not (durable or shared))
);
comment on table jmsql_internal.subscription is 'What is wanted of a topic, and by whom.';
comment on column jmsql_internal.subscription.ended is 'Set to true, it ends the subscription.';
create index subscription_topic on jmsql_internal.subscription (topic_id);
create unique index subscription_name on jmsql_internal.subscription (name, client_id, durable) nulls not distinct
    where name is not null;

create table jmsql_internal.subscriber (
    queue_id      integer not null references jmsql_internal.subscription on delete cascade,
    connection_id bigint not null references jmsql_internal.connection on delete cascade,
    consumers     integer not null check (consumers >= 0),
    primary key (queue_id, connection_id)
);
comment on table jmsql_internal.subscriber is 'How many consumers of a connection receive from a subscription now.';
comment on column jmsql_internal.subscriber.consumers is 'Set to 0, it removes the row.';
create index subscriber_connection on jmsql_internal.subscriber (connection_id);

create table jmsql_internal.consumer (
    connection_id bigint not null references jmsql_internal.connection on delete cascade,
    queue_id      integer not null,
    selector      text not null,
    consumers     integer not null check (consumers >= 0),
    acknowledged  bigint not null default 0,
    rolled_back   bigint not null default 0,
    last_at       timestamptz,
    listeners     text
) with (fillfactor = 50);
-- A selector may be longer than an entry of an index.
create unique index consumer_key on jmsql_internal.consumer (connection_id, queue_id, md5(selector));
alter table jmsql_internal.consumer replica identity full;
comment on table jmsql_internal.consumer is
    'How many consumers of a queue or subscription a connection has, and with which selector, if not an empty one.';
comment on column jmsql_internal.consumer.consumers is 'Set to 0, it removes the row.';
comment on column jmsql_internal.consumer.acknowledged is
    'How many deliveries of the queue the connection has ended with the message gone, whatever the selector.';
comment on column jmsql_internal.consumer.last_at is 'When it has ended the last one, to a second.';
comment on column jmsql_internal.consumer.listeners is 'The names of the worker''s listeners; null: it is no worker.';
create index consumer_queue on jmsql_internal.consumer (queue_id);

create table jmsql_internal.configuration (
    only_row           boolean primary key default true check (only_row),
    automatic_creation boolean not null default true,
    activity_days      integer not null default 30 check (activity_days between 0 and 36500)
);
comment on table jmsql_internal.configuration is 'What is set for all destinations: one row.';
comment on column jmsql_internal.configuration.automatic_creation is
    'Whether the first use of a queue or topic makes it.';
comment on column jmsql_internal.configuration.activity_days is
    'How many days the actions of administrators are kept; 0: they are not noted.';
insert into jmsql_internal.configuration default values;

create table jmsql_internal.binding (
    name     text collate "C" primary key check (length(name) between 1 and 255),
    object   jsonb not null,
    bound_at timestamptz not null default now()
);
comment on table jmsql_internal.binding is
    'Administered objects, connection factories and destinations, by their names.';
comment on column jmsql_internal.binding.object is 'What the object consists of; there is no password in it.';

-- The settings of a destination are all the columns of its row that are no others, so that a new one takes no code.

create function jmsql_internal.setting_columns() returns setof name
    language sql stable
begin atomic
    select a.attname from pg_catalog.pg_attribute a
    where a.attrelid = 'jmsql_internal.queue'::regclass and a.attnum > 0 and not a.attisdropped
      and a.attname not in ('queue_id', 'name', 'topic_id', 'connection_id', 'user_name', 'created_at', 'deleted_at')
    order by a.attnum;
end;
comment on function jmsql_internal.setting_columns() is 'The columns of the table queue that are settings.';

create function jmsql_internal.queue_settings(queue jmsql_internal.queue) returns jsonb
    language sql stable
begin atomic
    select coalesce(
        jsonb_object_agg(
            regexp_replace(s.name, '_queue_id$', '_queue'),
            case when s.name like '%\_queue\_id'
                 then (select to_jsonb(q.name) from jmsql_internal.queue q where q.queue_id = s.value::text::integer)
                 else s.value end),
        '{}')
    from jsonb_each(to_jsonb(queue)) as s (name, value)
    where s.name in (select jmsql_internal.setting_columns()) and s.value not in ('null', 'false');
end;
comment on function jmsql_internal.queue_settings(jmsql_internal.queue) is
    'What is set for a queue, but for what is off.';

create function jmsql_internal.inherit_settings() returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    settings jmsql_internal.queue;
    columns text;
begin
    select q.* into settings from jmsql_internal.queue q where q.topic_id = new.topic_id;
    if found then
        select string_agg(format('%1$I = ($1).%1$I', c), ', ') into columns from jmsql_internal.setting_columns() c;
        execute 'update jmsql_internal.queue set ' || columns || ' where queue_id = $2' using settings, new.queue_id;
    end if;
    return null;
end
$$;
comment on function jmsql_internal.inherit_settings() is 'Gives a new subscription the settings of its topic.';
create trigger subscriptions_have_their_topics_settings after insert on jmsql_internal.subscription
    for each row execute function jmsql_internal.inherit_settings();

-- What a role may not do itself, triggers do, with the owner's rights and by what policies have let through: so it is
-- PostgreSQL that says who asks, wherever the statement comes from. Nobody needs the right to execute their functions:
-- who had that could have one run for a table of his own, with rows that no policy has seen.

create function jmsql_internal.make_subscription_queue() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    insert into jmsql_internal.queue default values returning queue_id into new.queue_id;
    return new;
end
$$;
comment on function jmsql_internal.make_subscription_queue() is 'Makes the queue of a new subscription.';
create trigger subscriptions_have_queues_of_their_own before insert on jmsql_internal.subscription
    for each row when (new.queue_id is null) execute function jmsql_internal.make_subscription_queue();

create function jmsql_internal.end_subscription() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    if tg_op = 'UPDATE' then
        delete from jmsql_internal.subscription s where s.queue_id = new.queue_id;
    else
        -- Its messages go later, in small steps; those that a session still holds go when it has let go of them.
        update jmsql_internal.queue q set deleted_at = statement_timestamp()
        where q.queue_id = old.queue_id and q.deleted_at is null
          and q.name is null and q.topic_id is null and q.connection_id is null;
    end if;
    return null;
end
$$;
comment on function jmsql_internal.end_subscription() is
    'Deletes a subscription that is to end, and has maintenance remove the queue of one that is deleted.';
create trigger subscriptions_end after update of ended on jmsql_internal.subscription
    for each row when (new.ended) execute function jmsql_internal.end_subscription();
create trigger queues_go_with_their_subscription after delete on jmsql_internal.subscription
    for each row execute function jmsql_internal.end_subscription();

create function jmsql_internal.end_temporary() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    if tg_table_name = 'topic' then
        delete from jmsql_internal.topic t where t.topic_id = old.topic_id;
        return null;
    end if;
    new.name := null;
    new.deleted_at := statement_timestamp();
    return new;
end
$$;
comment on function jmsql_internal.end_temporary() is
    'Deletes a temporary destination that goes with no connection any more.';
create trigger temporary_queues_end before update of connection_id on jmsql_internal.queue
    for each row when (new.connection_id is null and old.connection_id is not null and new.deleted_at is null)
    execute function jmsql_internal.end_temporary();
create trigger temporary_topics_end before update of connection_id on jmsql_internal.topic
    for each row when (new.connection_id is null and old.connection_id is not null)
    execute function jmsql_internal.end_temporary();

create trigger consumers_leave after update of consumers on jmsql_internal.consumer
    for each row when (new.consumers = 0) execute function jmsql_internal.remove_updated_row();
create trigger subscribers_leave after update of consumers on jmsql_internal.subscriber
    for each row when (new.consumers = 0) execute function jmsql_internal.remove_updated_row();

create function jmsql_internal.tell_of_change() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform jmsql_internal.notify(old.queue_id || ' 0 0');
    return null;
end
$$;
comment on function jmsql_internal.tell_of_change() is
    'Has consumers let go of the messages that they have fetched and not delivered, and look at their queue again.';
create trigger consumers_hear_of_a_pause after update of paused on jmsql_internal.queue
    for each row when (old.paused <> new.paused) execute function jmsql_internal.tell_of_change();
create trigger clients_hear_of_history after update of history on jmsql_internal.queue
    for each row when (old.history <> new.history) execute function jmsql_internal.tell_of_change();
create trigger consumers_hear_of_a_removal after update of deleted_at on jmsql_internal.queue
    for each row when (old.deleted_at is null and new.deleted_at is not null)
    execute function jmsql_internal.tell_of_change();
create trigger consumers_hear_of_a_deletion after delete on jmsql_internal.queue
    for each row when (old.deleted_at is null) execute function jmsql_internal.tell_of_change();
