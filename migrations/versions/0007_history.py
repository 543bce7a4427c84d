"""The history of messages that have left their destinations, in partitions by day."""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

SETTINGS = """
alter table {schema}.queue
    add column history boolean not null default false,
    add column history_days integer check (history_days > 0);
comment on column {schema}.queue.history is 'Whether messages go to message_history when they leave the queue.';
comment on column {schema}.queue.history_days is 'How many days of it are kept; null: all, until somebody removes it.';
-- Whoever acknowledges looks here, and finds nothing to read while nobody keeps history.
create index queue_history on {schema}.queue (queue_id) where history;
"""

TABLES = """
create type {schema}.outcome as enum ('acknowledged', 'expired', 'dead-lettered', 'purged');

create table {schema}.message_history (
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
    message_type           {schema}.message_type not null,
    outcome                {schema}.outcome not null,
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
comment on table {schema}.message_history is
    'Messages that have left their destination, in one partition for each day in UTC, which is made when needed.';
comment on column {schema}.message_history.acknowledged_at is 'When it left, and for which partition.';
comment on column {schema}.message_history.transaction_id is 'The transaction that ended it.';
comment on column {schema}.message_history.sequence is
    'As in message. With transaction_id, a cursor: it misses nothing below pg_snapshot_xmin(pg_current_snapshot()).';
comment on column {schema}.message_history.body_id is 'Where the body is, if it is shared; it stays as long as this.';
comment on column {schema}.message_history.connection_id is 'The connection of whoever acknowledged it.';
comment on column {schema}.message_history.delivery_count is 'How often it was delivered, the last time included.';
create index message_history_place on {schema}.message_history (destination, transaction_id, sequence);
create index message_history_body on {schema}.message_history (body_id) where body_id is not null;
"""

FUNCTIONS = """
create function {schema}.history_clock() returns timestamptz
    language sql volatile
    return clock_timestamp();
comment on function {schema}.history_clock() is 'The time that decides on the partition of what is acknowledged now.';

create function {schema}.history_partition(day date) returns text
    language sql stable
    return '{schema}.message_history_' || to_char(day, 'YYYYMMDD');
comment on function {schema}.history_partition(date) is 'The name of a day''s partition, there or not.';

-- It attaches a table that is there already, which takes no lock that an insertion into the history has to wait for;
-- `create table … partition of` would.
create function {schema}.make_history_partition(day date) returns boolean
    language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    partition text := {schema}.history_partition(day);
    first text := quote_literal(to_char(day, 'YYYY-MM-DD') || ' 00:00:00+00');
    next text := quote_literal(to_char(day + 1, 'YYYY-MM-DD') || ' 00:00:00+00');
begin
    if to_regclass(partition) is not null then
        return false;
    end if;
    -- Whoever makes partitions does it alone; the one who waited here finds it made.
    lock table {schema}.message_history in share update exclusive mode;
    if to_regclass(partition) is not null then
        return false;
    end if;
    execute 'create table ' || partition || ' (like {schema}.message_history including all)';
    execute 'alter table {schema}.message_history attach partition ' || partition
        || ' for values from (' || first || ') to (' || next || ')';
    return true;
end
$$;
comment on function {schema}.make_history_partition(date) is
    'Makes the partition for what is acknowledged on a day in UTC, and tells whether it was missing.';

create function {schema}.keep_history(
    addresses tid[], deliveries integer[], ending {schema}.outcome, consumer bigint) returns bigint
    language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    moment timestamptz := {schema}.history_clock();
    day date := (moment at time zone 'UTC')::date;
    kept bigint;
begin
    if coalesce(cardinality(addresses), 0) = 0 then
        return 0;
    end if;
    if to_regclass({schema}.history_partition(day)) is null then
        perform {schema}.make_history_partition(day);
    end if;
    insert into {schema}.message_history (
        acknowledged_at, sequence, jms_timestamp, jms_expiration, jms_delivery_time, body_id, connection_id,
        jms_message_id, queue_id, delivery_count, message_type, outcome, inverse_priority, jms_delivery_mode, is_topic,
        destination, subscription, subscription_client_id, client_id, jms_correlation_id, jms_reply_to, jms_type,
        properties, property_types, text_body, json_body, body_types, bytes_body)
    select moment, m.sequence, m.jms_timestamp, m.jms_expiration, m.jms_delivery_time, m.body_id, consumer,
           m.jms_message_id, m.queue_id,
           coalesce(k.delivery_count, 0) + case ending when 'acknowledged' then 1 else 0 end, m.message_type,
           ending, m.inverse_priority, m.jms_delivery_mode, t.topic_id is not null, coalesce(t.name, q.name),
           s.name, s.client_id,
           (select c.client_id from {schema}.connection c where c.connection_id = consumer),
           m.jms_correlation_id, m.jms_reply_to, m.jms_type, m.properties, m.property_types, m.text_body, m.json_body,
           m.body_types, m.bytes_body
    from unnest(addresses, deliveries) as k (address, delivery_count)
    cross join lateral (select * from {schema}.message t where t.ctid = k.address offset 0) m
    join {schema}.queue q on q.queue_id = m.queue_id
    left join {schema}.subscription s on s.queue_id = q.queue_id
    left join {schema}.topic t on t.topic_id = s.topic_id
    where q.history and coalesce(t.name, q.name) is not null;
    get diagnostics kept = row_count;
    return kept;
end
$$;
comment on function {schema}.keep_history(tid[], integer[], {schema}.outcome, bigint) is
    'Copies messages, whose rows this transaction has locked and is about to delete, to the history of destinations '
    'that keep one: given their addresses, how often each was delivered before, and by whose connection it ends.';

create function {schema}.is_history_settled(day date) returns boolean
    language sql volatile
    return {schema}.history_clock() > (day + 1)::timestamp at time zone 'UTC' + interval '1 minute'
       and not exists (
            select from pg_catalog.pg_locks l
            where l.locktype = 'relation' and l.mode = 'RowExclusiveLock'
              and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
              and l.relation = to_regclass({schema}.history_partition(day)));
comment on function {schema}.is_history_settled(date) is
    'Whether a day is over and so is every transaction that has acknowledged something in it: nothing will be added.';
"""

