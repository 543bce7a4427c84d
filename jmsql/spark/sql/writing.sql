-- What writes of Spark ask: tasks commit hidden messages, and the driver sends those of all tasks at once.

-- name: begin_task
-- COPY knows no row security.
select not row_security_active('jmsql_internal.message'::regclass::oid),
       nextval('jmsql_internal.message_sequence'::regclass);

-- name: current_milliseconds
select jmsql_internal.current_milliseconds();

-- name: copy_messages
copy jmsql_internal.message ({columns}) from stdin (format binary);

-- name: stage
copy jmsql_internal.spark_staging ({columns}) from stdin (format binary);

-- name: send_staged
insert into jmsql_internal.message (queue_id, {columns})
select %(queue_id)s, {values}
from jmsql_internal.spark_staging s
where {is_staged}
order by s.position;

-- name: staged_messages
-- A relation with the columns of a publication and `position`.
(select {values}, s.position from jmsql_internal.spark_staging s where {is_staged}) as m ({columns}, position);

-- name: is_staged
s.transaction_id = pg_current_xact_id() and s.destination = %(destination)s;

-- name: forget_staged
delete from jmsql_internal.spark_staging where transaction_id = pg_current_xact_id();

-- name: enter
insert into jmsql_internal.spark_write (write_id, batch_id, messages, expires_at)
values (%(write_id)s, %(batch_id)s, %(messages)s, now() + %(days)s::float8 * interval '1 day')
on conflict do nothing;

-- name: known
-- A batch of the ledger, and what is known of its write.
select w.messages, w.written_at::text,
       (select max(l.batch_id) from jmsql_internal.spark_write l where l.write_id = w.write_id),
       (select max(l.query_id) from jmsql_internal.spark_write l
        where l.write_id = w.write_id and l.query_id <> %(query_id)s::text),
       'jmsql_internal'::regnamespace::text || '.spark_write'
from jmsql_internal.spark_write w where w.write_id = %(write_id)s and w.batch_id = %(batch_id)s;

-- name: note_query
update jmsql_internal.spark_write set query_id = %(query_id)s
where write_id = %(write_id)s and batch_id = %(batch_id)s;

-- name: forget_batches
delete from jmsql_internal.spark_write where write_id = %(write_id)s and batch_id < %(batch_id)s;

-- name: forget_writes
delete from jmsql_internal.spark_write where expires_at < now();
