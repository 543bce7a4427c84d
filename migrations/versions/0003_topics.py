"""Topics and their subscriptions, each of which is a queue of its own; queues that are being deleted."""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TABLES = """
alter table {schema}.queue
    alter column name drop not null,
    add column connection_id bigint,
    add column deleted_at timestamptz;
comment on column {schema}.queue.connection_id is 'The connection with which a temporary queue goes.';
comment on column {schema}.queue.name is 'Null for the queue of a subscription, and for one that is being deleted.';
comment on column {schema}.queue.deleted_at is 'Since when its messages are being removed; the row goes last.';
create index queue_deleted on {schema}.queue (queue_id) where deleted_at is not null;

create table {schema}.topic (
    topic_id      integer generated always as identity primary key,
    name          text collate "C" not null unique check (length(name) between 1 and 255),
    connection_id bigint,
    created_at    timestamptz not null default now()
);
comment on column {schema}.topic.connection_id is 'The connection with which a temporary topic goes.';
comment on table {schema}.topic is 'A topic. What is published on it goes to the queue of each of its subscriptions.';

create table {schema}.subscription (
    queue_id   integer primary key references {schema}.queue on delete cascade,
    topic_id   integer not null references {schema}.topic on delete cascade,
    client_id  text collate "C",
    name       text collate "C",
    selector   text,
    durable    boolean not null,
    shared     boolean not null,
    no_local   boolean not null,
    created_at timestamptz not null default now(),
    check (name is not null or not (durable or shared))
);
create index subscription_topic on {schema}.subscription (topic_id);
create unique index subscription_name on {schema}.subscription (name, client_id, durable) nulls not distinct
    where name is not null;
comment on table {schema}.subscription is 'What is wanted of a topic, and by whom.';

create table {schema}.subscriber (
    queue_id      integer not null references {schema}.subscription on delete cascade,
    connection_id bigint not null references {schema}.connection on delete cascade,
    consumers     integer not null check (consumers > 0),
    primary key (queue_id, connection_id)
);
create index subscriber_connection on {schema}.subscriber (connection_id);
create table {schema}.body (
    body_id    bigint generated always as identity primary key,
    text_body  text,
    json_body  jsonb,
    body_types jsonb,
    bytes_body bytea
);
comment on table {schema}.body is 'A large body, stored once for all subscriptions that get the message.';

alter table {schema}.message add column body_id bigint;
comment on column {schema}.message.body_id is 'Where the body is, if it is shared with other subscriptions.';
-- Only messages with a shared body are in this index.
create index message_body on {schema}.message (body_id) where body_id is not null;

comment on table {schema}.subscriber is 'How many consumers of a connection receive from a subscription now.';
"""


def state(message: str, delivery: str, schema: str) -> str:
    """Return the expression for the state of a message, given the aliases of its row and of its delivery's."""
    return f"""case when {message}.jms_expiration <= {schema}.current_milliseconds() then 'expired'
            when {delivery}.claim_id is not null then 'claimed'
            when {delivery}.next_attempt > now() then 'waiting'
            else 'ready' end"""


def views(schema: str) -> str:
    """Return the statements that make the views."""
    counts = """count(m.sequence) filter (where m.state = 'ready') as ready,
       count(m.sequence) filter (where m.state = 'claimed') as claimed,
       count(m.sequence) filter (where m.state = 'waiting') as waiting,
       count(m.sequence) filter (where m.state = 'expired') as expired,
       count(m.sequence) filter (where m.delivery_count > 0) as redelivered,
       min(m.sent_at) as oldest_sent_at"""
    counted = f"""(
    select n.queue_id, n.sequence, coalesce(d.delivery_count, 0) as delivery_count,
           {schema}.to_timestamp(n.jms_timestamp) as sent_at, {state("n", "d", schema)} as state
    from {schema}.message n
    left join {schema}.delivery d using (queue_id, inverse_priority, sequence))"""
    return f"""
create or replace view {schema}.messages as
select q.name as queue,
       9 - m.inverse_priority as priority,
       m.sequence,
       {state("m", "d", schema)} as state,
       m.message_type::text as type,
       'ID:' || m.jms_message_id as message_id,
       {schema}.to_timestamp(m.jms_timestamp) as sent_at,
       {schema}.to_timestamp(m.jms_expiration) as expires_at,
       case m.jms_delivery_mode when 1 then 'NON_PERSISTENT' else 'PERSISTENT' end as delivery_mode,
       m.jms_correlation_id as correlation_id,
       m.jms_reply_to as reply_to,
       m.jms_type,
       coalesce(m.properties, '{{}}') as properties,
       coalesce(
           m.text_body, m.json_body::text, '\\x' || encode(m.bytes_body, 'hex'),
           (select coalesce(b.text_body, b.json_body::text, '\\x' || encode(b.bytes_body, 'hex'))
            from {schema}.body b where b.body_id = m.body_id)) as body,
       coalesce(d.delivery_count, 0) as delivery_count,
       d.connection_id as claimed_by,
       d.claimed_at,
       d.next_attempt,
       d.last_error,
       t.name as topic,
       s.name as subscription,
       s.client_id
from {schema}.message m
join {schema}.queue q using (queue_id)
left join {schema}.delivery d using (queue_id, inverse_priority, sequence)
left join {schema}.subscription s using (queue_id)
left join {schema}.topic t using (topic_id)
where q.deleted_at is null;

create or replace view {schema}.queues as
select q.name as queue,
       {counts},
       (select e.name from {schema}.queue e where e.queue_id = q.expiry_queue_id) as expiry_queue,
       q.created_at
from {schema}.queue q
left join {counted} m using (queue_id)
where q.name is not null
group by q.queue_id;

create view {schema}.subscriptions as
select t.name as topic, s.name as subscription, s.client_id, s.durable, s.shared, s.selector, s.no_local,
       (select coalesce(sum(c.consumers), 0) from {schema}.subscriber c where c.queue_id = s.queue_id) as consumers,
       {counts},
       s.created_at
from {schema}.subscription s
join {schema}.topic t using (topic_id)
left join {counted} m using (queue_id)
group by s.queue_id, t.topic_id;
comment on view {schema}.subscriptions is 'One row a subscription, with the number of its messages by state.';
"""


def upgrade() -> None:
    schema = target_schema()
    op.execute(TABLES.format(schema=schema))
    op.execute(views(schema))


def downgrade() -> None:
    schema = target_schema()
    op.execute(
        f"""
        drop view {schema}.subscriptions, {schema}.clients, {schema}.queues, {schema}.messages;
        drop table {schema}.subscriber, {schema}.subscription, {schema}.topic;
        delete from {schema}.message m using {schema}.queue q where q.queue_id = m.queue_id and q.name is null;
        delete from {schema}.queue where name is null;
        alter table {schema}.message drop column body_id;
        drop table {schema}.body;
        alter table {schema}.queue drop column deleted_at, drop column connection_id, alter column name set not null;
        """
    )
    script = op.get_context().script
    assert script is not None
    op.execute(script.get_revision("0001").module.VIEWS.format(schema=schema))
