"""Messages moved, purged and sent by SQL; destinations made by their use or not; administered objects."""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

TABLES = """
create table {schema}.configuration (
    only_row           boolean primary key default true check (only_row),
    automatic_creation boolean not null default true
);
insert into {schema}.configuration default values;
comment on table {schema}.configuration is 'What is set for all destinations: one row.';
comment on column {schema}.configuration.automatic_creation is 'Whether the first use of a queue or topic makes it.';

create table {schema}.binding (
    name     text collate "C" primary key check (length(name) between 1 and 255),
    object   jsonb not null,
    bound_at timestamptz not null default now()
);
comment on table {schema}.binding is 'Administered objects, connection factories and destinations, by their names.';
comment on column {schema}.binding.object is 'What the object consists of; there is no password in it.';

insert into {schema}.required_privilege
    select action, 'select', '{schema}.' || name
    from unnest(array['send', 'receive', 'browse']) action, unnest(array['configuration', 'binding']) name;
select {schema}.renew_privileges();
"""

# Planned once for each connection, where a function in SQL is planned with each call.
ACCESS = """
create or replace function {schema}.has_access_to_all(wanted text, role name) returns boolean
    language plpgsql stable strict security definer set search_path = pg_catalog, pg_temp
as $$
begin
    return exists (
        select from {schema}.permission p
        where p.queue_id is null and pg_has_role(role, p.grantee, 'usage')
          and (p.action in (wanted, 'administer') or (p.action = 'receive' and wanted = 'browse')));
end
$$;

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
        where q.connection_id is not null
          and (wanted = 'send'
               or q.connection_id in (select c.connection_id from {schema}.connection c where c.user_name = role))
        union all
        select s.queue_id
        from {schema}.topic t
        join {schema}.subscription s using (topic_id)
        where t.connection_id is not null
          and (wanted = 'send'
               or t.connection_id in (select c.connection_id from {schema}.connection c where c.user_name = role)));
end
$$;

-- Dead letters go where the role may not send.
alter function {schema}.bury_dead_letters(integer) security definer;
"""

