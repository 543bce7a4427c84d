-- Sends that may send nothing: a second one of a deduplication id, and one of a key of which a message waits already.

create table jmsql_internal.deduplication (
    destination_id   integer not null,
    deduplication_id text collate "C" not null check (length(deduplication_id) between 1 and 512),
    sent_at          timestamptz not null,
    jms_message_id   uuid,
    primary key (destination_id, deduplication_id)
) with (vacuum_truncate = off);
comment on table jmsql_internal.deduplication is
    'The deduplication ids of messages that were sent to a queue, or a topic (minus its number). Maintenance forgets them.';
comment on column jmsql_internal.deduplication.jms_message_id is 'The first message''s; null if it has none.';
create index deduplication_age on jmsql_internal.deduplication (destination_id, sent_at);

create table jmsql_internal.coalescing (
    queue_id          integer not null,
    coalesce_key      text collate "C" not null check (length(coalesce_key) between 1 and 512),
    inverse_priority  smallint,
    sequence          bigint,
    jms_delivery_time bigint,
    jms_message_id    uuid,
    transaction_id    xid8 not null default pg_current_xact_id(),
    primary key (queue_id, coalesce_key)
) with (vacuum_truncate = off);
comment on table jmsql_internal.coalescing is
    'The last message of each key. It waits only if it is still there and no consumer has it. Maintenance forgets the others.';
comment on column jmsql_internal.coalescing.jms_delivery_time is 'Where it is: a time in delayed_message, null in message.';
comment on column jmsql_internal.coalescing.jms_message_id is
    'Null between the two steps of a send. The place is then that of the message that it replaces, or null.';
comment on column jmsql_internal.coalescing.transaction_id is 'The transaction that has sent it.';
create index coalescing_delayed on jmsql_internal.coalescing (jms_message_id) where jms_delivery_time is not null;

-- A role may neither read these tables nor lock messages. So a client asks by a row of a view, which has a trigger answer with
-- the owner's rights, before it inserts the messages as any others. One row is for all messages of a batch.
create view jmsql_internal.admission with (security_invoker = true) as
select null::text as topic, null::text[] as queues, null::uuid[] as message_ids, null::text[] as deduplication_ids,
       null::text[] as coalesce_keys, null::boolean[] as replacing, null::boolean[] as expiring,
       null::bigint[] as delivery_times, null::smallint[] as inverse_priorities, null::bigint as first_sequence,
       null::smallint[] as outcomes, null::text[] as known_ids, null::integer[] as queue_ids,
       null::smallint[] as known_priorities, null::bigint[] as known_sequences, null::name as role
where false;
alter view jmsql_internal.admission alter column role set default current_user;
comment on view jmsql_internal.admission is
    'Nothing is in it: to insert a row is to ask which messages of a batch are to be sent, and, with the answer''s first '
    'sequence, to say that those with a key were.';
comment on column jmsql_internal.admission.topic is 'Where they go, if that is a topic.';
comment on column jmsql_internal.admission.replacing is 'Whether a message that waits is replaced.';
comment on column jmsql_internal.admission.expiring is 'Whether the message can expire.';
comment on column jmsql_internal.admission.first_sequence is
    'The answer: the messages get this sequence or a later one. Null: a queue is missing, and nothing was noted.';
comment on column jmsql_internal.admission.outcomes is
    'The answer: 0, the message is to be sent; 1, its id was sent before; 2, a message of its key waits.';
comment on column jmsql_internal.admission.known_ids is
    'The answer: the message that was sent before, or waits; null for one that comes before in the same batch.';
comment on column jmsql_internal.admission.role is 'The role that sends. No role may name another.';

create function jmsql_internal.wait_for_id(
    destination integer, id text, message_id uuid, lifetime double precision, out is_known boolean, out known_id uuid)
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set jit = off
as $$
declare
    known record;
