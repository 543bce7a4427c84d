-- The version of the schema, as the migrations note it.

-- name: has_schema
select to_regclass(%(table)s::text) is not null;

-- name: version
select version_num from jmsql.schema_version;
