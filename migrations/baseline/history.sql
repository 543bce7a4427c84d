-- Messages that have left their destination, where somebody keeps them.

create type jmsql_internal.outcome as enum ('acknowledged', 'expired', 'dead-lettered', 'purged', 'cancelled');

create table jmsql_internal.message_history (
    acknowledged_at        timestamptz not null,
    transaction_id         xid8 not null default pg_current_xact_id(),
    sequence               bigint not null,
    jms_timestamp          bigint,
    jms_expiration         bigint,
    jms_delivery_time      bigint,
    body_id                bigint,
    connection_id          bigint,
    jms_message_id         uuid,
    queue_id               integer not null,
    delivery_count         integer not null,
    message_type           jmsql_internal.message_type not null,
    outcome                jmsql_internal.outcome not null,
    inverse_priority       smallint not null,
    jms_delivery_mode      smallint not null,
    is_topic               boolean not null,
    destination            text collate "C" not null,
    subscription           text collate "C",
    subscription_client_id text collate "C",
    client_id              text,
    user_name              text not null default session_user,
    jms_correlation_id     text,
    jms_reply_to           text,
    jms_type               text,
    properties             jsonb,
    property_types         jsonb,
    text_body              text,
    json_body              jsonb,
    body_types             jsonb,
    bytes_body             bytea
) partition by range (acknowledged_at);
alter table jmsql_internal.message_history replica identity full;
comment on table jmsql_internal.message_history is
    'Messages that have left their destination, in one partition for each day in UTC, which is made when needed.';
comment on column jmsql_internal.message_history.acknowledged_at is 'When it left, and for which partition.';
comment on column jmsql_internal.message_history.transaction_id is 'The transaction that ended it.';
comment on column jmsql_internal.message_history.sequence is
    'As in message. With transaction_id, a cursor: it misses nothing below pg_snapshot_xmin(pg_current_snapshot()).';
comment on column jmsql_internal.message_history.body_id is
    'Where the body is, if it is shared; it stays as long as this.';
comment on column jmsql_internal.message_history.connection_id is 'The connection that acknowledged it.';
comment on column jmsql_internal.message_history.delivery_count is
    'How often it was delivered, the last time included.';
create index message_history_place on jmsql_internal.message_history (destination, transaction_id, sequence);
create index message_history_body on jmsql_internal.message_history (body_id) where body_id is not null;

create function jmsql_internal.history_clock() returns timestamptz
    language sql volatile
    return clock_timestamp();
comment on function jmsql_internal.history_clock() is
    'The time that decides on the partition of what is acknowledged now.';

create function jmsql_internal.history_partition(day date) returns text
    language sql stable
    return 'jmsql_internal'::regnamespace || '.message_history_' || to_char(day, 'YYYYMMDD');
comment on function jmsql_internal.history_partition(date) is 'The name of a day''s partition, there or not.';

create function jmsql_internal.make_history_partition(day date) returns boolean
    language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    partition text := jmsql_internal.history_partition(day);
    first text := quote_literal(to_char(day, 'YYYY-MM-DD') || ' 00:00:00+00');
    next text := quote_literal(to_char(day + 1, 'YYYY-MM-DD') || ' 00:00:00+00');
begin
    if to_regclass(partition) is not null then
        return false;
    end if;
    -- One transaction at a time makes partitions; one that waited here finds the partition made.
    lock table jmsql_internal.message_history in share update exclusive mode;
    if to_regclass(partition) is not null then
        return false;
    end if;
    execute 'create table ' || partition || ' (like jmsql_internal.message_history including all)';
    -- A partition does not inherit the replica identity.
    execute 'alter table ' || partition || ' replica identity full';
    execute 'alter table jmsql_internal.message_history attach partition ' || partition
        || ' for values from (' || first || ') to (' || next || ')';
    return true;
