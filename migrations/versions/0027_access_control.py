"""What roles may touch, made as little as clients need, so that no privilege leads to more than was given.

Privileges are code: no text of a table is executed. What a role may not do itself, triggers do, with the owner's rights
and by what policies have let through: so it is PostgreSQL that says who asks, wherever the statement comes from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import ModuleType

from alembic import op

from jmsql.store.migration import target_schema

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

TEMPORARY_NAME = "^temporary-[0-9a-f]{{8}}-([0-9a-f]{{4}}-){{3}}[0-9a-f]{{12}}$"

# Up to the year 9999, which is as far as PostgreSQL, Python and Java all go, less a day for time zones.
LAST_MILLISECOND = 253402214399999
_TIMES = ("jms_timestamp", "jms_expiration", "jms_delivery_time")

TABLES = f"""
-- Names of temporary destinations are of a form that no other name has.
alter table {{schema}}.queue add column user_name name not null default current_user;
alter table {{schema}}.topic add column user_name name not null default current_user;
comment on column {{schema}}.queue.user_name is 'The role that has made it, whose alone it is if it is temporary.';
comment on column {{schema}}.topic.user_name is 'The role that has made it, whose alone it is if it is temporary.';
update {{schema}}.queue q set user_name = c.user_name
from {{schema}}.connection c where c.connection_id = q.connection_id;
update {{schema}}.topic t set user_name = c.user_name
from {{schema}}.connection c where c.connection_id = t.connection_id;
update {{schema}}.queue set name = null, connection_id = null, deleted_at = statement_timestamp()
where connection_id is not null and name !~ '{TEMPORARY_NAME}';
update {{schema}}.queue q set deleted_at = statement_timestamp()
from {{schema}}.subscription s join {{schema}}.topic t using (topic_id)
where q.queue_id = s.queue_id and q.name is null and t.connection_id is not null and t.name !~ '{TEMPORARY_NAME}';
delete from {{schema}}.topic where connection_id is not null and name !~ '{TEMPORARY_NAME}';
update {{schema}}.queue set name = 'former ' || name where connection_id is null and name ~ '{TEMPORARY_NAME}';
update {{schema}}.topic set name = 'former ' || name where connection_id is null and name ~ '{TEMPORARY_NAME}';
alter table {{schema}}.queue add constraint temporary_names_are_reserved
    check (name is null or (connection_id is not null) = (name ~ '{TEMPORARY_NAME}'));
alter table {{schema}}.topic add constraint temporary_names_are_reserved
    check ((connection_id is not null) = (name ~ '{TEMPORARY_NAME}'));

update {{schema}}.queue set dead_letter_queue_id = null where dead_letter_queue_id in (
    select q.queue_id from {{schema}}.queue q where q.connection_id is not null);
update {{schema}}.queue set expiry_queue_id = null where expiry_queue_id in (
    select q.queue_id from {{schema}}.queue q where q.connection_id is not null);
insert into {{schema}}.queue (name) values ('DLQ') on conflict (name) do nothing;

-- A subscription has a queue that is nothing else.
delete from {{schema}}.subscription s using {{schema}}.queue q
where q.queue_id = s.queue_id and (q.name is not null or q.topic_id is not null or q.connection_id is not null);
alter table {{schema}}.subscription add column ended boolean not null default false;
comment on column {{schema}}.subscription.ended is 'Set to true, it ends the subscription.';
alter table {{schema}}.subscriber drop constraint subscriber_consumers_check, add check (consumers >= 0);
comment on column {{schema}}.subscriber.consumers is 'Set to 0, it removes the row.';
alter table {{schema}}.consumer drop constraint consumer_consumers_check, add check (consumers >= 0);
comment on column {{schema}}.consumer.consumers is 'Set to 0, it removes the row.';
alter table {{schema}}.connection add column closing boolean not null default false;
comment on column {{schema}}.connection.closing is 'Set to true, it removes the row.';

alter table {{schema}}.body add column transaction_id xid8, add column position bigint;
alter table {{schema}}.body alter column transaction_id set default pg_current_xact_id();
comment on column {{schema}}.body.transaction_id is 'Whose messages may refer to it: those of the same transaction.';
comment on column {{schema}}.body.position is 'Which message it is of, among those that were published with it.';

-- What upkeep and views would stumble over.
update {{schema}}.delivery
set delivery_count = least(greatest(delivery_count, 0), 1000000),
    first_failed_at = case when isfinite(first_failed_at) then first_failed_at end,
    last_error = left(last_error, 100000)
where delivery_count not between 0 and 1000000 or not isfinite(first_failed_at) or length(last_error) > 100000;
"""


def _in_range(name: str) -> str:
    return (
        f"{name} = case when {name} < 0 then 0 when {name} > {LAST_MILLISECOND} then {LAST_MILLISECOND} else {name} end"
    )


_TIMES_CAN_BE_SHOWN = " and ".join(f"{name} between 0 and {LAST_MILLISECOND}" for name in _TIMES)
_PROPERTIES_ARE_OBJECTS = "jsonb_typeof(properties) = 'object' and jsonb_typeof(property_types) = 'object'"

SOUND = f"""
do $$
begin
    if exists (select from {{schema}}.{{table}}
               where not ({_TIMES_CAN_BE_SHOWN}) or not ({_PROPERTIES_ARE_OBJECTS})) then
        update {{schema}}.{{table}}
        set {", ".join(_in_range(name) for name in _TIMES)},
            properties = case when jsonb_typeof(properties) = 'object' then properties end,
            property_types = case when jsonb_typeof(property_types) = 'object' then property_types end;
    end if;
end
$$;
alter table {{schema}}.{{table}}
    add constraint times_can_be_shown check ({_TIMES_CAN_BE_SHOWN}),
    add constraint properties_are_objects check ({_PROPERTIES_ARE_OBJECTS});
"""

# Each is a trigger's function, for which nobody needs the right to execute it: who had that could have it run for a
# table of his own, with rows that no policy has seen.
TRIGGERS = """
create function {schema}.make_subscription_queue() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    insert into {schema}.queue default values returning queue_id into new.queue_id;
    return new;
