"""Who may send to a destination, receive from it and browse it: row security, off until somebody is given access.

The owner of the tables is not concerned. For others there are two layers. PostgreSQL's privileges on tables say what a
role may do at all; `required_privilege` names them, and a migration that adds a table adds rows. Policies say for which
destinations: they compare with what two functions return, once for each statement.
"""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

TABLES = """
create table {schema}.permission (
    grantee  regrole not null,
    action   text not null check (action in ('send', 'receive', 'browse', 'administer')),
    queue_id integer references {schema}.queue on delete cascade,
    unique nulls not distinct (grantee, action, queue_id),
    check (action <> 'administer' or queue_id is null)
);
create index permission_queue on {schema}.permission (queue_id);
comment on table {schema}.permission is 'What a role may do with a destination.';
comment on column {schema}.permission.queue_id is
    'The queue, or what holds the settings of the topic; null: with every destination.';

create table {schema}.required_privilege (
    action    text not null,
    privilege text not null,
    object    text not null,
    primary key (action, object, privilege)
);
comment on table {schema}.required_privilege is
    'PostgreSQL''s privileges that an action takes: what stands between GRANT and TO.';

create index queue_temporary on {schema}.queue (connection_id) where connection_id is not null;
create index topic_temporary on {schema}.topic (connection_id) where connection_id is not null;
"""

EVERYONE = (
    ("usage", "schema {schema}"),
    ("select", "{schema}.schema_version"),
    ("select", "{schema}.queue"),
    ("select", "{schema}.topic"),
    ("select", "{schema}.subscription"),
    ("select", "{schema}.subscriber"),
    ("select, insert, update, delete", "{schema}.connection"),
    ("select, insert, update", "{schema}.destination_traffic"),
    ("select", "{schema}.destinations"),
    ("select", "{schema}.traffic"),
    ("insert (name)", "{schema}.queue"),
    ("insert (name)", "{schema}.topic"),
)
MESSAGE_VIEWS = ("messages", "queues", "subscriptions", "clients", "dead_letters", "history", "history_days")
READING = (
    ("select", "{schema}.message"),
    ("select", "{schema}.delayed_message"),
    ("select", "{schema}.delivery"),
    ("select", "{schema}.body"),
    ("select", "{schema}.message_history"),
    *(("select", f"{{schema}}.{view}") for view in MESSAGE_VIEWS),
)
# A row is locked by who could change some column of it; no policy lets it be changed. Who sends can ask, and who
# receives can answer, through temporary queues and topics: both take the same, and policies tell them apart.
MESSAGING = (
    *READING,
    ("insert, update (transaction_id), delete", "{schema}.message"),
    ("insert", "{schema}.delayed_message"),
    ("insert", "{schema}.body"),
    ("usage", "sequence {schema}.message_sequence"),
    ("usage", "sequence {schema}.body_body_id_seq"),
    ("insert, update, delete", "{schema}.delivery"),
    ("usage", "sequence {schema}.claim_sequence"),
    ("update (deleted_at)", "{schema}.queue"),
    ("update (created_at)", "{schema}.topic"),
    ("insert, update (created_at), delete", "{schema}.subscription"),
    ("insert, update, delete", "{schema}.subscriber"),
)
PRIVILEGES = {
    "send": (*EVERYONE, *MESSAGING),
    "receive": (*EVERYONE, *MESSAGING),
    "browse": (*EVERYONE, *READING),
    "administer": (
        ("usage", "schema {schema}"),
        ("all", "all tables in schema {schema}"),
        ("all", "all sequences in schema {schema}"),
    ),
}

