"""The store: queues, messages, the state of their delivery, and the connections that hold them."""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0001"
down_revision = None
branch_labels = ("jmsql",)
depends_on = None

TABLES = """
create type {schema}.message_type as enum
    ('Message', 'TextMessage', 'BytesMessage', 'MapMessage', 'StreamMessage', 'ObjectMessage');

create table {schema}.queue (
    queue_id        integer generated always as identity primary key,
    name            text collate "C" not null unique check (length(name) between 1 and 255),
    expiry_queue_id integer references {schema}.queue on delete set null,
    created_at      timestamptz not null default now()
);
comment on table {schema}.queue is 'A queue. Messages that expire in it move to its expiry queue, if it names one.';

create sequence {schema}.message_sequence;

create table {schema}.message (
    sequence           bigint not null default nextval('{schema}.message_sequence'),
    transaction_id     xid8 not null default pg_current_xact_id(),
    jms_timestamp      bigint,
    jms_expiration     bigint,
    jms_message_id     uuid,
    queue_id           integer not null,
    message_type       {schema}.message_type not null,
    inverse_priority   smallint not null check (inverse_priority between 0 and 9),
    jms_delivery_mode  smallint not null check (jms_delivery_mode in (1, 2)),
    jms_correlation_id text,
    jms_reply_to       text,
    jms_type           text,
    properties         jsonb,
    property_types     jsonb,
    text_body          text,
    json_body          jsonb,
    body_types         jsonb,
    bytes_body         bytea,
    primary key (queue_id, inverse_priority, sequence)
) with (
    vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 1,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.02,
    toast.autovacuum_vacuum_cost_delay = 0
);
alter sequence {schema}.message_sequence owned by {schema}.message.sequence;
comment on table {schema}.message is
    'A message in a queue. Rows are inserted once and deleted once, never updated. The key is the order of delivery.';
comment on column {schema}.message.inverse_priority is '9 minus JMSPriority, so that the most urgent come first.';
comment on column {schema}.message.jms_timestamp is 'JMSTimestamp, milliseconds since the epoch; null if disabled.';
comment on column {schema}.message.jms_expiration is 'JMSExpiration, milliseconds since the epoch; null: never.';
comment on column {schema}.message.jms_delivery_mode is '1 NON_PERSISTENT, 2 PERSISTENT.';
comment on column {schema}.message.property_types is 'The types of properties that JSON does not tell.';

-- Only messages that can expire are in this index: all others never touch it.
create index message_expiration on {schema}.message (jms_expiration) where jms_expiration is not null;

create table {schema}.delivery (
    sequence         bigint not null,
    claim_id         bigint,
    connection_id    bigint,
    claimed_at       timestamptz,
    next_attempt     timestamptz,
    queue_id         integer not null,
    delivery_count   integer not null default 0,
    inverse_priority smallint not null,
    last_error       text,
    primary key (queue_id, inverse_priority, sequence)
) with (
    fillfactor = 70,
    vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);
comment on table {schema}.delivery is
    'The state of messages that are claimed by a session, were delivered before, or wait for their next attempt.';
comment on column {schema}.delivery.claim_id is 'The fence: only the claim that holds the message can acknowledge it.';
comment on column {schema}.delivery.delivery_count is 'How often the message was delivered and not acknowledged.';

create sequence {schema}.claim_sequence owned by {schema}.delivery.claim_id;

create table {schema}.connection (
    connection_id bigint generated always as identity primary key,
    client_id     text unique,
    host          text not null,
    process_id    integer not null,
    user_name     text not null default current_user,
    started_at    timestamptz not null default now()
);
comment on table {schema}.connection is
    'The open connections of clients. Each holds an advisory lock for as long as it lives.';
"""

