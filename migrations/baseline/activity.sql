-- What administrators have done: a line for each action, written in its transaction. A role can neither change nor delete one.

create table jmsql_internal.administrative_action (
    activity_id     bigint generated always as identity primary key,
    at              timestamptz not null default clock_timestamp(),
    action_id       uuid not null,
    continues       boolean not null,
    user_name       name not null,
    role_name       name,
    actor           text,
    application     text,
    host            text,
    action          text not null,
    queue_id        integer,
    topic_id        integer,
    destination     text,
    subscription    text,
    client_id       text,
    target          text,
    selector        text,
    details         text,
    messages        bigint,
    message_ids     uuid[] not null,
    outcome         text not null
) with (vacuum_truncate = off);
comment on table jmsql_internal.administrative_action is
    'The actions of administrators. An action that commits in steps has a line for each, of which all but the first continue it.';
create index administrative_action_id on jmsql_internal.administrative_action (action_id);

-- What has a destination is for those who browse it, all else for administrators; everybody sees the own actions.
create policy may_select on jmsql_internal.administrative_action for select
    using (user_name = session_user
           or queue_id = any ((select jmsql_internal.accessible_queues('browse', current_user))::integer[])
           or topic_id = any ((select jmsql_internal.accessible_topics('browse', current_user))::integer[])
           or (queue_id is not null or topic_id is not null)
              and (select jmsql_internal.has_access_to_all('browse', current_user))
           or (select jmsql_internal.has_access_to_all('administer', current_user)));
alter table jmsql_internal.administrative_action enable row level security;

create function jmsql_internal.note_activity(
    action text, queue integer, messages bigint, message_ids uuid[] default '{}', outcome text default 'done',
    target integer default null, details text default null, destination text default null, topic integer default null)
    returns void
    language plpgsql volatile security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    -- What a program says of the action beforehand, for the transaction. The names of roles come from the server alone.
    said_id constant uuid := nullif(current_setting('jmsql.action_id', true), '');
    said_details constant text := nullif(current_setting('jmsql.details', true), '');
    role_name constant text := nullif(current_setting('role'), 'none');
    place record;
begin
    if messages = 0 or not exists (select from jmsql_internal.configuration c where c.activity_days > 0) then
        return;
    end if;
    select coalesce('queue://' || q.name, 'topic://' || t.name) as uri, s.name, s.client_id, coalesce(s.topic_id, q.topic_id) as topic_id
    into place
    from jmsql_internal.queue q
    left join jmsql_internal.subscription s using (queue_id)
    left join jmsql_internal.topic t on t.topic_id = coalesce(s.topic_id, q.topic_id)
    where q.queue_id = queue;
    insert into jmsql_internal.administrative_action (
        action_id, continues, user_name, role_name, actor, application, host, action, queue_id, topic_id, destination, subscription,
        client_id, target, selector, details, messages, message_ids, outcome)
    select coalesce(said_id, gen_random_uuid()),
           said_id is not null and exists (
               select from jmsql_internal.administrative_action a where a.action_id = said_id and a.user_name = session_user),
           session_user, nullif(role_name, session_user::text), left(nullif(current_setting('jmsql.actor', true), ''), 200),
           left(nullif(current_setting('application_name'), ''), 200), host(inet_client_addr()), note_activity.action, queue,
           coalesce(note_activity.topic, place.topic_id), coalesce(note_activity.destination, place.uri), place.name, place.client_id,
           (select 'queue://' || q.name from jmsql_internal.queue q where q.queue_id = note_activity.target),
           left(nullif(current_setting('jmsql.selector', true), ''), 10000),
           left(concat_ws(', ', note_activity.details, said_details), 10000), note_activity.messages,
           coalesce((array_remove(note_activity.message_ids, null))[1:1000], '{}'), note_activity.outcome;
end
$$;
comment on function jmsql_internal.note_activity(text, integer, bigint, uuid[], text, integer, text, text, integer) is
    'Notes an action of the role that has connected, with its transaction, unless it has changed no message.';

