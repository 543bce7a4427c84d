-- Batches: a set of messages, and a message that is sent once all of them have ended.
--
-- A message of a batch has not ended while it is a row of `message` or `delayed_message`, under an index of those, and no dead
-- letter. `batch_member` has a row for each, for the counts: triggers insert it with the message, and change it where the message
-- fails. The open block of a batch is a member, too, under the identifier of zeros: it ends when that row is deleted.
--
-- Transactions that end messages write nothing in common. Once a transaction has deleted its message, and unless it leaves that to
-- others (see `batch_epoch`), it looks for another one that no transaction may be deleting: the transaction that ends that one looks
-- later. Without one, it leaves a row in `batch_check`, and looks again at its commit: if all messages have ended, it sends the
-- callbacks and removes the row. If the others are being deleted, it cannot tell, and leaves the row for the maintenance.

create table jmsql_internal.batch (
    batch_id  bigint generated always as identity primary key,
    name      text not null check (length(name) between 1 and 255),
    role      name not null default current_user,
    opened_at timestamptz not null default clock_timestamp(),
    closed    boolean not null default false,
    ended_at  timestamptz,
    total     bigint,
    is_pruned boolean not null default false,
    keep      interval not null default '7 days' check (keep between interval '0' and interval '100 years'),
    read_key  uuid not null default gen_random_uuid()
);
comment on table jmsql_internal.batch is 'The batches.';
comment on column jmsql_internal.batch.role is 'The role that has opened it, which may close it.';
comment on column jmsql_internal.batch.closed is 'Whether its block has ended: only its own handlers add messages.';
comment on column jmsql_internal.batch.ended_at is 'When all its messages had ended for the first time, and the callbacks were sent.';
comment on column jmsql_internal.batch.total is 'How many messages it had then.';
comment on column jmsql_internal.batch.is_pruned is 'Whether members that are done were removed since.';
comment on column jmsql_internal.batch.keep is 'For how long it is kept after its end.';
comment on column jmsql_internal.batch.read_key is 'Counts the batch: only roles that may read the row know it.';
create index batch_end on jmsql_internal.batch (ended_at) where ended_at is not null;

create table jmsql_internal.batch_member (
    batch_id   bigint not null,
    message_id uuid not null,
    failure    text,
    primary key (batch_id, message_id)
) with (
    vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);
comment on table jmsql_internal.batch_member is 'The messages of batches, ended or not, and open blocks.';
comment on column jmsql_internal.batch_member.failure is
    'How it has ended last: failed, expired or cancelled; or retried since; null: it is done, or has not ended.';

-- The messages that have not ended. Only messages of batches are in these indexes. In the order of their sending, so that a
-- look for another message is bounded, whatever deleted ones vacuum has left.
create index message_batch on jmsql_internal.message
    ((jmsql_internal.whole_number(properties ->> 'JMS_jmsql_Batch')), sequence)
    where property_types is not null and properties ? 'JMS_jmsql_Batch' and not properties ? 'JMS_jmsql_DeadLetterReason';
create index delayed_message_batch on jmsql_internal.delayed_message
    ((jmsql_internal.whole_number(properties ->> 'JMS_jmsql_Batch')), sequence)
    where property_types is not null and properties ? 'JMS_jmsql_Batch' and not properties ? 'JMS_jmsql_DeadLetterReason';

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
    primary key (batch_id, event),
    -- As of a message: the callback is one, and would be refused in the transaction that ends the batch.
    constraint properties_are_objects check (
        jsonb_typeof(properties) = 'object' and jsonb_typeof(property_types) = 'object')
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
alter table jmsql_internal.batch_callback enable row level security;

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