# What a consumer asks for is the first messages from a place in the primary key on, whatever else the table holds. Two
# things keep every plan, the cached ones too, on that key:
# - There are no statistics on its columns. With one queue in the table, they say that its number excludes nothing, and
#   a consumer then reads and sorts the table for each message. Without them, the planner takes the key for selective.
# - Each table has 128 pages, which vacuum leaves in place. A plan made while there are fewer scans them all, and goes
#   on scanning them all when they are a million.
PLANS = "".join(
    f"alter table {{schema}}.{table} alter column {column} set statistics 0;\n"
    for table in ("message", "delivery")
    for column in ("queue_id", "inverse_priority", "sequence")
)
PAGES = """
insert into {schema}.message (queue_id, message_type, inverse_priority, jms_delivery_mode, bytes_body)
    select 0, 'BytesMessage', 0, 2, decode(repeat('00', 1000), 'hex') from generate_series(1, 128 * 8);
delete from {schema}.message;
alter sequence {schema}.message_sequence restart;
insert into {schema}.delivery (queue_id, inverse_priority, sequence, last_error)
    select 0, 0, n, repeat(' ', 500) from generate_series(1, 128 * 16) as n;
delete from {schema}.delivery;
"""

FUNCTIONS = """
-- Row locks do not read again what other tables say. A consumer asks here, once it holds the rows' locks, for the
-- state of their delivery as it is by then: being volatile, the function has a snapshot of its own.
create function {schema}.delivery_state(queue integer, inverse_priorities smallint[], sequences bigint[])
    returns setof {schema}.delivery
    language plpgsql volatile strict rows 1
as $$
begin
    return query
        select d.*
        from unnest(inverse_priorities, sequences) as k(inverse_priority, sequence)
        cross join lateral (
            select s.* from {schema}.delivery s
            where s.queue_id = queue and s.inverse_priority = k.inverse_priority and s.sequence = k.sequence
            offset 0) d;
end
$$;

-- The same for a single message, at a fraction of the time: how often it was delivered; null if it is claimed or waits.
create function {schema}.deliveries_if_free(queue integer, priority smallint, message bigint) returns integer
    language plpgsql volatile strict
as $$
begin
    return (
        select case when d.claim_id is null and (d.next_attempt is null or d.next_attempt <= statement_timestamp())
                    then coalesce(d.delivery_count, 0) end
        from (select) as one
        left join {schema}.delivery d
          on d.queue_id = queue and d.inverse_priority = priority and d.sequence = message);
end
$$;

create function {schema}.current_milliseconds() returns bigint
    language sql stable parallel safe
    return (extract(epoch from pg_catalog.statement_timestamp()) * 1000)::bigint;
comment on function {schema}.current_milliseconds() is 'The server''s time, in milliseconds since the epoch.';

create function {schema}.to_timestamp(milliseconds bigint) returns timestamptz
    language sql immutable strict parallel safe
    return timestamptz 'epoch' + milliseconds * interval '1 millisecond';

create function {schema}.advisory_class() returns integer
    language sql stable parallel safe
    return ('{schema}.connection'::regclass::oid::bigint % 2147483647)::integer;
comment on function {schema}.advisory_class() is
    'The first half of every advisory lock''s key, so that they do not meet the application''s own.';

create function {schema}.is_connected(connection bigint) returns boolean
    language sql stable
    return exists (
        select from pg_catalog.pg_locks l
        where l.locktype = 'advisory' and l.granted and l.objsubid = 2
          and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
          and l.classid::bigint = {schema}.advisory_class() and l.objid::bigint = connection % 2147483647);
comment on function {schema}.is_connected(bigint) is 'Whether the connection still holds its advisory lock.';

create function {schema}.remove_messages() returns trigger
    language plpgsql
as $$
begin
    delete from {schema}.message m using removed q where m.queue_id = q.queue_id;
    delete from {schema}.delivery d using removed q where d.queue_id = q.queue_id;
    return null;
end
$$;
create trigger messages_go_with_their_queue after delete on {schema}.queue
    referencing old table as removed for each statement execute function {schema}.remove_messages();
comment on function {schema}.remove_messages() is
    'Does, for queues that are removed, what a foreign key would do, which would cost something with every message.';
"""

