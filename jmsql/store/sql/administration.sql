-- Destinations and what is set for them, who has access, and administered objects under their names.

-- name: create_queue
select jmsql.create_queue(%(name)s, %(settings)s::jsonb);

-- name: create_topic
select jmsql.create_topic(%(name)s, %(settings)s::jsonb);

-- name: alter
select jmsql.alter_destination(%(uri)s, %(settings)s::jsonb);

-- name: delete
select jmsql.delete_destination(%(uri)s, %(force)s);

-- name: destinations
select kind, destination, temporary, settings, created_at from jmsql.destinations order by kind, destination;

-- name: destination
select kind, destination, temporary, settings, created_at from jmsql.destinations
where kind = %(kind)s and destination = %(name)s;

-- name: grant
select jmsql.grant_access(%(uri)s, %(role)s, variadic %(actions)s::text[]);

-- name: revoke
select jmsql.revoke_access(%(uri)s, %(role)s, variadic %(actions)s::text[]);

-- name: create_roles
select jmsql.create_roles();

-- name: grants
select kind, destination, role, send, receive, browse, administer from jmsql.grants
where %(kind)s::text is null or kind = %(kind)s and destination = %(name)s::text
order by destination nulls first, kind, role;

-- name: bind
insert into jmsql_internal.binding as b (name, object) values (%(name)s, %(object)s::jsonb)
on conflict (name) do update set object = excluded.object, bound_at = now();

-- name: unbind
delete from jmsql_internal.binding where name = %(name)s;

-- name: find_binding
select object from jmsql_internal.binding where name = %(name)s;

-- name: bindings
select name, object from jmsql_internal.binding order by name;

-- name: limit_statements
select set_config('statement_timeout', %(milliseconds)s, false);
