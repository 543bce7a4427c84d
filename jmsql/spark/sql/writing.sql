-- What writes of Spark ask: tasks stage messages or prepare transactions, and the driver sends or commits them once.

-- name: begin_attempt
insert into jmsql_internal.spark_attempt (write_id, driver) values (%(write_id)s::text, %(driver)s::bigint)
returning attempt_id;

-- name: stage
copy jmsql_internal.spark_staging ({columns}) from stdin (format binary);

-- name: copy_messages
copy jmsql_internal.message ({columns}) from stdin (format binary);

-- name: may_copy
select not row_security_active('jmsql_internal.message'::regclass);

-- name: current_milliseconds
select jmsql_internal.current_milliseconds();

-- name: send_staged
-- The key of the staged messages has their order.
insert into {table} (queue_id, {columns})
select %(queue_id)s, {values}
from jmsql_internal.spark_staging s
where s.attempt_id = %(attempt_id)s and {for_destination}
order by s.position;

-- name: staged_messages
-- A relation with the columns of a publication and `position`.
(
    select {values}, row_number() over (order by a.ordinality, s.position)
    from unnest(%(attempts)s::bigint[]) with ordinality as a (attempt_id, ordinality)
    join jmsql_internal.spark_staging s using (attempt_id)
    where {for_destination}) as m ({columns}, position);

-- name: for_destination
s.destination = %(staged_destination)s and (s.jms_delivery_time is not null) = %(is_delayed)s;

-- name: remove_staged
delete from jmsql_internal.spark_staging where attempt_id = any(%(attempts)s::bigint[]);

-- name: forget_attempts
with forgotten as (delete from jmsql_internal.spark_attempt where attempt_id = any(%(attempts)s::bigint[]))
delete from jmsql_internal.spark_staging where attempt_id = any(%(attempts)s::bigint[]);

-- name: forget_abandoned
-- Of tasks that have died, or whose driver has, or that another attempt was faster than. One attempt at a time.
with abandoned as materialized (
    select attempt_id from jmsql_internal.spark_attempt
    where started_at < statement_timestamp() - interval '1 day'
    order by attempt_id limit 1
    for update skip locked),
deleted as (
    delete from jmsql_internal.spark_staging where ctid = any(array(
        select s.ctid from abandoned join jmsql_internal.spark_staging s using (attempt_id)
        limit %(limit)s))
    returning position),
forgotten as (
    delete from jmsql_internal.spark_attempt a using abandoned b
    where a.attempt_id = b.attempt_id and (select count(*) from deleted) < %(limit)s
    returning a.attempt_id)
select (select count(*) from deleted), (select count(*) from forgotten);

-- name: enter
insert into jmsql_internal.spark_write (write_id, batch_id, messages)
values (%(write_id)s, %(batch_id)s, %(messages)s) on conflict do nothing;

-- name: forget_writes
delete from jmsql_internal.spark_write where write_id = %(write_id)s and batch_id < %(batch_id)s;

-- name: prefix
-- All databases of a server share the names of prepared transactions.
(select 'jmsql-spark-' || d.oid || '-' || {channel} || '-'
 from pg_catalog.pg_database d where d.datname = current_database());

-- name: name_transaction
select {prefix} || %(attempt_id)s::bigint;

-- name: find_transactions
select x.gid, substr(x.gid, length(p.prefix) + 1)::bigint as attempt_id, x.owner, x.owner = r.rolname or r.rolsuper
from pg_catalog.pg_prepared_xacts x
join {prefix} p (prefix) on starts_with(x.gid, p.prefix)
join pg_catalog.pg_roles r on r.rolname = current_user
where x.database = current_database() and substr(x.gid, length(p.prefix) + 1) ~ '^[0-9]{1,18}$'
order by attempt_id;

-- name: lock_driver
select pg_try_advisory_lock(%(driver)s::bigint);

-- name: check_lock
select;

-- name: find_drivers
select distinct driver from jmsql_internal.spark_attempt where driver is not null;

-- name: living_drivers
select k.driver
from unnest(%(drivers)s::bigint[]) as k (driver)
where exists (
    select from pg_catalog.pg_locks l join pg_catalog.pg_database d on d.oid = l.database
    where d.datname = current_database() and l.locktype = 'advisory' and l.objsubid = 1 and l.granted
      and (l.classid::bigint << 32 | l.objid::bigint) = k.driver);

-- name: forget_drivers
delete from jmsql_internal.spark_attempt where driver = any(%(drivers)s::bigint[]);

-- name: judge
select f.attempt_id, exists (select from jmsql_internal.spark_prepared p where p.attempt_id = f.attempt_id),
       exists (select from jmsql_internal.spark_attempt a where a.attempt_id = f.attempt_id)
from unnest(%(attempts)s::bigint[]) f (attempt_id);

-- name: forget_finished
-- What this statement sees was decided before it looks at the transactions, and is over if it finds none.
delete from jmsql_internal.spark_prepared d
where not exists (
    select from pg_catalog.pg_prepared_xacts x join {prefix} p (prefix) on x.gid = p.prefix || d.attempt_id);

-- name: decide
insert into jmsql_internal.spark_prepared (attempt_id, write_id, batch_id)
select a.attempt_id, %(write_id)s, %(batch_id)s from unnest(%(attempts)s::bigint[]) a (attempt_id);

-- name: forget_write
-- Also the attempts of a driver that has died, and of tasks that others were faster than.
delete from jmsql_internal.spark_attempt
where attempt_id = any(%(attempts)s::bigint[]) or write_id = %(write_id)s
returning attempt_id;
