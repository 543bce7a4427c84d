-- Messages counted, moved, purged and sent a second time.
create function jmsql_internal.queue_number(queue text) returns integer
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    named record := jmsql_internal.parse_destination(queue);
    found_id integer;
begin
    if named.kind in ('topic', 'temp-topic') then
        raise exception 'Expected a queue, got "%".', queue using errcode = 'JMS01';
    end if;
    select q.queue_id into found_id from jmsql_internal.queue q where q.name = named.name;
    if found_id is null then
        raise exception 'There is no queue "%".', named.name using errcode = 'JMS01',
            hint = 'Make it with create_queue; the view destinations lists those there are.';
    end if;
    return found_id;
end
$$;
comment on function jmsql_internal.queue_number(text) is 'The number of a queue, which has to be there.';

create function jmsql_internal.chosen_messages(sequences bigint[], max_messages bigint) returns bigint[]
    language plpgsql immutable
    set search_path = pg_catalog, pg_temp
as $$
begin
    -- What array_agg makes of nothing would choose all.
    if sequences is null then
        raise exception 'Expected sequences of messages, got null.' using errcode = 'JMS03',
            hint = 'Choose with array(select sequence …), which is empty where nothing matches; for all messages, leave it out.';
    end if;
    if max_messages < 0 then
        raise exception 'Expected a number of messages from 0 on, got %.', max_messages using errcode = 'JMS03',
            hint = 'Leave it out for all.';
    end if;
    return nullif(sequences, '{-1}');
end
$$;
comment on function jmsql_internal.chosen_messages(bigint[], bigint) is
    'The sequences that move and purge are given, null for all. A null that is given is refused, and so is a negative max_messages.';

create function jmsql_internal.lock_free_messages(queue integer, sequences bigint[], newest bigint, max_messages bigint)
    returns table (address tid, deliveries integer)
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
begin
    return query
        with candidate as materialized (
            select m.ctid as address, m.inverse_priority, m.sequence
            from jmsql_internal.message m
            left join lateral (
                select t.claim_id from jmsql_internal.delivery t
                where (t.queue_id, t.inverse_priority, t.sequence) = (m.queue_id, m.inverse_priority, m.sequence)
                offset 0) d on true
            where m.queue_id = lock_free_messages.queue and m.sequence <= newest and d.claim_id is null
              and (sequences is null or m.sequence = any(sequences))
              and nullif(m.transaction_id = any(array(
                  select p.transaction_id from jmsql_internal.pending_transaction p)), true) is not null
            order by m.queue_id, m.inverse_priority, m.sequence
            limit max_messages
            for update of m skip locked),
        -- Read under the rows' locks: a claim cannot come in between.
        state as materialized (
            select s.* from jmsql_internal.delivery_state(lock_free_messages.queue,
                (select array_agg(c.inverse_priority) from candidate c),
                (select array_agg(c.sequence) from candidate c)) s)
        select c.address, coalesce(s.delivery_count, 0)
        from candidate c left join state s using (inverse_priority, sequence)
        where s.claim_id is null
        order by c.inverse_priority, c.sequence;
end
$$;
comment on function jmsql_internal.lock_free_messages(integer, bigint[], bigint, bigint) is
    'Locks messages of a queue in their order, but for those that a session holds: those of the sequences given, null '
    'for all, up to the newest that counts, and at most so many.';

create function jmsql_internal.forget_deliveries(addresses tid[]) returns void
    language sql volatile
begin atomic
    delete from jmsql_internal.delivery where ctid = any(array(
        select d.address
        from jmsql_internal.message m
        cross join lateral (
            select t.ctid as address from jmsql_internal.delivery t
            where (t.queue_id, t.inverse_priority, t.sequence) = (m.queue_id, m.inverse_priority, m.sequence)
            offset 0) d
        where m.ctid = any(addresses)));
end;
comment on function jmsql_internal.forget_deliveries(tid[]) is
    'Forgets how often messages were delivered, whose rows this transaction has locked.';

create function jmsql_internal.move_step(
    source integer, target integer, sequences bigint[], newest bigint, max_messages bigint, delayed boolean) returns bigint
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
    ids uuid[];