begin
    loop
        select d.sent_at, d.jms_message_id into known from jmsql_internal.deduplication d
        where d.destination_id = destination and d.deduplication_id = id;
        if not found then
            -- Waits for the end of another transaction that has the id, and leaves no lock on its row.
            insert into jmsql_internal.deduplication (destination_id, deduplication_id, sent_at, jms_message_id)
            values (destination, id, clock_timestamp(), message_id)
            on conflict do nothing;
            is_known := false;
            exit when found;
        elsif abs(extract(epoch from clock_timestamp() - known.sent_at)) < lifetime then  -- a clock may be set back
            is_known := true;
            known_id := known.jms_message_id;
            exit;
        else
            update jmsql_internal.deduplication d set sent_at = clock_timestamp(), jms_message_id = message_id
            where d.destination_id = destination and d.deduplication_id = id and d.sent_at = known.sent_at;
            is_known := false;
            exit when found;
        end if;
    end loop;
end
$$;
comment on function jmsql_internal.wait_for_id(integer, text, uuid, double precision) is
    'Notes a deduplication id, or finds the message that was sent with it.';

create function jmsql_internal.is_free(queue integer, priority smallint, number bigint) returns boolean
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set jit = off
as $$
begin
    return not exists (
        select from jmsql_internal.delivery d
        where d.queue_id = queue and d.inverse_priority = priority and d.sequence = number
          and (d.claim_id is not null or d.dead_letter_queue_id is not null));
end
$$;
comment on function jmsql_internal.is_free(integer, smallint, bigint) is
    'Whether no client has claimed a message, nor is it on its way to a dead-letter queue.';

create function jmsql_internal.lock_waiting(
    known jmsql_internal.coalescing, is_replacing boolean, can_expire boolean, delivery_time bigint) returns tid
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set jit = off
as $$
declare
    address tid;
begin
    -- A consumer has locked what it has received, and so has a client that moves or deletes a message: all pass over
    -- rows that others have locked, and so does this. Until the sender's transaction ends, its lock makes consumers do so.
    if known.jms_message_id is null then
        return null;
    elsif known.jms_delivery_time is not null then
        if is_replacing then
            select d.ctid into address from jmsql_internal.delayed_message d
            where d.queue_id = known.queue_id and d.jms_delivery_time = known.jms_delivery_time
              and d.sequence = known.sequence and d.jms_delivery_time <= delivery_time
            for update skip locked;
        else
            select d.ctid into address from jmsql_internal.delayed_message d
            where d.queue_id = known.queue_id and d.jms_delivery_time = known.jms_delivery_time
              and d.sequence = known.sequence and d.jms_delivery_time <= delivery_time
              and (d.jms_expiration is null or can_expire)
            for key share skip locked;
        end if;
        return address;
    elsif is_replacing then
        select m.ctid into address from jmsql_internal.message m
        where m.queue_id = known.queue_id and m.inverse_priority = known.inverse_priority and m.sequence = known.sequence
          and (m.jms_expiration is null or m.jms_expiration > jmsql_internal.current_milliseconds())
          and delivery_time is null
          and jmsql_internal.is_free(m.queue_id, m.inverse_priority, m.sequence)
        for update skip locked;
    else
        select m.ctid into address from jmsql_internal.message m
        where m.queue_id = known.queue_id and m.inverse_priority = known.inverse_priority and m.sequence = known.sequence
          and (m.jms_expiration is null or can_expire and m.jms_expiration > jmsql_internal.current_milliseconds())
          and jmsql_internal.is_free(m.queue_id, m.inverse_priority, m.sequence)
        for key share skip locked;
    end if;
    -- Once more under the lock, in a later snapshot: a claim may have come in between.
    return case when address is not null
                     and jmsql_internal.is_free(known.queue_id, known.inverse_priority, known.sequence) then address end;
end
$$;
comment on function jmsql_internal.lock_waiting(jmsql_internal.coalescing, boolean, boolean, bigint) is
    'Locks the last message of a key against consumers, if it waits and may stand for another one, and returns its address.';