-- The provider's own properties are its alone to set. The planner puts this in the place of its calls, as it has neither a
-- subquery nor a search path: as a function that runs, it would take longer than the rest of an insertion. Nearly all properties
-- end with the comparison of their text, which knows nothing of keys.
create function jmsql_internal.may_send_properties(properties jsonb) returns boolean
    language sql stable
    return properties is null
        or properties::text not like '%"JMS_jmsql%'
        or not properties @? '$.keyvalue() ? (@.key starts with "JMS_jmsql" && @.key != "JMS_jmsql_Batch")'
           and (not properties ? 'JMS_jmsql_Batch'
                or jmsql_internal.may_add_to_batch(properties ->> 'JMS_jmsql_Batch', current_user));
comment on function jmsql_internal.may_send_properties(jsonb) is
    'Whether a role that does not administer may send a message with these properties.';

create policy may_insert on jmsql_internal.batch_callback for insert
    with check ((queue_id = any ((select jmsql_internal.accessible_queues('send', current_user))::integer[])
                 or (select jmsql_internal.has_access_to_all('send', current_user))
                 or jmsql_internal.refuse_to_send(queue_id))
                and batch_id = any (array(select b.batch_id from jmsql_internal.batch b where b.role = current_user))
                and (jmsql_internal.may_send_properties(properties)
                     or (select jmsql_internal.has_access_to_all('administer', current_user))));

-- The way in which messages end.

create function jmsql_internal.note_ending(ending text) returns boolean
    language sql volatile
begin atomic
    -- The time makes it count for this statement of the client alone. Without a sentinel, `find_witness` runs at each end, and notes it.
    select set_config('jmsql.ending', ending || ' ' || extract(epoch from statement_timestamp())::text, true)
           || set_config('jmsql.batch_with_sentinel', '', true) || set_config('jmsql.other_batch_with_sentinel', '', true)
           is not null;
end;
comment on function jmsql_internal.note_ending(text) is
    'Says how the messages end that this statement of the client deletes: expired or cancelled; an empty text: they are done. Returns true.';

create function jmsql_internal.current_ending() returns text
    language sql volatile
    return case when split_part(current_setting('jmsql.ending', true), ' ', 2) = extract(epoch from statement_timestamp())::text
                then nullif(split_part(current_setting('jmsql.ending', true), ' ', 1), '') end;
comment on function jmsql_internal.current_ending() is 'The last text of note_ending in this statement of the client; null: there is none.';

-- Members.

create function jmsql_internal.open_members(batch bigint, most bigint)
    returns table (message_id uuid, changed_by xid)
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set jit = off
    set enable_bitmapscan = off
    set enable_sort = off
as $$
begin
    return query
        (select m.jms_message_id, m.xmax from jmsql_internal.message m
         where m.property_types is not null and m.properties ? 'JMS_jmsql_Batch'
           and not m.properties ? 'JMS_jmsql_DeadLetterReason'
           and jmsql_internal.whole_number(m.properties ->> 'JMS_jmsql_Batch') = batch
         order by jmsql_internal.whole_number(m.properties ->> 'JMS_jmsql_Batch') desc, m.sequence desc
         limit most)
        union all
        (select d.jms_message_id, d.xmax from jmsql_internal.delayed_message d
         where d.property_types is not null and d.properties ? 'JMS_jmsql_Batch'
           and not d.properties ? 'JMS_jmsql_DeadLetterReason'
           and jmsql_internal.whole_number(d.properties ->> 'JMS_jmsql_Batch') = batch
         order by jmsql_internal.whole_number(d.properties ->> 'JMS_jmsql_Batch') desc, d.sequence desc
         limit most)
        union all
        select b.message_id, b.xmax from jmsql_internal.batch_member b
        where b.batch_id = batch and b.message_id = '00000000-0000-0000-0000-000000000000';
end
$$;
comment on function jmsql_internal.open_members(bigint, bigint) is
    'The messages of a batch that have not ended, those sent last first, at most so many of each table, and its open block.';

