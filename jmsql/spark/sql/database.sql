-- What reads and writes of Spark need of the database.

-- name: version
select version_num from jmsql.schema_version;

-- name: rights
select jmsql_internal.may_administer(current_user), current_user, pg_is_in_recovery();

-- name: unlimited_idleness
select set_config(name, '0', true) from pg_settings
where name in ('idle_in_transaction_session_timeout', 'transaction_timeout');