create function jmsql_internal.wait_for_key(
    queue integer, key text, is_replacing boolean, can_expire boolean, delivery_time bigint,
    out is_waiting boolean, out known_id uuid, out known_priority smallint, out known_sequence bigint)
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set jit = off
as $$
declare
    known jmsql_internal.coalescing;
    address tid;
    holds_key boolean := false;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'A message with a key to coalesce cannot be sent in a transaction that is %, which does not see '
            'what others receive.', current_setting('transaction_isolation')
            using errcode = 'JMS02', hint = 'Send it in a transaction that is READ COMMITTED.';
    end if;
    loop
        select c.* into known from jmsql_internal.coalescing c where c.queue_id = queue and c.coalesce_key = key;
        if known.jms_message_id is null and known.transaction_id = pg_current_xact_id() then
            is_waiting := true;  -- in the same batch
            return;
        end if;
        -- A message is replaced only with the key held: else its lock would keep others from it that hold the key.
        if not is_replacing then
            address := jmsql_internal.lock_waiting(known, is_replacing, can_expire, delivery_time);
        end if;
        exit when address is not null;
        -- Both wait for others who send with the same key, and leave no lock behind if they have sent.
        delete from jmsql_internal.coalescing c
        where c.queue_id = queue and c.coalesce_key = key and c.sequence is not distinct from known.sequence
          and c.jms_message_id is not distinct from known.jms_message_id;
        insert into jmsql_internal.coalescing (queue_id, coalesce_key) values (queue, key) on conflict do nothing;
        holds_key := found;
        if holds_key then
            -- Those that were waited for may have rolled back.
            address := jmsql_internal.lock_waiting(known, is_replacing, can_expire, delivery_time);
            exit;
        end if;
    end loop;
    is_waiting := address is not null and not is_replacing;
    if address is not null then
        known_id := known.jms_message_id;
        known_priority := known.inverse_priority;
        known_sequence := known.sequence;
    end if;
    if address is not null and holds_key then
        update jmsql_internal.coalescing c
        set inverse_priority = known.inverse_priority, sequence = known.sequence,
            jms_delivery_time = known.jms_delivery_time,
            jms_message_id = case when is_waiting then known.jms_message_id end
        where c.queue_id = queue and c.coalesce_key = key;
    end if;
    if address is not null and is_replacing then
        perform jmsql_internal.note_ending('cancelled');
        if known.jms_delivery_time is null then
            delete from jmsql_internal.message m where m.ctid = address;
            -- Else the message that takes its place would have its deliveries, and its failures.
            delete from jmsql_internal.delivery d
            where d.queue_id = queue and d.inverse_priority = known.inverse_priority and d.sequence = known.sequence;
            delete from jmsql_internal.delivery_outcome d
            where d.queue_id = queue and d.inverse_priority = known.inverse_priority and d.sequence = known.sequence;
        else
            delete from jmsql_internal.delayed_message d where d.ctid = address;
        end if;
        perform jmsql_internal.note_ending('');
    end if;
end
$$;
comment on function jmsql_internal.wait_for_key(integer, text, boolean, boolean, bigint) is
    'Finds the message of a key that waits, and locks it against consumers until the transaction ends, or deletes it if it '
    'is replaced; else notes that one is sent.';

create function jmsql_internal.note_sent(sent jmsql_internal.admission) returns void
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set jit = off
as $$
declare
    each record;
    known jmsql_internal.coalescing;
    own_sequence bigint;
begin
    for each in
        select q.queue_id, s.*
        from unnest(sent.queues, sent.message_ids, sent.coalesce_keys, sent.delivery_times, sent.inverse_priorities)
             as s (queue, message_id, key, delivery_time, inverse_priority)
        join jmsql_internal.queue q on q.name = s.queue
    loop
        select c.* into known from jmsql_internal.coalescing c
        where c.queue_id = each.queue_id and c.coalesce_key = each.key and c.jms_message_id is null;
        continue when not found;
        if each.delivery_time is null then
            select m.sequence into own_sequence from jmsql_internal.message m
            where m.queue_id = each.queue_id and m.inverse_priority = each.inverse_priority
              and m.sequence >= sent.first_sequence and m.jms_message_id = each.message_id
              and m.transaction_id = pg_current_xact_id()  -- no other one's
            order by m.queue_id, m.inverse_priority, m.sequence
            limit 1;
        else
            select d.sequence into own_sequence from jmsql_internal.delayed_message d
            where d.queue_id = each.queue_id and d.jms_delivery_time = each.delivery_time
              and d.sequence >= sent.first_sequence and d.jms_message_id = each.message_id
              and d.transaction_id = pg_current_xact_id()
            order by d.queue_id, d.jms_delivery_time, d.sequence
            limit 1;
        end if;
        continue when own_sequence is null;
        if known.sequence is null then
            update jmsql_internal.coalescing c
            set inverse_priority = each.inverse_priority, sequence = own_sequence, jms_delivery_time = each.delivery_time,
                jms_message_id = each.message_id
            where c.queue_id = each.queue_id and c.coalesce_key = each.key;
            continue;
        end if;
        -- It takes the place of the message that it replaces. No other transaction has seen the row.
        if known.jms_delivery_time is null then
            update jmsql_internal.message m set sequence = known.sequence, inverse_priority = known.inverse_priority
            where m.queue_id = each.queue_id and m.inverse_priority = each.inverse_priority and m.sequence = own_sequence;
        else
            update jmsql_internal.delayed_message d
            set sequence = known.sequence, jms_delivery_time = known.jms_delivery_time
            where d.queue_id = each.queue_id and d.jms_delivery_time = each.delivery_time and d.sequence = own_sequence;
        end if;
        update jmsql_internal.coalescing c set jms_message_id = each.message_id
        where c.queue_id = each.queue_id and c.coalesce_key = each.key;
    end loop;
