-- Messages that an administrator cancels. The claim decides: a message is deleted together with its claim, in one transaction, and a
-- commit or acknowledgement that comes later fails as it does where a claim is lost.

create function jmsql_internal.cancel_at(queue integer, priority smallint, number bigint, keeps_history boolean)
    returns text
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    address tid;
    state jmsql_internal.delivery;
    kept uuid;
    outcome text;
    id uuid;
    attempts integer;
begin
    -- No lock is waited for: an acknowledgement locks the two rows in the other order.
    select m.ctid into address from jmsql_internal.message m
    where m.queue_id = queue and m.inverse_priority = priority and m.sequence = number
    for update skip locked;
    if address is null then
        return 'locked';
    end if;
    select * into state from jmsql_internal.delivery d
    where d.queue_id = queue and d.inverse_priority = priority and d.sequence = number
    for update skip locked;
    if state.sequence is null and exists (
        select from jmsql_internal.delivery d
        where d.queue_id = queue and d.inverse_priority = priority and d.sequence = number) then
        return 'locked';
    end if;
    -- A claim is a delivery, which is counted as it ends.
    attempts := coalesce(state.delivery_count, 0) + (state.claim_id is not null)::integer;
    if keeps_history then
        perform jmsql_internal.keep_history(array[address], array[attempts], 'cancelled', state.connection_id);
    end if;
    insert into jmsql_internal.result as r (
        message_id, queue_id, deliveries, sent_at, finished_at, kept_until, state, error, jms_type, properties, text_body)
    select m.jms_message_id, m.queue_id, attempts,
           jmsql_internal.to_timestamp(m.jms_timestamp), clock_timestamp(),
           clock_timestamp() + k.seconds * interval '1 second', 'cancelled', state.last_error,
           case when k.keeps_message then m.jms_type end, case when k.keeps_message then m.properties end,
           case when k.keeps_message then m.text_body end
    from jmsql_internal.message m
    join jmsql_internal.result_keeping k using (queue_id)
    where m.ctid = address
    on conflict (message_id, queue_id) do update set
        deliveries = excluded.deliveries, sent_at = excluded.sent_at, started_at = excluded.started_at,
        finished_at = excluded.finished_at, kept_until = excluded.kept_until, state = excluded.state,
        value = excluded.value, error = excluded.error, jms_type = excluded.jms_type,
        properties = excluded.properties, text_body = excluded.text_body
    returning r.message_id into kept;
    if kept is not null then
        perform jmsql_internal.notify(jmsql_internal.result_channel(kept)::text);
    end if;
    delete from jmsql_internal.delivery d
    where d.queue_id = queue and d.inverse_priority = priority and d.sequence = number;
    perform jmsql_internal.note_ending('cancelled');
    delete from jmsql_internal.message m where m.ctid = address returning m.jms_message_id into id;
    perform jmsql_internal.note_ending('');
    outcome := case when state.claim_id is null then 'removed' else 'asked' end;
    perform jmsql_internal.note_activity('cancel', queue, 1, array[id], outcome => outcome);
    if state.group_hash is not null then
        perform jmsql_internal.notify(queue || ' ' || state.group_hash);
    end if;
    if outcome = 'asked' then
        perform jmsql_internal.notify('cancelled ' || number);
    end if;
    return outcome;
end
$$;
comment on function jmsql_internal.cancel_at(integer, smallint, bigint, boolean) is
    'Deletes a message with its claim, if there is one, and notifies the holder: removed or asked; locked if a '
    'transaction has locked it, or has just ended it.';

create function jmsql_internal.cancel_copies(message_id text) returns text[]
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    id uuid := substring(lower(message_id) from '^(?:id:)?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$');
    outcomes text[] := '{}';
    columns constant text := (
        select string_agg(quote_ident(a.attname), ', ' order by a.attnum)
        from pg_attribute a
        where a.attrelid = 'jmsql_internal.message'::regclass and a.attnum > 0 and not a.attisdropped
          and a.attgenerated = '');
    address tid;
    found record;
begin
    if message_id is null then
        raise exception 'Expected the identifier of a message, got null.' using errcode = 'JMS03';
    end if;
    -- Before the others, since they move there when they are due.
    for found in
        select m.due, m.queue_id, m.inverse_priority, m.sequence, q.history
        from jmsql_internal.delayed_message m join jmsql_internal.queue q using (queue_id)
        where m.jms_message_id = id
        order by m.due, m.sequence
    loop
        select m.ctid into address from jmsql_internal.delayed_message m
        where m.due = found.due and m.sequence = found.sequence
        for update skip locked;
        if address is null then
            outcomes := outcomes || 'locked'::text;
            continue;
        end if;
        -- In the other table, with whatever columns there are by now.
        execute format(
            'with gone as (delete from jmsql_internal.delayed_message where ctid = $1 returning *) '
            'insert into jmsql_internal.message (%1$s) select %1$s from gone', columns) using address;
        outcomes := outcomes || jmsql_internal.cancel_at(
            found.queue_id, found.inverse_priority, found.sequence, found.history);
    end loop;
    for found in
        select m.queue_id, m.inverse_priority, m.sequence, q.history
        from jmsql_internal.message m join jmsql_internal.queue q using (queue_id)
        where m.jms_message_id = id and not coalesce(m.properties ? 'JMS_jmsql_DeadLetterReason', false)
          and nullif(m.transaction_id = any(array(
              select p.transaction_id from jmsql_internal.pending_transaction p)), true) is not null
        order by m.queue_id
    loop
        outcomes := outcomes || jmsql_internal.cancel_at(
            found.queue_id, found.inverse_priority, found.sequence, found.history);
    end loop;
    return outcomes;
end
$$;
comment on function jmsql_internal.cancel_copies(text) is
    'Cancels a message in each queue and subscription that holds it, and returns the outcome of each: removed, asked or locked.';

create function jmsql.cancel(message_id text) returns text
    language sql volatile
    set search_path = pg_catalog, pg_temp
as $$
select case when 'locked' = any(c.outcomes) then 'locked' when 'asked' = any(c.outcomes) then 'asked'
            when 'removed' = any(c.outcomes) then 'removed' else 'gone' end
from jmsql_internal.cancel_copies(message_id) as c (outcomes)
$$;
comment on function jmsql.cancel(text) is
    'Cancels a message, given its identifier, in each queue and subscription that holds it: removed; asked if a client has '
    'received it, which is told; locked if a transaction has locked it in one of them, where it stays; gone if it is not '
    'there, or a dead letter.';
