"""Replica identities for logical replication, pages that keep plans on the key, and views that count fast."""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

# Where a publication has a table, PostgreSQL refuses to update or delete its rows unless they can be told apart: by a
# unique key of plain columns, or by all columns. The primary key of delayed messages has a computed column, which
# PostgreSQL 18 publishes only on request.
IDENTITIES = """
alter table {schema}.delayed_message alter column jms_delivery_time set not null;
drop index {schema}.delayed_message_queue;
create unique index delayed_message_queue on {schema}.delayed_message (queue_id, jms_delivery_time, sequence);
alter table {schema}.delayed_message replica identity using index delayed_message_queue;
alter table {schema}.grouped_queue replica identity full;
alter table {schema}.permission replica identity full;
alter table {schema}.message_history replica identity full;
do $$
declare
    partition regclass;
begin
    for partition in select i.inhrelid from pg_inherits i where i.inhparent = '{quoted}.message_history'::regclass loop
        execute 'alter table ' || partition || ' replica identity full';
    end loop;
end
$$;
"""
FORMER_IDENTITIES = """
do $$
declare
    partition regclass;
begin
    for partition in select i.inhrelid from pg_inherits i where i.inhparent = '{quoted}.message_history'::regclass loop
        execute 'alter table ' || partition || ' replica identity default';
    end loop;
end
$$;
alter table {schema}.message_history replica identity default;
alter table {schema}.permission replica identity default;
alter table {schema}.grouped_queue replica identity default;
alter table {schema}.delayed_message replica identity default;
drop index {schema}.delayed_message_queue;
create index delayed_message_queue on {schema}.delayed_message (queue_id, jms_delivery_time, sequence);
alter table {schema}.delayed_message alter column jms_delivery_time drop not null;
"""

# A partition does not inherit the replica identity.
PARTITIONS = """
create or replace function {schema}.make_history_partition(day date) returns boolean
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
    {identity}
    execute 'alter table {schema}.message_history attach partition ' || partition
        || ' for values from (' || first || ') to (' || next || ')';
    return true;
end
$$;
"""
IDENTITY = "execute 'alter table ' || partition || ' replica identity full';"

# VACUUM FULL, CLUSTER, TRUNCATE and a restored dump leave a table with no more pages than its rows need.
PAGES = """
create function {schema}.tables_without_pages() returns setof text
    language sql stable
    set search_path = pg_catalog, pg_temp
begin atomic
    select c.relname::text from pg_class c
    where c.oid in ('{quoted}.message'::regclass, '{quoted}.delivery'::regclass, '{quoted}.delayed_message'::regclass)
      and pg_relation_size(c.oid) < 128 * current_setting('block_size')::bigint
    order by c.relname;
end;
comment on function {schema}.tables_without_pages() is
    'The tables of messages that have fewer than the 128 pages with which every plan is to count.';

create function {schema}.restore_pages() returns setof text
    language plpgsql volatile security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    name text;
begin
    for name in select t from {schema}.tables_without_pages() t loop
        -- ANALYZE takes this lock as well. If somebody else has it, the next run restores the pages.
        begin
            execute format('lock table {schema}.%I in share update exclusive mode nowait', name);
        exception when lock_not_available then
            continue;
        end;
        -- Nobody else ever sees the rows.
        while exists (select from {schema}.tables_without_pages() t where t = name) loop
            case name
                when 'message' then
                    insert into {schema}.message
                        (queue_id, message_type, inverse_priority, jms_delivery_mode, bytes_body)
                    select 0, 'BytesMessage', 0, 2, decode(repeat('00', 1000), 'hex') from generate_series(1, 64);
                when 'delayed_message' then
                    insert into {schema}.delayed_message
                        (queue_id, message_type, inverse_priority, jms_delivery_mode, jms_delivery_time, bytes_body)
                    select 0, 'BytesMessage', 0, 2, 9223372036854775807, decode(repeat('00', 1000), 'hex')
                    from generate_series(1, 64);
                else
                    insert into {schema}.delivery (queue_id, inverse_priority, sequence, last_error)
                    select 0, 0, nextval('{quoted}.claim_sequence'), repeat(' ', 500) from generate_series(1, 128);
            end case;
        end loop;
        execute format('delete from {schema}.%I where queue_id = 0', name);
        -- All sessions then plan again what they planned without the pages.
        execute format('analyze {schema}.%I', name);
        return next name;
    end loop;
end
$$;
comment on function {schema}.restore_pages() is
    'Gives tables the pages back with which every plan is to count, and returns the names of those that had too few.';
"""