end
$$;
comment on function jmsql_internal.note_sent(jmsql_internal.admission) is
    'Notes where the messages are that the transaction has sent with a key.';

create function jmsql_internal.keep_known_ids(asked jmsql_internal.admission, numbers integer[]) returns text[]
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set jit = off
as $$
declare
    answers text[];
begin
    with message as (
        select * from unnest(asked.message_ids, asked.deduplication_ids, asked.coalesce_keys, asked.replacing,
                             asked.outcomes, asked.known_ids, numbers)
             with ordinality as s (own_id, id, key, is_replacing, outcome, known_id, number, position)
    ), sent as (  -- of a batch: the last that replaces others, or else the first
        select s.number, s.key,
               (array_agg(s.own_id order by s.is_sent desc, case when s.is_sent then -s.position else s.position end))[1] as own_id
        from (select m.*, m.outcome = 0 or m.is_replacing as is_sent from message m
              where m.key is not null and (m.outcome = 0 or m.outcome = 2 and m.known_id is null)) s
        group by s.number, s.key
    ), unsent as (
        select m.number, m.id, m.own_id, coalesce(m.known_id::uuid, s.own_id) as known_id
        from message m left join sent s on s.number = m.number and s.key = m.key
        where m.id is not null and m.key is not null and m.outcome <> 1
          and coalesce(m.known_id::uuid, s.own_id) <> m.own_id
    ), noted as (
        update jmsql_internal.deduplication d set jms_message_id = u.known_id
        from unsent u
        where d.destination_id = u.number and d.deduplication_id = u.id and d.jms_message_id = u.own_id
    )
    select array_agg(coalesce(u.known_id::text, m.known_id) order by m.position) into answers
    from message m left join unsent u on m.outcome = 1 and u.number = m.number and u.id = m.id and u.own_id::text = m.known_id;
    return answers;
end
$$;
comment on function jmsql_internal.keep_known_ids(jmsql_internal.admission, integer[]) is
    'Notes for the ids of messages that are not sent, since another of their key waits, the identifier of that one, and '
    'returns the identifiers that are known.';

create function jmsql_internal.admit() returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set jit = off
as $$
declare
    permitted integer[];
    has_all boolean;
    numbers integer[];
    windows double precision[];
    each record;
    answer record;