create function jmsql_internal.begin_action() returns text
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    former constant text := coalesce(current_setting('jmsql.action_id', true), '');
begin
    if former = '' then
        perform set_config('jmsql.action_id', gen_random_uuid()::text, true);
    end if;
    return former;
end
$$;
comment on function jmsql_internal.begin_action() is
    'Makes one action of what is noted until the setting jmsql.action_id is again what this returns.';

create function jmsql_internal.forget_activity(most integer) returns bigint
    language plpgsql volatile security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    forgotten bigint;
begin
    -- The oldest come first by their number: no more are read than may be removed.
    delete from jmsql_internal.administrative_action where activity_id = any(array(
        select f.activity_id
        from (select a.activity_id, a.at from jmsql_internal.administrative_action a order by a.activity_id limit most) f
        where f.at < clock_timestamp() - (select c.activity_days from jmsql_internal.configuration c) * interval '1 day'));
    get diagnostics forgotten = row_count;
    return forgotten;
end
$$;
comment on function jmsql_internal.forget_activity(integer) is
    'Removes lines that have been kept for long enough, at most so many, and returns how many.';

-- Destinations, schedules, access and names: whatever changes them, a function or a statement of its own, is noted.

create function jmsql_internal.note_change_of_queue() returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    former constant jsonb := jmsql_internal.queue_settings(old);
    present constant jsonb := jmsql_internal.queue_settings(new);
    changes text;
begin
    if new.deleted_at is not null then
        if old.deleted_at is null and old.name is not null and old.connection_id is null then
            perform jmsql_internal.note_activity('delete', old.queue_id, null, destination => 'queue://' || old.name);
        end if;
        return null;
    end if;
    select string_agg(format('%s: %s → %s', k, coalesce(former ->> k, 'default'), coalesce(present ->> k, 'default')), ', ' order by k)
    into changes
    from (select jsonb_object_keys(former || present) as k) n
    where former -> k is distinct from present -> k;
    if changes is not null and (new.name is not null or new.topic_id is not null) then
        perform jmsql_internal.note_activity(
            case when old.paused = new.paused then 'set' when new.paused then 'pause' else 'resume' end, new.queue_id, null,
            details => case when old.paused = new.paused then changes end);
    end if;
    return null;
end
$$;
comment on function jmsql_internal.note_change_of_queue() is 'Notes what is set for a queue or topic, and its deletion.';
create trigger changes_are_noted after update on jmsql_internal.queue
    for each row when (old.deleted_at is null) execute function jmsql_internal.note_change_of_queue();

create function jmsql_internal.note_change() returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    case tg_table_name
        when 'topic' then
            perform jmsql_internal.note_activity('delete', null, null, destination => 'topic://' || old.name);
        when 'subscription' then
            perform jmsql_internal.note_activity('unsubscribe', old.queue_id, null);
        when 'schedule' then
            if tg_op = 'DELETE' then
                perform jmsql_internal.note_activity('delete schedule', null, null, destination => old.destination, details => old.name);
            else
                perform jmsql_internal.note_activity(
                    case when tg_op = 'INSERT' or old.paused = new.paused then 'set schedule'
                         when new.paused then 'pause schedule' else 'resume schedule' end,
                    null, null, destination => new.destination, details => new.name);
            end if;
        when 'binding' then
            perform jmsql_internal.note_activity(
                case tg_op when 'DELETE' then 'unbind' else 'bind' end, null, null,
                details => case tg_op when 'DELETE' then old.name else new.name end);
        when 'configuration' then
            perform jmsql_internal.note_activity(
                'set', null, null,
                details => (select string_agg(format('%s: %s → %s', f.key, f.value, p.value), ', ' order by f.key)
                            from jsonb_each(to_jsonb(old)) f join jsonb_each(to_jsonb(new)) p using (key)
                            where f.value <> p.value));
    end case;
    return null;
end
$$;
comment on function jmsql_internal.note_change() is 'Notes a change of a row that administrators change.';
create trigger removals_are_noted after delete on jmsql_internal.topic
    for each row when (old.connection_id is null) execute function jmsql_internal.note_change();
create trigger ends_are_noted after update of ended on jmsql_internal.subscription
    for each row when (new.ended and not old.ended and old.durable) execute function jmsql_internal.note_change();