create function jmsql_internal.batch_counts(batch bigint, key uuid)
    returns table (members bigint, failed bigint, expired bigint, cancelled bigint, waiting bigint)
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off
as $$
begin
    if not exists (select from jmsql_internal.batch b where b.batch_id = batch and b.read_key = key) then
        return;
    end if;
    return query
        with waiting as materialized (
            select distinct o.message_id from jmsql_internal.open_members(batch, null) o)
        select count(*),
               count(*) filter (where m.failure = 'failed' and w.message_id is null),
               count(*) filter (where m.failure = 'expired' and w.message_id is null),
               count(*) filter (where m.failure = 'cancelled' and w.message_id is null),
               (select count(*) from waiting n where n.message_id <> '00000000-0000-0000-0000-000000000000')
        from jmsql_internal.batch_member m left join waiting w using (message_id)
        where m.batch_id = batch and m.message_id <> '00000000-0000-0000-0000-000000000000';
end
$$;
comment on function jmsql_internal.batch_counts(bigint, uuid) is
    'How many messages a batch has, and how many have ended in which way; no row without the key of its row.';

create view jmsql.batches with (security_invoker) as
select b.batch_id as batch, b.name, b.role,
       case when b.ended_at is not null then 'ended' when b.closed then 'running' else 'open' end as state,
       coalesce(b.total, m.members) as total,
       coalesce(b.total, m.members) - m.failed - m.expired - m.cancelled - m.waiting as done,
       m.failed, m.expired, m.cancelled, m.waiting, b.opened_at, b.ended_at, b.ended_at + b.keep as kept_until
from jmsql_internal.batch b
cross join lateral jmsql_internal.batch_counts(b.batch_id, b.read_key) m;
comment on view jmsql.batches is 'One row a batch, with the counts of its messages. All its messages are read for them.';
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

create function jmsql_internal.add_batch_member() returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set jit = off
as $$
declare
    batch constant bigint := jmsql_internal.whole_number(new.properties ->> 'JMS_jmsql_Batch');
begin
    if batch is null then
        return null;
    elsif new.properties ? 'JMS_jmsql_DeadLetterReason' then
        insert into jmsql_internal.batch_member (batch_id, message_id, failure)
        select b.batch_id, new.jms_message_id,
               case when new.properties ->> 'JMS_jmsql_DeadLetterReason' = 'expired' then 'expired' else 'failed' end
        from jmsql_internal.batch b
        where b.batch_id = batch and new.jms_message_id is not null
        on conflict (batch_id, message_id) do update set failure = excluded.failure;
        return null;
    end if;
    insert into jmsql_internal.batch_member (batch_id, message_id)
    select b.batch_id, new.jms_message_id from jmsql_internal.batch b
    where b.batch_id = batch and b.ended_at is null and new.jms_message_id is not null
    on conflict (batch_id, message_id) do nothing;
    if found then
        return null;
    end if;
    -- Another copy of it, or one that moves; or a dead letter that is delivered again, also after the end.
    if jmsql_internal.current_ending() = 'retried' then
        update jmsql_internal.batch_member m set failure = 'retried'
        where m.batch_id = batch and m.message_id = new.jms_message_id;
    end if;
    if not exists (
            select from jmsql_internal.batch_member m where m.batch_id = batch and m.message_id = new.jms_message_id)
       and exists (select from jmsql_internal.batch b where b.batch_id = batch) then
        raise exception 'The batch % has ended, so no message can be added to it.', batch using errcode = 'JMS02';
    end if;
    return null;
end
$$;
comment on function jmsql_internal.add_batch_member() is 'Counts a message of a batch that was inserted.';

create function jmsql_internal.is_left_alone(changed_by xid) returns boolean
    language sql stable
    -- The transaction before has ended, and has only locked the row, or was rolled back: else its deletion would show. The number
    -- may be one of several transactions (a multixact), which is counted apart.
    return changed_by = '0'::xid
           or age(changed_by) > age(pg_snapshot_xmin(pg_current_snapshot())::xid) and mxid_age(changed_by) <= 0;
comment on function jmsql_internal.is_left_alone(xid) is
    'Whether no transaction may be deleting a row, by its xmax, in the snapshot that shows it; false where that is uncertain.';

