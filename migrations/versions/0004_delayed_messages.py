"""Messages that are delivered later wait in a table of their own, out of the way of those that are ready."""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TABLES = """
alter table {schema}.message add column jms_delivery_time bigint;
comment on column {schema}.message.jms_delivery_time is
    'JMSDeliveryTime, milliseconds since the epoch; null: it was not delayed.';

create table {schema}.delayed_message (
    like {schema}.message including defaults including constraints including comments,
    due bigint not null generated always as (least(jms_delivery_time, jms_expiration)) stored,
    check (jms_delivery_time is not null),
    primary key (due, sequence)
) with (
    vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 1,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.02,
    toast.autovacuum_vacuum_cost_delay = 0
);
create index delayed_message_body on {schema}.delayed_message (body_id) where body_id is not null;
create index delayed_message_queue on {schema}.delayed_message (queue_id, jms_delivery_time, sequence);
comment on table {schema}.delayed_message is
    'A message that waits for its delivery time. When it is due, it moves to the table message.';
comment on column {schema}.delayed_message.due is
    'When it moves, milliseconds since the epoch: at its delivery time, or when it expires before that.';
"""

# As for the other tables: there are no statistics that make a plan sort what the key has in order, and vacuum leaves
# 128 pages in place, so that no plan is made for a table without any.
PLANS = """
alter table {schema}.delayed_message alter column due set statistics 0, alter column sequence set statistics 0;
"""
PAGES = """
insert into {schema}.delayed_message
    (queue_id, message_type, inverse_priority, jms_delivery_mode, jms_delivery_time, bytes_body)
    select 0, 'BytesMessage', 0, 2, 9223372036854775807, decode(repeat('00', 1000), 'hex')
    from generate_series(1, 128 * 8);
delete from {schema}.delayed_message;
"""

REMOVAL = """
create or replace function {schema}.remove_messages() returns trigger
    language plpgsql
as $$
begin
    delete from {schema}.message m using removed q where m.queue_id = q.queue_id;
    delete from {schema}.delivery d using removed q where d.queue_id = q.queue_id;
    {delayed}
    return null;
end
$$;
"""
REMOVAL_OF_DELAYED = "delete from {schema}.delayed_message d using removed q where d.queue_id = q.queue_id;"

_COUNTS = """count(m.sequence) filter (where m.state = 'ready') as ready,
       count(m.sequence) filter (where m.state = 'claimed') as claimed,
       count(m.sequence) filter (where m.state = 'waiting') as waiting,
       count(m.sequence) filter (where m.state = 'expired') as expired,
       count(m.sequence) filter (where m.delivery_count > 0) as redelivered,
       min(m.sent_at) as oldest_sent_at"""
_DELAYED = "count(m.sequence) filter (where m.state = 'delayed') as delayed"


def state(schema: str) -> str:
    """Return the expression for the state of a message `m`, delayed or not, with its delivery's row `d`."""
    return f"""case when m.jms_expiration <= {schema}.current_milliseconds() then 'expired'
            when m.is_delayed then 'delayed'
            when d.claim_id is not null then 'claimed'
            when d.next_attempt > now() then 'waiting'
            else 'ready' end"""


def messages(schema: str, *columns: str) -> str:
    """Return the messages of both tables, with the columns that are named and whether they are delayed."""
    names = ", ".join(columns)
    return f"""(
    select {names}, false as is_delayed from {schema}.message
    union all
    select {names}, true from {schema}.delayed_message)"""


def views(schema: str) -> str:
    """Return the statements that make the views."""
    counted = f"""(
    select m.queue_id, m.sequence, coalesce(d.delivery_count, 0) as delivery_count,
           {schema}.to_timestamp(m.jms_timestamp) as sent_at, {state(schema)} as state
    from {messages(schema, "queue_id", "inverse_priority", "sequence", "jms_timestamp", "jms_expiration")} m
    left join {schema}.delivery d using (queue_id, inverse_priority, sequence))"""
    shown = messages(
        schema,
        *("queue_id", "inverse_priority", "sequence", "message_type", "jms_message_id", "jms_timestamp"),
        *("jms_expiration", "jms_delivery_mode", "jms_delivery_time", "jms_correlation_id", "jms_reply_to"),
        *("jms_type", "properties", "text_body", "json_body", "bytes_body", "body_id"),
    )
    return f"""
create or replace view {schema}.messages as
select q.name as queue,
       9 - m.inverse_priority as priority,
       m.sequence,
       {state(schema)} as state,
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
       s.client_id,
       {schema}.to_timestamp(m.jms_delivery_time) as delivery_time
from {shown} m
join {schema}.queue q using (queue_id)
left join {schema}.delivery d using (queue_id, inverse_priority, sequence)
left join {schema}.subscription s using (queue_id)
left join {schema}.topic t using (topic_id)
where q.deleted_at is null;

create or replace view {schema}.queues as
select q.name as queue,
       {_COUNTS},
       (select e.name from {schema}.queue e where e.queue_id = q.expiry_queue_id) as expiry_queue,
       q.created_at,
       {_DELAYED}
from {schema}.queue q
left join {counted} m using (queue_id)
where q.name is not null
group by q.queue_id;

create or replace view {schema}.subscriptions as
select t.name as topic, s.name as subscription, s.client_id, s.durable, s.shared, s.selector, s.no_local,
       (select coalesce(sum(c.consumers), 0) from {schema}.subscriber c where c.queue_id = s.queue_id) as consumers,
       {_COUNTS},
       s.created_at,
       {_DELAYED}
from {schema}.subscription s
join {schema}.topic t using (topic_id)
left join {counted} m using (queue_id)
group by s.queue_id, t.topic_id;
"""


def upgrade() -> None:
    schema = target_schema()
    for script in (TABLES, PLANS, PAGES):
        op.execute(script.format(schema=schema))
    op.execute(REMOVAL.format(schema=schema, delayed=REMOVAL_OF_DELAYED.format(schema=schema)))
    op.execute(views(schema))


def downgrade() -> None:
    schema = target_schema()
    op.execute(
        f"""
        drop view {schema}.subscriptions, {schema}.queues, {schema}.messages;
        drop table {schema}.delayed_message;
        alter table {schema}.message drop column jms_delivery_time;
        """
    )
    op.execute(REMOVAL.format(schema=schema, delayed=""))
    script = op.get_context().script
    assert script is not None
    op.execute(script.get_revision("0003").module.views(schema))
