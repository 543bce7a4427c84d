"""History goes back to queues, and is kept as long as its destination wants."""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

FUNCTIONS = """
-- Planned for each call, a single message would take four times as long.
alter function {schema}.keep_history(tid[], integer[], {schema}.outcome, bigint)
    set plan_cache_mode = force_generic_plan;

create function {schema}.history_retention(destination text) returns integer
    language sql stable
begin atomic
    select case when bool_and(s.history_days is not null) then max(s.history_days) end
    from (select q.history_days from {schema}.queue q where q.name = destination
          union all
          select q.history_days from {schema}.topic t left join {schema}.queue q using (topic_id)
          where t.name = destination) s;
end;
comment on function {schema}.history_retention(text) is
    'How many days the history of a queue or topic is kept; null: until somebody removes it. One that is gone keeps '
    'its history; where a queue and a topic have the same name, the longer time holds.';

create function {schema}.replay_messages(
    source text, transactions xid8[], numbers bigint[], since timestamptz, until timestamptz, target integer,
    keep_ids boolean) returns bigint
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    replayed bigint;
begin
    insert into {schema}.message (
        queue_id, inverse_priority, jms_message_id, jms_timestamp, jms_delivery_mode, message_type, jms_correlation_id,
        jms_reply_to, jms_type, properties, property_types, text_body, json_body, body_types, bytes_body)
    select target, h.inverse_priority, case when keep_ids then h.jms_message_id else gen_random_uuid() end,
           case when keep_ids then h.jms_timestamp else {schema}.current_milliseconds() end, h.jms_delivery_mode,
           h.message_type, h.jms_correlation_id, h.jms_reply_to, h.jms_type,
           coalesce(h.properties, '{{}}') || jsonb_strip_nulls(jsonb_build_object(
               'JMS_jmsql_ReplayedFrom', case when h.is_topic then 'topic://' else 'queue://' end || h.destination,
               'JMS_jmsql_ReplayedMessageID', 'ID:' || h.jms_message_id)),
           h.property_types, coalesce(h.text_body, b.text_body), coalesce(h.json_body, b.json_body),
           coalesce(h.body_types, b.body_types), coalesce(h.bytes_body, b.bytes_body)
    from unnest(transactions, numbers) with ordinality as k (transaction_id, sequence, position)
    cross join lateral (
        select * from {schema}.message_history m
        where m.destination = source and m.transaction_id = k.transaction_id and m.sequence = k.sequence
          and m.acknowledged_at >= since and m.acknowledged_at < until
        offset 0) h
    left join {schema}.body b using (body_id)
    order by k.position;
    get diagnostics replayed = row_count;
    return replayed;
end
$$;
comment on function {schema}.replay_messages(text, xid8[], bigint[], timestamptz, timestamptz, integer, boolean) is
    'Sends messages of a destination''s history, given by transaction and sequence, to a queue, in the order given.';

create function {schema}.replay(
    source text, target text, since timestamptz, until timestamptz default 'infinity',
    outcomes text[] default '{{acknowledged}}', keep_ids boolean default false) returns bigint
    language plpgsql volatile strict
    set search_path = pg_catalog, pg_temp
as $$
declare
    from_topic boolean := source like 'topic://%';
    source_name text := regexp_replace(source, '^(queue|topic)://', '');
    transactions xid8[];
    numbers bigint[];
    target_id integer;
    replayed bigint;
begin
    select q.queue_id into target_id from {schema}.queue q where q.name = regexp_replace(target, '^queue://', '');
    if target_id is null then
        raise exception 'There is no queue "%".', regexp_replace(target, '^queue://', '') using errcode = 'JMS01',
            hint = 'Make it with create_queue; the view destinations lists those there are.';
    end if;
    select array_agg(k.transaction_id order by k.sequence), array_agg(k.sequence order by k.sequence)
    into transactions, numbers
    from (
        select distinct on (coalesce(m.jms_message_id::text, m.sequence::text)) m.transaction_id, m.sequence
        from {schema}.message_history m
        where m.destination = source_name and m.is_topic = from_topic
          and m.acknowledged_at >= since and m.acknowledged_at < until
          and m.outcome = any(outcomes::{schema}.outcome[])
        order by coalesce(m.jms_message_id::text, m.sequence::text), m.sequence) k;
    replayed := {schema}.replay_messages(source_name, transactions, numbers, since, until, target_id, keep_ids);
    perform pg_notify(
        (select n.nspname from pg_catalog.pg_namespace n join pg_catalog.pg_class c on c.relnamespace = n.oid
         where c.oid = '{schema}.queue'::regclass), target_id::text);
    return replayed;
end
$$;
comment on function {schema}.replay(text, text, timestamptz, timestamptz, text[], boolean) is
    'Sends what left a queue or topic in a range of time to a queue again, each message once, in the order in which '
    'they were sent, and returns how many there were.';
"""

