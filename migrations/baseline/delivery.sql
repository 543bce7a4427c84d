-- The state of delivery, for the few messages that have one, and the removal of messages that were received.

create table jmsql_internal.delivery (
    sequence             bigint not null,
    claim_id             bigint,
    connection_id        bigint,
    claimed_at           timestamptz,
    next_attempt         timestamptz,
    queue_id             integer not null,
    delivery_count       integer not null default 0,
    inverse_priority     smallint not null,
    last_error           text,
    claim_expires_at     timestamptz,
    first_failed_at      timestamptz,
    dead_letter_queue_id integer,
    group_hash           bigint,
    error_count          integer not null default 0,
    primary key (queue_id, inverse_priority, sequence)
) with (
    fillfactor = 70,
    vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);
comment on table jmsql_internal.delivery is
    'The state of messages that are claimed by a session, were delivered before, or wait for their next attempt.';
comment on column jmsql_internal.delivery.claim_id is
    'The fence: only the claim that holds the message can acknowledge it.';
comment on column jmsql_internal.delivery.delivery_count is 'How often the message was delivered and not acknowledged.';
comment on column jmsql_internal.delivery.claim_expires_at is 'When the claim is taken away if nobody extends it.';
comment on column jmsql_internal.delivery.first_failed_at is
    'When a delivery of the message failed for the first time.';
comment on column jmsql_internal.delivery.dead_letter_queue_id is
    'Where the message is about to move, which waits forever meanwhile; 0: to the queue DLQ.';
comment on column jmsql_internal.delivery.group_hash is 'The group of the message; null: it is in none.';
comment on column jmsql_internal.delivery.error_count is
    'How many of its deliveries have failed with errors: the others were rolled back for no reason given, or cut off.';
-- Only messages that are about to move are in this index.
create index delivery_exhausted on jmsql_internal.delivery (queue_id) where dead_letter_queue_id is not null;

create sequence jmsql_internal.claim_sequence owned by jmsql_internal.delivery.claim_id;

-- Row locks do not read again what other tables say. A consumer asks here, once it holds the rows' locks, for the
-- state of their delivery as it is by then: being volatile, the function has a snapshot of its own.
--
-- Most messages that are received have no state. One look at the range that they are in says so, at a fraction of the time that
-- a look for each takes.
create function jmsql_internal.delivery_state(queue integer, inverse_priorities smallint[], sequences bigint[])
    returns setof jmsql_internal.delivery
    language plpgsql volatile strict rows 1
as $$
begin
    return query
        select d.*
        from unnest(inverse_priorities, sequences) as k (inverse_priority, sequence)
        cross join lateral (
            select s.* from jmsql_internal.delivery s
            where s.queue_id = queue and s.inverse_priority = k.inverse_priority and s.sequence = k.sequence
            offset 0) d
        where (select exists (
            select
            from (
                select min(a.inverse_priority) as first_priority, max(a.inverse_priority) as last_priority,
                       min(a.sequence) as first_sequence, max(a.sequence) as last_sequence
                from unnest(inverse_priorities, sequences) as a (inverse_priority, sequence)) as range
            cross join lateral (
                select from jmsql_internal.delivery s
                where s.queue_id = queue
                  and s.inverse_priority between range.first_priority and range.last_priority
                  and s.sequence between range.first_sequence and range.last_sequence
                offset 0) d));
end
$$;

-- The same for a single message, at a fraction of the time: how often it was delivered; null if it is claimed or waits.
create function jmsql_internal.deliveries_if_free(queue integer, priority smallint, message bigint) returns integer
    language plpgsql volatile strict
as $$
begin
    return (
        select case when d.claim_id is null and (d.next_attempt is null or d.next_attempt <= statement_timestamp())
                    then coalesce(d.delivery_count, 0) end
        from (select) as one
        left join jmsql_internal.delivery d
          on d.queue_id = queue and d.inverse_priority = priority and d.sequence = message);
end
$$;

-- A role that could delete from a table could also lock it against everybody. So a role that has received messages asks for
-- their removal here.
create table jmsql_internal.removal (
    messages      tid[],
    deliveries    tid[],
    connection_id bigint,
    is_exact      boolean not null default false,
    role          name not null default current_user
);
alter table jmsql_internal.removal replica identity full;
comment on table jmsql_internal.removal is
    'Nothing is in it: to insert a row is to remove messages that the transaction has locked, and their deliveries.';
comment on column jmsql_internal.removal.messages is
    'The addresses of messages, which go to the history if there is one.';
comment on column jmsql_internal.removal.deliveries is 'The addresses of rows of the table delivery.';
comment on column jmsql_internal.removal.connection_id is 'Who has received the messages.';
comment on column jmsql_internal.removal.is_exact is 'Whether it fails if one of the messages is not there.';
comment on column jmsql_internal.removal.role is 'Who removes them. Nobody may name another.';

-- What a role has received goes to the history only if its queue keeps one, whatever other queues keep.
create function jmsql_internal.remove_received() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp
    -- Planned for each call, the statements would take longer to plan than to run.
    set plan_cache_mode = force_generic_plan
as $$
declare
    queues integer[] := jmsql_internal.accessible_queues('receive', new.role);
    removed bigint;
begin
    if exists (select from jmsql_internal.queue q where q.history)
       and exists (
            select from jmsql_internal.message m
            where m.ctid = any(new.messages)
              and m.queue_id = any(array(select q.queue_id from jmsql_internal.queue q where q.history))) then
        perform jmsql_internal.keep_history(
            array_agg(m.ctid order by m.ctid), array_agg(coalesce(d.delivery_count, 0) order by m.ctid), 'acknowledged',
            (select c.connection_id from jmsql_internal.connection c
             where c.connection_id = new.connection_id and c.user_name = new.role))
        from jmsql_internal.message m
        left join lateral (
            select t.delivery_count from jmsql_internal.delivery t
            where (t.queue_id, t.inverse_priority, t.sequence) = (m.queue_id, m.inverse_priority, m.sequence)
            offset 0) d on true
        where m.ctid = any(new.messages)
          and (m.queue_id = any(queues) or (select jmsql_internal.has_access_to_all('receive', new.role)));
    end if;
    if new.deliveries <> '{}' then
        delete from jmsql_internal.delivery d
        where d.ctid = any(new.deliveries)
          and (d.queue_id = any(queues) or (select jmsql_internal.has_access_to_all('receive', new.role)));
    end if;
    delete from jmsql_internal.message m
    where m.ctid = any(new.messages)
      and (m.queue_id = any(queues) or (select jmsql_internal.has_access_to_all('receive', new.role)));
    get diagnostics removed = row_count;
    if new.is_exact and removed <> cardinality(new.messages) then
        raise exception '% of % messages were taken away from the transaction that had locked them.',
            cardinality(new.messages) - removed, cardinality(new.messages) using errcode = 'JMS05',
            hint = 'Call rollback(), and do the work again.';
    end if;
    return null;
end
$$;
comment on function jmsql_internal.remove_received() is 'Removes what its role may receive.';
create trigger received_messages_are_removed before insert on jmsql_internal.removal
    for each row execute function jmsql_internal.remove_received();
