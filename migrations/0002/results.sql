-- The results of messages, for listeners that ask for them: the values that handlers return, and why messages have failed.

create table jmsql_internal.result_keeping (
    queue_id      integer primary key references jmsql_internal.queue on delete cascade,
    seconds       float8 not null check (seconds between 0 and 3155760000),
    keeps_message boolean not null default false
);
comment on table jmsql_internal.result_keeping is
    'The queues whose listeners keep results: those of dead letters and expired messages are kept there, too.';
comment on column jmsql_internal.result_keeping.seconds is 'For how long.';
comment on column jmsql_internal.result_keeping.keeps_message is
    'Whether type, properties and text of the message are kept beside its result.';

create table jmsql_internal.result (
    message_id  uuid not null,
    queue_id    integer not null,
    deliveries  integer not null,
    sent_at     timestamptz,
    started_at  timestamptz,
    finished_at timestamptz not null,
    kept_until  timestamptz not null,
    state       text not null check (state in ('done', 'failed', 'expired', 'cancelled')),
    value       json,
    error       text,
    jms_type    text,
    properties  jsonb,
    text_body   text,
    primary key (message_id, queue_id)
) with (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);
comment on table jmsql_internal.result is
    'How messages have ended, by their identifiers. A row is of one queue: a dead letter that another queue has handled has two, '
    'and the later one counts.';
comment on column jmsql_internal.result.kept_until is 'When maintenance removes it.';
comment on column jmsql_internal.result.value is 'The value that the handler has returned: json keeps it as it was written.';
comment on column jmsql_internal.result.text_body is
    'The text of the message, like its type and properties only where result_keeping says so.';
create index result_kept_until on jmsql_internal.result (kept_until);

create policy may_delete on jmsql_internal.result_keeping for delete
    using ((select jmsql_internal.has_access_to_all('administer', current_user)));
create policy may_select on jmsql_internal.result_keeping for select using (true);
create policy may_insert on jmsql_internal.result_keeping for insert
    with check (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
                or (select jmsql_internal.has_access_to_all('receive', current_user)));
create policy may_update on jmsql_internal.result_keeping for update
    using (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
           or (select jmsql_internal.has_access_to_all('receive', current_user)));
alter table jmsql_internal.result_keeping enable row level security;

create policy may_delete on jmsql_internal.result for delete
    using ((select jmsql_internal.has_access_to_all('administer', current_user)));
create policy may_select on jmsql_internal.result for select
    using (queue_id = any ((select jmsql_internal.accessible_queues('browse', current_user))::integer[])
           or (select jmsql_internal.has_access_to_all('browse', current_user)));
create policy may_insert on jmsql_internal.result for insert
    with check (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
                or (select jmsql_internal.has_access_to_all('receive', current_user)));
create policy may_update on jmsql_internal.result for update
    using (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
           or (select jmsql_internal.has_access_to_all('receive', current_user)));
alter table jmsql_internal.result enable row level security;

create function jmsql_internal.result_channel(message uuid) returns integer
    language sql immutable strict
    return 1073741824 + ('x' || right(message::text, 3))::bit(12)::integer;
comment on function jmsql_internal.result_channel(uuid) is
    'What stands, in a notification, for the result of a message; queues and topics do not come to have such numbers.';

create view jmsql.results with (security_invoker) as
select 'ID:' || r.message_id as message_id,
       coalesce(q.name, t.name) as destination,
       r.state, r.value, r.error, r.deliveries, r.sent_at, r.started_at, r.finished_at, r.kept_until
from jmsql_internal.result r
left join jmsql_internal.queue q using (queue_id)
left join jmsql_internal.subscription s using (queue_id)
left join jmsql_internal.topic t on t.topic_id = s.topic_id;
comment on view jmsql.results is 'How messages have ended whose listeners keep results: one row a message. Order by finished_at.';
comment on column jmsql.results.message_id is 'JMSMessageID';
comment on column jmsql.results.destination is 'the queue in which it ended; null: it is gone';
comment on column jmsql.results.state is 'done, failed, expired or cancelled';
comment on column jmsql.results.value is 'the value that the handler has returned, as JSON';
comment on column jmsql.results.error is 'the error of a message that has failed, with its traceback';
comment on column jmsql.results.deliveries is 'how often it was delivered, the last time included';
comment on column jmsql.results.sent_at is 'when it was sent';
comment on column jmsql.results.started_at is 'when the handler was called that has returned';
comment on column jmsql.results.finished_at is 'when it ended';
comment on column jmsql.results.kept_until is 'when the row is removed';

-- What is delivered again has not ended: its former result goes with the dead letter.

create or replace function jmsql_internal.return_dead_letters(queue integer, inverse_priorities smallint[], sequences bigint[])
    returns table (destination text, subscription text, returned bigint)
    language plpgsql volatile strict
    set search_path = pg_catalog, pg_temp