create trigger additions_are_noted after insert or delete on jmsql_internal.schedule
    for each row execute function jmsql_internal.note_change();
create trigger changes_are_noted after update on jmsql_internal.schedule
    for each row when (old.revision <> new.revision) execute function jmsql_internal.note_change();
create trigger changes_are_noted after insert or update or delete on jmsql_internal.binding
    for each row execute function jmsql_internal.note_change();
create trigger changes_are_noted after update on jmsql_internal.configuration
    for each row when (old.* is distinct from new.*) execute function jmsql_internal.note_change();

create function jmsql_internal.note_change_of_access() returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform jmsql_internal.note_activity(
        case tg_op when 'DELETE' then 'revoke' else 'grant' end, c.queue_id, null,
        details => c.grantee::text || ': ' || string_agg(c.action, ', ' order by c.action))
    from changed c
    group by c.grantee, c.queue_id;
    return null;
end
$$;
comment on function jmsql_internal.note_change_of_access() is 'Notes which access a role has got or lost.';
create trigger grants_are_noted after insert on jmsql_internal.permission
    referencing new table as changed for each statement execute function jmsql_internal.note_change_of_access();
create trigger revocations_are_noted after delete on jmsql_internal.permission
    referencing old table as changed for each statement execute function jmsql_internal.note_change_of_access();

create view jmsql.activity with (security_invoker) as
select a.activity_id, a.at, coalesce(s.at, a.at) as ended_at, a.user_name, a.role_name, a.actor, a.application, a.host, a.action,
       a.destination, a.subscription, a.client_id, a.target, a.selector, a.details,
       coalesce(a.messages + s.messages, a.messages, s.messages) as messages,
       array(select 'ID:' || i from unnest(a.message_ids) with ordinality as m (i, place) order by place) as message_ids,
       coalesce(s.outcome, a.outcome) as outcome
from jmsql_internal.administrative_action a
left join lateral (
    select max(c.at) as at, sum(c.messages)::bigint as messages,
           (pg_catalog.array_agg(c.outcome order by c.activity_id desc))[1] as outcome
    from jmsql_internal.administrative_action c
    where c.action_id = a.action_id and c.continues and c.user_name = a.user_name
    offset 0) s on true
where not a.continues;
comment on view jmsql.activity is
    'What administrators have done, by whatever program: one row an action, for activity_days days. Order by activity_id.';
comment on column jmsql.activity.activity_id is 'The action''s number; later actions have higher ones.';
comment on column jmsql.activity.subscription is 'The subscription''s name; null: it was a queue, or a topic.';
comment on column jmsql.activity.client_id is 'The client identifier of the subscription; null: it has none.';
comment on column jmsql.activity.at is 'When its first step was done.';
comment on column jmsql.activity.ended_at is 'When its last step was done.';
comment on column jmsql.activity.user_name is 'The role in PostgreSQL that has connected.';
comment on column jmsql.activity.role_name is 'The role that it had assumed with SET ROLE; null: none.';
comment on column jmsql.activity.actor is 'The person, as the program says: the user of the console, or of the shell.';
comment on column jmsql.activity.application is 'The connection''s application_name.';
comment on column jmsql.activity.host is 'The address that the connection came from; null: a socket of the machine.';
comment on column jmsql.activity.action is 'The action, such as purge or pause.';
comment on column jmsql.activity.destination is 'The queue, or the topic of the subscription, such as queue://orders.';
comment on column jmsql.activity.target is 'The queue to which messages were moved or sent again.';
comment on column jmsql.activity.selector is 'Which messages were chosen; null: all, or those that were named.';
comment on column jmsql.activity.details is 'The settings with their former values, a schedule''s name, a role, and the like.';
comment on column jmsql.activity.messages is 'How many messages it has changed; null: it was not about messages.';
comment on column jmsql.activity.message_ids is 'Their JMSMessageIDs, at most the first 1,000.';
comment on column jmsql.activity.outcome is 'done; of a cancelled message removed or asked; begun: a day of the history was to be removed, which has not ended.';