FUNCTIONS = """
create function {schema}.has_access_to_all(wanted text, role name) returns boolean
    language sql stable strict security definer set search_path = pg_catalog, pg_temp
as $$
    select exists (
        select from {schema}.permission p
        where p.queue_id is null and pg_has_role(role, p.grantee, 'usage')
          and (p.action in (wanted, 'administer') or (p.action = 'receive' and wanted = 'browse')));
$$;
comment on function {schema}.has_access_to_all(text, name) is
    'Whether a role may do something with every destination: send, receive, browse or administer.';

create function {schema}.accessible_queues(wanted text, role name) returns integer[]
    language sql stable strict security definer set search_path = pg_catalog, pg_temp
as $$
    with permitted as materialized (
        select p.queue_id from {schema}.permission p
        where p.queue_id is not null and pg_has_role(role, p.grantee, 'usage')
          and (p.action = wanted or (p.action = 'receive' and wanted = 'browse'))),
    own as materialized (
        select c.connection_id from {schema}.connection c where c.user_name = role)
    select coalesce(array_agg(found.queue_id), '{{}}')
    from (
        select permitted.queue_id from permitted
        union all
        select s.queue_id
        from permitted
        join {schema}.queue t on t.queue_id = permitted.queue_id
        join {schema}.subscription s on s.topic_id = t.topic_id
        union all
        select q.queue_id from {schema}.queue q
        where q.connection_id is not null and (wanted = 'send' or q.connection_id in (select connection_id from own))
        union all
        select s.queue_id
        from {schema}.topic t
        join {schema}.subscription s using (topic_id)
        where t.connection_id is not null and (wanted = 'send' or t.connection_id in (select connection_id from own))
    ) as found;
$$;
comment on function {schema}.accessible_queues(text, name) is
    'The queues with which a role may do something, and those of the subscriptions to topics with which it may; also '
    'its own temporary ones. Everybody may send to those that are temporary.';

create function {schema}.accessible_topics(wanted text, role name) returns integer[]
    language sql stable strict security definer set search_path = pg_catalog, pg_temp
as $$
    select coalesce(array_agg(t.topic_id), '{{}}')
    from {schema}.topic t
    where exists (
            select from {schema}.permission p
            join {schema}.queue q using (queue_id)
            where q.topic_id = t.topic_id and pg_has_role(role, p.grantee, 'usage')
              and (p.action = wanted or (p.action = 'receive' and wanted = 'browse')))
       or t.connection_id in (select c.connection_id from {schema}.connection c where c.user_name = role);
$$;
comment on function {schema}.accessible_topics(text, name) is 'The topics with which a role may do something.';

create function {schema}.may_administer(role name) returns boolean
    language sql stable strict
begin atomic
    select coalesce(bool_or(
        not t.relrowsecurity or r.rolbypassrls or pg_has_role(r.oid, t.relowner, 'usage')
        or {schema}.has_access_to_all('administer', role)), false)
    from pg_catalog.pg_class t, pg_catalog.pg_roles r
    where t.oid = '{schema}.message'::regclass and r.rolname = role;
end;
comment on function {schema}.may_administer(name) is 'Whether policies hide nothing from a role.';

create function {schema}.require_access(queue integer, wanted text) returns void
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    if row_security_active('{schema}.message'::regclass)
       and not {schema}.has_access_to_all(wanted, current_user)
       and not queue = any({schema}.accessible_queues(wanted, current_user)) then
        raise exception 'The role "%" may not % from the queue "%".', current_user, wanted,
            (select q.name from {schema}.queue q where q.queue_id = queue)
            using errcode = 'JMS04',
                hint = 'Give it access with `jmsql destination grant`, or the function grant_access.';
    end if;
end
$$;
comment on function {schema}.require_access(integer, text) is
    'Raises an exception if policies hide from the current role what is in a queue.';

-- In a function with its owner's rights the current user is the owner; who has called it, the session knows.
create function {schema}.caller() returns name
    language sql stable
    return coalesce(nullif(current_setting('role'), 'none'), session_user)::name;
comment on function {schema}.caller() is 'The role that the session has taken, also within functions of others.';

create function {schema}.require_administrator() returns void
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    if not (pg_has_role({schema}.caller(),
                        (select n.nspowner from pg_namespace n where n.oid = '{plain}'::regnamespace), 'usage')
            or {schema}.has_access_to_all('administer', {schema}.caller())) then
        raise exception 'The role "%" does not administer the schema.', {schema}.caller()
            using errcode = 'JMS04', hint = 'Its owner does, and whoever is a member of jmsql_admin.';
    end if;
end
$$;
comment on function {schema}.require_administrator() is
    'Raises an exception if the caller is neither the owner of the schema nor has it the right to administer.';

-- Temporary destinations come and go with connections, whatever their role has access to.
create function {schema}.make_temporary(kind text, name text, connection bigint) returns void
    language plpgsql volatile strict security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from {schema}.connection c
                   where c.connection_id = connection and c.user_name = {schema}.caller()) then
        raise exception 'A temporary destination goes with a connection of one''s own.' using errcode = 'JMS04';
    end if;
    execute format(
        'insert into {schema}.%I as d (name, connection_id) values ($1, $2) '
        'on conflict (name) do update set connection_id = excluded.connection_id '
        'where d.connection_id is not null and not exists ('
            'select from {schema}.connection c where c.connection_id = d.connection_id and c.user_name <> $3)',
        kind) using name, connection, {schema}.caller();
end
$$;
comment on function {schema}.make_temporary(text, text, bigint) is
    'Makes a temporary queue or topic, or has it go with another connection from now on.';

create function {schema}.delete_temporary(kind text, name text) returns void
    language plpgsql volatile strict security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute format(
        case kind when 'topic' then 'delete from {schema}.%I as d '
        else 'update {schema}.%I as d set name = null, connection_id = null, deleted_at = statement_timestamp() ' end
        || 'where d.name = $1 and d.connection_id is not null and not exists ('
            'select from {schema}.connection c where c.connection_id = d.connection_id and c.user_name <> $2)',
        kind) using name, {schema}.caller();
end
$$;
comment on function {schema}.delete_temporary(text, text) is 'Deletes a temporary queue or topic, if it is there.';

create function {schema}.permit(role name, actions text[], destination integer) returns void
    language plpgsql volatile security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    protected text;
    required {schema}.required_privilege;
begin
    perform {schema}.require_administrator();
    if not exists (select from pg_roles r where r.rolname = role) then
        raise exception 'There is no role "%".', role using errcode = 'JMS03', hint = 'CREATE ROLE makes one.';
    end if;
    foreach protected in array array[{protected}] loop
        if not (select c.relrowsecurity from pg_class c where c.oid = protected::regclass) then
            execute format('alter table %s enable row level security', protected);
        end if;
    end loop;
    insert into {schema}.permission (grantee, action, queue_id)
    select quote_ident(role)::regrole, a, destination from unnest(actions) a
    on conflict do nothing;
    for required in select distinct * from {schema}.required_privilege p where p.action = any(actions) loop
        execute format('grant %s on %s to %I', required.privilege, required.object, role);
    end loop;
end
$$;
comment on function {schema}.permit(name, text[], integer) is
    'Gives a role access to a destination, or with null to all; switches row security on with the first.';

create function {schema}.grant_access(destination text, role name, variadic actions text[]) returns void
    language plpgsql volatile strict
    set search_path = pg_catalog, pg_temp
as $$
begin
    if not actions <@ array['send', 'receive', 'browse'] then
        raise exception 'Access is given to send, receive or browse.' using errcode = 'JMS03';
    end if;
    perform {schema}.require_administrator();
    perform {schema}.permit(role, actions, {schema}.settings_row(destination));
end
$$;
comment on function {schema}.grant_access(text, name, text[]) is
    'Lets a role send to a queue or topic, receive from it, or browse it.';

create function {schema}.revoke_access(destination text, role name, variadic actions text[]) returns void
    language plpgsql volatile strict security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    required {schema}.required_privilege;
    remaining text[];
begin
    perform {schema}.require_administrator();
    if not exists (select from pg_roles r where r.rolname = role) then
        raise exception 'There is no role "%".', role using errcode = 'JMS03';
    end if;
    delete from {schema}.permission p
    where p.grantee = quote_ident(role)::regrole and p.queue_id = {schema}.settings_row(destination)
      and p.action = any(actions);
    select coalesce(array_agg(distinct p.action), '{{}}') into remaining
    from {schema}.permission p where p.grantee = quote_ident(role)::regrole;
    for required in
        select * from {schema}.required_privilege p
        where p.action = any(actions) and not exists (
            select from {schema}.required_privilege o
            where o.action = any(remaining) and (o.privilege, o.object) = (p.privilege, p.object))
    loop
        execute format('revoke %s on %s from %I', required.privilege, required.object, role);
    end loop;
end
$$;
comment on function {schema}.revoke_access(text, name, text[]) is 'Takes back what grant_access has given.';

create function {schema}.renew_privileges() returns void
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    wanted record;
begin
    for wanted in
        select distinct format('grant %s on %s to %s', r.privilege, r.object, p.grantee) as statement
        from {schema}.permission p join {schema}.required_privilege r using (action)
        where exists (select from pg_roles o where o.oid = p.grantee)
    loop
        execute wanted.statement;
    end loop;
end
$$;
comment on function {schema}.renew_privileges() is
    'Gives all roles that have access what it takes now; for migrations that add to required_privilege.';

create function {schema}.create_roles() returns setof text
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    wanted record;
begin
    perform {schema}.require_administrator();
    for wanted in
        select * from (values ('jmsql_producer'::name, array['send']), ('jmsql_consumer', array['receive']),
                              ('jmsql_browser', array['browse']), ('jmsql_admin', array['administer']))
            as r (role, actions)
    loop
        if not exists (select from pg_roles r where r.rolname = wanted.role) then
            begin
                execute format('create role %I nologin', wanted.role);
                return next wanted.role;
            exception
                when duplicate_object or unique_violation then
                    null;
                when insufficient_privilege then
                    raise exception 'The role "%" may not create the role "%".', current_user, wanted.role
                        using errcode = 'JMS04',
                            hint = 'Have somebody with CREATEROLE run: create role jmsql_producer; '
                                'create role jmsql_consumer; create role jmsql_browser; create role jmsql_admin. '
                                'Then do it again.';
            end;
        end if;
        perform {schema}.permit(wanted.role, wanted.actions, null);
    end loop;
end
$$;
comment on function {schema}.create_roles() is
    'Makes the roles jmsql_producer, jmsql_consumer, jmsql_browser and jmsql_admin, if they are not there, lets their '
    'members do with all destinations what they are called after, and returns those that it has made.';

-- Whoever subscribes changes no queue, and dead letters go where the role may not send.
alter function {schema}.inherit_settings() security definer;
alter function {schema}.bury_dead_letters(integer) security definer;

create view {schema}.grants as
select case when q.queue_id is null then null when t.topic_id is null then 'queue' else 'topic' end as kind,
       coalesce(q.name, t.name) as destination,
       r.rolname as role,
       bool_or(p.action in ('send', 'administer')) as send,
       bool_or(p.action in ('receive', 'administer')) as receive,
       bool_or(p.action in ('browse', 'receive', 'administer')) as browse,
       bool_or(p.action = 'administer') as administer
from {schema}.permission p
join pg_catalog.pg_roles r on r.oid = p.grantee
left join {schema}.queue q using (queue_id)
left join {schema}.topic t using (topic_id)
group by 1, 2, 3;
comment on view {schema}.grants is
    'What roles may do with destinations; one row a role and destination, which is null where it is all of them.';
"""

