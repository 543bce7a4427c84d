-- Destinations and what is set for them, who has access, administered objects under their names, and indexes for selectors.

-- name: create_queue
select jmsql.create_queue(%(name)s, %(settings)s::jsonb);

-- name: create_topic
select jmsql.create_topic(%(name)s, %(settings)s::jsonb);

-- name: alter
select jmsql.alter_destination(%(uri)s, %(settings)s::jsonb);

-- name: delete
select jmsql.delete_destination(%(uri)s, %(force)s);

-- name: cancel
select unnest(jmsql_internal.cancel_copies(%(message_id)s));

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
select set_config('statement_timeout', %(milliseconds)s, false),
       set_config('lock_timeout', %(lock_milliseconds)s, false);

-- name: selector_indexes
select c.relname::text, coalesce(obj_description(c.oid, 'pg_class'::name), ''), i.indisvalid,
       pg_relation_size(c.oid::regclass), coalesce(s.idx_scan, 0)
from pg_catalog.pg_index i
join pg_catalog.pg_class c on c.oid = i.indexrelid
left join pg_catalog.pg_stat_all_indexes s on s.indexrelid = c.oid
where i.indrelid = 'jmsql_internal.message'::regclass::oid
    and starts_with(c.relname::text, %(prefix)s)
order by c.relname;

-- name: index_progress
select phase, blocks_done, blocks_total from pg_catalog.pg_stat_progress_create_index where pid = %(process_id)s;

-- name: create_index
create index concurrently {name} on jmsql_internal.{table} ({columns}) where {condition};

-- name: comment_on_index
comment on index jmsql_internal.{name} is {comment};

-- name: drop_index
drop index concurrently if exists jmsql_internal.{name};
