-- Queues and topics: looking them up, and making them when they are used first.

-- name: find_queue
select queue_id from jmsql_internal.queue where name = %(name)s;

-- name: create_queue
insert into jmsql_internal.queue (name)
select %(name)s from jmsql_internal.configuration c where c.automatic_creation
on conflict (name) do nothing;

-- name: find_topic
select topic_id from jmsql_internal.topic where name = %(name)s;

-- name: create_topic
insert into jmsql_internal.topic (name)
select %(name)s from jmsql_internal.configuration c where c.automatic_creation
on conflict (name) do nothing;

-- name: circumstances
select current_setting('transaction_isolation'), current_user::text;

-- name: assume_role
select set_config('role', %(role)s::text, true);

-- name: patience
select current_setting('lock_timeout');

-- name: set_patience
select set_config('lock_timeout', %(patience)s::text, true);

-- name: require_access
select jmsql_internal.require_access(%(queue_id)s, %(action)s);

-- name: automatic_creation
select automatic_creation from jmsql_internal.configuration;

-- name: set_automatic_creation
update jmsql_internal.configuration set automatic_creation = %(enabled)s;

-- name: create_temporary_queue
insert into jmsql_internal.queue (name, connection_id) values (%(name)s, %(connection_id)s::bigint)
on conflict (name) do update set connection_id = excluded.connection_id;

-- name: create_temporary_topic
insert into jmsql_internal.topic (name, connection_id) values (%(name)s, %(connection_id)s::bigint)
on conflict (name) do update set connection_id = excluded.connection_id;

-- name: delete_temporary_queue
-- A trigger deletes what goes with no connection.
update jmsql_internal.queue set connection_id = null where name = %(name)s and connection_id is not null;

-- name: delete_temporary_topic
update jmsql_internal.topic set connection_id = null where name = %(name)s and connection_id is not null;

-- name: notify_queues
-- Where the server's queue of notifications is full, the application's commit would fail.
select pg_notify({channel}, queue_id::text) from jmsql_internal.queue
where name = any(%(names)s::text[]) and (select pg_notification_queue_usage()) < 0.9::float8;

-- name: notify_topics
-- Negative, so that the numbers of topics and queues share a channel.
select pg_notify({channel}, (-topic_id)::text) from jmsql_internal.topic
where name = any(%(names)s::text[]) and (select pg_notification_queue_usage()) < 0.9::float8;
