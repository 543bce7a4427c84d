-- What is asked of the server and the database: the version of the schema, the time, prepared transactions.

-- name: schema_in_functions
-- A function whose body is a text keeps the name of the schema that it was made in.
select substring(p.prosrc from '("(?:[^"]|"")*"|[[:alnum:]_]+)[.]message') from pg_catalog.pg_proc p
where p.pronamespace = to_regnamespace('jmsql_internal')::oid and p.proname = 'require_access';

-- name: server
-- The last five: which database it is, and what SQLAlchemy's dialect asks there on an engine's first connection.
select (select version_num from jmsql.schema_version), ({schema_in_functions}),
       current_setting('server_version'), (extract(epoch from clock_timestamp()) * 1000::numeric)::bigint,
       not jmsql_internal.may_administer(current_user),
       has_column_privilege('jmsql_internal.dequeue'::regclass::oid, 'queue_id', 'insert'),
       pg_postmaster_start_time(), oid::bigint, current_schema()::text,
       current_setting('standard_conforming_strings'), to_regtype('hstore')::oid::bigint
from pg_catalog.pg_database where datname = current_database();

-- name: database
select pg_catalog.pg_postmaster_start_time(), oid::bigint
from pg_catalog.pg_database where datname = pg_catalog.current_database();

-- name: clock
select (extract(epoch from clock_timestamp()) * 1000::numeric)::bigint;

-- name: clock_and_database
select (extract(epoch from pg_catalog.clock_timestamp()) * 1000::numeric)::bigint, pg_catalog.pg_postmaster_start_time(), oid::bigint
from pg_catalog.pg_database where datname = pg_catalog.current_database();

-- name: has_schema
select to_regclass(%(table)s::text) is not null;

-- name: version
select version_num from jmsql.schema_version;

-- name: most_prepared
select current_setting('max_prepared_transactions')::integer;

-- name: prepared
select gid from pg_catalog.pg_prepared_xacts where database = current_database() order by prepared, gid;