# The planner knows nothing of how many messages a queue has, and where it takes a table for empty, it joins on parts of
# the key. So each queue is counted for itself, and rows are looked up by the whole key, behind a fence (`offset 0`).
_COUNTED = """
cross join lateral (
    select count(*) as all_of_them, count(*) filter (where n.jms_expiration <= (select {schema}.current_milliseconds()))
           as expired, min(n.jms_timestamp) as oldest
    from {schema}.message n where n.queue_id = {queue}.queue_id) present
cross join lateral (
    select count(*) as all_of_them, count(*) filter (where n.jms_expiration <= (select {schema}.current_milliseconds()))
           as expired, min(n.jms_timestamp) as oldest
    from {schema}.delayed_message n where n.queue_id = {queue}.queue_id) later
cross join lateral (
    select count(*) filter (where d.claim_id is not null and m.is_fresh) as claimed,
           count(*) filter (where d.claim_id is null and d.next_attempt > now() and m.is_fresh) as waiting,
           count(*) filter (where d.delivery_count > 0) as redelivered
    from {schema}.delivery d
    cross join lateral (
        select (n.jms_expiration <= (select {schema}.current_milliseconds())) is not true as is_fresh
        from {schema}.message n
        where (n.queue_id, n.inverse_priority, n.sequence) = (d.queue_id, d.inverse_priority, d.sequence)
        offset 0) m
    where d.queue_id = {queue}.queue_id) delivered"""
_NUMBERS = """present.all_of_them - present.expired - delivered.claimed - delivered.waiting as ready,
       delivered.claimed,
       delivered.waiting,
       present.expired + later.expired as expired,
       delivered.redelivered,
       {schema}.to_timestamp(least(present.oldest, later.oldest)) as oldest_sent_at"""
_DELAYED = "later.all_of_them - later.expired as delayed"
_DELIVERY = """left join lateral (
    select t.claim_id, t.connection_id, t.claimed_at, t.next_attempt, t.delivery_count, t.last_error
    from {schema}.delivery t
    where (t.queue_id, t.inverse_priority, t.sequence) = (m.queue_id, m.inverse_priority, m.sequence)
    offset 0) d on true"""

