-- Message groups: of each, one session at a time receives messages.

-- It is computed, so that whatever makes messages fills it: sends, topics, delays, moves, and SQL.
alter table jmsql_internal.message add column group_hash bigint
    generated always as (pg_catalog.hashtextextended(properties ->> 'JMSXGroupID', 0)) stored;
comment on column jmsql_internal.message.group_hash is
    'Stands for JMSXGroupID, whose length has no limit; null: the message is in no group.';
-- Only messages in groups are in this index. Its order is that of delivery within the group. The queue's number is widened
-- so that a look-up of a group can use this index alone: see plans.sql.
create index message_group on jmsql_internal.message ((queue_id::bigint), group_hash, inverse_priority, sequence)
    where group_hash is not null;
-- What makes a group wait: messages that are claimed, and those that failed and wait for their next attempt.
create index delivery_group on jmsql_internal.delivery ((queue_id::bigint), group_hash, inverse_priority, sequence)
    where group_hash is not null and (claim_id is not null or next_attempt is not null);

-- Consumers of the queues that have never had groups ask nothing more of a message than whether this table names its
-- queue. There is no unique key: a sender would wait for another's transaction, whose row it cannot see.
create table jmsql_internal.grouped_queue (queue_id integer not null);
alter table jmsql_internal.grouped_queue replica identity full;
comment on table jmsql_internal.grouped_queue is
    'The queues that have, or had, messages of groups; some of them twice.';
create index grouped_queue_queue on jmsql_internal.grouped_queue (queue_id);

create function jmsql_internal.note_group() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from jmsql_internal.grouped_queue q where q.queue_id = new.queue_id) then
        insert into jmsql_internal.grouped_queue values (new.queue_id);
    end if;
    return null;
end
$$;
create trigger groups_are_noted after insert on jmsql_internal.message
    for each row when (new.group_hash is not null) execute function jmsql_internal.note_group();

create function jmsql_internal.forget_groups() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    delete from jmsql_internal.grouped_queue g using removed q where g.queue_id = q.queue_id;
    return null;
end
$$;
create trigger groups_go_with_their_queue after delete on jmsql_internal.queue
    referencing old table as removed for each statement execute function jmsql_internal.forget_groups();

-- Row locks, unlike advisory ones, take no room in the server's lock table, where a transaction would need some for
-- each group that it receives from. The rows are there from the start: nobody has to make them, nor to remove them.
create table jmsql_internal.group_lock (slot integer primary key);
comment on table jmsql_internal.group_lock is
    'The transaction that receives a message of a group locks the row of its slot until the end of the transaction. See group_slot.';
insert into jmsql_internal.group_lock select generate_series(0, 16383);

create function jmsql_internal.group_slot(queue integer, message_group bigint) returns integer
    language sql immutable parallel safe
    return ((message_group # queue) & 16383)::integer;
comment on function jmsql_internal.group_slot(integer, bigint) is
    'The row of group_lock for a group of a queue: one of 16,384, which another group rarely needs at the same time.';

create function jmsql_internal.group_state(queue integer, groups bigint[]) returns setof jmsql_internal.delivery
    language plpgsql volatile strict rows 1
    set search_path = pg_catalog, pg_temp
as $$
begin
    return query
        select d.*
        from unnest(groups) as g (group_hash)
        cross join lateral (
            select s.* from jmsql_internal.delivery s
            where s.queue_id::bigint = queue and s.group_hash = g.group_hash
              and (s.claim_id is not null or s.next_attempt is not null)
            offset 0) d;
end
$$;
comment on function jmsql_internal.group_state(integer, bigint[]) is
    'What makes groups wait, as it is by now: like delivery_state, it has a snapshot of its own.';

create function jmsql_internal.deliveries_if_first(
    queue integer, priority smallint, message bigint, message_group bigint) returns integer
    language plpgsql volatile strict
as $$
begin
    if exists (select from jmsql_internal.group_state(queue, array[message_group]) s
               where s.claim_id is not null
                  or (s.next_attempt > statement_timestamp()
                      and (s.inverse_priority, s.sequence) <= (priority, message))) then
        return null;
    end if;
    return jmsql_internal.deliveries_if_free(queue, priority, message);
end
$$;
comment on function jmsql_internal.deliveries_if_first(integer, smallint, bigint, bigint) is
    'How often a message was delivered; null if it is claimed or waits, or its group does.';