-- Most ends need not look, as there are sentinels: the messages whose sequence is a multiple of 64. A transaction that deletes one
-- and finds no other sentinel raises this sequence, and then looks. A session that has found a sentinel notes the batch and the
-- sequence's value, for the last two batches. While that value stands, an end of another message leaves the looking to those who
-- delete sentinels.
create sequence jmsql_internal.batch_epoch;

create function jmsql_internal.is_sentinel(sequence bigint) returns boolean
    language sql immutable parallel safe
    return sequence % 64 = 0;
comment on function jmsql_internal.is_sentinel(bigint) is
    'Whether the transaction that ends this message of a batch looks for others in any case.';

-- Its plans need the settings. One function has all of it, as each one's settings take longer than its queries.
create function jmsql_internal.find_witness(properties jsonb, message_id uuid, place bigint) returns boolean
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set jit = off
    set enable_bitmapscan = off
    set enable_sort = off
as $$
declare
    batch constant bigint := jmsql_internal.whole_number(properties ->> 'JMS_jmsql_Batch');
    is_sentinel constant boolean := jmsql_internal.is_sentinel(place);
    at_least integer := case when is_sentinel then 2 else 1 end;  -- 1: another message; 2: a sentinel
    -- It is read after the row was deleted: a raise before shows here, and the transaction that raises it since sees the deletion.
    epoch constant text := batch || ' ' || coalesce(pg_sequence_last_value('jmsql_internal.batch_epoch'::regclass), 0);
    found_here integer;
    witness integer := 0;
begin
    if batch is null or properties ? 'JMS_jmsql_DeadLetterReason' then
        return true;
    end if;
    if current_setting('jmsql.ending', true) <> '' then
        update jmsql_internal.batch_member m
        set failure = coalesce(nullif(m.failure, 'retried'), jmsql_internal.current_ending())
        where m.batch_id = batch and m.message_id = find_witness.message_id and jmsql_internal.current_ending() is not null;
    end if;
    -- They are read after this one was deleted: so of two transactions that end the last two messages, one at least sees that the
    -- other deletes its row. Mostly, the next messages have not ended, or those before, and the farthest ones are untouched. Of
    -- those that a consumer has claimed, the claim's transaction has only locked the row.
    loop
        -- A sentinel of the transaction itself is none: it may be prepared, and rolled back, while its session goes on.
        select max(case when jmsql_internal.is_sentinel(n.sequence) and age(n.made_by) > 0 then 2 else 1 end) into found_here
        from (
            select m.xmax as changed_by, m.xmin as made_by, m.sequence from jmsql_internal.message m
            where m.property_types is not null and m.properties ? 'JMS_jmsql_Batch'
              and not m.properties ? 'JMS_jmsql_DeadLetterReason'
              and jmsql_internal.whole_number(m.properties ->> 'JMS_jmsql_Batch') = batch
              and m.sequence > place and m.sequence < place + 4000
            order by jmsql_internal.whole_number(m.properties ->> 'JMS_jmsql_Batch') desc, m.sequence desc limit 128) n
        where jmsql_internal.is_left_alone(n.changed_by);
        witness := greatest(witness, found_here);
        exit when witness >= at_least;
        select max(case when jmsql_internal.is_sentinel(n.sequence) and age(n.made_by) > 0 then 2 else 1 end) into found_here
        from (
            select m.xmax as changed_by, m.xmin as made_by, m.sequence from jmsql_internal.message m
            where m.property_types is not null and m.properties ? 'JMS_jmsql_Batch'
              and not m.properties ? 'JMS_jmsql_DeadLetterReason'
              and jmsql_internal.whole_number(m.properties ->> 'JMS_jmsql_Batch') = batch
              and m.sequence > place - 4000 and m.sequence < place
            order by jmsql_internal.whole_number(m.properties ->> 'JMS_jmsql_Batch'), m.sequence limit 128) n
        where jmsql_internal.is_left_alone(n.changed_by);
        witness := greatest(witness, found_here);
        exit when witness >= at_least or at_least = 1;
        perform nextval('jmsql_internal.batch_epoch'::regclass);
        at_least := 1;
        witness := 0;
    end loop;
    if witness = 2 and coalesce(current_setting('jmsql.ending', true), '') = '' then
        if split_part(current_setting('jmsql.batch_with_sentinel', true), ' ', 1) <> batch::text then
            perform set_config('jmsql.other_batch_with_sentinel', current_setting('jmsql.batch_with_sentinel', true), false);
        end if;
        perform set_config('jmsql.batch_with_sentinel', epoch, false);
    end if;
    return witness > 0;
