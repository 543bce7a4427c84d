-- The lock of the process that writes an archive.

-- name: lock
select pg_try_advisory_lock(hashtextextended(%(name)s, 0));

-- name: check
select;
