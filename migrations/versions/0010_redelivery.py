"""How often messages are delivered again, and where those go that never succeed; claims that run out."""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

TABLES = """
alter table {schema}.queue
    add column maximum_deliveries integer check (maximum_deliveries > 0),
    add column redelivery_delay double precision check (redelivery_delay between 0 and 3153600000),
    add column redelivery_multiplier double precision
        check (redelivery_multiplier >= 1 and redelivery_multiplier < 'infinity'),
    add column maximum_redelivery_delay double precision check (maximum_redelivery_delay between 0 and 3153600000),
    add column redelivery_jitter double precision check (redelivery_jitter between 0 and 1),
    add column dead_letter_queue_id integer references {schema}.queue on delete set null,
    add column claim_time_limit double precision check (claim_time_limit between 1 and 3153600000);
comment on column {schema}.queue.maximum_deliveries is
    'After so many deliveries that failed, a message moves to the dead-letter queue; null: never.';
comment on column {schema}.queue.redelivery_delay is 'Seconds before the first redelivery; null: none.';
comment on column {schema}.queue.redelivery_multiplier is 'What each further delay is multiplied with; null: 1.';
comment on column {schema}.queue.maximum_redelivery_delay is 'The longest delay in seconds; null: any.';
comment on column {schema}.queue.redelivery_jitter is 'The share by which delays vary at random; null: 0.';
comment on column {schema}.queue.dead_letter_queue_id is 'Where messages go at last; null: the queue DLQ.';
comment on column {schema}.queue.claim_time_limit is
    'After so many seconds a claim that nobody extends is taken away; null: never.';

alter table {schema}.delivery
    add column claim_expires_at timestamptz,
    add column first_failed_at timestamptz,
    add column dead_letter_queue_id integer;
comment on column {schema}.delivery.claim_expires_at is 'When the claim is taken away if nobody extends it.';
comment on column {schema}.delivery.first_failed_at is 'When a delivery of the message failed for the first time.';
comment on column {schema}.delivery.dead_letter_queue_id is
    'Where the message is about to move, which waits forever meanwhile; 0: to the queue DLQ.';
-- Only messages that are about to move are in this index.
create index delivery_condemned on {schema}.delivery (queue_id) where dead_letter_queue_id is not null;
-- And only dead letters in this one.
create index message_dead_letter on {schema}.message (queue_id, sequence)
    where properties ? 'JMS_jmsql_DeadLetterReason';
"""

LOOPS = """
create function {schema}.check_dead_letter_queue() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    way integer[] := array[new.queue_id];
    next_id integer := new.dead_letter_queue_id;
begin
    while next_id is not null loop
        if next_id = any(way) then
            raise check_violation using message =
                'dead letters would go round: ' || (
                    select string_agg(coalesce(q.name, 'a subscription'), ' -> ' order by w.number)
                    from unnest(way || next_id) with ordinality as w (queue_id, number)
                    join {schema}.queue q on q.queue_id = w.queue_id);
        end if;
        way := way || next_id;
        select q.dead_letter_queue_id into next_id from {schema}.queue q where q.queue_id = next_id;
    end loop;
    return new;
end
$$;
comment on function {schema}.check_dead_letter_queue() is 'Refuses dead-letter queues that lead back to themselves.';
create trigger dead_letters_do_not_go_round before insert or update of dead_letter_queue_id on {schema}.queue
    for each row when (new.dead_letter_queue_id is not null)
    execute function {schema}.check_dead_letter_queue();
"""

_MOVED = """body_id, inverse_priority, jms_message_id, jms_timestamp, jms_delivery_mode, jms_delivery_time,
            message_type, jms_correlation_id, jms_reply_to, jms_type, property_types, text_body, json_body, body_types,
            bytes_body"""