begin
    if source = target then
        raise exception 'The messages are in that queue already.' using errcode = 'JMS03';
    end if;
    if delayed then
        addresses := array(
            select m.ctid from jmsql_internal.delayed_message m
            where m.queue_id = source and m.sequence <= newest and (sequences is null or m.sequence = any(sequences))
            order by m.queue_id, m.jms_delivery_time, m.sequence
            limit max_messages
            for update skip locked);
    else
        addresses := array(select m.address from jmsql_internal.lock_free_messages(source, sequences, newest, max_messages) m);
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
        'with gone as materialized (delete from %1$s where ctid = any($1) returning *), '
        'moved as (insert into %1$s (queue_id, %2$s) select $2, %2$s from gone order by inverse_priority, sequence) '
        'select count(*), array_agg(g.jms_message_id) from gone g',
        kind, columns) into moved, ids using addresses, target;
    perform jmsql_internal.note_activity('move', source, moved, ids, target => target);
    -- A dead letter that is moved is about to be handled again.
    delete from jmsql_internal.result where message_id = any(identifiers);
    perform jmsql_internal.notify(target::text);
    return moved;
end
$$;
comment on function jmsql_internal.move_step(integer, integer, bigint[], bigint, bigint, boolean) is
    'Moves messages between queues, given by number: those of lock_free_messages, or delayed ones.';

create function jmsql.move(source text, target text, sequences bigint[] default '{-1}', max_messages bigint default null)
    returns bigint
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    source_id integer := jmsql_internal.queue_number(source);
    target_id integer := jmsql_internal.queue_number(target);
    moved bigint;
    action constant text := jmsql_internal.begin_action();
begin
    sequences := jmsql_internal.chosen_messages(sequences, max_messages);
    moved := jmsql_internal.move_step(source_id, target_id, sequences, 9223372036854775807, max_messages, false);
    moved := moved + jmsql_internal.move_step(source_id, target_id, sequences, 9223372036854775807, max_messages - moved, true);
    perform set_config('jmsql.action_id', action, true);
    return moved;
end
$$;
comment on function jmsql.move(text, text, bigint[], bigint) is
    'Moves messages from one queue to another, those of the sequences given or all, but for those that a session '
    'holds, and returns how many: at most so many.';

create function jmsql.purge(queue text, sequences bigint[] default '{-1}', max_messages bigint default null) returns bigint
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    number integer := jmsql_internal.queue_number(queue);
    addresses tid[];
    deliveries integer[];
    deleted bigint;
    deleted_delayed bigint;
    ids uuid[];
    delayed_ids uuid[];
begin
    sequences := jmsql_internal.chosen_messages(sequences, max_messages);
    select coalesce(array_agg(m.address), '{}'), coalesce(array_agg(m.deliveries), '{}')
    into addresses, deliveries
    from jmsql_internal.lock_free_messages(number, sequences, 9223372036854775807, max_messages) m;
    if (select q.history from jmsql_internal.queue q where q.queue_id = number) then
        perform jmsql_internal.keep_history(addresses, deliveries, 'purged', null);
    end if;
    perform jmsql_internal.forget_deliveries(addresses);
    perform jmsql_internal.note_ending('cancelled');
    with gone as (delete from jmsql_internal.message where ctid = any(addresses) returning jms_message_id)
    select count(*), array_agg(g.jms_message_id) into deleted, ids from gone g;
    with gone as (delete from jmsql_internal.delayed_message where ctid = any(array(
        select m.ctid from jmsql_internal.delayed_message m
        where m.queue_id = number and (sequences is null or m.sequence = any(sequences))
        limit max_messages - deleted
        for update skip locked)) returning jms_message_id)
    select count(*), array_agg(g.jms_message_id) into deleted_delayed, delayed_ids
    from gone g;
    perform jmsql_internal.note_ending('');
    perform jmsql_internal.note_activity('purge', number, deleted + deleted_delayed, ids || delayed_ids);
    return deleted + deleted_delayed;
end
$$;
comment on function jmsql.purge(text, bigint[], bigint) is
    'Deletes messages of a queue, those of the sequences given or all, but for those that a session holds, and returns '
    'how many: at most so many.';