end
$$;
comment on function jmsql_internal.find_witness(jsonb, uuid, bigint) is
    'Looks for another message of the batch of one that was deleted, which no transaction may be deleting. Notes how it has ended.';

-- Each end runs it. So it has no settings and no variables, which take longer than all the rest, and qualifies each name instead.
create function jmsql_internal.remove_batch_member() returns trigger
    language plpgsql security definer
as $$
begin
    -- The sequence is read after the row was deleted, as `find_witness` reads it.
    if (not jmsql_internal.is_sentinel(old.sequence)
        and (old.properties operator(pg_catalog.->>) 'JMS_jmsql_Batch') operator(pg_catalog.||) ' ' operator(pg_catalog.||)
            coalesce(pg_catalog.pg_sequence_last_value('jmsql_internal.batch_epoch'::pg_catalog.regclass), 0)::pg_catalog.text
            operator(pg_catalog.=) any (array[pg_catalog.current_setting('jmsql.batch_with_sentinel', true),
                                              pg_catalog.current_setting('jmsql.other_batch_with_sentinel', true)])) is not true
       and not jmsql_internal.find_witness(old.properties, old.jms_message_id, old.sequence)
    then
        perform jmsql_internal.check_batch_later(
            jmsql_internal.whole_number(old.properties operator(pg_catalog.->>) 'JMS_jmsql_Batch'));
    end if;
    return null;
end
$$;
comment on function jmsql_internal.remove_batch_member() is
    'Has the end of a message of a batch look for others, unless that is certainly left to another end.';

create function jmsql_internal.check_batch_later(batch bigint) returns void
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    mark constant text := batch || ' ' || pg_current_xact_id();
begin
    -- One look will do for all that a transaction ends: it is undone with a savepoint, as this setting is.
    if current_setting('jmsql.batch_to_check', true) is distinct from mark then
        perform set_config('jmsql.batch_to_check', mark, true);
        insert into jmsql_internal.batch_check (batch_id) values (batch);
    end if;
end
$$;
comment on function jmsql_internal.check_batch_later(bigint) is 'Has the end of the transaction look if the messages of a batch have all ended.';

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

create function jmsql_internal.batch_lock(batch bigint) returns bigint
    language sql stable
    return hashtextextended('jmsql batch ' || batch, 'jmsql_internal.batch'::regclass::oid::bigint);
comment on function jmsql_internal.batch_lock(bigint) is
    'The key of the advisory lock that transactions share which add to a batch as handlers, and that its end takes alone.';

create function jmsql_internal.hold_batch(batch bigint) returns boolean
    language plpgsql volatile security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off
as $$
begin
    if not pg_try_advisory_xact_lock_shared(jmsql_internal.batch_lock(batch)) then
        -- Until that transaction ends, neither answer is certain.
        raise exception 'The batch % is being ended by a transaction.', batch using errcode = 'JMS02';
    end if;
    perform from jmsql_internal.batch b where b.batch_id = batch and b.ended_at is null;
    if not found then
        return false;
    elsif current_setting('transaction_isolation') <> 'read committed' then
        -- It does not see an end since its beginning, but a lock fails at it. Let it go again: the block may be closed meanwhile.
        begin
            perform from jmsql_internal.batch b where b.batch_id = batch for share;
            raise exception using errcode = 'JMS99';
        exception when sqlstate 'JMS99' then
            return true;
        end;
    end if;
    return true;
