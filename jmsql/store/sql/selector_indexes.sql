-- Indexes on messages for consumers with selectors.

-- name: selector_indexes
select c.relname::text, coalesce(obj_description(c.oid, 'pg_class'), ''), i.indisvalid,
       pg_relation_size(c.oid), coalesce(s.idx_scan, 0)
from pg_index i
join pg_class c on c.oid = i.indexrelid
left join pg_stat_all_indexes s on s.indexrelid = c.oid
where i.indrelid = 'jmsql_internal.message'::regclass
    and starts_with(c.relname, %(prefix)s)
order by c.relname;

-- name: progress
select phase, blocks_done, blocks_total from pg_stat_progress_create_index where pid = %(process_id)s;

-- name: create
create index concurrently {name} on jmsql_internal.message ({columns}) where {condition};

-- name: comment
comment on index jmsql_internal.{name} is {comment};

-- name: drop
drop index concurrently if exists jmsql_internal.{name};