VIEWS = f"""
create or replace view {{schema}}.queues with (security_invoker) as
select q.name as queue,
       {_NUMBERS},
       (select e.name from {{schema}}.queue e where e.queue_id = q.expiry_queue_id) as expiry_queue,
       q.created_at,
       {_DELAYED}
from {{schema}}.queue q
{_COUNTED.replace("{queue}", "q")}
where q.name is not null;

create or replace view {{schema}}.subscriptions with (security_invoker) as
select t.name as topic, s.name as subscription, s.client_id, s.durable, s.shared, s.selector, s.no_local,
       (select coalesce(sum(c.consumers), 0) from {{schema}}.subscriber c where c.queue_id = s.queue_id) as consumers,
       {_NUMBERS},
       s.created_at,
       {_DELAYED}
from {{schema}}.subscription s
join {{schema}}.topic t using (topic_id)
{_COUNTED.replace("{queue}", "s")};

create or replace view {{schema}}.messages with (security_invoker) as
select q.name as queue,
       9 - m.inverse_priority as priority,
       m.sequence,
       case when m.jms_expiration <= {{schema}}.current_milliseconds() then 'expired'
            when m.is_delayed then 'delayed'
            when d.claim_id is not null then 'claimed'
            when d.next_attempt > now() then 'waiting'
            else 'ready' end as state,
       m.message_type::text as type,
       'ID:' || m.jms_message_id as message_id,
       {{schema}}.to_timestamp(m.jms_timestamp) as sent_at,
       {{schema}}.to_timestamp(m.jms_expiration) as expires_at,
       case m.jms_delivery_mode when 1 then 'NON_PERSISTENT' else 'PERSISTENT' end as delivery_mode,
       m.jms_correlation_id as correlation_id,
       m.jms_reply_to as reply_to,
       m.jms_type,
       coalesce(m.properties, '{{{{}}}}') as properties,
       coalesce(
           m.text_body, m.json_body::text, '\\x' || encode(m.bytes_body, 'hex'),
           (select coalesce(b.text_body, b.json_body::text, '\\x' || encode(b.bytes_body, 'hex'))
            from {{schema}}.body b where b.body_id = m.body_id)) as body,
       coalesce(d.delivery_count, 0) as delivery_count,
       d.connection_id as claimed_by,
       d.claimed_at,
       nullif(d.next_attempt, 'infinity') as next_attempt,
       d.last_error,
       t.name as topic,
       s.name as subscription,
       s.client_id,
       {{schema}}.to_timestamp(m.jms_delivery_time) as delivery_time,
       m.properties ->> 'JMSXGroupID' as group_id
from {{schema}}.queue q
left join {{schema}}.subscription s on s.queue_id = q.queue_id
left join {{schema}}.topic t on t.topic_id = s.topic_id
cross join lateral (
    select n.queue_id, n.inverse_priority, n.sequence, n.message_type, n.jms_message_id, n.jms_timestamp,
           n.jms_expiration, n.jms_delivery_mode, n.jms_delivery_time, n.jms_correlation_id, n.jms_reply_to, n.jms_type,
           n.properties, n.text_body, n.json_body, n.bytes_body, n.body_id, false as is_delayed
    from {{schema}}.message n where n.queue_id = q.queue_id
    union all
    select n.queue_id, n.inverse_priority, n.sequence, n.message_type, n.jms_message_id, n.jms_timestamp,
           n.jms_expiration, n.jms_delivery_mode, n.jms_delivery_time, n.jms_correlation_id, n.jms_reply_to, n.jms_type,
           n.properties, n.text_body, n.json_body, n.bytes_body, n.body_id, true
    from {{schema}}.delayed_message n where n.queue_id = q.queue_id
    offset 0) m
{_DELIVERY}
where q.deleted_at is null;

create or replace view {{schema}}.message_groups with (security_invoker) as
select q.name as queue,
       t.name as topic,
       s.name as subscription,
       s.client_id,
       g.group_id,
       g.messages,
       g.claimed,
       g.claimed_by,
       g.next_attempt,
       g.oldest_sent_at
from {{schema}}.queue q
cross join lateral (
    select m.properties ->> 'JMSXGroupID' as group_id,
           count(*) as messages,
           count(d.claim_id) as claimed,
           max(d.connection_id) as claimed_by,
           max(nullif(d.next_attempt, 'infinity')) filter (where d.next_attempt > now()) as next_attempt,
           {{schema}}.to_timestamp(min(m.jms_timestamp)) as oldest_sent_at
    from {{schema}}.message m
    {_DELIVERY}
    where m.queue_id = q.queue_id and m.group_hash is not null
    group by m.properties ->> 'JMSXGroupID') g
left join {{schema}}.subscription s using (queue_id)
left join {{schema}}.topic t on t.topic_id = s.topic_id
where q.deleted_at is null;
"""


def upgrade() -> None:
    schema = target_schema()
    values = {"schema": schema, "quoted": schema.replace("'", "''"), "identity": IDENTITY}
    for script in (IDENTITIES, PARTITIONS, PAGES, VIEWS):
        op.execute(script.format(**values))


def downgrade() -> None:
    schema = target_schema()
    values = {"schema": schema, "quoted": schema.replace("'", "''"), "identity": ""}
    # The views stay as they are: they need nothing of what goes here.
    op.execute(f"drop function {schema}.restore_pages(), {schema}.tables_without_pages()")
    for script in (PARTITIONS, FORMER_IDENTITIES):
        op.execute(script.format(**values))