end
$$;
comment on function jmsql_internal.hold_batch(bigint) is
    'Keeps a batch from its end until the transaction ends, which adds messages; false where it has ended or was deleted.';

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
    delete from jmsql_internal.batch_member m
    where m.batch_id = new.batch_id and m.message_id = '00000000-0000-0000-0000-000000000000';
    if found then
        perform jmsql_internal.check_batch_later(new.batch_id);
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
    place bigint;
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
    where pg_current_xact_id() is not null  -- before a sequence: by that, consumers know what may still come
    returning sequence into place;
    -- With its place, as for a message that is released: the client may have said that the transaction sends nothing.
    perform jmsql_internal.notify_of_batch(target || ' 5 ' || place);
end
$$;
comment on function jmsql_internal.send_callback(jmsql_internal.batch_callback, jsonb) is 'Sends a message of a batch''s end.';

create function jmsql_internal.end_batch(batch bigint) returns void
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off
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

create function jmsql_internal.end_batch_if_over(batch bigint, most bigint) returns boolean
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off
as $$
declare
    is_open boolean;
    has_witness boolean;
begin
    if not exists (select from jmsql_internal.batch b where b.batch_id = batch and b.ended_at is null) then
        return true;  -- a dead letter that was delivered again, or a message of a batch that was deleted
    end if;
    select count(*) > 0, coalesce(bool_or(jmsql_internal.is_left_alone(o.changed_by)), false) into is_open, has_witness
    from jmsql_internal.open_members(batch, most) o;
    if has_witness then
        return true;
    -- A stricter isolation level does not see what others have done since.
    elsif is_open or current_setting('transaction_isolation') <> 'read committed' then
        return false;
    end if;
    -- A handler may be adding messages, or have added some since: so look again, with the lock. Release it where there are some.
    begin
        if not pg_try_advisory_xact_lock(jmsql_internal.batch_lock(batch)) then
            return false;
        elsif exists (select from jmsql_internal.open_members(batch, 1)) then
            raise exception using errcode = 'JMS99';
        end if;
        perform jmsql_internal.end_batch(batch);
        return true;
    exception
        when sqlstate 'JMS99' then
            return false;
        -- An index refuses a value of a callback, perhaps: no other batch waits for it, and no message is at fault.
        when program_limit_exceeded or integrity_constraint_violation then
            raise warning 'The batch % cannot end, and is tried again: %', batch, sqlerrm;
            return false;
    end;
end
$$;
comment on function jmsql_internal.end_batch_if_over(bigint, bigint) is
    'Ends a batch if all its messages have ended; returns false where it cannot tell, by so many that were sent last.';

create function jmsql_internal.end_batch_after() returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform set_config('jmsql.batch_to_check', '', true);
    -- A message that has moved is still there, too.
    if jmsql_internal.end_batch_if_over(new.batch_id, 100) then
        delete from jmsql_internal.batch_check c where c.check_id = new.check_id;
    else
        perform jmsql_internal.notify_of_batch('-2147483647');
    end if;
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
    set jit = off
as $$
declare
    each record;
    remaining bigint := 0;
begin
    for each in
        select c.batch_id, array_agg(c.check_id) as checks from jmsql_internal.batch_check c
        group by c.batch_id
        order by random()  -- the first ones may stay undecided for as long as another transaction is open
        limit most
    loop
        if jmsql_internal.end_batch_if_over(each.batch_id, 10000) then
            delete from jmsql_internal.batch_check c where c.check_id = any(each.checks);
        else
            remaining := remaining + 1;
        end if;
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
    set jit = off
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
        -- One that was committed after the end is known by its member, when it moves.
        continue when not each.is_over and exists (select from jmsql_internal.open_members(each.batch_id, 1));
        delete from jmsql_internal.batch_member where ctid = any(array(
            select m.ctid from jmsql_internal.batch_member m
            where m.batch_id = each.batch_id and (each.is_over or m.failure is null)
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