FUNCTIONS = """
create function {schema}.dead_letter_properties(
        properties jsonb, queue integer, reason text, deliveries integer, first_failed_at timestamptz, error text,
        expiration bigint) returns jsonb
    language sql stable
begin atomic
    select jsonb_strip_nulls(jsonb_build_object(
               'JMS_jmsql_OriginalDestination', coalesce('queue://' || q.name, 'topic://' || t.name),
               'JMS_jmsql_OriginalSubscription', s.name,
               'JMS_jmsql_OriginalClientID', s.client_id,
               'JMS_jmsql_OriginalExpiration', expiration))
           || coalesce(properties, '{{}}')
              - '{{JMS_jmsql_Deliveries,JMS_jmsql_FirstFailure,JMS_jmsql_LastError}}'::text[]
           || jsonb_strip_nulls(jsonb_build_object(
               'JMS_jmsql_DeadLetterReason', reason,
               'JMS_jmsql_DeadLetterTime', {schema}.current_milliseconds(),
               'JMS_jmsql_Deliveries', deliveries,
               'JMS_jmsql_FirstFailure', floor(extract(epoch from first_failed_at) * 1000)::bigint,
               'JMS_jmsql_LastError', error))
    from {schema}.queue q
    left join {schema}.subscription s using (queue_id)
    left join {schema}.topic t on t.topic_id = s.topic_id
    where q.queue_id = queue;
end;
comment on function {schema}.dead_letter_properties(jsonb, integer, text, integer, timestamptz, text, bigint) is
    'The properties of a dead letter: those it had, where it comes from, and why it is dead.';

create function {schema}.bury_dead_letters(most integer) returns table (dead_letter_queue integer, moved bigint)
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
        spared as (
            update {schema}.delivery set dead_letter_queue_id = null, next_attempt = null
            where ctid = any(array(select c.delivery from condemned c where c.target = c.queue_id))),
        forgotten as (
            delete from {schema}.delivery
            where ctid = any(array(select c.delivery from condemned c where c.target <> c.queue_id))),
        deleted as (
            delete from {schema}.message
            where ctid = any(array(select c.address from condemned c where c.target <> c.queue_id))),
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
comment on function {schema}.bury_dead_letters(integer) is
    'Moves messages whose deliveries have all failed to their dead-letter queues: at most so many at once.';

create function {schema}.return_dead_letters(queue integer, inverse_priorities smallint[], sequences bigint[])
    returns table (destination text, subscription text, returned bigint)
    language plpgsql volatile strict
    set search_path = pg_catalog, pg_temp
as $$
begin
    return query
        with chosen as materialized (
            select m.* from unnest(inverse_priorities, sequences) as k (inverse_priority, sequence)
            cross join lateral (
                select n.ctid as address, n.* from {schema}.message n
                where (n.queue_id, n.inverse_priority, n.sequence) = (queue, k.inverse_priority, k.sequence)
                  and n.properties ? 'JMS_jmsql_DeadLetterReason'
                offset 0
                for update skip locked) m),
        state as materialized (
            select s.* from {schema}.delivery_state(queue,
                (select array_agg(c.inverse_priority) from chosen c), (select array_agg(c.sequence) from chosen c)) s),
        found as materialized (
            select c.*, o.queue_id as origin_id, c.properties ->> 'JMS_jmsql_OriginalDestination' as origin,
                   c.properties ->> 'JMS_jmsql_OriginalSubscription' as origin_subscription
            from chosen c
            left join state s using (inverse_priority, sequence)
            cross join lateral (
                select q.queue_id from {schema}.queue q
                where c.properties ->> 'JMS_jmsql_OriginalDestination' like 'queue://%'
                  and q.name = substr(c.properties ->> 'JMS_jmsql_OriginalDestination', 9)
                union all
                (select s.queue_id
                 from {schema}.subscription s
                 join {schema}.topic t using (topic_id)
                 where c.properties ->> 'JMS_jmsql_OriginalDestination' like 'topic://%'
                   and t.name = substr(c.properties ->> 'JMS_jmsql_OriginalDestination', 9)
                   and s.name = c.properties ->> 'JMS_jmsql_OriginalSubscription'
                   and s.client_id is not distinct from c.properties ->> 'JMS_jmsql_OriginalClientID'
                 order by s.durable desc)
                limit 1) o
            where s.claim_id is null),
        forgotten as (
            delete from {schema}.delivery where ctid = any(array(
                select d.address from found f
                cross join lateral (
                    select t.ctid as address from {schema}.delivery t
                    where (t.queue_id, t.inverse_priority, t.sequence) = (f.queue_id, f.inverse_priority, f.sequence)
                    offset 0) d))),
        deleted as (
            delete from {schema}.message where ctid = any(array(select f.address from found f))),
        back as (
            insert into {schema}.message (queue_id, jms_expiration, properties, {moved})
            select f.origin_id,
                   case when (f.properties ->> 'JMS_jmsql_OriginalExpiration')::bigint
                             > {schema}.current_milliseconds()
                        then (f.properties ->> 'JMS_jmsql_OriginalExpiration')::bigint end,
                   nullif(f.properties - array(select k from jsonb_object_keys(f.properties) k
                                               where starts_with(k, 'JMS_jmsql_')), '{{}}'),
                   {moved}
            from found f
            order by f.inverse_priority, f.sequence),
        told as materialized (
            select pg_notify((parse_ident('{schema}'))[1], f.origin_id::text) from found f group by f.origin_id)
        select f.origin, f.origin_subscription, count(*) from found f
        where (select count(*) from told) >= 0
        group by f.origin, f.origin_subscription;
end
$$;
comment on function {schema}.return_dead_letters(integer, smallint[], bigint[]) is
    'Moves dead letters back to where they come from, but for those that a session holds or whose origin is gone.';

create function {schema}.retry(queue text, most bigint default null) returns bigint
    language sql volatile
    set search_path = pg_catalog, pg_temp
begin atomic
    select coalesce(sum(r.returned), 0)::bigint
    from (select d.queue_id, array_agg(d.inverse_priority) as inverse_priorities, array_agg(d.sequence) as sequences
          from (select m.queue_id, m.inverse_priority, m.sequence
                from {schema}.queue q
                join {schema}.message m using (queue_id)
                where q.name = retry.queue and m.properties ? 'JMS_jmsql_DeadLetterReason'
                order by m.inverse_priority, m.sequence
                limit most) d
          group by d.queue_id) k
    cross join lateral {schema}.return_dead_letters(k.queue_id, k.inverse_priorities, k.sequences) r;
end;
comment on function {schema}.retry(text, bigint) is
    'Moves the dead letters in a queue back to where they come from, the first so many; returns how many went.';
"""

