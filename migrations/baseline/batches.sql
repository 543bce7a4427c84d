-- Batches: a set of messages, and a message that is sent once all of them have ended.
--
-- A member is a row of `batch_member`, which triggers keep: each copy of its message that is inserted or deleted counts one up
-- or down, so that a message that moves stays a member. It has ended once it has no copies. The open block of a batch is a
-- member, too, under the identifier of zeros.
--
-- Transactions that end members lock nothing in common. A transaction looks, once it has changed its member, for another one
-- that has copies and that no transaction is changing: the transaction that ends that one looks later. Without one, it leaves
-- a row in `batch_check`, and looks again at its commit: if all members have ended, it sends the callbacks and removes the row. If
-- the others are being changed, it cannot tell, and leaves the row for the maintenance.

create table jmsql_internal.batch (
    batch_id  bigint generated always as identity primary key,
    name      text not null check (length(name) between 1 and 255),
    role      name not null default current_user,
    opened_at timestamptz not null default clock_timestamp(),
    closed    boolean not null default false,
    ended_at  timestamptz,
    total     bigint,
    is_pruned boolean not null default false,
    keep      interval not null default '7 days' check (keep between interval '0' and interval '100 years')
);
comment on table jmsql_internal.batch is 'The batches.';
comment on column jmsql_internal.batch.role is 'The role that has opened it, which may close it.';
comment on column jmsql_internal.batch.closed is 'Whether its block has ended: only its own handlers add messages.';
comment on column jmsql_internal.batch.ended_at is 'When all its messages had ended for the first time, and the callbacks were sent.';
comment on column jmsql_internal.batch.total is 'How many messages it had then.';
comment on column jmsql_internal.batch.is_pruned is 'Whether members that are done were removed since.';
comment on column jmsql_internal.batch.keep is 'For how long it is kept after its end.';
create index batch_end on jmsql_internal.batch (ended_at) where ended_at is not null;

create table jmsql_internal.batch_member (
    batch_id   bigint not null,
    message_id uuid not null,
    copies     integer not null default 1,
    failure    text,
    primary key (batch_id, message_id)
) with (
    fillfactor = 50,
    vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);
comment on table jmsql_internal.batch_member is 'The messages of batches. One without copies has ended.';
comment on column jmsql_internal.batch_member.copies is
    'How many rows of message and delayed_message have it: several where a topic has several subscriptions.';
comment on column jmsql_internal.batch_member.failure is
    'How it has ended: failed, expired or cancelled; null: it is done, or has not ended. A check would be read for each end.';

create table jmsql_internal.batch_callback (
    batch_id         bigint not null references jmsql_internal.batch on delete cascade,
    event            text not null check (event in ('end', 'success', 'failure')),
    queue_id         integer not null,
    queue            text,
    message_type     jmsql_internal.message_type,
    jms_type         text,
    properties       jsonb,
    property_types   jsonb,
    text_body        text,
    json_body        jsonb,
    body_types       jsonb,
    bytes_body       bytea,
    primary key (batch_id, event)
);
comment on table jmsql_internal.batch_callback is 'The messages that are sent when a batch ends.';
comment on column jmsql_internal.batch_callback.queue is 'Its name, under which it is made again if it is gone by then.';
comment on column jmsql_internal.batch_callback.message_type is 'Null: the body is a map of the counts.';

create table jmsql_internal.batch_check (
    check_id bigint generated always as identity primary key,
    batch_id bigint not null
);
comment on table jmsql_internal.batch_check is
    'Batches whose last member may have ended: the transaction looks at its commit, and maintenance where it cannot tell.';

create policy may_select on jmsql_internal.batch for select
    using (role = current_user or (select jmsql_internal.has_access_to_all('browse', current_user)));
create policy may_insert on jmsql_internal.batch for insert with check (true);
create policy may_update on jmsql_internal.batch for update
    using (role = current_user or (select jmsql_internal.has_access_to_all('administer', current_user)));