end
$$;
comment on function {schema}.make_subscription_queue() is 'Makes the queue of a new subscription.';
create trigger subscriptions_have_queues_of_their_own before insert on {schema}.subscription
    for each row when (new.queue_id is null) execute function {schema}.make_subscription_queue();

create function {schema}.end_subscription() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    if tg_op = 'UPDATE' then
        delete from {schema}.subscription s where s.queue_id = new.queue_id;
    else
        -- Its messages go later, in small steps; those that a session still holds go when it has let go of them.
        update {schema}.queue q set deleted_at = statement_timestamp()
        where q.queue_id = old.queue_id and q.deleted_at is null
          and q.name is null and q.topic_id is null and q.connection_id is null;
    end if;
    return null;
end
$$;
comment on function {schema}.end_subscription() is
    'Deletes a subscription that is to end, and has upkeep remove the queue of one that is deleted.';
create trigger subscriptions_end after update of ended on {schema}.subscription
    for each row when (new.ended) execute function {schema}.end_subscription();
create trigger queues_go_with_their_subscription after delete on {schema}.subscription
    for each row execute function {schema}.end_subscription();

create function {schema}.end_temporary() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    if tg_table_name = 'topic' then
        delete from {schema}.topic t where t.topic_id = old.topic_id;
        return null;
    end if;
    new.name := null;
    new.deleted_at := statement_timestamp();
    return new;
end
$$;
comment on function {schema}.end_temporary() is
    'Deletes a temporary destination that goes with no connection any more.';
create trigger temporary_queues_end before update of connection_id on {schema}.queue
    for each row when (new.connection_id is null and old.connection_id is not null and new.deleted_at is null)
    execute function {schema}.end_temporary();
create trigger temporary_topics_end before update of connection_id on {schema}.topic
    for each row when (new.connection_id is null and old.connection_id is not null)
    execute function {schema}.end_temporary();

create function {schema}.remove_updated_row() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    case tg_table_name
        when 'connection' then
            delete from {schema}.connection c where c.connection_id = new.connection_id;
        when 'consumer' then
            delete from {schema}.consumer c
            where c.connection_id = new.connection_id and c.queue_id = new.queue_id and c.selector = new.selector;
        when 'subscriber' then
            delete from {schema}.subscriber s
            where s.connection_id = new.connection_id and s.queue_id = new.queue_id;
    end case;
    return null;
end
$$;
comment on function {schema}.remove_updated_row() is
    'Deletes a row that its role has no privilege to delete: with that, it could lock the whole table.';
create trigger connections_close after update of closing on {schema}.connection
    for each row when (new.closing) execute function {schema}.remove_updated_row();
create trigger consumers_leave after update of consumers on {schema}.consumer
    for each row when (new.consumers = 0) execute function {schema}.remove_updated_row();
create trigger subscribers_leave after update of consumers on {schema}.subscriber
    for each row when (new.consumers = 0) execute function {schema}.remove_updated_row();

create function {schema}.free_client_id() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    -- The rest of it stays for the same client to take over; upkeep forgets what nobody wants.
    update {schema}.connection c set client_id = null
    where c.client_id = new.client_id and c.connection_id <> new.connection_id
      and not {schema}.is_connected(c.connection_id);
    return new;
end
$$;
comment on function {schema}.free_client_id() is 'Takes a client identifier from a connection that is gone.';
create trigger client_ids_of_the_dead_are_free before update of client_id on {schema}.connection
    for each row when (new.client_id is not null) execute function {schema}.free_client_id();

create function {schema}.check_body() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from {schema}.body b
                   where b.body_id = new.body_id and b.transaction_id = pg_current_xact_id()) then
        raise insufficient_privilege using message = 'a message can only have a body that was stored with it';
    end if;
    return null;
end
$$;
comment on function {schema}.check_body() is 'Refuses messages with the bodies of others.';
create trigger bodies_are_stored_with_their_messages after insert on {schema}.message
    for each row when (new.body_id is not null and row_security_active('{quoted}.message'::regclass)
                       and not {schema}.has_access_to_all('administer', current_user))
    execute function {schema}.check_body();
create trigger bodies_are_stored_with_their_messages after insert on {schema}.delayed_message
    for each row when (new.body_id is not null and row_security_active('{quoted}.delayed_message'::regclass)
                       and not {schema}.has_access_to_all('administer', current_user))
    execute function {schema}.check_body();

create or replace function {schema}.check_dead_letter_queue() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    way integer[] := array[new.queue_id];
    next_id integer := new.dead_letter_queue_id;
begin
    if exists (select from {schema}.queue q
               where q.queue_id in (new.dead_letter_queue_id, new.expiry_queue_id) and q.connection_id is not null) then
        raise check_violation using message = 'a temporary queue takes no messages of other queues';
    end if;
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
drop trigger dead_letters_do_not_go_round on {schema}.queue;
create trigger dead_letters_do_not_go_round
    before insert or update of dead_letter_queue_id, expiry_queue_id on {schema}.queue
    for each row when (new.dead_letter_queue_id is not null or new.expiry_queue_id is not null)
    execute function {schema}.check_dead_letter_queue();
"""

# A role that could delete from a table could also lock it against everybody.
REMOVAL = """
create table {schema}.removal (
    messages      tid[],
    deliveries    tid[],
    connection_id bigint,
    is_exact      boolean not null default false,
    role          name not null default current_user
);
alter table {schema}.removal replica identity full;
comment on table {schema}.removal is
    'Nothing is in it: to insert a row is to remove messages that the transaction has locked, and their deliveries.';
comment on column {schema}.removal.messages is 'The addresses of messages, which go to the history if there is one.';
comment on column {schema}.removal.deliveries is 'The addresses of rows of the table delivery.';
comment on column {schema}.removal.connection_id is 'Who has received the messages.';
comment on column {schema}.removal.is_exact is 'Whether it fails if one of the messages is not there.';
comment on column {schema}.removal.role is 'Who removes them. Nobody may name another.';

create function {schema}.remove_received() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    everywhere boolean := {schema}.has_access_to_all('receive', new.role);
    queues integer[];
    removed bigint;
