-- What reads ask about the columns of messages.

-- name: empty
-- The columns that are null in each row that PostgreSQL has looked at when it gathered statistics.
select s.attname::text
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
join pg_catalog.pg_stats s on s.schemaname = n.nspname and s.tablename = c.relname and not s.inherited
where c.oid in ({tables})
group by s.attname having min(s.null_frac) = 1::real;

-- name: message_tables
'jmsql_internal.message'::regclass::oid, 'jmsql_internal.delayed_message'::regclass::oid;

-- name: history_tables
select i.inhrelid from pg_catalog.pg_inherits i where i.inhparent = 'jmsql_internal.message_history'::regclass::oid;