create policy may_delete on jmsql_internal.batch for delete
    using ((select jmsql_internal.has_access_to_all('administer', current_user)));
alter table jmsql_internal.batch enable row level security;

create policy may_select on jmsql_internal.batch_member for select
    using (batch_id = any (array(select b.batch_id from jmsql_internal.batch b)));
create policy may_delete on jmsql_internal.batch_member for delete
    using ((select jmsql_internal.has_access_to_all('administer', current_user)));
alter table jmsql_internal.batch_member enable row level security;

create policy may_select on jmsql_internal.batch_callback for select
    using (batch_id = any (array(select b.batch_id from jmsql_internal.batch b)));
create policy may_insert on jmsql_internal.batch_callback for insert
    with check ((queue_id = any ((select jmsql_internal.accessible_queues('send', current_user))::integer[])
                 or (select jmsql_internal.has_access_to_all('send', current_user)))
                and batch_id = any (array(select b.batch_id from jmsql_internal.batch b where b.role = current_user)));
alter table jmsql_internal.batch_callback enable row level security;

create view jmsql.batches with (security_invoker) as
select b.batch_id as batch, b.name, b.role,
       case when b.ended_at is not null then 'ended' when b.closed then 'running' else 'open' end as state,
       coalesce(b.total, m.members) as total,
       coalesce(b.total, m.members) - m.failed - m.expired - m.cancelled - m.waiting as done,
       m.failed, m.expired, m.cancelled, m.waiting, b.opened_at, b.ended_at, b.ended_at + b.keep as kept_until
from jmsql_internal.batch b
cross join lateral (
    select count(*) as members,
           count(*) filter (where n.copies = 0 and n.failure = 'failed') as failed,
           count(*) filter (where n.copies = 0 and n.failure = 'expired') as expired,
           count(*) filter (where n.copies = 0 and n.failure = 'cancelled') as cancelled,
           count(*) filter (where n.copies > 0) as waiting
    from jmsql_internal.batch_member n
    where n.batch_id = b.batch_id and n.message_id <> '00000000-0000-0000-0000-000000000000') m;
comment on view jmsql.batches is 'One row a batch, with the counts of its messages. All its members are read for them.';
comment on column jmsql.batches.batch is 'Its number';
comment on column jmsql.batches.name is 'Its name; others may have the same';
comment on column jmsql.batches.role is 'The role that has opened it';
comment on column jmsql.batches.state is 'open: its block has not ended; running; ended: its callbacks were sent';
comment on column jmsql.batches.total is 'How many messages it has';
comment on column jmsql.batches.done is 'How many of them are done';
comment on column jmsql.batches.failed is 'How many are dead letters';
comment on column jmsql.batches.expired is 'How many have expired';
comment on column jmsql.batches.cancelled is 'How many were cancelled or purged, or were in a queue that was deleted';
comment on column jmsql.batches.waiting is 'How many have not ended';
comment on column jmsql.batches.opened_at is 'When it was opened';
comment on column jmsql.batches.ended_at is 'When all its messages had ended for the first time';
comment on column jmsql.batches.kept_until is 'When the row is removed';

create function jmsql_internal.may_add_to_batch(number text, sender name) returns boolean
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return exists (
        select from jmsql_internal.batch b
        where b.batch_id = jmsql_internal.whole_number(number)
          and (b.role = sender
               or jmsql_internal.has_access_to_all('receive', sender)
               or exists (select from jmsql_internal.access_list a
                          where a.action = 'receive' and pg_has_role(sender, a.grantee, 'usage'))));
end
$$;
comment on function jmsql_internal.may_add_to_batch(text, name) is
    'Whether a role may send messages of a batch: it has opened the batch, or receives, and so may handle one of its messages.';

-- The way in which messages end.

create function jmsql_internal.note_ending(ending text) returns boolean
    language sql volatile