begin
    if not everywhere then
        queues := {schema}.accessible_queues('receive', new.role);
    end if;
    if exists (select from {schema}.queue q where q.history) then
        perform {schema}.keep_history(
            array_agg(m.ctid order by m.ctid), array_agg(coalesce(d.delivery_count, 0) order by m.ctid), 'acknowledged',
            (select c.connection_id from {schema}.connection c
             where c.connection_id = new.connection_id and c.user_name = new.role))
        from {schema}.message m
        left join {schema}.delivery d using (queue_id, inverse_priority, sequence)
        where m.ctid = any(new.messages) and (everywhere or m.queue_id = any(queues));
    end if;
    if new.deliveries <> '{{}}' then
        delete from {schema}.delivery d
        where d.ctid = any(new.deliveries) and (everywhere or d.queue_id = any(queues));
    end if;
    delete from {schema}.message m where m.ctid = any(new.messages) and (everywhere or m.queue_id = any(queues));
    get diagnostics removed = row_count;
    if new.is_exact and removed <> cardinality(new.messages) then
        raise serialization_failure using message = format(
            'of %s messages that were received, only %s are still there', cardinality(new.messages), removed);
    end if;
    return null;
end
$$;
comment on function {schema}.remove_received() is 'Removes what its role may receive.';
create trigger received_messages_are_removed before insert on {schema}.removal
    for each row execute function {schema}.remove_received();
"""

FUNCTIONS = """
create or replace function {schema}.setting_columns() returns setof name
    language sql stable
begin atomic
    select a.attname from pg_catalog.pg_attribute a
    where a.attrelid = '{quoted}.queue'::regclass and a.attnum > 0 and not a.attisdropped
      and a.attname not in ('queue_id', 'name', 'topic_id', 'connection_id', 'user_name', 'created_at', 'deleted_at')
    order by a.attnum;
end;

create or replace function {schema}.to_timestamp(milliseconds bigint) returns timestamptz
    language sql immutable parallel safe
    return case when milliseconds between -62135510400000 and {last}
                then pg_catalog.to_timestamp(milliseconds::double precision / 1000) end;
comment on function {schema}.to_timestamp(bigint) is
    'Milliseconds since the epoch as a time; null beyond the years 1 to 9999, which is all that most languages know.';

create function {schema}.whole_number(value text) returns bigint
    language sql immutable parallel safe
    return case when value ~ '^-?[0-9]{{1,18}}$' then value::bigint end;
comment on function {schema}.whole_number(text) is 'A whole number that is written so; null for any other text.';

create or replace function {schema}.accessible_queues(wanted text, role name) returns integer[]
    language plpgsql stable strict security definer set search_path = pg_catalog, pg_temp
as $$
declare
    permitted integer[] := array(
        select p.queue_id from {schema}.permission p
        where p.queue_id is not null and pg_has_role(role, p.grantee, 'usage')
          and (p.action = wanted or (p.action = 'receive' and wanted = 'browse')));
begin
    return permitted || array(
        select s.queue_id
        from {schema}.queue t
        join {schema}.subscription s on s.topic_id = t.topic_id
        where t.queue_id = any(permitted)
        union all
        select q.queue_id from {schema}.queue q
        where q.connection_id is not null and (wanted = 'send' or q.user_name = role)
        union all
        select s.queue_id
        from {schema}.topic t
        join {schema}.subscription s using (topic_id)
        where t.connection_id is not null and (wanted = 'send' or t.user_name = role));
end
$$;

create or replace function {schema}.accessible_topics(wanted text, role name) returns integer[]
    language plpgsql stable strict security definer set search_path = pg_catalog, pg_temp
as $$
begin
    return array(
        select t.topic_id
        from {schema}.topic t
        where exists (
                select from {schema}.permission p
                join {schema}.queue q using (queue_id)
                where q.topic_id = t.topic_id and pg_has_role(role, p.grantee, 'usage')
                  and (p.action = wanted or (p.action = 'receive' and wanted = 'browse')))
           or t.connection_id is not null and (wanted = 'send' or t.user_name = role));
end
$$;

create or replace function {schema}.connect_client(client_host text, client_process_id integer) returns bigint
    language plpgsql volatile strict
as $$
declare
    key bigint;
    number bigint;
begin
    loop
        key := ('x' || right(replace(gen_random_uuid()::text, '-', ''), 16))::bit(64)::bigint;
        exit when pg_try_advisory_lock(key);
    end loop;
    insert into {schema}.connection (host, process_id, lock_key, server_process_id)
    values (client_host, client_process_id, key, pg_backend_pid())
    returning connection_id into number;
    return number;
end
$$;

drop function {schema}.require_access(integer, text);
create function {schema}.require_access(queue integer, wanted text) returns boolean
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    if not row_security_active('{quoted}.message'::regclass)
       or {schema}.has_access_to_all('administer', current_user) then
        return false;
    end if;
    if not {schema}.has_access_to_all(wanted, current_user)
       and not queue = any({schema}.accessible_queues(wanted, current_user)) then
        raise exception 'The role "%" may not % from the queue "%".', current_user, wanted,
            (select q.name from {schema}.queue q where q.queue_id = queue)
            using errcode = 'JMS04',
                hint = 'Give it access with `jmsql destination grant`, or the function grant_access.';
    end if;
    return true;
end
$$;
comment on function {schema}.require_access(integer, text) is
    'Raises an exception if policies hide from the current role what is in a queue; tells whether they hide anything.';

create or replace function {schema}.dead_letter_properties(
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
               'JMS_jmsql_FirstFailure',
               case when isfinite(first_failed_at) then floor(extract(epoch from first_failed_at) * 1000)::bigint end,
               'JMS_jmsql_LastError', left(error, 100000)))
    from {schema}.queue q
    left join {schema}.subscription s using (queue_id)
    left join {schema}.topic t on t.topic_id = s.topic_id
    where q.queue_id = queue;
end;
"""

_MOVED = """body_id, inverse_priority, jms_message_id, jms_timestamp, jms_delivery_mode, jms_delivery_time,
            message_type, jms_correlation_id, jms_reply_to, jms_type, property_types, text_body, json_body, body_types,
            bytes_body"""

BURIAL = """
create or replace function {schema}.bury_dead_letters(most integer)
    returns table (dead_letter_queue integer, moved bigint)
    language plpgsql volatile strict security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
