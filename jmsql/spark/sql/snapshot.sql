-- How tasks of Spark and the process beside the driver agree on the moment that the tasks of a query read.
--
-- Both hold advisory locks with the number of the read and that of the query, which every role sees, on a standby too.
-- The keys of the tasks' are even, and those of the answers the odd ones that follow.

-- name: begin
set transaction isolation level repeatable read, read only;

-- name: export
select pg_export_snapshot();

-- name: answer
-- The name of a snapshot is that of the virtual transaction which has exported it.
select pg_try_advisory_lock_shared(%(read)s::integer + 1, %(query)s::integer);

-- name: take_back
select pg_advisory_unlock_shared(%(read)s::integer + 1, %(query)s::integer);

-- name: asked
-- The queries whose tasks ask or read, and those that have an answer.
select l.classid::bigint, l.objid::bigint
from pg_catalog.pg_locks l join pg_catalog.pg_database d on d.oid = l.database
where d.datname = current_database() and l.locktype = 'advisory' and l.objsubid = 2 and l.granted;

-- name: ask
select pg_try_advisory_xact_lock_shared(%(read)s::integer, %(query)s::integer);

-- name: answered
select l.virtualtransaction
from pg_catalog.pg_locks l join pg_catalog.pg_database d on d.oid = l.database
where d.datname = current_database() and l.locktype = 'advisory' and l.objsubid = 2 and l.granted
  and l.classid = (%(read)s::bigint + 1)::oid and l.objid = %(query)s::bigint::oid
limit 1;
