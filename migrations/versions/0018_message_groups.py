"""Message groups: which group a message is of, who holds one, and how they stand."""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

# It is computed, so that whatever makes messages fills it: sends, topics, delays, moves, and SQL.
MESSAGES = """
alter table {schema}.message add column group_hash bigint
    generated always as (pg_catalog.hashtextextended(properties ->> 'JMSXGroupID', 0)) stored;
comment on column {schema}.message.group_hash is
    'Stands for JMSXGroupID, whose length has no limit; null: the message is in no group.';
alter table {schema}.message alter column group_hash set statistics 0;
-- Only messages in groups are in this index. Its order is that of delivery within the group.
create index message_group on {schema}.message (queue_id, group_hash, inverse_priority, sequence)
    where group_hash is not null;

alter table {schema}.delivery add column group_hash bigint;
comment on column {schema}.delivery.group_hash is 'The group of the message; null: it is in none.';
alter table {schema}.delivery alter column group_hash set statistics 0;
-- What makes a group wait: messages that are claimed, and those that failed and wait for their next attempt.
create index delivery_group on {schema}.delivery (queue_id, group_hash, inverse_priority, sequence)
    where group_hash is not null and (claim_id is not null or next_attempt is not null);
"""

# Consumers of the queues that have never had groups ask nothing more of a message than whether this table names its
# queue. There is no unique key: a sender would wait for another's transaction, whose row it cannot see.
QUEUES = """
create table {schema}.grouped_queue (queue_id integer not null);
create index grouped_queue_queue on {schema}.grouped_queue (queue_id);
comment on table {schema}.grouped_queue is 'The queues that have, or had, messages of groups; some of them twice.';

create function {schema}.note_group() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from {schema}.grouped_queue q where q.queue_id = new.queue_id) then
        insert into {schema}.grouped_queue values (new.queue_id);
    end if;
    return null;
end
$$;
create trigger groups_are_noted after insert on {schema}.message
    for each row when (new.group_hash is not null) execute function {schema}.note_group();
insert into {schema}.grouped_queue select distinct queue_id from {schema}.message where group_hash is not null;

create function {schema}.forget_groups() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    delete from {schema}.grouped_queue g using removed q where g.queue_id = q.queue_id;
    return null;
end
$$;
create trigger groups_go_with_their_queue after delete on {schema}.queue
    referencing old table as removed for each statement execute function {schema}.forget_groups();
"""

# The new column has made the table anew, without the pages that every plan is to count with. They come back as in the
# first migration, with numbers that no message has.
PAGES = """
insert into {schema}.message (sequence, queue_id, message_type, inverse_priority, jms_delivery_mode, bytes_body)
    select -n, 0, 'BytesMessage', 0, 2, decode(repeat('00', 1000), 'hex') from generate_series(1, 128 * 8) as n;
delete from {schema}.message where queue_id = 0;
"""

# Row locks, unlike advisory ones, take no room in the server's lock table, where a transaction would need some for each
# group that it receives from. The rows are there from the start: nobody has to make them, nor to remove them.
LOCKS = """
create table {schema}.group_lock (slot integer primary key);
comment on table {schema}.group_lock is
    'Whoever receives a message of a group locks the row of its slot until the end of the transaction. See group_slot.';
insert into {schema}.group_lock select generate_series(0, 16383);

create function {schema}.group_slot(queue integer, message_group bigint) returns integer
    language sql immutable parallel safe
    return ((message_group # queue) & 16383)::integer;
comment on function {schema}.group_slot(integer, bigint) is
    'The row of group_lock for a group of a queue: one of 16,384, which another group rarely needs at the same time.';

create function {schema}.group_state(queue integer, groups bigint[]) returns setof {schema}.delivery
    language plpgsql volatile strict rows 1
as $$
begin
    return query
        select d.*
        from unnest(groups) as g (group_hash)
        cross join lateral (
            select s.* from {schema}.delivery s
            where s.queue_id = queue and s.group_hash = g.group_hash
              and (s.claim_id is not null or s.next_attempt is not null)
            offset 0) d;
end
$$;
comment on function {schema}.group_state(integer, bigint[]) is
    'What makes groups wait, as it is by now: like delivery_state, it has a snapshot of its own.';

create function {schema}.deliveries_if_first(queue integer, priority smallint, message bigint, message_group bigint)
    returns integer
    language plpgsql volatile strict
as $$
begin
    if exists (select from {schema}.group_state(queue, array[message_group]) s
               where s.claim_id is not null
                  or (s.next_attempt > statement_timestamp()
                      and (s.inverse_priority, s.sequence) <= (priority, message))) then
        return null;
    end if;
    return {schema}.deliveries_if_free(queue, priority, message);
end
$$;
comment on function {schema}.deliveries_if_first(integer, smallint, bigint, bigint) is
    'How often a message was delivered; null if it is claimed or waits, or its group does.';
"""