as $$
begin
    if exists (
            select from {schema}.delivery d
            where d.dead_letter_queue_id is not null
              and not exists (select from {schema}.queue q
                              where q.queue_id = d.dead_letter_queue_id
                                and q.name is not null and q.connection_id is null)) then
        insert into {schema}.queue (name) values ('DLQ') on conflict (name) do nothing;
    end if;
    return query
        with condemned as materialized (
            select d.ctid as delivery, d.delivery_count, d.first_failed_at, d.last_error, m.*,
                   coalesce(t.queue_id, (select f.queue_id from {schema}.queue f where f.name = 'DLQ')) as target
            from {schema}.delivery d
            left join {schema}.queue t
              on t.queue_id = d.dead_letter_queue_id and t.name is not null and t.connection_id is null
            cross join lateral (
                select n.ctid as address, n.* from {schema}.message n
                where (n.queue_id, n.inverse_priority, n.sequence) = (d.queue_id, d.inverse_priority, d.sequence)
                offset 0
                for update skip locked) m
            where d.dead_letter_queue_id is not null and d.claim_id is null
            limit most),
        history as materialized (
            select case when exists (select from {schema}.queue q
                                     where q.history and q.queue_id in (select c.queue_id from condemned c))
                   then {schema}.keep_history(
                       array(select c.address from condemned c where c.target <> c.queue_id),
                       array(select c.delivery_count from condemned c where c.target <> c.queue_id),
                       'dead-lettered', null) end),
        spared as (
            update {schema}.delivery set dead_letter_queue_id = null, next_attempt = null
            where ctid = any(array(select c.delivery from condemned c where c.target = c.queue_id))),
        forgotten as (
            delete from {schema}.delivery
            where ctid = any(array(select c.delivery from condemned c where c.target <> c.queue_id))),
        deleted as (
            delete from {schema}.message
            where ctid = any(array(select c.address from condemned c where c.target <> c.queue_id))
              and (select true from history)),
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

# What stands in functions that are there, and what stands there from now on: what is no number is read as none, and no
# time is past what can be shown.
TOLERANT_FUNCTIONS = {
    "return_dead_letters(integer, smallint[], bigint[])": [
        (
            "(f.properties ->> 'JMS_jmsql_OriginalExpiration')::bigint",
            "{schema}.whole_number(f.properties ->> 'JMS_jmsql_OriginalExpiration')",
        )
    ],
    "restore_pages()": [("9223372036854775807", str(LAST_MILLISECOND))],
}

DEAD_LETTERS = """
create or replace view {schema}.dead_letters with (security_invoker = true) as
select q.name as queue,
       m.sequence,
       m.properties ->> 'JMS_jmsql_OriginalDestination' as original_destination,
       m.properties ->> 'JMS_jmsql_OriginalSubscription' as original_subscription,
       m.properties ->> 'JMS_jmsql_DeadLetterReason' as reason,
       least({schema}.whole_number(m.properties ->> 'JMS_jmsql_Deliveries'), 2147483647)::integer as deliveries,
       (regexp_match(m.properties ->> 'JMS_jmsql_LastError', '([^\\n]*)\\s*$'))[1] as error,
       {schema}.to_timestamp({schema}.whole_number(m.properties ->> 'JMS_jmsql_FirstFailure')) as first_failed_at,
       {schema}.to_timestamp({schema}.whole_number(m.properties ->> 'JMS_jmsql_DeadLetterTime')) as died_at,
       'ID:' || m.jms_message_id as message_id,
       m.message_type::text as type,
       9 - m.inverse_priority as priority,
       {schema}.to_timestamp(m.jms_timestamp) as sent_at,
       {schema}.to_timestamp({schema}.whole_number(m.properties ->> 'JMS_jmsql_OriginalExpiration')) as expires_at,
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
"""

EVERYWHERE = "(select {schema}.has_access_to_all('%s', current_user))"
QUEUES = "queue_id = any ((select {schema}.accessible_queues('%s', current_user))::integer[])"
TOPICS = "topic_id = any ((select {schema}.accessible_topics('%s', current_user))::integer[])"

MAY_SEND = f"({EVERYWHERE} or {QUEUES})" % ("send", "send")
MAY_RECEIVE = f"({EVERYWHERE} or {QUEUES})" % ("receive", "receive")
MAY_BROWSE = f"({EVERYWHERE} or {QUEUES})" % ("browse", "browse")
MAY_SUBSCRIBE = f"({EVERYWHERE} or {TOPICS})" % ("receive", "receive")
MAY_MAKE = f"({EVERYWHERE} or {EVERYWHERE}) and (select c.automatic_creation from {{schema}}.configuration c)" % (
    "send",
    "receive",
)
OWN_CONNECTION = """connection_id in (
    select c.connection_id from {schema}.connection c where c.user_name = current_user)"""
# What the provider says of a message, nobody else does.
NOT_FORGED = """(properties is null
    or not exists (select from jsonb_object_keys(properties) k where starts_with(k, 'JMS_jmsql')))"""
# A dead letter goes to the queue that the destination names, to DLQ, or to where the role may send.
MAY_CONDEMN = f"""(dead_letter_queue_id is null or dead_letter_queue_id = 0
    or dead_letter_queue_id = (
        select q.dead_letter_queue_id from {{schema}}.queue q where q.queue_id = delivery.queue_id)
    or {EVERYWHERE % "send"}
    or dead_letter_{QUEUES % "send"})"""
# Nothing that upkeep or a view would stumble over.
IS_SOUND = """delivery_count between 0 and 1000000 and error_count between 0 and 1000000
    and length(last_error) <= 100000 is not false
    and isfinite(first_failed_at) is not false
    and (next_attempt < '9999-01-01 00:00+00' is not false or dead_letter_queue_id is not null)"""
TRAFFIC = f"""
    ({EVERYWHERE % "send"} or {EVERYWHERE % "receive"}
    or destination_id = any ((select {{schema}}.accessible_queues('send', current_user))::integer[])
    or destination_id = any ((select {{schema}}.accessible_queues('receive', current_user))::integer[])
    or -destination_id = any ((select {{schema}}.accessible_topics('send', current_user))::integer[])
    or -destination_id = any ((select {{schema}}.accessible_topics('receive', current_user))::integer[]))"""