begin
    if new.first_sequence is not null then
        perform jmsql_internal.note_sent(new);
        return new;
    end if;
    if new.topic is not null then
        select array_fill(-t.topic_id, array[cardinality(new.deduplication_ids)]),
               array_fill(s.deduplication_window, array[cardinality(new.deduplication_ids)]),
               array_fill(s.queue_id, array[cardinality(new.deduplication_ids)])
        into numbers, windows, new.queue_ids
        from jmsql_internal.topic t left join jmsql_internal.queue s using (topic_id)
        where t.name = new.topic;
        if not found then  -- and so no subscription
            numbers := array_fill(null::integer, array[cardinality(new.deduplication_ids)]);
            new.queue_ids := numbers;
        end if;
    else
        select array_agg(q.queue_id order by s.position), array_agg(q.deduplication_window order by s.position)
        into numbers, windows
        from unnest(new.queues) with ordinality as s (queue, position)
        left join jmsql_internal.queue q on q.name = s.queue;
        new.queue_ids := numbers;
        if array_position(numbers, null) is not null then
            return new;
        end if;
    end if;
    new.first_sequence := (select s.last_value from jmsql_internal.message_sequence s);
    new.outcomes := array_fill(0, array[cardinality(new.deduplication_ids)]);
    new.known_ids := array_fill(null::text, array[cardinality(new.deduplication_ids)]);
    new.known_priorities := array_fill(null::smallint, array[cardinality(new.deduplication_ids)]);
    new.known_sequences := array_fill(null::bigint, array[cardinality(new.deduplication_ids)]);
    -- For what the role may not send to, nothing is noted here: the statement that inserts the message says so.
    has_all := jmsql_internal.has_access_to_all('send', new.role)
        or (select not c.relrowsecurity or pg_has_role(new.role, c.relowner, 'usage')
                   or (select r.rolbypassrls from pg_roles r where r.rolname = new.role)
            from pg_class c where c.oid = 'jmsql_internal.message'::regclass);
    if not has_all then
        permitted := jmsql_internal.accessible_queues('send', new.role);
        has_all := new.topic is not null
            and exists (select from jmsql_internal.topic t where t.name = new.topic and t.connection_id is not null);
    end if;
    -- In one order for all batches, ids before keys, so that two of them do not wait for each other. Transactions of several may.
    for each in
        select s.*, numbers[s.position] as number
        from unnest(new.deduplication_ids) with ordinality as s (id, position)
        where s.id is not null and (has_all or new.queue_ids[s.position] = any(permitted))
          and numbers[s.position] is not null and windows[s.position] is distinct from 0
        order by number, s.id collate "C", s.position
    loop
        answer := jmsql_internal.wait_for_id(
            each.number, each.id, new.message_ids[each.position], coalesce(windows[each.position], 86400));
        if answer.is_known then
            new.outcomes[each.position] := 1;
            new.known_ids[each.position] := answer.known_id::text;
        end if;
    end loop;
    for each in
        select s.*, numbers[s.position] as number
        from unnest(new.coalesce_keys) with ordinality as s (key, position)
        where s.key is not null and new.topic is null and new.outcomes[s.position] = 0
          and (has_all or numbers[s.position] = any(permitted))
        order by number, s.key collate "C", s.position
    loop
        answer := jmsql_internal.wait_for_key(
            each.number, each.key, new.replacing[each.position], new.expiring[each.position],
            new.delivery_times[each.position]);
        if answer.is_waiting then
            new.outcomes[each.position] := 2;
            new.known_ids[each.position] := answer.known_id::text;
        end if;
        new.known_priorities[each.position] := answer.known_priority;
        new.known_sequences[each.position] := answer.known_sequence;
    end loop;
    if exists (select from unnest(new.deduplication_ids, new.coalesce_keys) as s (id, key)
               where s.id is not null and s.key is not null) then
        new.known_ids := jmsql_internal.keep_known_ids(new, numbers);
    end if;
    return new;
end
$$;
comment on function jmsql_internal.admit() is 'Tells which messages of a batch are to be sent.';
create trigger messages_are_admitted instead of insert on jmsql_internal.admission
    for each row execute function jmsql_internal.admit();

create function jmsql_internal.forget_keys() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    if tg_argv[0] = 'queue' then
        delete from jmsql_internal.coalescing c using removed q where c.queue_id = q.queue_id;
        delete from jmsql_internal.deduplication d using removed q where d.destination_id = q.queue_id;
    else
        delete from jmsql_internal.deduplication d using removed t where d.destination_id = -t.topic_id;
    end if;
    return null;
end
$$;
comment on function jmsql_internal.forget_keys() is 'Forgets the ids and keys of queues and topics that are removed.';
create trigger keys_go_with_their_queue after delete on jmsql_internal.queue
    referencing old table as removed for each statement execute function jmsql_internal.forget_keys('queue');
create trigger keys_go_with_their_topic after delete on jmsql_internal.topic
    referencing old table as removed for each statement execute function jmsql_internal.forget_keys('topic');