EVERYWHERE = "(select {schema}.has_access_to_all('%s', current_user))"
QUEUES = "queue_id = any ((select {schema}.accessible_queues('%s', current_user))::integer[])"
TOPICS = "topic_id = any ((select {schema}.accessible_topics('%s', current_user))::integer[])"

MAY_SEND = f"{EVERYWHERE} or {QUEUES}" % ("send", "send")
MAY_RECEIVE = f"{EVERYWHERE} or {QUEUES}" % ("receive", "receive")
MAY_BROWSE = f"{EVERYWHERE} or {QUEUES}" % ("browse", "browse")
MAY_SUBSCRIBE = f"{EVERYWHERE} or {TOPICS}" % ("receive", "receive")
MAY_MAKE = f"{EVERYWHERE} or {EVERYWHERE}" % ("send", "receive")
# A dead letter goes to the queue that the destination names, to DLQ, or to where the role may send.
MAY_CONDEMN = f"""(dead_letter_queue_id is null or dead_letter_queue_id = 0
    or dead_letter_queue_id = (
        select q.dead_letter_queue_id from {{schema}}.queue q where q.queue_id = delivery.queue_id)
    or {EVERYWHERE % "send"}
    or dead_letter_{QUEUES % "send"})"""

POLICIES: dict[str, tuple[tuple[str, str | None, str | None], ...]] = {
    "message": (
        ("select", MAY_BROWSE, None),
        ("insert", None, MAY_SEND),
        ("update", MAY_RECEIVE, "false"),
        ("delete", MAY_RECEIVE, None),
    ),
    "delayed_message": (("select", MAY_BROWSE, None), ("insert", None, MAY_SEND)),
    "delivery": (
        ("select", MAY_BROWSE, None),
        ("insert", None, f"({MAY_RECEIVE}) and {MAY_CONDEMN}"),
        ("update", MAY_RECEIVE, f"({MAY_RECEIVE}) and {MAY_CONDEMN}"),
        ("delete", MAY_RECEIVE, None),
    ),
    # What refers to a body is subject to its own policy.
    "body": (
        (
            "select",
            """exists (select from {schema}.message m where m.body_id = body.body_id)
            or exists (select from {schema}.message_history h where h.body_id = body.body_id)""",
            None,
        ),
        ("insert", None, "true"),
    ),
    "message_history": (("select", MAY_BROWSE, None),),
    "queue": (
        ("select", "true", None),
        ("insert", None, f"topic_id is null and connection_id is null and (name is null or {MAY_MAKE})"),
        ("update", f"name is null and topic_id is null and ({MAY_RECEIVE})", "name is null"),
    ),
    "topic": (
        ("select", "true", None),
        ("insert", None, f"connection_id is null and ({MAY_MAKE})"),
        ("update", "true", "false"),
    ),
    "subscription": (
        ("select", "true", None),
        ("insert", None, MAY_SUBSCRIBE),
        ("update", MAY_SUBSCRIBE, "false"),
        ("delete", MAY_SUBSCRIBE, None),
    ),
    "subscriber": (
        ("select", "true", None),
        ("insert", None, MAY_RECEIVE),
        ("update", MAY_RECEIVE, MAY_RECEIVE),
        ("delete", MAY_RECEIVE, None),
    ),
    "connection": (
        ("select", "true", None),
        ("insert", None, "user_name = current_user"),
        (
            "update",
            "user_name = current_user or not {schema}.is_connected(connection_id)",
            "user_name = current_user or client_id is null",
        ),
        ("delete", "user_name = current_user", None),
    ),
}