COUNTS = " and ".join(
    f"{name} between 0 and 1000000000000000" for name in ("sent", "acknowledged", "rolled_back", "redelivered")
)
OWN_SIGN_OF_LIFE = """user_name = current_user
    and heartbeat_at <= statement_timestamp() + interval '1 minute' is not false"""
OWN_PROCESS = "server_process_id = pg_backend_pid() is not false"
MAY_TOUCH = f"{MAY_RECEIVE} and {OWN_CONNECTION}"
MAY_REBIND = f"user_name = current_user and (connection_id is null or {OWN_CONNECTION})"

POLICIES: dict[str, tuple[tuple[str, str | None, str | None], ...]] = {
    "message": (
        ("select", MAY_BROWSE, None),
        ("insert", None, f"{MAY_SEND} and {NOT_FORGED}"),
        ("update", MAY_RECEIVE, "false"),
    ),
    "delayed_message": (("select", MAY_BROWSE, None), ("insert", None, f"{MAY_SEND} and {NOT_FORGED}")),
    "delivery": (
        ("select", MAY_BROWSE, None),
        ("insert", None, f"{MAY_RECEIVE} and {MAY_CONDEMN} and {IS_SOUND}"),
        ("update", MAY_RECEIVE, f"{MAY_RECEIVE} and {MAY_CONDEMN} and {IS_SOUND}"),
    ),
    # What refers to a body is subject to its own policy.
    "body": (
        (
            "select",
            """transaction_id = (select pg_current_xact_id_if_assigned())
            or exists (select from {schema}.message m where m.body_id = body.body_id)
            or exists (select from {schema}.delayed_message d where d.body_id = body.body_id)
            or exists (select from {schema}.message_history h where h.body_id = body.body_id)""",
            None,
        ),
        ("insert", None, "true"),
    ),
    "message_history": (("select", MAY_BROWSE, None),),
    "queue": (
        ("select", "true", None),
        (
            "insert",
            None,
            f"""topic_id is null and name is not null and user_name = current_user
            and (connection_id is null and ({MAY_MAKE}) or {OWN_CONNECTION})""",
        ),
        ("update", "connection_id is not null and user_name = current_user", MAY_REBIND),
    ),
    "topic": (
        ("select", "true", None),
        (
            "insert",
            None,
            f"user_name = current_user and (connection_id is null and ({MAY_MAKE}) or {OWN_CONNECTION})",
        ),
        ("update", f"connection_id is not null and user_name = current_user or {MAY_SUBSCRIBE}", MAY_REBIND),
    ),
    "subscription": (
        ("select", "true", None),
        ("insert", None, MAY_SUBSCRIBE),
        ("update", MAY_SUBSCRIBE, MAY_SUBSCRIBE),
    ),
    "subscriber": (
        ("select", "true", None),
        ("insert", None, MAY_TOUCH),
        ("update", MAY_TOUCH, MAY_TOUCH),
    ),
    "connection": (
        ("select", "true", None),
        ("insert", None, f"{OWN_SIGN_OF_LIFE} and {OWN_PROCESS}"),
        ("update", "user_name = current_user", OWN_SIGN_OF_LIFE),
    ),
    "consumer": (
        ("select", "true", None),
        ("insert", None, MAY_TOUCH),
        ("update", OWN_CONNECTION, OWN_CONNECTION),
    ),
    "destination_traffic": (
        ("select", "true", None),
        ("insert", None, f"{TRAFFIC} and {COUNTS}"),
        ("update", TRAFFIC, f"{TRAFFIC} and {COUNTS}"),
    ),
}

_SENT = (
    "queue_id, body_id, inverse_priority, jms_message_id, jms_timestamp, jms_expiration, jms_delivery_mode, "
    "message_type, jms_correlation_id, jms_reply_to, jms_type, properties, property_types, text_body, json_body, "
    "body_types, bytes_body, jms_delivery_time"
)
_DELIVERY_STATE = (
    "claim_id, connection_id, claimed_at, next_attempt, delivery_count, error_count, last_error, claim_expires_at, "
    "first_failed_at, dead_letter_queue_id"
)

# What stands between GRANT and TO. No role gets TRUNCATE, REFERENCES or TRIGGER, and but for administrators none gets
# UPDATE or DELETE on a whole table: who has one of them can lock it.
BROWSING = (
    "usage on schema {schema}",
    (
        "select on {schema}.schema_version, {schema}.configuration, {schema}.binding, {schema}.queue, {schema}.topic, "
        "{schema}.subscription, {schema}.subscriber, {schema}.connection, {schema}.consumer, {schema}.grouped_queue, "
        "{schema}.leadership, {schema}.destination_traffic, {schema}.message, {schema}.delayed_message, "
        "{schema}.delivery, {schema}.body, {schema}.message_history"
    ),
    (
        "select on {schema}.messages, {schema}.queues, {schema}.subscriptions, {schema}.clients, "
        "{schema}.destinations, {schema}.traffic, {schema}.dead_letters, {schema}.history, {schema}.history_days, "
        "{schema}.consumers, {schema}.message_groups"
    ),
    (
        "insert (host, process_id, heartbeat_at, lock_key, server_process_id), "
        "update (client_id, heartbeat_at, closing) on {schema}.connection"
    ),
)
MESSAGING = (
    *BROWSING,
    f"insert ({_SENT}) on {{schema}}.message, {{schema}}.delayed_message",
    # A row is locked by who could change some column of it; the policy lets nobody do that.
    "update (transaction_id) on {schema}.message",
    "select, update (slot) on {schema}.group_lock",
    "insert (position, text_body, json_body, body_types, bytes_body) on {schema}.body",
    "usage on sequence {schema}.message_sequence, {schema}.claim_sequence",
    (
        f"insert (queue_id, inverse_priority, sequence, group_hash, {_DELIVERY_STATE}), update ({_DELIVERY_STATE}) "
        "on {schema}.delivery"
    ),
    "insert (messages, deliveries, connection_id, is_exact) on {schema}.removal",
    "insert (name, connection_id), update (connection_id) on {schema}.queue, {schema}.topic",
    (
        "insert (topic_id, client_id, name, selector, durable, shared, no_local), update (ended, selector, no_local) "
        "on {schema}.subscription"
    ),
    "insert (queue_id, connection_id, consumers), update (connection_id, consumers) on {schema}.subscriber",
    "insert (connection_id, queue_id, selector, consumers), update (consumers) on {schema}.consumer",
    (
        "insert (destination_id, sent, acknowledged, rolled_back, redelivered), "
        "update (sent, acknowledged, rolled_back, redelivered) on {schema}.destination_traffic"
    ),
    "execute on function {schema}.bury_dead_letters(integer)",
)
ADMINISTRATION = (
    *MESSAGING,
    (
        "delete on {schema}.message, {schema}.delayed_message, {schema}.delivery, {schema}.body, {schema}.queue, "
        "{schema}.topic, {schema}.connection, {schema}.destination_traffic"
    ),
    "update (transaction_id) on {schema}.delayed_message",
    "insert (queue_id, deleted_at) on {schema}.queue",
    "select on {schema}.permission, {schema}.grants, {schema}.spark_sources",
    "insert, update, delete on {schema}.binding",
    "update (automatic_creation) on {schema}.configuration",
    (
        "select, insert, update, delete on {schema}.spark_attempt, {schema}.spark_staging, {schema}.spark_write, "
        "{schema}.spark_prepared, {schema}.spark_source, {schema}.spark_batch, {schema}.spark_cursor"
    ),
    "insert, update, delete on {schema}.leadership",
    "select on sequence {schema}.message_sequence",
    "execute on function {administrative}",
)