VIEWS = """
create view {schema}.dead_letters as
select q.name as queue,
       m.sequence,
       m.properties ->> 'JMS_jmsql_OriginalDestination' as original_destination,
       m.properties ->> 'JMS_jmsql_OriginalSubscription' as original_subscription,
       m.properties ->> 'JMS_jmsql_DeadLetterReason' as reason,
       (m.properties ->> 'JMS_jmsql_Deliveries')::integer as deliveries,
       (regexp_match(m.properties ->> 'JMS_jmsql_LastError', '([^\\n]*)\\s*$'))[1] as error,
       {schema}.to_timestamp((m.properties ->> 'JMS_jmsql_FirstFailure')::bigint) as first_failed_at,
       {schema}.to_timestamp((m.properties ->> 'JMS_jmsql_DeadLetterTime')::bigint) as died_at,
       'ID:' || m.jms_message_id as message_id,
       m.message_type::text as type,
       9 - m.inverse_priority as priority,
       {schema}.to_timestamp(m.jms_timestamp) as sent_at,
       {schema}.to_timestamp((m.properties ->> 'JMS_jmsql_OriginalExpiration')::bigint) as expires_at,
       m.jms_correlation_id as correlation_id,
       m.jms_type,
       m.properties - array(select k from jsonb_object_keys(m.properties) k where starts_with(k, 'JMS_jmsql_'))
           as properties,
       coalesce(
           m.text_body, m.json_body::text, '\\x' || encode(m.bytes_body, 'hex'),
           (select coalesce(b.text_body, b.json_body::text, '\\x' || encode(b.bytes_body, 'hex'))
            from {schema}.body b where b.body_id = m.body_id)) as body,
       m.properties ->> 'JMS_jmsql_OriginalClientID' as original_client_id,
       m.properties ->> 'JMS_jmsql_LastError' as last_error
from {schema}.message m
join {schema}.queue q using (queue_id)
where m.properties ? 'JMS_jmsql_DeadLetterReason' and q.deleted_at is null;
comment on view {schema}.dead_letters is
    'Messages that were delivered in vain or have expired, where they come from and why. Order by died_at.';
"""


def upgrade() -> None:
    schema = target_schema()
    for script in (TABLES, LOOPS, FUNCTIONS, VIEWS):
        op.execute(script.format(schema=schema, moved=_MOVED))


def downgrade() -> None:
    schema = target_schema()
    op.execute(
        f"""
        drop view {schema}.dead_letters;
        drop function {schema}.retry(text, bigint), {schema}.return_dead_letters(integer, smallint[], bigint[]),
            {schema}.bury_dead_letters(integer),
            {schema}.dead_letter_properties(jsonb, integer, text, integer, timestamptz, text, bigint);
        drop index {schema}.message_dead_letter;
        drop trigger dead_letters_do_not_go_round on {schema}.queue;
        drop function {schema}.check_dead_letter_queue();
        alter table {schema}.delivery drop column claim_expires_at, drop column first_failed_at,
            drop column dead_letter_queue_id;
        alter table {schema}.queue drop column maximum_deliveries, drop column redelivery_delay,
            drop column redelivery_multiplier, drop column maximum_redelivery_delay, drop column redelivery_jitter,
            drop column dead_letter_queue_id, drop column claim_time_limit;
        """
    )