VIEWS = """
create view {schema}.history as
select h.destination,
       case when h.is_topic then 'topic' else 'queue' end as destination_type,
       h.subscription,
       h.acknowledged_at,
       h.outcome::text as outcome,
       h.delivery_count,
       h.acknowledged_at - {schema}.to_timestamp(greatest(h.jms_timestamp, h.jms_delivery_time)) as time_in_queue,
       9 - h.inverse_priority as priority,
       h.message_type::text as type,
       'ID:' || h.jms_message_id as message_id,
       {schema}.to_timestamp(h.jms_timestamp) as sent_at,
       {schema}.to_timestamp(h.jms_expiration) as expires_at,
       {schema}.to_timestamp(h.jms_delivery_time) as delivery_time,
       case h.jms_delivery_mode when 1 then 'NON_PERSISTENT' else 'PERSISTENT' end as delivery_mode,
       h.jms_correlation_id as correlation_id,
       h.jms_reply_to as reply_to,
       h.jms_type,
       coalesce(h.properties, '{{}}') as properties,
       coalesce(
           h.text_body, h.json_body::text, '\\x' || encode(h.bytes_body, 'hex'),
           b.text_body, b.json_body::text, '\\x' || encode(b.bytes_body, 'hex')) as body,
       h.connection_id as consumed_by,
       h.client_id,
       h.user_name,
       h.subscription_client_id,
       h.transaction_id,
       h.sequence,
       h.property_types,
       coalesce(h.text_body, b.text_body) as text_body,
       coalesce(h.json_body, b.json_body) as json_body,
       coalesce(h.body_types, b.body_types) as body_types,
       coalesce(h.bytes_body, b.bytes_body) as bytes_body
from {schema}.message_history h
left join {schema}.body b using (body_id);
comment on view {schema}.history is
    'What has left the destinations that keep history: one row a message. Give a range of acknowledged_at.';

create view {schema}.history_days as
select d.day, d.partition, d.estimated_messages, d.bytes, {schema}.is_history_settled(d.day) as settled
from (
    select to_date(right(c.relname, 8), 'YYYYMMDD') as day,
           c.oid::regclass as partition,
           greatest(c.reltuples, 0)::bigint as estimated_messages,
           pg_total_relation_size(c.oid) as bytes
    from pg_catalog.pg_inherits i
    join pg_catalog.pg_class c on c.oid = i.inhrelid
    where i.inhparent = '{schema}.message_history'::regclass and not i.inhdetachpending) d;
comment on view {schema}.history_days is 'One row a day of history. A settled day will not change any more.';
"""


def upgrade() -> None:
    schema = target_schema()
    for script in (SETTINGS, TABLES, FUNCTIONS, VIEWS):
        op.execute(script.format(schema=schema))


def downgrade() -> None:
    schema = target_schema()
    op.execute(
        f"""
        drop view {schema}.history_days, {schema}.history;
        drop function {schema}.is_history_settled(date),
            {schema}.keep_history(tid[], integer[], {schema}.outcome, bigint),
            {schema}.make_history_partition(date), {schema}.history_partition(date), {schema}.history_clock();
        drop table {schema}.message_history;
        drop type {schema}.outcome;
        alter table {schema}.queue drop column history_days, drop column history;
        """
    )