# Functions that have their owner's rights, and those that are an administrator's alone: by the right to execute them,
# which PostgreSQL checks for whoever calls them, they know that they may do what they are asked for.
ADMINISTRATIVE = (
    "settings_row(text)",
    "alter_destination(text, jsonb)",
    "create_queue(text, jsonb)",
    "create_topic(text, jsonb)",
    "delete_destination(text, boolean)",
    "pause(text)",
    "resume(text)",
    "make_history_partition(date)",
    "keep_history(tid[], integer[], {schema}.outcome, bigint)",
    "return_dead_letters(integer, smallint[], bigint[])",
    "retry(text, bigint)",
    "replay_messages(text, xid8[], bigint[], timestamptz, timestamptz, integer, boolean)",
    "replay(text, text, timestamptz, timestamptz, text[], boolean)",
    "lock_free_messages(integer, bigint[], bigint, bigint)",
    "forget_deliveries(tid[])",
    "move_step(integer, integer, bigint[], bigint, bigint, boolean)",
    "move(text, text, bigint[], bigint)",
    "purge(text, bigint[], bigint)",
    "cursors_before(regclass, text[])",
    "forget_spark_source(uuid)",
    "permit(name, text[], integer)",
    "grant_access(text, name, text[])",
    "revoke_access(text, name, text[])",
    "create_roles()",
    "restore_pages()",
)
DEFINERS = (
    "settings_row(text)",
    "alter_destination(text, jsonb)",
    "create_queue(text, jsonb)",
    "create_topic(text, jsonb)",
    "delete_destination(text, boolean)",
)

ACCESS = """
drop function {schema}.renew_privileges();
drop function {schema}.make_temporary(text, text, bigint), {schema}.delete_temporary(text, text);
drop table {schema}.required_privilege;

create function {schema}.set_privileges(role name) returns void
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    actions text[] := array(
        select p.action from {schema}.permission p where p.grantee = quote_ident(role)::regrole);
    granted text;
begin
    if role = (select r.rolname from pg_class c join pg_roles r on r.oid = c.relowner
               where c.oid = '{quoted}.permission'::regclass) then
        return;
    end if;
    execute format('revoke all on all tables in schema {schema} from %I', role);
    execute format('revoke all on all sequences in schema {schema} from %I', role);
    execute format('revoke all on all functions in schema {schema} from %I', role);
    execute format('revoke all on schema {schema} from %I', role);
    foreach granted in array case
        when 'administer' = any(actions) then array[{administration}]
        when actions && array['send', 'receive'] then array[{messaging}]
        when 'browse' = any(actions) then array[{browsing}]
        else array[]::text[] end
    loop
        execute format('grant %s to %I', granted, role);
    end loop;
end
$$;
comment on function {schema}.set_privileges(name) is
    'Gives a role the privileges that it takes to do what it may, and no other. They stand here, and in no table.';

create function {schema}.renew_privileges() returns void
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform {schema}.set_privileges(r.rolname)
    from pg_roles r where r.oid in (select p.grantee from {schema}.permission p);
end
$$;
comment on function {schema}.renew_privileges() is
    'Gives all roles that have access what it takes now; for migrations that change set_privileges.';

create or replace function {schema}.permit(role name, actions text[], destination integer) returns void
    language plpgsql volatile security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    protected text;
begin
    if not exists (select from pg_roles r where r.rolname = role) then
        raise exception 'There is no role "%".', role using errcode = 'JMS03', hint = 'CREATE ROLE makes one.';
    end if;
    foreach protected in array array[{protected}] loop
        if not (select c.relrowsecurity from pg_class c where c.oid = protected::regclass) then
            execute format('alter table %s enable row level security', protected::regclass);
        end if;
    end loop;
    lock table {schema}.permission in share row exclusive mode;
    insert into {schema}.permission (grantee, action, queue_id)
    select quote_ident(role)::regrole, a, destination from unnest(actions) a
    on conflict do nothing;
    perform {schema}.set_privileges(role);
end
$$;

create or replace function {schema}.grant_access(destination text, role name, variadic actions text[]) returns void
    language plpgsql volatile strict
    set search_path = pg_catalog, pg_temp
as $$
begin
    if not actions <@ array['send', 'receive', 'browse'] then
        raise exception 'Access is given to send, receive or browse.' using errcode = 'JMS03';
    end if;
    perform {schema}.permit(role, actions, {schema}.settings_row(destination));
end
$$;

create or replace function {schema}.revoke_access(destination text, role name, variadic actions text[]) returns void
    language plpgsql volatile strict security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from pg_roles r where r.rolname = role) then
        raise exception 'There is no role "%".', role using errcode = 'JMS03';
    end if;
    lock table {schema}.permission in share row exclusive mode;
    delete from {schema}.permission p
    where p.grantee = quote_ident(role)::regrole and p.queue_id = {schema}.settings_row(destination)
      and p.action = any(actions);
    perform {schema}.set_privileges(role);
end
$$;

create or replace function {schema}.create_roles() returns setof text
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    wanted record;
begin
    for wanted in
        select * from (values ('jmsql_producer'::name, array['send']), ('jmsql_consumer', array['receive']),
                              ('jmsql_browser', array['browse']), ('jmsql_admin', array['administer']))
            as r (role, actions)
    loop
        if not exists (select from pg_roles r where r.rolname = wanted.role) then
            begin
                execute format('create role %I nologin', wanted.role);
                return next wanted.role;
            exception
                when duplicate_object or unique_violation then
                    null;
                when insufficient_privilege then
                    raise exception 'The role "%" may not create the role "%".', current_user, wanted.role
                        using errcode = 'JMS04',
                            hint = 'Have somebody with CREATEROLE run: create role jmsql_producer; '
                                'create role jmsql_consumer; create role jmsql_browser; create role jmsql_admin. '
                                'Then do it again.';
            end;
        end if;
        perform {schema}.permit(wanted.role, wanted.actions, null);
    end loop;
end
$$;
drop function {schema}.require_administrator(), {schema}.caller();
"""