_MOVED = """body_id, inverse_priority, jms_message_id, jms_timestamp, jms_delivery_mode, jms_delivery_time,
            message_type, jms_correlation_id, jms_reply_to, jms_type, property_types, text_body, json_body, body_types,
            bytes_body"""

BURIAL = """
create or replace function {schema}.bury_dead_letters(most integer)
    returns table (dead_letter_queue integer, moved bigint)
    language plpgsql volatile strict
    set search_path = pg_catalog, pg_temp
as $$
begin
    if exists (
            select from {schema}.delivery d
            where d.dead_letter_queue_id is not null
              and not exists (select from {schema}.queue q
                              where q.queue_id = d.dead_letter_queue_id and q.name is not null)) then
        insert into {schema}.queue (name) values ('DLQ') on conflict (name) do nothing;
    end if;
    return query
        with condemned as materialized (
            select d.ctid as delivery, d.delivery_count, d.first_failed_at, d.last_error, m.*,
                   coalesce(t.queue_id, (select f.queue_id from {schema}.queue f where f.name = 'DLQ')) as target
            from {schema}.delivery d
            left join {schema}.queue t on t.queue_id = d.dead_letter_queue_id and t.name is not null
            cross join lateral (
                select n.ctid as address, n.* from {schema}.message n
                where (n.queue_id, n.inverse_priority, n.sequence) = (d.queue_id, d.inverse_priority, d.sequence)
                offset 0
                for update skip locked) m
            where d.dead_letter_queue_id is not null and d.claim_id is null
            limit most),
{history}
        spared as (
            update {schema}.delivery set dead_letter_queue_id = null, next_attempt = null
            where ctid = any(array(select c.delivery from condemned c where c.target = c.queue_id))),
        forgotten as (
            delete from {schema}.delivery
            where ctid = any(array(select c.delivery from condemned c where c.target <> c.queue_id))),
        deleted as (
            delete from {schema}.message
            where ctid = any(array(select c.address from condemned c where c.target <> c.queue_id)) {recorded}),
        buried as (
            insert into {schema}.message (queue_id, properties, {moved})
            select c.target,
                   {schema}.dead_letter_properties(c.properties, c.queue_id, 'maximum deliveries', c.delivery_count,
                                                   c.first_failed_at, c.last_error, c.jms_expiration),
                   {moved}
            from condemned c
            where c.target <> c.queue_id
            order by c.sequence
            returning queue_id)
        select b.queue_id, count(*) from buried b group by b.queue_id;
end
$$;
"""

HISTORY = """
        history as materialized (
            select case when exists (select from {schema}.queue q
                                     where q.history and q.queue_id in (select c.queue_id from condemned c))
                   then {schema}.keep_history(
                       array(select c.address from condemned c where c.target <> c.queue_id),
                       array(select c.delivery_count from condemned c where c.target <> c.queue_id),
                       'dead-lettered', null) end),"""
RECORDED = "and (select true from history)"


def upgrade() -> None:
    schema = target_schema()
    op.execute(FUNCTIONS.format(schema=schema))
    history = HISTORY.format(schema=schema)
    op.execute(BURIAL.format(schema=schema, moved=_MOVED, history=history, recorded=RECORDED))


def downgrade() -> None:
    schema = target_schema()
    op.execute(BURIAL.format(schema=schema, moved=_MOVED, history="", recorded=""))
    op.execute(
        f"""
        drop function {schema}.replay(text, text, timestamptz, timestamptz, text[], boolean),
            {schema}.replay_messages(text, xid8[], bigint[], timestamptz, timestamptz, integer, boolean),
            {schema}.history_retention(text);
        alter function {schema}.keep_history(tid[], integer[], {schema}.outcome, bigint) reset plan_cache_mode;
        """
    )