MESSAGES = """
create function {schema}.queue_number(queue text) returns integer
    language plpgsql stable strict
    set search_path = pg_catalog, pg_temp
as $$
declare
    found_id integer;
begin
    select q.queue_id into found_id from {schema}.queue q where q.name = regexp_replace(queue, '^queue://', '');
    if found_id is null then
        raise exception 'There is no queue "%".', regexp_replace(queue, '^queue://', '') using errcode = 'JMS01',
            hint = 'Make it with create_queue; the view destinations lists those there are.';
    end if;
    return found_id;
end
$$;
comment on function {schema}.queue_number(text) is 'The number of a queue, which has to be there.';

create function {schema}.lock_free_messages(queue integer, chosen bigint[], newest bigint, most bigint)
    returns table (address tid, deliveries integer)
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
begin
    return query
        with candidate as materialized (
            select m.ctid as address, m.inverse_priority, m.sequence
            from {schema}.message m
            left join lateral (
                select t.claim_id from {schema}.delivery t
                where (t.queue_id, t.inverse_priority, t.sequence) = (m.queue_id, m.inverse_priority, m.sequence)
                offset 0) d on true
            where m.queue_id = lock_free_messages.queue and m.sequence <= newest and d.claim_id is null
              and (chosen is null or m.sequence = any(chosen))
            order by m.queue_id, m.inverse_priority, m.sequence
            limit most
            for update of m skip locked),
        -- Read under the rows' locks: a claim cannot come in between.
        state as materialized (
            select s.* from {schema}.delivery_state(lock_free_messages.queue,
                (select array_agg(c.inverse_priority) from candidate c),
                (select array_agg(c.sequence) from candidate c)) s)
        select c.address, coalesce(s.delivery_count, 0)
        from candidate c left join state s using (inverse_priority, sequence)
        where s.claim_id is null
        order by c.inverse_priority, c.sequence;
end
$$;
comment on function {schema}.lock_free_messages(integer, bigint[], bigint, bigint) is
    'Locks messages of a queue in their order, but for those that a session holds: those of the sequences given, null '
    'for all, up to the newest that counts, and at most so many.';

create function {schema}.forget_deliveries(addresses tid[]) returns void
    language sql volatile
begin atomic
    delete from {schema}.delivery where ctid = any(array(
        select d.address
        from {schema}.message m
        cross join lateral (
            select t.ctid as address from {schema}.delivery t
            where (t.queue_id, t.inverse_priority, t.sequence) = (m.queue_id, m.inverse_priority, m.sequence)
            offset 0) d
        where m.ctid = any(addresses)));
end;
comment on function {schema}.forget_deliveries(tid[]) is
    'Forgets how often messages were delivered, whose rows this transaction has locked.';

create function {schema}.move_step(
    source integer, target integer, chosen bigint[], newest bigint, most bigint, delayed boolean) returns bigint
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    kind text := case when delayed then '{schema}.delayed_message' else '{schema}.message' end;
    addresses tid[];
    columns text;
    moved bigint;
begin
    if source = target then
        raise exception 'The messages are in that queue already.' using errcode = 'JMS03';
    end if;
    if delayed then
        addresses := array(
            select m.ctid from {schema}.delayed_message m
            where m.queue_id = source and m.sequence <= newest and (chosen is null or m.sequence = any(chosen))
            order by m.queue_id, m.jms_delivery_time, m.sequence
            limit most
            for update skip locked);
    else
        addresses := array(select m.address from {schema}.lock_free_messages(source, chosen, newest, most) m);
        perform {schema}.forget_deliveries(addresses);
    end if;
    if cardinality(addresses) = 0 then
        return 0;
    end if;
    -- Whatever columns there are by now.
    select string_agg(quote_ident(a.attname), ', ' order by a.attnum) into columns
    from pg_attribute a
    where a.attrelid = kind::regclass and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
      and a.attname not in ('queue_id', 'sequence', 'transaction_id');
    execute format(
        'with gone as (delete from %1$s where ctid = any($1) returning *) '
        'insert into %1$s (queue_id, %2$s) select $2, %2$s from gone order by inverse_priority, sequence',
        kind, columns) using addresses, target;
    get diagnostics moved = row_count;
    perform pg_notify((parse_ident('{schema}'))[1], target::text);
    return moved;
end
$$;
comment on function {schema}.move_step(integer, integer, bigint[], bigint, bigint, boolean) is
    'Moves messages between queues, given by number: those of lock_free_messages, or delayed ones.';

create function {schema}.move(source text, target text, chosen bigint[] default null, most bigint default null)
    returns bigint
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    source_id integer := {schema}.queue_number(source);
    target_id integer := {schema}.queue_number(target);
    moved bigint := {schema}.move_step(source_id, target_id, chosen, 9223372036854775807, most, false);
begin
    return moved + {schema}.move_step(source_id, target_id, chosen, 9223372036854775807, most - moved, true);
end
$$;
comment on function {schema}.move(text, text, bigint[], bigint) is
    'Moves messages from one queue to another, those of the sequences given or all, but for those that a session '
    'holds, and returns how many: at most so many.';

create function {schema}.purge(queue text, chosen bigint[] default null, most bigint default null) returns bigint
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    number integer := {schema}.queue_number(queue);
    addresses tid[];
    deliveries integer[];
    deleted bigint;
    deleted_delayed bigint;
begin
    select coalesce(array_agg(m.address), '{{}}'), coalesce(array_agg(m.deliveries), '{{}}')
    into addresses, deliveries
    from {schema}.lock_free_messages(number, chosen, 9223372036854775807, most) m;
    if (select q.history from {schema}.queue q where q.queue_id = number) then
        perform {schema}.keep_history(addresses, deliveries, 'purged', null);
    end if;
    perform {schema}.forget_deliveries(addresses);
    delete from {schema}.message where ctid = any(addresses);
    get diagnostics deleted = row_count;
    delete from {schema}.delayed_message where ctid = any(array(
        select m.ctid from {schema}.delayed_message m
        where m.queue_id = number and (chosen is null or m.sequence = any(chosen))
        limit most - deleted
        for update skip locked));
    get diagnostics deleted_delayed = row_count;
    return deleted + deleted_delayed;
end
$$;
comment on function {schema}.purge(text, bigint[], bigint) is
    'Deletes messages of a queue, those of the sequences given or all, but for those that a session holds, and returns '
    'how many: at most so many.';

create function {schema}.send(
    destination text, body text, properties jsonb default null, priority integer default 4,
    time_to_live interval default null, delivery_delay interval default null, correlation_id text default null,
    reply_to text default null, jms_type text default null) returns text
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    message_id uuid := gen_random_uuid();
    sent_at bigint := extract(epoch from clock_timestamp()) * 1000;
    due bigint := sent_at + extract(epoch from delivery_delay) * 1000;
    expiration bigint := sent_at + extract(epoch from time_to_live) * 1000;
    is_topic boolean := destination like 'topic://%';
    plain_name text := regexp_replace(destination, '^(queue|topic)://', '');
    targets integer[];
    wrong text;
begin
    if priority is null or priority not between 0 and 9 then
        raise exception 'The priority is 0 to 9, not %.', priority using errcode = 'JMS03';
    end if;
    select p.key into wrong from jsonb_each(properties) p
    where p.key !~ '^[[:alpha:]_$][[:alnum:]_$]*$' or jsonb_typeof(p.value) not in ('string', 'number', 'boolean')
       or p.key ~ '^JMS' or upper(p.key) in ('NULL', 'TRUE', 'FALSE', 'NOT', 'AND', 'OR', 'BETWEEN', 'LIKE', 'IN', 'IS',
                                             'ESCAPE')
    limit 1;
    if wrong is not null and wrong not in ('JMSXGroupID', 'JMSXGroupSeq') then
        raise exception 'The property "%" has a name that is none, or a value that is no string, number or boolean.',
            wrong using errcode = 'JMS03';
    end if;
    if is_topic then
        select s.selector into wrong
        from {schema}.subscription s join {schema}.topic t using (topic_id)
        where t.name = plain_name and s.selector is not null
        limit 1;
        if wrong is not null then
            raise exception 'A subscription to "%" has the selector %, which SQL does not evaluate.', destination, wrong
                using errcode = 'JMS02', hint = 'Publish through a client, or send to a queue.';
        end if;
        targets := array(
            select s.queue_id from {schema}.subscription s join {schema}.topic t using (topic_id)
            where t.name = plain_name);
    else
        insert into {schema}.queue (name)
        select plain_name
        where (select c.automatic_creation from {schema}.configuration c)
          and not exists (select from {schema}.queue q where q.name = plain_name)
        on conflict do nothing;
        targets := array[{schema}.queue_number(plain_name)];
    end if;
    if due > sent_at then
        insert into {schema}.delayed_message (
            queue_id, inverse_priority, jms_message_id, jms_timestamp, jms_expiration, jms_delivery_mode,
            jms_delivery_time, message_type, jms_correlation_id, jms_reply_to, jms_type, properties, text_body)
        select t, 9 - priority, message_id, sent_at, expiration, 2, due, 'TextMessage', correlation_id,
               case when reply_to ~ '^(temp-)?(queue|topic)://' then reply_to else 'queue://' || reply_to end, jms_type,
               nullif(properties, '{{}}'), body
        from unnest(targets) t;
        perform pg_notify((parse_ident('{schema}'))[1], '0');
    else
        insert into {schema}.message (
            queue_id, inverse_priority, jms_message_id, jms_timestamp, jms_expiration, jms_delivery_mode,
            message_type, jms_correlation_id, jms_reply_to, jms_type, properties, text_body)
        select t, 9 - priority, message_id, sent_at, expiration, 2, 'TextMessage', correlation_id,
               case when reply_to ~ '^(temp-)?(queue|topic)://' then reply_to else 'queue://' || reply_to end, jms_type,
               nullif(properties, '{{}}'), body
        from unnest(targets) t;
        perform pg_notify((parse_ident('{schema}'))[1], t::text) from unnest(targets) t;
    end if;
    return 'ID:' || message_id;
end
$$;
comment on function {schema}.send(text, text, jsonb, integer, interval, interval, text, text, text) is
    'Sends a TextMessage with the transaction that it is called in, and returns its JMSMessageID. To a topic only if '
    'no subscription to it has a selector.';
"""