begin atomic
    -- The time makes it count for this statement of the client alone.
    select set_config('jmsql.ending', ending || ' ' || extract(epoch from statement_timestamp())::text, true) is not null;
end;
comment on function jmsql_internal.note_ending(text) is
    'Says how the messages end that this statement of the client deletes: expired or cancelled; an empty text: they are done. Returns true.';

create function jmsql_internal.current_ending() returns text
    language sql volatile
    return case when split_part(current_setting('jmsql.ending', true), ' ', 2) = extract(epoch from statement_timestamp())::text
                then nullif(split_part(current_setting('jmsql.ending', true), ' ', 1), '') end;
comment on function jmsql_internal.current_ending() is 'The last text of note_ending in this statement of the client; null: there is none.';

-- Members.

create function jmsql_internal.add_batch_member() returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_sort = off
as $$
declare
    batch constant bigint := jmsql_internal.whole_number(new.properties ->> 'JMS_jmsql_Batch');
begin
    if batch is null then
        return null;
    elsif new.properties ? 'JMS_jmsql_DeadLetterReason' then
        update jmsql_internal.batch_member m
        set failure = case when new.properties ->> 'JMS_jmsql_DeadLetterReason' = 'expired' then 'expired' else 'failed' end
        where m.batch_id = batch and m.message_id = new.jms_message_id;
        return null;
    end if;
    insert into jmsql_internal.batch_member as m (batch_id, message_id)
    select b.batch_id, new.jms_message_id from jmsql_internal.batch b
    where b.batch_id = batch and b.ended_at is null and new.jms_message_id is not null
    on conflict (batch_id, message_id) do update
    set copies = m.copies + 1, failure = case when m.copies > 0 then m.failure end;
    if found then
        return null;
    end if;
    -- A dead letter that is delivered again after the end, or moves.
    update jmsql_internal.batch_member m set copies = m.copies + 1, failure = case when m.copies > 0 then m.failure end
    where m.batch_id = batch and m.message_id = new.jms_message_id;
    if not found and exists (select from jmsql_internal.batch b where b.batch_id = batch) then
        raise exception 'The batch % has ended, so no message can be added to it.', batch using errcode = 'JMS02';
    end if;
    return null;
end
$$;
comment on function jmsql_internal.add_batch_member() is 'Counts a message of a batch that was inserted.';

create function jmsql_internal.has_open_member(batch bigint, member uuid) returns boolean
    language plpgsql volatile security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_sort = off
as $$
begin
    -- Where messages end in the order in which they were sent, or in the reverse, one beside this has not ended.
    return exists (
            select from (
                select m.copies, m.xmax as changed_by from jmsql_internal.batch_member m
                where m.batch_id = batch and m.message_id > member
                order by m.batch_id, m.message_id limit 32) n
            where n.copies > 0 and n.changed_by = '0'::xid)
        or exists (
            select from (
                select m.copies, m.xmax as changed_by from jmsql_internal.batch_member m
                where m.batch_id = batch and m.message_id < member
                order by m.batch_id desc, m.message_id desc limit 32) n
            where n.copies > 0 and n.changed_by = '0'::xid)
        or exists (
            select from jmsql_internal.batch_member m
            where m.batch_id = batch and m.copies > 0 and m.xmax = '0'::xid);
end
$$;
comment on function jmsql_internal.has_open_member(bigint, uuid) is
    'Whether a batch has a member that has not ended and that no transaction is changing; it looks beside a member first.';

create function jmsql_internal.remove_batch_member() returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_sort = off
as $$
declare
    batch constant bigint := jmsql_internal.whole_number(
        case when not old.properties ? 'JMS_jmsql_DeadLetterReason' then old.properties ->> 'JMS_jmsql_Batch' end);
    ending text;
    may_be_last boolean;
