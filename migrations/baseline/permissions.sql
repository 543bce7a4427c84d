-- What roles may do with destinations, as policies and functions ask.

create table jmsql_internal.permission (
    grantee  regrole not null,
    action   text not null check (action in ('send', 'receive', 'browse', 'administer')),
    queue_id integer references jmsql_internal.queue on delete cascade,
    unique nulls not distinct (grantee, action, queue_id),
    check (action <> 'administer' or queue_id is null)
);
alter table jmsql_internal.permission replica identity full;
comment on table jmsql_internal.permission is 'What a role may do with a destination.';
comment on column jmsql_internal.permission.queue_id is
    'The queue, or what holds the settings of the topic; null: with every destination.';
create index permission_queue on jmsql_internal.permission (queue_id);

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

-- In PL/pgSQL they are planned once for each connection, in SQL they would be with each call; and so they would be without
-- the setting, since PostgreSQL takes a plan for the values of each call to be better, which takes longer to make than to run.
--
-- The tables are small enough for plans that read all of them, which takes as long as all else together. Each look at a table
-- takes time, too: most databases have neither topics nor temporary queues at the moment.
--
-- A table without an index that fits costs 10,000,000,000 with enable_seqscan = off, before PostgreSQL 18. The server would compile
-- the plan (jit) in each call, which took 0.14 s where the call takes 0.00007 s. So each function sets both.
create function jmsql_internal.has_access_to_all(wanted text, role name) returns boolean
    language plpgsql stable strict security definer set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set jit = off
as $$
begin
    return exists (
        select from jmsql_internal.permission p
        where p.queue_id is null and pg_has_role(role, p.grantee, 'usage')
          and (p.action in (wanted, 'administer') or (p.action = 'receive' and wanted = 'browse')));
end
$$;
comment on function jmsql_internal.has_access_to_all(text, name) is
    'Whether a role may do something with every destination: send, receive, browse or administer.';

create function jmsql_internal.accessible_queues(wanted text, role name) returns integer[]
    language plpgsql stable strict security definer set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set jit = off
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
comment on function jmsql_internal.accessible_queues(text, name) is
    'The queues with which a role may do something, and those of the subscriptions to topics with which it may; also '
    'its own temporary ones. Everybody may send to those that are temporary.';

create function jmsql_internal.accessible_topics(wanted text, role name) returns integer[]
    language plpgsql stable strict security definer set search_path = pg_catalog, pg_temp
as $$
begin
    return array(
        select t.topic_id
        from jmsql_internal.topic t
        where exists (
                select from jmsql_internal.permission p
                join jmsql_internal.queue q using (queue_id)
                where q.topic_id = t.topic_id and pg_has_role(role, p.grantee, 'usage')
                  and (p.action = wanted or (p.action = 'receive' and wanted = 'browse')))
           or t.connection_id is not null and (wanted = 'send' or t.user_name = role));
end
$$;
comment on function jmsql_internal.accessible_topics(text, name) is 'The topics with which a role may do something.';

create function jmsql_internal.may_administer(role name) returns boolean
    language sql stable strict
begin atomic
    select coalesce(bool_or(
        not t.relrowsecurity or r.rolbypassrls or pg_has_role(r.oid, t.relowner, 'usage')
        or jmsql_internal.has_access_to_all('administer', role)), false)
    from pg_catalog.pg_class t, pg_catalog.pg_roles r
    where t.oid = 'jmsql_internal.message'::regclass and r.rolname = role;
end;
comment on function jmsql_internal.may_administer(name) is 'Whether policies hide nothing from a role.';

create function jmsql_internal.require_access(queue integer, wanted text) returns boolean
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    if not row_security_active('jmsql_internal.message'::regclass)
       or jmsql_internal.has_access_to_all('administer', current_user) then
        return false;
    end if;
    if not jmsql_internal.has_access_to_all(wanted, current_user)
       and not queue = any(jmsql_internal.accessible_queues(wanted, current_user)) then
        raise exception 'The role "%" may not % from the queue "%".', current_user, wanted,
            (select q.name from jmsql_internal.queue q where q.queue_id = queue)
            using errcode = 'JMS04',
                hint = 'Give it access with `jmsql destination grant`, or the function grant_access.';
    end if;
    return true;
end
$$;
comment on function jmsql_internal.require_access(integer, text) is
    'Raises an exception if policies hide from the current role what is in a queue; tells whether they hide anything.';

create function jmsql_internal.refuse_to_send(queue integer) returns boolean
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    destination text;
begin
    select case when t.name is null then format('queue "%s"', q.name) else format('topic "%s"', t.name) end
    into destination
    from jmsql_internal.queue q
    left join jmsql_internal.subscription s on s.queue_id = q.queue_id
    left join jmsql_internal.topic t on t.topic_id = s.topic_id
    where q.queue_id = queue;
    raise insufficient_privilege using
        message = format('the role "%s" may not send to the %s', current_user, destination),
        hint = 'Give it access with `jmsql destination grant`, or the function grant_access.';
end
$$;
comment on function jmsql_internal.refuse_to_send(integer) is
    'Raises an exception that names the current role, and the destination to which it may not send.';