DELETING = """
drop function {schema}.delete_destination(text);
create function {schema}.delete_destination(destination text, force boolean default false) returns void
    language plpgsql volatile strict
    set search_path = pg_catalog, pg_temp
as $$
declare
    settings_id integer := {schema}.settings_row(destination);
    found_topic integer;
    concerned integer[];
    clients bigint;
begin
    select q.topic_id into found_topic from {schema}.queue q where q.queue_id = settings_id;
    concerned := case when found_topic is null then array[settings_id]
                      else array(select s.queue_id from {schema}.subscription s
                                 where s.topic_id = found_topic) end;
    if not force then
        select count(*) into clients from {schema}.connection c
        where {schema}.is_connected(c.connection_id)
          and (exists (select from {schema}.consumer n
                       where n.queue_id = any(concerned) and n.connection_id = c.connection_id)
               or exists (select from {schema}.delivery d
                          where d.queue_id = any(concerned) and d.connection_id = c.connection_id));
        if clients > 0 then
            raise exception 'The destination "%" has consumers, of % client(s).', destination, clients
                using errcode = 'JMS02', hint = 'Close them first, or force it.';
        end if;
    end if;
    delete from {schema}.permission p where p.queue_id = settings_id;
    delete from {schema}.subscription s where s.queue_id = any(concerned);
    -- Their messages go later, in small steps; those that a session holds when it has let go of them.
    update {schema}.queue q set name = null, connection_id = null, deleted_at = statement_timestamp()
    where q.queue_id = any(concerned);
    delete from {schema}.topic t where t.topic_id = found_topic;
end
$$;
comment on function {schema}.delete_destination(text, boolean) is
    'Deletes a queue with its messages, or a topic with its subscriptions and their messages; not while somebody '
    'receives from it, unless forced.';
"""