begin
    if batch is null then
        return null;
    end if;
    if current_setting('jmsql.ending', true) <> '' then
        ending := jmsql_internal.current_ending();
    end if;
    -- Mostly, one of the next members has not ended. They are read after this one has changed: so of two transactions that end
    -- the last two messages, one at least sees that the other changes its row.
    update jmsql_internal.batch_member m
    set copies = m.copies - 1, failure = coalesce(m.failure, ending)
    where m.batch_id = batch and m.message_id = old.jms_message_id and m.copies > 0
    returning m.copies = 0 and not exists (
        select from (
            select n.copies, n.xmax as changed_by from jmsql_internal.batch_member n
            where n.batch_id = m.batch_id and n.message_id > m.message_id
            order by n.batch_id, n.message_id limit 32) n
        where n.copies > 0 and n.changed_by = '0'::xid)
    into may_be_last;
    if may_be_last then
        if not jmsql_internal.has_open_member(batch, old.jms_message_id) then
            insert into jmsql_internal.batch_check (batch_id) values (batch);
        end if;
    end if;
    return null;
end
$$;
comment on function jmsql_internal.remove_batch_member() is
    'Counts a message of a batch that was deleted. If it may be the last one, the end of the transaction finds out.';

-- The property is a Long, so that its type stands in `property_types`. Each statement that inserts or deletes messages reads the
-- condition anew: one that looks into the properties took 5 to 8 µs more for a message.
create trigger batch_member_is_added after insert on jmsql_internal.message
    for each row when (new.property_types is not null) execute function jmsql_internal.add_batch_member();
create trigger batch_member_is_added after insert on jmsql_internal.delayed_message
    for each row when (new.property_types is not null) execute function jmsql_internal.add_batch_member();
create trigger batch_member_is_removed after delete on jmsql_internal.message
    for each row when (old.property_types is not null)
    execute function jmsql_internal.remove_batch_member();
create trigger batch_member_is_removed after delete on jmsql_internal.delayed_message
    for each row when (old.property_types is not null)
    execute function jmsql_internal.remove_batch_member();

create function jmsql_internal.hold_batch(batch bigint, member uuid) returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_sort = off
as $$
begin
    perform from jmsql_internal.batch_member m
    where m.batch_id = batch and m.message_id = member and m.copies > 0
    for share;
    -- This transaction may have deleted the message already, and decides at its end whether that was the last one. A row that
    -- is to be seen and whose transaction is in progress is its own, or one of its savepoints'.
    if not found and not exists (
            select from jmsql_internal.batch_member m,
                        lateral (select pg_snapshot_xmax(pg_current_snapshot())::text::numeric as next) s
            where m.batch_id = batch and m.message_id = member
              and pg_xact_status((s.next - mod(mod(s.next, 4294967296) - m.xmin::text::numeric + 4294967296, 4294967296)
                                 )::text::xid8) = 'in progress') then
        raise exception 'The batch % has ended, or the message that adds to it has.', batch using errcode = 'JMS02';
    end if;
end
$$;
comment on function jmsql_internal.hold_batch(bigint, uuid) is
    'Keeps a member of a batch, and so the batch, from its end until the transaction ends, which adds messages.';

-- Opening and closing.

create function jmsql_internal.begin_batch() returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    insert into jmsql_internal.batch_member (batch_id, message_id)
    values (new.batch_id, '00000000-0000-0000-0000-000000000000');
    return null;
end
$$;
comment on function jmsql_internal.begin_batch() is 'Makes the open block of a batch a member of it.';
create trigger batch_begins after insert on jmsql_internal.batch
    for each row execute function jmsql_internal.begin_batch();

create function jmsql_internal.close_batch() returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    update jmsql_internal.batch_member m set copies = 0
    where m.batch_id = new.batch_id and m.message_id = '00000000-0000-0000-0000-000000000000' and m.copies > 0;
    if found and not jmsql_internal.has_open_member(new.batch_id, '00000000-0000-0000-0000-000000000000') then
        insert into jmsql_internal.batch_check (batch_id) values (new.batch_id);
    end if;
    return null;