create function jmsql_internal.replay_messages(
    source text, transactions xid8[], numbers bigint[], since timestamptz, until timestamptz, target integer,
    keep_ids boolean) returns bigint
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    replayed bigint;
begin
    insert into jmsql_internal.message (
        queue_id, inverse_priority, jms_message_id, jms_timestamp, jms_delivery_mode, message_type, jms_correlation_id,
        jms_reply_to, jms_type, properties, property_types, text_body, json_body, body_types, bytes_body)
    select target, h.inverse_priority, case when keep_ids then h.jms_message_id else gen_random_uuid() end,
           case when keep_ids then h.jms_timestamp else jmsql_internal.current_milliseconds() end, h.jms_delivery_mode,
           h.message_type, h.jms_correlation_id, h.jms_reply_to, h.jms_type,
           coalesce(h.properties, '{}') - 'JMS_jmsql_Batch' || jsonb_strip_nulls(jsonb_build_object(
               'JMS_jmsql_ReplayedFrom', case when h.is_topic then 'topic://' else 'queue://' end || h.destination,
               'JMS_jmsql_ReplayedMessageID', 'ID:' || h.jms_message_id)),
           nullif(h.property_types - 'JMS_jmsql_Batch', '{}'), coalesce(h.text_body, b.text_body), coalesce(h.json_body, b.json_body),
           coalesce(h.body_types, b.body_types), coalesce(h.bytes_body, b.bytes_body)
    from unnest(transactions, numbers) with ordinality as k (transaction_id, sequence, position)
    cross join lateral (
        select * from jmsql_internal.message_history m
        where m.destination = source and m.transaction_id = k.transaction_id and m.sequence = k.sequence
          and m.acknowledged_at >= since and m.acknowledged_at < until
        offset 0) h
    left join jmsql_internal.body b using (body_id)
    order by k.position;
    get diagnostics replayed = row_count;
    return replayed;
end
$$;
comment on function jmsql_internal.replay_messages(
    text, xid8[], bigint[], timestamptz, timestamptz, integer, boolean) is
    'Sends messages of a destination''s history, given by transaction and sequence, to a queue, in the order given.';

create function jmsql.replay(
    source text, target text, since timestamptz, until timestamptz default 'infinity',
    outcomes text[] default '{acknowledged}', keep_ids boolean default false) returns bigint
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    named record := jmsql_internal.parse_destination(source);
    target_id integer := jmsql_internal.queue_number(target);
    transactions xid8[];
    numbers bigint[];
    replayed bigint;
begin
    if since is null or until is null or keep_ids is null then
        raise exception 'Expected a range of time, and true or false for keep_ids, got null.' using errcode = 'JMS03',
            hint = 'A range from -infinity to infinity is all of the history.';
    end if;
    if (outcomes <@ enum_range(null::jmsql_internal.outcome)::text[]) is not true then
        raise exception 'Expected outcomes of %, got %.', enum_range(null::jmsql_internal.outcome),
            coalesce(array_to_string(outcomes, ', ', 'null'), 'null') using errcode = 'JMS03';
    end if;
    select array_agg(k.transaction_id order by k.sequence), array_agg(k.sequence order by k.sequence)
    into transactions, numbers
    from (
        select distinct on (coalesce(m.jms_message_id::text, m.sequence::text)) m.transaction_id, m.sequence
        from jmsql_internal.message_history m
        where m.destination = named.name and m.is_topic = (named.kind in ('topic', 'temp-topic'))
          and m.acknowledged_at >= since and m.acknowledged_at < until
          and m.outcome = any(outcomes::jmsql_internal.outcome[])
        order by coalesce(m.jms_message_id::text, m.sequence::text), m.sequence) k;
    replayed := jmsql_internal.replay_messages(named.name, transactions, numbers, since, until, target_id, keep_ids);
    perform jmsql_internal.note_activity(
        'replay', null, replayed, target => target_id, destination => named.kind || '://' || named.name);
    perform jmsql_internal.notify(target_id::text);
    return replayed;
end
$$;
comment on function jmsql.replay(text, text, timestamptz, timestamptz, text[], boolean) is
    'Sends what left a queue or topic in a range of time to a queue again, each message once, in the order in which '
    'they were sent, and returns how many there were.';

-- Its cost does not depend on how much waits.
create function jmsql.depth(destination text, count_limit bigint default 1000) returns bigint
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    -- The planner, which knows nothing of how many messages a queue has, would else read all of them, and sort them.
    set enable_sort = off
    set enable_bitmapscan = off
    set enable_seqscan = off
    set jit = off
as $$
declare
    number integer := jmsql_internal.queue_number(destination);
begin
    if (count_limit >= 0) is not true then
        raise exception 'Expected a number of messages from 0 on, got %.', coalesce(count_limit::text, 'null')
            using errcode = 'JMS03';
    end if;
    perform jmsql_internal.require_access(number, 'browse');
    return (
        select count(*)
        from (select m.transaction_id from jmsql_internal.message m where m.queue_id = number
              order by m.queue_id, m.inverse_priority, m.sequence limit count_limit) m
        where nullif(m.transaction_id = any(array(
            select p.transaction_id from jmsql_internal.pending_transaction p)), true) is not null);
end
$$;
comment on function jmsql.depth(text, bigint) is
    'How many messages a queue has, whatever their state, without those that are delayed: counted up to a number, which '
    'stands for so many or more.';