FORMER_DELETING = """
drop function {schema}.delete_destination(text, boolean);
create function {schema}.delete_destination(destination text) returns void
    language plpgsql volatile strict
    set search_path = pg_catalog, pg_temp
as $$
declare
    settings_id integer := {schema}.settings_row(destination);
    found_topic integer;
begin
    select q.topic_id into found_topic from {schema}.queue q where q.queue_id = settings_id;
    if found_topic is null then
        delete from {schema}.queue q where q.queue_id = settings_id;
    else
        with gone as (delete from {schema}.subscription s where s.topic_id = found_topic returning s.queue_id)
        delete from {schema}.queue q using gone where q.queue_id = gone.queue_id;
        delete from {schema}.topic t where t.topic_id = found_topic;
    end if;
end
$$;
comment on function {schema}.delete_destination(text) is
    'Deletes a queue with its messages, or a topic with its subscriptions and their messages.';
"""


def upgrade() -> None:
    schema = target_schema()
    for script in (TABLES, ACCESS, MESSAGES, DELETING):
        op.execute(script.format(schema=schema))


def downgrade() -> None:
    schema = target_schema()
    op.execute(FORMER_DELETING.format(schema=schema))
    op.execute(
        f"""
        drop function {schema}.send(text, text, jsonb, integer, interval, interval, text, text, text),
            {schema}.purge(text, bigint[], bigint), {schema}.move(text, text, bigint[], bigint),
            {schema}.move_step(integer, integer, bigint[], bigint, bigint, boolean),
            {schema}.forget_deliveries(tid[]), {schema}.lock_free_messages(integer, bigint[], bigint, bigint),
            {schema}.queue_number(text);
        delete from {schema}.required_privilege where object in ('{schema}.configuration', '{schema}.binding');
        drop table {schema}.binding, {schema}.configuration;
        """
    )
