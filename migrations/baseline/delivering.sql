-- Messages that wait for a retry or for their delivery time, and that an administrator has delivered now.

create function jmsql_internal.deliver_waiting(queue integer, inverse_priorities smallint[], sequences bigint[])
    returns bigint
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    groups bigint[];
    news text[];
    delivered bigint;
    ids uuid[];
begin
    with waiting as materialized (
        select d.address, d.inverse_priority, d.sequence, d.group_hash
        from unnest(inverse_priorities, sequences) as k (inverse_priority, sequence)
        cross join lateral (
            select t.ctid as address, t.inverse_priority, t.sequence, t.group_hash
            from jmsql_internal.delivery t
            where t.queue_id = queue and t.inverse_priority = k.inverse_priority and t.sequence = k.sequence
              and t.claim_id is null and t.next_attempt > clock_timestamp() and isfinite(t.next_attempt)
            offset 0
            for update skip locked) d),
    changed as (
        update jmsql_internal.delivery set next_attempt = null
        where ctid = any(array(select w.address from waiting w)))
    select count(*), array_agg(distinct w.group_hash) filter (where w.group_hash is not null),
           array_agg(m.jms_message_id)
    into delivered, groups, ids
    from waiting w
    left join lateral (
        select n.jms_message_id from jmsql_internal.message n
        where (n.queue_id, n.inverse_priority, n.sequence) = (queue, w.inverse_priority, w.sequence)
        offset 0) m on true;
    perform jmsql_internal.note_activity('deliver', queue, delivered, ids);
    -- A consumer scans from a bound of its own: the first message of each priority has it look there again. A group is
    -- looked at as a whole; consumers find many groups by themselves.
    select array_agg(queue || ' ' || n.inverse_priority || ' ' || n.sequence) into news
    from (select k.inverse_priority, min(k.sequence) as sequence
          from unnest(inverse_priorities, sequences) as k (inverse_priority, sequence)
          where delivered > 0
          group by k.inverse_priority) n;
    if cardinality(groups) <= 20 then
        news := news || array(select queue || ' ' || g from unnest(groups) g);
    elsif cardinality(groups) > 20 then
        news := news || queue::text;
    end if;
    perform jmsql_internal.notify(variadic news);
    return delivered;
end
$$;
comment on function jmsql_internal.deliver_waiting(integer, smallint[], bigint[]) is
    'Ends the wait of messages for their next attempt, notifies consumers, and returns how many there were.';

create function jmsql_internal.deliver_delayed(queue integer, delivery_times bigint[], sequences bigint[]) returns bigint
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    -- Whatever columns there are by now.
    columns constant text := (
        select string_agg(quote_ident(a.attname), ', ' order by a.attnum)
        from pg_attribute a
        where a.attrelid = 'jmsql_internal.message'::regclass and a.attnum > 0 and not a.attisdropped
          and a.attgenerated = '' and a.attname not in ('sequence', 'transaction_id', 'jms_delivery_time'));
    addresses tid[];
    delivered bigint;
    ids uuid[];
begin
    addresses := array(
        select m.address
        from unnest(delivery_times, sequences) as k (delivery_time, sequence)
        cross join lateral (
            select t.ctid as address from jmsql_internal.delayed_message t
            where t.queue_id = queue and t.jms_delivery_time = k.delivery_time and t.sequence = k.sequence
              and (t.jms_expiration > jmsql_internal.current_milliseconds()) is not false
              and nullif(t.transaction_id = any(array(
                  select p.transaction_id from jmsql_internal.pending_transaction p)), true) is not null
            offset 0
            for update skip locked) m);
    if cardinality(addresses) = 0 then
        return 0;
    end if;
    -- What is delivered now has no later delivery time. A message with a key is known by its place.
    execute format(
        'with gone as materialized (delete from jmsql_internal.delayed_message where ctid = any($1) returning *), '
        'moved as ('
        '    insert into jmsql_internal.message (%1$s, jms_delivery_time) '
        '    select %1$s, least(jms_delivery_time, jmsql_internal.current_milliseconds()) from gone '
        '    order by gone.jms_delivery_time, gone.sequence '
        '    returning queue_id, inverse_priority, sequence, jms_message_id), '
        'keyed as materialized ('
        '    select c.ctid as address, c.queue_id, c.jms_message_id from jmsql_internal.coalescing c '
        '    where c.jms_delivery_time is not null and c.jms_message_id = any(array(select g.jms_message_id from gone g)) '
        '    for update skip locked), '
        'noted as ('
        '    update jmsql_internal.coalescing c '
        '    set inverse_priority = m.inverse_priority, sequence = m.sequence, jms_delivery_time = null '
        '    from keyed k join moved m using (queue_id, jms_message_id) '
        '    where c.ctid = k.address) '
        'select count(*), array_agg(m.jms_message_id) from moved m', columns)
        into delivered, ids using addresses;
    perform jmsql_internal.note_activity('deliver', queue, delivered, ids);
    perform jmsql_internal.notify(queue::text);
    return delivered;
end
$$;
comment on function jmsql_internal.deliver_delayed(integer, bigint[], bigint[]) is
    'Moves messages whose delivery time has not come to their queue, behind those that are there, in the order of their '
    'delivery times, notifies consumers, and returns how many there were.';

create function jmsql.deliver(queue text, sequences bigint[] default '{-1}', max_messages bigint default null) returns bigint
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    number integer := jmsql_internal.queue_number(queue);
    firsts bigint[];
    numbers bigint[];
    delivered bigint;
    action constant text := jmsql_internal.begin_action();
begin
    sequences := jmsql_internal.chosen_messages(sequences, max_messages);
    select array_agg(d.inverse_priority), array_agg(d.sequence) into firsts, numbers
    from (select t.inverse_priority, t.sequence from jmsql_internal.delivery t
          where t.queue_id = number and t.claim_id is null and t.next_attempt > clock_timestamp() and isfinite(t.next_attempt)
            and (deliver.sequences is null or t.sequence = any(deliver.sequences))
          order by t.inverse_priority, t.sequence
          limit max_messages) d;
    delivered := jmsql_internal.deliver_waiting(number, firsts::smallint[], numbers);
    select array_agg(m.jms_delivery_time), array_agg(m.sequence) into firsts, numbers
    from (select t.jms_delivery_time, t.sequence from jmsql_internal.delayed_message t
          where t.queue_id = number and (deliver.sequences is null or t.sequence = any(deliver.sequences))
          order by t.jms_delivery_time, t.sequence
          limit max_messages - delivered) m;
    delivered := delivered + jmsql_internal.deliver_delayed(number, firsts, numbers);
    perform set_config('jmsql.action_id', action, true);
    return delivered;
end
$$;
comment on function jmsql.deliver(text, bigint[], bigint) is
    'Delivers messages of a queue now that wait for their next attempt or their delivery time, those of the sequences given '
    'or all, and returns how many: at most so many.';