end
$$;
comment on function jmsql_internal.close_batch() is 'Ends the member that stands for the open block.';
create trigger batch_is_closed after update of closed on jmsql_internal.batch
    for each row when (new.closed and not old.closed) execute function jmsql_internal.close_batch();

create function jmsql_internal.name_callback_queue() returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    new.queue := (select q.name from jmsql_internal.queue q where q.queue_id = new.queue_id and q.connection_id is null);
    if new.queue is null then
        raise exception 'The messages of a batch''s end go to a queue with a name that is there.' using errcode = 'JMS01';
    end if;
    return new;
end
$$;
comment on function jmsql_internal.name_callback_queue() is 'Notes the name of the queue of a callback.';
create trigger callback_names_its_queue before insert on jmsql_internal.batch_callback
    for each row execute function jmsql_internal.name_callback_queue();

-- The end.

create function jmsql_internal.notify_of_batch(payload text) returns void
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
begin
    -- PostgreSQL does not prepare a transaction that has notified, and this one may be about to be prepared. Where it can be,
    -- clients find the message, or the note, within a second by themselves.
    if current_setting('max_prepared_transactions') = '0' then
        perform jmsql_internal.notify(payload);
    end if;
end
$$;
comment on function jmsql_internal.notify_of_batch(text) is 'Notifies at the commit, where no transaction can be prepared.';

create function jmsql_internal.send_callback(c jmsql_internal.batch_callback, counts jsonb) returns void
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    target integer;
    sent_at constant bigint := extract(epoch from clock_timestamp()) * 1000;
begin
    select q.queue_id into target from jmsql_internal.queue q where q.name = c.queue;
    if target is null then  -- else the last message of the batch could never end
        insert into jmsql_internal.queue (name) values (c.queue) on conflict (name) do nothing;
        select q.queue_id into strict target from jmsql_internal.queue q where q.name = c.queue;
    end if;
    insert into jmsql_internal.message (
        queue_id, inverse_priority, jms_message_id, jms_timestamp, jms_delivery_mode, message_type, jms_correlation_id,
        jms_type, properties, property_types, text_body, json_body, body_types, bytes_body)
    select target, 5, gen_random_uuid(), sent_at, 2, coalesce(c.message_type, 'MapMessage'), 'batch ' || c.batch_id,
           c.jms_type, c.properties, c.property_types, c.text_body,
           case when c.message_type is null then counts else c.json_body end, c.body_types, c.bytes_body
    where pg_current_xact_id() is not null;  -- before a sequence: by that, consumers know what may still come
    perform jmsql_internal.notify_of_batch(target::text);
end
$$;
comment on function jmsql_internal.send_callback(jmsql_internal.batch_callback, jsonb) is 'Sends a message of a batch''s end.';

create function jmsql_internal.end_batch(batch bigint) returns void
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
as $$
declare
    counts record;
begin
    select count(*) as total,
           count(*) filter (where m.failure = 'failed') as failed,
           count(*) filter (where m.failure = 'expired') as expired,
           count(*) filter (where m.failure = 'cancelled') as cancelled
    into counts
    from jmsql_internal.batch_member m
    where m.batch_id = batch and m.message_id <> '00000000-0000-0000-0000-000000000000';
    update jmsql_internal.batch b set ended_at = clock_timestamp(), total = counts.total
    where b.batch_id = batch and b.ended_at is null;
    if not found then
        return;
    end if;
    perform jmsql_internal.send_callback(c, jsonb_build_object(
        'batch', b.name, 'total', counts.total,
        'done', counts.total - counts.failed - counts.expired - counts.cancelled,
        'failed', counts.failed, 'expired', counts.expired, 'cancelled', counts.cancelled))
    from jmsql_internal.batch_callback c join jmsql_internal.batch b using (batch_id)
    where c.batch_id = batch
      and (c.event = 'end'
           or c.event = case when counts.failed + counts.expired + counts.cancelled > 0 then 'failure' else 'success' end);