# Nobody executes a function with its owner's rights, nor one that is an administrator's, because everybody may: also
# not one of a trigger, for a table of his own.
REVOCATION = """
do $$
declare
    routine regprocedure;
begin
    for routine in
        select p.oid from pg_catalog.pg_proc p
        where p.pronamespace = '{plain}'::regnamespace
          and (p.prosecdef or p.prorettype = 'trigger'::regtype)
          and p.proname not in ('has_access_to_all', 'accessible_queues', 'accessible_topics')
    loop
        execute format('revoke all on function %s from public', routine);
    end loop;
end
$$;
revoke all on function {administrative}, {schema}.set_privileges(name), {schema}.renew_privileges() from public;
select {schema}.renew_privileges();
"""


def _policies(schema: str, policies: dict[str, tuple[tuple[str, str | None, str | None], ...]]) -> list[str]:
    """Return the statements that make policies, in place of those that are there."""
    everywhere = EVERYWHERE % "administer"
    statements = []
    for table, rules in policies.items():
        statements.append(
            f"create policy administrators on {schema}.{table} using ({everywhere}) with check ({everywhere})"
        )
        for command, using, check in rules:
            parts = [f"create policy may_{command} on {schema}.{table} for {command}"]
            if using is not None:
                parts.append(f"using ({using})")
            if check is not None:
                parts.append(f"with check ({check})")
            statements.append(" ".join(parts))
    return [statement.format(schema=schema) for statement in statements]


def _drop_policies(schema: str, tables: Iterable[str]) -> None:
    quoted = schema.replace("'", "''")
    names = ", ".join(f"'{table}'" for table in tables)
    op.execute(
        f"""
        do $$
        declare
            found record;
        begin
            for found in
                select p.polname, p.polrelid::regclass as relation from pg_catalog.pg_policy p
                join pg_catalog.pg_class c on c.oid = p.polrelid
                where c.relnamespace = '{quoted}'::regnamespace and c.relname in ({names})
            loop
                execute format('drop policy %I on %s', found.polname, found.relation);
            end loop;
        end
        $$
        """
    )


def _literals(texts: Iterable[str], **names: str) -> str:
    return ", ".join("'" + text.format(**names).replace("'", "''") + "'" for text in texts)


def upgrade() -> None:
    schema = target_schema()
    quoted = schema.replace("'", "''")
    names = {"schema": schema, "quoted": quoted, "plain": quoted, "last": str(LAST_MILLISECOND), "moved": _MOVED}
    administrative = ", ".join(f"{schema}.{function.format(schema=schema)}" for function in ADMINISTRATIVE)
    op.execute(TABLES.format(**names))
    for table in ("message", "delayed_message"):
        op.execute(SOUND.format(schema=schema, table=table))
    for script in (TRIGGERS, REMOVAL, FUNCTIONS, BURIAL, DEAD_LETTERS):
        op.execute(script.format(**names))
    for function, changes in TOLERANT_FUNCTIONS.items():
        _rewrite(f"{schema}.{function}", [(old, new.format(schema=schema)) for old, new in changes])
    _drop_policies(schema, POLICIES)
    for statement in _policies(schema, POLICIES):
        op.execute(statement)
    for table in POLICIES:
        op.execute(
            f"""
            do $$
            begin
                if (select relrowsecurity from pg_catalog.pg_class where oid = '{quoted}.message'::regclass) then
                    alter table {schema}.{table} enable row level security;
                end if;
            end
            $$
            """
        )
    op.execute(
        ACCESS.format(
            **names,
            protected=", ".join(f"'{quoted}.{table}'" for table in POLICIES),
            administration=_literals(ADMINISTRATION, schema=schema, administrative=administrative),
            messaging=_literals(MESSAGING, schema=schema),
            browsing=_literals(BROWSING, schema=schema),
        )
    )
    for function in DEFINERS:
        op.execute(f"alter function {schema}.{function} security definer")
    op.execute(REVOCATION.format(**names, administrative=administrative))


def _rewrite(function: str, changes: list[tuple[str, str]]) -> None:
    """Replace parts of a function's body."""
    connection = op.get_bind()
    quoted = function.replace("'", "''")
    text: str = connection.exec_driver_sql(f"select pg_get_functiondef('{quoted}'::regprocedure)").scalar_one()
    for old, new in changes:
        if old not in text:
            raise RuntimeError(f"The function {function} is not the one that a migration has made.")
        text = text.replace(old, new)
    connection.exec_driver_sql(text.replace("%", "%%"))


def _module(version: str) -> ModuleType:
    script = op.get_context().script
    assert script is not None
    found = script.get_revision(version)
    assert found is not None
    return found.module