VIEWS = (
    "messages",
    "queues",
    "subscriptions",
    "clients",
    "destinations",
    "traffic",
    "dead_letters",
    "history",
    "history_days",
    "grants",
)


def policies(schema: str) -> list[str]:
    """Return the statements that make the policies."""
    statements = []
    for table, rules in POLICIES.items():
        statements.append(
            f"create policy administrators on {schema}.{table} "
            f"using ({EVERYWHERE % 'administer'}) with check ({EVERYWHERE % 'administer'})"
        )
        for command, using, check in rules:
            parts = [f"create policy may_{command} on {schema}.{table} for {command}"]
            if using is not None:
                parts.append(f"using ({using})")
            if check is not None:
                parts.append(f"with check ({check})")
            statements.append(" ".join(parts))
    return [statement.format(schema=schema) for statement in statements]


def upgrade() -> None:
    schema = target_schema()
    op.execute(TABLES.format(schema=schema))
    protected = ", ".join(f"'{schema}.{table}'" for table in POLICIES)
    op.execute(FUNCTIONS.format(schema=schema, plain=schema, protected=protected))
    for statement in policies(schema):
        op.execute(statement)
    for view in VIEWS:
        op.execute(f"alter view {schema}.{view} set (security_invoker = true)")
    for action, privileges in PRIVILEGES.items():
        for privilege, object_ in privileges:
            text = object_.format(schema=schema).replace("'", "''")
            op.execute(f"insert into {schema}.required_privilege values ('{action}', '{privilege}', '{text}')")