end
$$;
comment on function jmsql_internal.end_batch(bigint) is 'Ends a batch whose messages have ended, unless it has ended before.';

create function jmsql_internal.end_batch_after() returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_sort = off
as $$
begin
    -- A message that has moved is such a member, too.
    if jmsql_internal.has_open_member(new.batch_id, '00000000-0000-0000-0000-000000000000')
       or exists (select from jmsql_internal.batch b where b.batch_id = new.batch_id and b.ended_at is not null) then
        null;  -- the latter: a dead letter that was delivered again
    -- A stricter isolation level does not see what others have done since.
    elsif current_setting('transaction_isolation') = 'read committed'
          and not exists (
            select from jmsql_internal.batch_member m where m.batch_id = new.batch_id and m.copies > 0) then
        perform jmsql_internal.end_batch(new.batch_id);
    else
        perform jmsql_internal.notify_of_batch('-2147483647');
        return null;
    end if;
    delete from jmsql_internal.batch_check c where c.check_id = new.check_id;
    return null;
end
$$;
comment on function jmsql_internal.end_batch_after() is
    'Ends the batch whose last message may have ended, if it was the last; leaves it to maintenance where it cannot tell.';
create constraint trigger batch_may_have_ended after insert on jmsql_internal.batch_check
    deferrable initially deferred
    for each row execute function jmsql_internal.end_batch_after();

create function jmsql_internal.check_batches(most integer) returns bigint
    language plpgsql volatile security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
as $$
declare
    each record;
    remaining bigint := 0;
begin
    for each in
        select c.batch_id, array_agg(c.check_id) as checks from jmsql_internal.batch_check c group by c.batch_id limit most
    loop
        if not exists (select from jmsql_internal.batch_member m where m.batch_id = each.batch_id and m.copies > 0) then
            perform jmsql_internal.end_batch(each.batch_id);
        else
            -- The transaction that ends a member that none is changing now looks then.
            perform from jmsql_internal.batch_member m
            where m.batch_id = each.batch_id and m.copies > 0
            limit 1 for share skip locked;
            if not found then
                remaining := remaining + 1;
                continue;
            end if;
        end if;
        delete from jmsql_internal.batch_check c where c.check_id = any(each.checks);
    end loop;
    return remaining;
end
$$;
comment on function jmsql_internal.check_batches(integer) is
    'Ends batches of which no transaction could tell that it ended the last message; returns of how many that is still so.';

create function jmsql_internal.remove_batches(most integer) returns bigint
    language plpgsql volatile security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
as $$
declare
    each record;
    removed bigint := 0;
    number bigint;
begin
    for each in
        select b.batch_id, b.ended_at + b.keep <= clock_timestamp() as is_over from jmsql_internal.batch b
        where b.ended_at is not null and (not b.is_pruned or b.ended_at + b.keep <= clock_timestamp())
        order by b.ended_at
        limit most
        for update skip locked
    loop
        exit when removed >= most;
        delete from jmsql_internal.batch_member where ctid = any(array(
            select m.ctid from jmsql_internal.batch_member m
            where m.batch_id = each.batch_id and (each.is_over or m.copies = 0 and m.failure is null)
            limit most - removed
            for update skip locked));
        get diagnostics number = row_count;
        removed := removed + number;
        if removed >= most then
            exit;
        elsif each.is_over then
            delete from jmsql_internal.batch b where b.batch_id = each.batch_id;
            removed := removed + 1;
        else
            update jmsql_internal.batch b set is_pruned = true where b.batch_id = each.batch_id;
        end if;
    end loop;
    return removed;
end
$$;
comment on function jmsql_internal.remove_batches(integer) is
    'Removes batches whose time is over, and of batches that have ended the members that are done, so many rows at most.';