end
$$;
comment on function jmsql_internal.make_history_partition(date) is
    'Makes the partition for what is acknowledged on a day in UTC, and tells whether it was missing.';

create function jmsql_internal.keep_history(
    addresses tid[], deliveries integer[], ending jmsql_internal.outcome, consumer bigint) returns bigint
    language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
    -- Planned for each call, a single message would take four times as long.
    set plan_cache_mode = force_generic_plan
as $$
declare
    present timestamptz := jmsql_internal.history_clock();
    day date := (present at time zone 'UTC')::date;
    kept bigint;
begin
    if coalesce(cardinality(addresses), 0) = 0 then
        return 0;
    end if;
    if to_regclass(jmsql_internal.history_partition(day)) is null then
        perform jmsql_internal.make_history_partition(day);
    end if;
    insert into jmsql_internal.message_history (
        acknowledged_at, sequence, jms_timestamp, jms_expiration, jms_delivery_time, body_id, connection_id,
        jms_message_id, queue_id, delivery_count, message_type, outcome, inverse_priority, jms_delivery_mode, is_topic,
        destination, subscription, subscription_client_id, client_id, jms_correlation_id, jms_reply_to, jms_type,
        properties, property_types, text_body, json_body, body_types, bytes_body)
    select present, m.sequence, m.jms_timestamp, m.jms_expiration, m.jms_delivery_time, m.body_id, consumer,
           m.jms_message_id, m.queue_id,
           coalesce(k.delivery_count, 0) + case ending when 'acknowledged' then 1 else 0 end, m.message_type,
           ending, m.inverse_priority, m.jms_delivery_mode, t.topic_id is not null, coalesce(t.name, q.name),
           s.name, s.client_id,
           (select c.client_id from jmsql_internal.connection c where c.connection_id = consumer),
           m.jms_correlation_id, m.jms_reply_to, m.jms_type, m.properties, m.property_types, m.text_body, m.json_body,
           m.body_types, m.bytes_body
    from unnest(addresses, deliveries) as k (address, delivery_count)
    cross join lateral (select * from jmsql_internal.message t where t.ctid = k.address offset 0) m
    join jmsql_internal.queue q on q.queue_id = m.queue_id
    left join jmsql_internal.subscription s on s.queue_id = q.queue_id
    left join jmsql_internal.topic t on t.topic_id = s.topic_id
    where q.history and coalesce(t.name, q.name) is not null;
    get diagnostics kept = row_count;
    return kept;
end
$$;
comment on function jmsql_internal.keep_history(tid[], integer[], jmsql_internal.outcome, bigint) is
    'Copies messages, whose rows this transaction has locked and is about to delete, to the history of destinations '
    'that keep one: given their addresses, how often each was delivered before, and by whose connection it ends.';

create function jmsql_internal.is_history_settled(day date) returns boolean
    language sql volatile
    return jmsql_internal.history_clock() > (day + 1)::timestamp at time zone 'UTC' + interval '1 minute'
       and not exists (
            select from pg_catalog.pg_locks l
            where l.locktype = 'relation' and l.mode = 'RowExclusiveLock'
              and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
              and l.relation = to_regclass(jmsql_internal.history_partition(day)));
comment on function jmsql_internal.is_history_settled(date) is
    'Whether a day is over and so is every transaction that has acknowledged something in it: nothing will be added.';

create function jmsql_internal.history_retention(destination text) returns integer
    language sql stable
begin atomic
    select case when bool_and(s.history_days is not null) then max(s.history_days) end
    from (select q.history_days from jmsql_internal.queue q where q.name = destination
          union all
          select q.history_days from jmsql_internal.topic t left join jmsql_internal.queue q using (topic_id)
          where t.name = destination) s;
end;
comment on function jmsql_internal.history_retention(text) is
    'How many days the history of a queue or topic is kept; null: until somebody removes it. One that is gone keeps '
    'its history; where a queue and a topic have the same name, the longer time holds.';
