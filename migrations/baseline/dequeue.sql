-- A role that takes a single message asks for it by a row of a view, which has a trigger take it with the owner's rights. The
-- statement that finds and locks it under policies, and asks for its removal, takes twice as long as the owner's.

create view jmsql_internal.dequeue with (security_invoker = true) as
select null::smallint as inverse_priority, null::bigint as sequence, null::text as jms_message_id,
       null::bigint as jms_timestamp, null::bigint as jms_expiration, null::smallint as jms_delivery_mode,
       null::text as message_type, null::text as jms_correlation_id, null::text as jms_reply_to, null::text as jms_type,
       null::text as properties, null::text as property_types, null::text as text_body, null::text as json_body,
       null::text as body_types, null::bytea as bytes_body, null::bigint as jms_delivery_time,
       null::bigint as group_hash, null::integer as delivery_count, null::text as snapshot, null::integer as queue_id,
       null::bigint[] as lowest, null::bigint as connection_id, null::name as role
where false;
alter view jmsql_internal.dequeue alter column role set default current_user;
comment on view jmsql_internal.dequeue is
    'Nothing is in it: to insert a row is to dequeue the next message of a queue, which RETURNING then returns. A queue that '
    'has, or had, messages of groups brings none.';
comment on column jmsql_internal.dequeue.lowest is 'From which sequence on to look, for each inverse priority.';
comment on column jmsql_internal.dequeue.snapshot is 'What the scan''s snapshot tells of running transactions.';
comment on column jmsql_internal.dequeue.connection_id is 'Who receives the message.';
comment on column jmsql_internal.dequeue.role is 'Who dequeues it. Nobody may name another.';

create function jmsql_internal.dequeue_next() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp
    -- Planned for each call, the statements would take longer to plan than to run.
    set plan_cache_mode = force_generic_plan
as $$
declare
    own constant xid8 := pg_current_xact_id_if_assigned();
begin
    if (exists (
            select from jmsql_internal.access_list a
            where a.action = 'receive' and new.queue_id = any(a.queue_ids) and pg_has_role(new.role, a.grantee, 'usage'))
        or new.queue_id = any(jmsql_internal.accessible_queues('receive', new.role))
        or jmsql_internal.has_access_to_all('receive', new.role)) is not true
    then
        return null;
    end if;
    -- The same as clients send that may delete: dequeue_statement of the store.
    with found as materialized (
        select found.*
        from unnest('{0,1,2,3,4,5,6,7,8,9}'::smallint[], new.lowest) as b (inverse_priority, lowest)
        cross join lateral (
            select m.ctid as address, m.queue_id, m.inverse_priority, m.sequence
            from jmsql_internal.message m
            left join lateral (
                select t.* from jmsql_internal.delivery t
                where (t.queue_id, t.inverse_priority, t.sequence) = (m.queue_id, m.inverse_priority, m.sequence)
                offset 0) d on true
            where m.queue_id = new.queue_id and m.inverse_priority = b.inverse_priority
              and m.sequence between b.lowest and 9223372036854775807
              and (m.xmax = '0' or m.xmax <> all((select array(
                  select running::xid from pg_snapshot_xip(pg_current_snapshot()) as running
                  union all
                  select running::text::xid8::xid
                  from (select pg_snapshot_xmax(pg_current_snapshot()) as first) as snapshot,
                       generate_series(first::text::bigint,
                                       first::text::bigint + least(age(first::xid), 1000) - 1) as running))::xid[]))
              and (m.jms_expiration is null or m.jms_expiration > (select jmsql_internal.current_milliseconds()))
              and nullif(m.transaction_id = any(array(
                  select transaction_id from jmsql_internal.pending_transaction)), true) is not null
              and d.claim_id is null and (d.next_attempt is null or d.next_attempt <= statement_timestamp())
              and (select q.deleted_at is null and not q.paused
                          and current_setting('transaction_isolation') = 'read committed'
                   from jmsql_internal.queue q where q.queue_id = new.queue_id)
              and m.transaction_id is distinct from (select pg_current_xact_id_if_assigned())
            order by m.queue_id, m.inverse_priority, m.sequence
            limit 1
            for update of m skip locked) found
        where not (select exists (select from jmsql_internal.grouped_queue g where g.queue_id = new.queue_id))
        limit 1),
    free as materialized (
        select f.*, jmsql_internal.deliveries_if_free(f.queue_id, f.inverse_priority, f.sequence) as delivery_count
        from found f),
    history as materialized (
        select case when exists (select from jmsql_internal.queue q where q.history and q.queue_id = new.queue_id)
               then jmsql_internal.keep_history(
                   array(select address from free where delivery_count is not null),
                   array(select delivery_count from free where delivery_count is not null), 'acknowledged',
                   (select c.connection_id from jmsql_internal.connection c
                    where c.connection_id = new.connection_id and c.user_name = new.role)) end),
    forgotten as (
        delete from jmsql_internal.delivery where ctid = any(array(
            select d.address from free f
            cross join lateral (
                select t.ctid as address from jmsql_internal.delivery t
                where (t.queue_id, t.inverse_priority, t.sequence) = (f.queue_id, f.inverse_priority, f.sequence)
                offset 0) d
            where f.delivery_count is not null)))
    delete from jmsql_internal.message m using free f
    where m.ctid = f.address and f.delivery_count is not null and (select true from history)
    returning
        m.inverse_priority, m.sequence, m.jms_message_id::text, m.jms_timestamp, m.jms_expiration, m.jms_delivery_mode,
        m.message_type::text, m.jms_correlation_id, m.jms_reply_to, m.jms_type, m.properties::text, m.property_types::text,
        case when m.body_id is null then m.text_body
             else (select b.text_body from jmsql_internal.body b where b.body_id = m.body_id) end,
        case when m.body_id is null then m.json_body
             else (select b.json_body from jmsql_internal.body b where b.body_id = m.body_id) end::text,
        case when m.body_id is null then m.body_types
             else (select b.body_types from jmsql_internal.body b where b.body_id = m.body_id) end::text,
        case when m.body_id is null then m.bytes_body
             else (select b.bytes_body from jmsql_internal.body b where b.body_id = m.body_id) end,
        m.jms_delivery_time, m.group_hash, f.delivery_count,
        (select case when own is not null then pg_current_snapshot()::text || '-' || own::text
                     when pg_snapshot_xmin(pg_current_snapshot()) = pg_current_xact_id()
                     then pg_current_xact_id()::text
                     else pg_current_snapshot()::text || '+' || pg_current_xact_id()::text end)
    into
        new.inverse_priority, new.sequence, new.jms_message_id, new.jms_timestamp, new.jms_expiration,
        new.jms_delivery_mode, new.message_type, new.jms_correlation_id, new.jms_reply_to, new.jms_type, new.properties,
        new.property_types, new.text_body, new.json_body, new.body_types, new.bytes_body, new.jms_delivery_time,
        new.group_hash, new.delivery_count, new.snapshot;
    if not found then
        return null;
    end if;
    return new;
end
$$;
comment on function jmsql_internal.dequeue_next() is 'Dequeues what its role may receive.';
create trigger next_message_is_dequeued instead of insert on jmsql_internal.dequeue
    for each row execute function jmsql_internal.dequeue_next();
