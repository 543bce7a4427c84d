-- What reads and writes of Spark need of the database.

-- name: version
select version_num from jmsql.schema_version;

-- name: rights
select jmsql_internal.may_administer(current_user), current_user, pg_is_in_recovery();