def _former(scripts: str, *functions: str) -> list[str]:
    """Return the statements that make functions as a former migration's scripts do."""
    statements = []
    for name in functions:
        found = re.search(
            rf"create (?:or replace )?function {{schema}}\.{name}\(.*?(?=^(?:create|comment|alter|drop|--)|\Z)",
            scripts,
            re.DOTALL | re.MULTILINE,
        )
        assert found is not None, name
        statements.append(re.sub("^create (?:or replace )?", "create or replace ", found.group()))
    return statements


REQUIRED_PRIVILEGE = """
create table {schema}.required_privilege (
    action    text not null,
    privilege text not null,
    object    text not null,
    primary key (action, object, privilege)
);
comment on table {schema}.required_privilege is
    'PostgreSQL''s privileges that an action takes: what stands between GRANT and TO.';
insert into {schema}.required_privilege (action, privilege, object)
select a.action, r.privilege, r.object
from unnest(array['send', 'receive', 'browse', 'administer']) as a (action)
cross join (values ('select, insert, update, delete', '{quoted}.consumer'), ('select', '{quoted}.consumers'),
                   ('select, update', '{quoted}.group_lock'), ('select', '{quoted}.grouped_queue'),
                   ('select', '{quoted}.message_groups'), ('select', '{quoted}.configuration'),
                   ('select', '{quoted}.binding'), ('select', '{quoted}.leadership')) as r (privilege, object)
where a.action <> 'browse' or r.privilege <> 'select, update';
"""


def downgrade() -> None:
    schema = target_schema()
    quoted = schema.replace("'", "''")
    access, dead_letters, history = _module("0012"), _module("0010"), _module("0014")
    _drop_policies(schema, POLICIES)
    op.execute(
        f"""
        drop trigger received_messages_are_removed on {schema}.removal;
        drop trigger bodies_are_stored_with_their_messages on {schema}.delayed_message;
        drop trigger bodies_are_stored_with_their_messages on {schema}.message;
        drop trigger client_ids_of_the_dead_are_free on {schema}.connection;
        drop trigger subscribers_leave on {schema}.subscriber;
        drop trigger consumers_leave on {schema}.consumer;
        drop trigger connections_close on {schema}.connection;
        drop trigger temporary_topics_end on {schema}.topic;
        drop trigger temporary_queues_end on {schema}.queue;
        drop trigger queues_go_with_their_subscription on {schema}.subscription;
        drop trigger subscriptions_end on {schema}.subscription;
        drop trigger subscriptions_have_queues_of_their_own on {schema}.subscription;
        drop function {schema}.remove_received(), {schema}.check_body(), {schema}.free_client_id(),
            {schema}.remove_updated_row(), {schema}.end_temporary(), {schema}.end_subscription(),
            {schema}.make_subscription_queue(), {schema}.set_privileges(name), {schema}.renew_privileges(),
            {schema}.require_access(integer, text);
        drop trigger dead_letters_do_not_go_round on {schema}.queue;
        delete from {schema}.queue q
        where q.name = 'DLQ' and {schema}.queue_settings(q) = '{{}}'
          and not exists (select from {schema}.message m where m.queue_id = q.queue_id)
          and not exists (select from {schema}.delayed_message m where m.queue_id = q.queue_id);
        """
    )
    names = {"schema": schema, "quoted": quoted, "plain": schema, "moved": _MOVED}
    restored = [
        REQUIRED_PRIVILEGE,
        *_former(_module("0001").FUNCTIONS, "to_timestamp"),
        *_former(_module("0005").SETTINGS, "setting_columns"),
        *_former(dead_letters.LOOPS + dead_letters.FUNCTIONS, "check_dead_letter_queue", "dead_letter_properties"),
        *_former(dead_letters.FUNCTIONS, "return_dead_letters"),
        *_former(access.FUNCTIONS, "accessible_topics", "require_access", "caller", "require_administrator"),
        *_former(access.FUNCTIONS, "make_temporary", "delete_temporary", "permit", "grant_access", "revoke_access"),
        *_former(access.FUNCTIONS, "renew_privileges", "create_roles"),
        *_former(_module("0016").ACCESS, "accessible_queues"),
        *_former(_module("0023").CONNECT, "connect_client"),
        dead_letters.VIEWS.replace("create view", "create or replace view").replace(
            "dead_letters as", "dead_letters with (security_invoker = true) as"
        ),
        dead_letters.LOOPS[dead_letters.LOOPS.index("create trigger") :],
    ]
    for statement in restored:
        protected = ", ".join(f"'{schema}.{table}'" for table in access.POLICIES)
        op.execute(statement.format(**names, protected=protected))
    op.execute(history.BURIAL.format(**names, history=history.HISTORY.format(schema=schema), recorded=history.RECORDED))
    op.execute(
        f"""
        alter function {schema}.bury_dead_letters(integer) security definer set enable_seqscan = off;
        drop function {schema}.whole_number(text);
        drop table {schema}.removal;
        alter table {schema}.body drop column transaction_id, drop column position;
        alter table {schema}.connection drop column closing;
        alter table {schema}.subscription drop column ended;
        alter table {schema}.subscriber drop constraint subscriber_consumers_check, add check (consumers > 0);
        alter table {schema}.consumer drop constraint consumer_consumers_check, add check (consumers > 0);
        alter table {schema}.topic drop constraint temporary_names_are_reserved, drop column user_name;
        alter table {schema}.queue drop constraint temporary_names_are_reserved, drop column user_name;
        alter table {schema}.consumer disable row level security;
        alter table {schema}.destination_traffic disable row level security;
        """
    )
    for table in ("message", "delayed_message"):
        op.execute(
            f"alter table {schema}.{table} drop constraint times_can_be_shown, drop constraint properties_are_objects"
        )
    _rewrite(f"{schema}.restore_pages()", [(str(LAST_MILLISECOND), "9223372036854775807")])
    for function in DEFINERS:
        op.execute(f"alter function {schema}.{function} security invoker")
    for statement in access.policies(schema):
        op.execute(statement)
    for action, privileges in access.PRIVILEGES.items():
        for privilege, object_ in privileges:
            text = object_.format(schema=schema).replace("'", "''")
            op.execute(
                f"insert into {schema}.required_privilege values ('{action}', '{privilege}', '{text}') "
                "on conflict do nothing"
            )
    op.execute(f"grant execute on all functions in schema {schema} to public; select {schema}.renew_privileges()")