VIEWS = """
create view {schema}.messages as
select q.name as queue,
       9 - m.inverse_priority as priority,
       m.sequence,
       case when m.jms_expiration <= {schema}.current_milliseconds() then 'expired'
            when d.claim_id is not null then 'claimed'
            when d.next_attempt > now() then 'waiting'
            else 'ready' end as state,
       m.message_type::text as type,
       'ID:' || m.jms_message_id as message_id,
       {schema}.to_timestamp(m.jms_timestamp) as sent_at,
       {schema}.to_timestamp(m.jms_expiration) as expires_at,
       case m.jms_delivery_mode when 1 then 'NON_PERSISTENT' else 'PERSISTENT' end as delivery_mode,
       m.jms_correlation_id as correlation_id,
       m.jms_reply_to as reply_to,
       m.jms_type,
       coalesce(m.properties, '{{}}') as properties,
       coalesce(m.text_body, m.json_body::text, '\\x' || encode(m.bytes_body, 'hex')) as body,
       coalesce(d.delivery_count, 0) as delivery_count,
       d.connection_id as claimed_by,
       d.claimed_at,
       d.next_attempt,
       d.last_error
from {schema}.message m
join {schema}.queue q using (queue_id)
left join {schema}.delivery d using (queue_id, inverse_priority, sequence);
comment on view {schema}.messages is
    'What is queued, readable: one row a message. Order by queue, priority desc, sequence.';

create view {schema}.queues as
select q.name as queue,
       count(m.sequence) filter (where m.state = 'ready') as ready,
       count(m.sequence) filter (where m.state = 'claimed') as claimed,
       count(m.sequence) filter (where m.state = 'waiting') as waiting,
       count(m.sequence) filter (where m.state = 'expired') as expired,
       count(m.sequence) filter (where m.delivery_count > 0) as redelivered,
       min(m.sent_at) as oldest_sent_at,
       (select e.name from {schema}.queue e where e.queue_id = q.expiry_queue_id) as expiry_queue,
       q.created_at
from {schema}.queue q
left join (
    select n.queue_id, n.sequence, coalesce(d.delivery_count, 0) as delivery_count,
           {schema}.to_timestamp(n.jms_timestamp) as sent_at,
           case when n.jms_expiration <= {schema}.current_milliseconds() then 'expired'
                when d.claim_id is not null then 'claimed'
                when d.next_attempt > now() then 'waiting'
                else 'ready' end as state
    from {schema}.message n
    left join {schema}.delivery d using (queue_id, inverse_priority, sequence)) m using (queue_id)
group by q.queue_id;
comment on view {schema}.queues is 'One row a queue, with the number of its messages by state.';

create view {schema}.clients as
select c.connection_id, c.client_id, c.user_name, c.host, c.process_id, c.started_at,
       {schema}.is_connected(c.connection_id) as connected,
       (select count(*) from {schema}.delivery d where d.connection_id = c.connection_id) as claimed
from {schema}.connection c;
comment on view {schema}.clients is 'One row a connection of a client.';
"""


def upgrade() -> None:
    schema = target_schema()
    for script in (TABLES, PLANS, PAGES, FUNCTIONS, VIEWS):
        op.execute(script.format(schema=schema))


def downgrade() -> None:
    schema = target_schema()
    op.execute(
        f"""
        drop view {schema}.clients, {schema}.queues, {schema}.messages;
        drop function {schema}.is_connected(bigint), {schema}.advisory_class(), {schema}.to_timestamp(bigint),
            {schema}.current_milliseconds(), {schema}.delivery_state(integer, smallint[], bigint[]),
            {schema}.deliveries_if_free(integer, smallint, bigint);
        drop table {schema}.connection, {schema}.delivery, {schema}.message, {schema}.queue;
        drop function {schema}.remove_messages();
        drop type {schema}.message_type;
        """
    )
