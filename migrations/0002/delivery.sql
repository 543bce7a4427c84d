-- What a role has received goes to the history only if its queue keeps one, whatever other queues keep.

create or replace function jmsql_internal.remove_received() returns trigger
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
        raise serialization_failure using message = format(
            'of %s messages that were received, only %s are still there', cardinality(new.messages), removed);
    end if;
    return null;
end
$$;

-- Most messages that are received have no state. One look at the range that they are in says so, at a fraction of the time that
-- a look for each takes.
create or replace function jmsql_internal.delivery_state(queue integer, inverse_priorities smallint[], sequences bigint[])
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
