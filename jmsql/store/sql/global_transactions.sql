-- Transactions that are prepared, and committed or rolled back later.

-- name: most_prepared
select current_setting('max_prepared_transactions')::integer;

-- name: prepared
select gid from pg_prepared_xacts where database = current_database() order by prepared;