# A row is locked by who could change it; the policy lets nobody do that.
ACCESS = """
alter table {schema}.group_lock enable row level security;
create policy may_select on {schema}.group_lock for select using (true);
create policy may_lock on {schema}.group_lock for update using (true) with check (false);
insert into {schema}.required_privilege (action, privilege, object)
select a.action, r.privilege, r.object
from unnest(array['send', 'receive', 'browse', 'administer']) as a (action)
cross join (values ('select, update', '{quoted}.group_lock'), ('select', '{quoted}.grouped_queue'),
                   ('select', '{quoted}.message_groups')) as r (privilege, object)
where a.action <> 'browse' or r.privilege = 'select';
select {schema}.renew_privileges();
"""

VIEWS = """
create view {schema}.message_groups with (security_invoker) as
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
from (
    select m.queue_id,
           m.properties ->> 'JMSXGroupID' as group_id,
           count(*) as messages,
           count(d.claim_id) as claimed,
           max(d.connection_id) as claimed_by,
           max(d.next_attempt) filter (where d.next_attempt > now()) as next_attempt,
           {schema}.to_timestamp(min(m.jms_timestamp)) as oldest_sent_at
    from {schema}.message m
    left join {schema}.delivery d using (queue_id, inverse_priority, sequence)
    where m.group_hash is not null
    group by m.queue_id, m.properties ->> 'JMSXGroupID') g
join {schema}.queue q using (queue_id)
left join {schema}.subscription s using (queue_id)
left join {schema}.topic t on t.topic_id = s.topic_id
where q.deleted_at is null;
comment on view {schema}.message_groups is
    'One row a group of a queue or subscription. What an open transaction holds, nobody else can see.';

create or replace view {schema}.messages with (security_invoker) as
select q.name as queue,
       9 - m.inverse_priority as priority,
       m.sequence,
       case when m.jms_expiration <= {schema}.current_milliseconds() then 'expired'
            when m.is_delayed then 'delayed'
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
       {schema}.to_timestamp(m.jms_delivery_time) as delivery_time,
       m.properties ->> 'JMSXGroupID' as group_id
from (
    select queue_id, inverse_priority, sequence, message_type, jms_message_id, jms_timestamp, jms_expiration,
           jms_delivery_mode, jms_delivery_time, jms_correlation_id, jms_reply_to, jms_type, properties, text_body,
           json_body, bytes_body, body_id, false as is_delayed
    from {schema}.message
    union all
    select queue_id, inverse_priority, sequence, message_type, jms_message_id, jms_timestamp, jms_expiration,
           jms_delivery_mode, jms_delivery_time, jms_correlation_id, jms_reply_to, jms_type, properties, text_body,
           json_body, bytes_body, body_id, true
    from {schema}.delayed_message) m
join {schema}.queue q using (queue_id)
left join {schema}.delivery d using (queue_id, inverse_priority, sequence)
left join {schema}.subscription s using (queue_id)
left join {schema}.topic t on t.topic_id = s.topic_id
where q.deleted_at is null;
"""


def upgrade() -> None:
    schema = target_schema()
    quoted = schema.replace("'", "''")
    for script in (MESSAGES, QUEUES, PAGES, LOCKS, VIEWS, ACCESS):
        op.execute(script.format(schema=schema, quoted=quoted))


def downgrade() -> None:
    schema = target_schema()
    quoted = schema.replace("'", "''")
    # The view of messages keeps its column, which needs nothing of what goes here: other views read it.
    op.execute(
        f"""
        delete from {schema}.required_privilege
        where object in ('{quoted}.group_lock', '{quoted}.grouped_queue', '{quoted}.message_groups');
        drop view {schema}.message_groups;
        drop function {schema}.deliveries_if_first(integer, smallint, bigint, bigint),
            {schema}.group_state(integer, bigint[]), {schema}.group_slot(integer, bigint);
        drop trigger groups_go_with_their_queue on {schema}.queue;
        drop trigger groups_are_noted on {schema}.message;
        drop function {schema}.forget_groups(), {schema}.note_group();
        drop table {schema}.group_lock, {schema}.grouped_queue;
        alter table {schema}.delivery drop column group_hash;
        alter table {schema}.message drop column group_hash;
        """
    )