as $$
begin
    return query
        with chosen as materialized (
            select m.* from unnest(inverse_priorities, sequences) as k (inverse_priority, sequence)
            cross join lateral (
                select n.ctid as address, n.* from jmsql_internal.message n
                where (n.queue_id, n.inverse_priority, n.sequence) = (queue, k.inverse_priority, k.sequence)
                  and n.properties ? 'JMS_jmsql_DeadLetterReason'
                offset 0
                for update skip locked) m),
        state as materialized (
            select s.* from jmsql_internal.delivery_state(queue,
                (select array_agg(c.inverse_priority) from chosen c), (select array_agg(c.sequence) from chosen c)) s),
        found as materialized (
            select c.*, o.queue_id as origin_id, c.properties ->> 'JMS_jmsql_OriginalDestination' as origin,
                   c.properties ->> 'JMS_jmsql_OriginalSubscription' as origin_subscription
            from chosen c
            left join state s using (inverse_priority, sequence)
            cross join lateral (
                select q.queue_id from jmsql_internal.queue q
                where c.properties ->> 'JMS_jmsql_OriginalDestination' like 'queue://%'
                  and q.name = substr(c.properties ->> 'JMS_jmsql_OriginalDestination', 9)
                union all
                (select s.queue_id
                 from jmsql_internal.subscription s
                 join jmsql_internal.topic t using (topic_id)
                 where c.properties ->> 'JMS_jmsql_OriginalDestination' like 'topic://%'
                   and t.name = substr(c.properties ->> 'JMS_jmsql_OriginalDestination', 9)
                   and s.name = c.properties ->> 'JMS_jmsql_OriginalSubscription'
                   and s.client_id is not distinct from c.properties ->> 'JMS_jmsql_OriginalClientID'
                 order by s.durable desc)
                limit 1) o
            where s.claim_id is null),
        forgotten as (
            delete from jmsql_internal.delivery where ctid = any(array(
                select d.address from found f
                cross join lateral (
                    select t.ctid as address from jmsql_internal.delivery t
                    where (t.queue_id, t.inverse_priority, t.sequence) = (f.queue_id, f.inverse_priority, f.sequence)
                    offset 0) d))),
        deleted as (
            delete from jmsql_internal.message where ctid = any(array(select f.address from found f))),
        forgotten_results as (
            delete from jmsql_internal.result
            where message_id = any(array(select f.jms_message_id from found f))),
        back as (
            insert into jmsql_internal.message (
                queue_id, jms_expiration, properties, body_id, inverse_priority, jms_message_id, jms_timestamp,
                jms_delivery_mode, jms_delivery_time, message_type, jms_correlation_id, jms_reply_to, jms_type,
                property_types, text_body, json_body, body_types, bytes_body)
            select f.origin_id,
                   case when jmsql_internal.whole_number(f.properties ->> 'JMS_jmsql_OriginalExpiration')
                             > jmsql_internal.current_milliseconds()
                        then jmsql_internal.whole_number(f.properties ->> 'JMS_jmsql_OriginalExpiration') end,
                   nullif(f.properties - array(select k from jsonb_object_keys(f.properties) k
                                               where starts_with(k, 'JMS_jmsql_')), '{}'),
                   body_id, inverse_priority, jms_message_id, jms_timestamp, jms_delivery_mode, jms_delivery_time,
                   message_type, jms_correlation_id, jms_reply_to, jms_type, property_types, text_body, json_body,
                   body_types, bytes_body
            from found f
            order by f.inverse_priority, f.sequence),
        told as materialized (
            select pg_notify(jmsql_internal.channel(), f.origin_id::text) from found f group by f.origin_id)
        select f.origin, f.origin_subscription, count(*) from found f
        where (select count(*) from told) >= 0
        group by f.origin, f.origin_subscription;
end
$$;

create or replace function jmsql_internal.move_step(
    source integer, target integer, chosen bigint[], newest bigint, most bigint, delayed boolean) returns bigint
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    kind regclass := case when delayed then 'jmsql_internal.delayed_message'::regclass
                          else 'jmsql_internal.message'::regclass end;
    addresses tid[];
    columns text;
    identifiers uuid[];
    moved bigint;
begin
    if source = target then
        raise exception 'The messages are in that queue already.' using errcode = 'JMS03';
    end if;
    if delayed then
        addresses := array(
            select m.ctid from jmsql_internal.delayed_message m
            where m.queue_id = source and m.sequence <= newest and (chosen is null or m.sequence = any(chosen))
            order by m.queue_id, m.jms_delivery_time, m.sequence
            limit most
            for update skip locked);
    else
        addresses := array(select m.address from jmsql_internal.lock_free_messages(source, chosen, newest, most) m);
        perform jmsql_internal.forget_deliveries(addresses);
    end if;
    if cardinality(addresses) = 0 then
        return 0;
    end if;
    execute format('select array_agg(jms_message_id) from %s where ctid = any($1)', kind) into identifiers using addresses;
    -- Whatever columns there are by now.
    select string_agg(quote_ident(a.attname), ', ' order by a.attnum) into columns
    from pg_attribute a
    where a.attrelid = kind and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
      and a.attname not in ('queue_id', 'sequence', 'transaction_id');
    execute format(
        'with gone as (delete from %1$s where ctid = any($1) returning *) '
        'insert into %1$s (queue_id, %2$s) select $2, %2$s from gone order by inverse_priority, sequence',
        kind, columns) using addresses, target;
    get diagnostics moved = row_count;
    -- A dead letter that is moved is about to be handled again.
    delete from jmsql_internal.result where message_id = any(identifiers);
    perform pg_notify(jmsql_internal.channel(), target::text);
    return moved;
end
$$;