def downgrade() -> None:
    schema = target_schema()
    op.execute(
        f"""
        alter function {schema}.inherit_settings() security invoker;
        alter function {schema}.bury_dead_letters(integer) security invoker;
        drop view {schema}.grants;
        drop function {schema}.create_roles(), {schema}.renew_privileges(),
            {schema}.revoke_access(text, name, text[]), {schema}.grant_access(text, name, text[]),
            {schema}.permit(name, text[], integer), {schema}.delete_temporary(text, text),
            {schema}.make_temporary(text, text, bigint), {schema}.require_administrator(), {schema}.caller(),
            {schema}.require_access(integer, text);
        """
    )
    for table, rules in POLICIES.items():
        for name in ("administrators", *(f"may_{command}" for command, _, _ in rules)):
            op.execute(f"drop policy {name} on {schema}.{table}")
        op.execute(f"alter table {schema}.{table} disable row level security")
    op.execute(
        f"""
        drop function {schema}.may_administer(name), {schema}.accessible_topics(text, name),
            {schema}.accessible_queues(text, name), {schema}.has_access_to_all(text, name);
        drop index {schema}.queue_temporary, {schema}.topic_temporary;
        drop table {schema}.required_privilege, {schema}.permission;
        """
    )
    for view in VIEWS[:-1]:
        op.execute(f"alter view {schema}.{view} reset (security_invoker)")
