-- To which queues a role has access is looked up with each statement of a role: each of a few dozen permissions took longer
-- than the message itself. So it stands ready as an array.

create table jmsql_internal.access_list (
    grantee   regrole not null,
    action    text not null,
    queue_ids integer[] not null,
    primary key (grantee, action)
);
comment on table jmsql_internal.access_list is
    'What a role may do with single destinations, one row for each action: the contents of permission as arrays. Who may '
    'receive from a queue may browse it.';

create function jmsql_internal.list_access(role oid) returns void
    language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
    -- One transaction at a time, so that each sees what those before it have changed.
    lock table jmsql_internal.access_list in share row exclusive mode;
    delete from jmsql_internal.access_list a where a.grantee = role;
    insert into jmsql_internal.access_list (grantee, action, queue_ids)
    select p.grantee, a.action, array_agg(distinct p.queue_id)
    from jmsql_internal.permission p
    cross join lateral (values (p.action), (case when p.action = 'receive' then 'browse' end)) as a (action)
    where p.grantee = role and p.queue_id is not null and a.action is not null
    group by p.grantee, a.action;
end
$$;
comment on function jmsql_internal.list_access(oid) is 'Makes the rows of access_list that are of a role.';
revoke all on function jmsql_internal.list_access(oid) from public;

create function jmsql_internal.list_changed_access() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    if tg_op in ('UPDATE', 'DELETE') then
        perform jmsql_internal.list_access(old.grantee);
    end if;
    if tg_op in ('UPDATE', 'INSERT') then
        perform jmsql_internal.list_access(new.grantee);
    end if;
    return null;
end
$$;
comment on function jmsql_internal.list_changed_access() is 'Has access_list say what permission says.';
create trigger access_is_listed after insert or update or delete on jmsql_internal.permission
    for each row execute function jmsql_internal.list_changed_access();
select jmsql_internal.list_access(p.grantee) from (select distinct grantee from jmsql_internal.permission) p;

-- The tables are small enough for plans that read all of them, which takes as long as all else together. Each look at a table
-- takes time, too: most databases have neither topics nor temporary queues at the moment.
create or replace function jmsql_internal.has_access_to_all(wanted text, role name) returns boolean
    language plpgsql stable strict security definer set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
as $$
begin
    return exists (
        select from jmsql_internal.permission p
        where p.queue_id is null and pg_has_role(role, p.grantee, 'usage')
          and (p.action in (wanted, 'administer') or (p.action = 'receive' and wanted = 'browse')));
end
$$;

create or replace function jmsql_internal.accessible_queues(wanted text, role name) returns integer[]
    language plpgsql stable strict security definer set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
as $$
declare
    permitted integer[] := '{}';
    listed integer[];
begin
    for listed in
        select a.queue_ids from jmsql_internal.access_list a
        where a.action = wanted and pg_has_role(role, a.grantee, 'usage')
    loop
        permitted := permitted || listed;
    end loop;
    -- A statement that began before the lists were made does not see them.
    if permitted = '{}' and not exists (select from jmsql_internal.access_list) then
        permitted := array(
            select p.queue_id from jmsql_internal.permission p
            where case when p.queue_id is not null and (p.action = wanted or (p.action = 'receive' and wanted = 'browse'))
                       then pg_has_role(role, p.grantee, 'usage') end);
    end if;
    if exists (select from jmsql_internal.topic) then
        permitted := permitted || array(
            select s.queue_id
            from jmsql_internal.queue t
            join jmsql_internal.subscription s on s.topic_id = t.topic_id
            where t.queue_id = any(permitted)
            union all
            select s.queue_id
            from jmsql_internal.topic t
            join jmsql_internal.subscription s using (topic_id)
            where t.connection_id is not null and (wanted = 'send' or t.user_name = role));
    end if;
    if exists (select from jmsql_internal.queue q where q.connection_id is not null) then
        permitted := permitted || array(
            select q.queue_id from jmsql_internal.queue q
            where q.connection_id is not null and (wanted = 'send' or q.user_name = role));
    end if;
    return permitted;
end
$$;
