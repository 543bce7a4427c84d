-- Messages on their way into queues. Each statement gives its transaction a number before a message takes a sequence: by the
-- numbers that were given when a scan passed, consumers know which transactions may have messages there that they do not see.

-- name: send_one
-- One message is the common case without transactions: measured at a third of the time that arrays take. Only the columns
-- that have a value are named, which take the client a few microseconds each.
insert into jmsql_internal.message (queue_id, {columns})
select q.queue_id, {values} from jmsql_internal.queue q
where q.name = %(destination)s and pg_current_xact_id() is not null;

-- name: send_one_without_flush
insert into jmsql_internal.message (queue_id, {columns})
select q.queue_id, {values} from jmsql_internal.queue q
where q.name = %(destination)s and set_config('synchronous_commit', 'off', true) = 'off'
  and pg_current_xact_id() is not null;

-- name: send_one_last
-- It goes with a commit, which must not take effect if the queue is missing: their number would come too late.
insert into jmsql_internal.message (queue_id, {columns})
select q.queue_id, {values}
from (select case when count(*) = 1 then max(e.queue_id) else jmsql_internal.refuse('JMS06', 'a queue is missing') end as queue_id
      from jmsql_internal.queue e where e.name = %(destination)s) q
where pg_current_xact_id() is not null;

-- name: send
-- All, or none if a queue is missing.
insert into {table} (queue_id, {columns})
select q.queue_id, {values}
from {messages}
join jmsql_internal.queue q on q.name = s.destination
where {all_are_there} and pg_current_xact_id() is not null
order by s.position;

-- name: all_are_there
not exists (
    select from pg_catalog.unnest(%(destination)s::text[]) as wanted (name)
    where not exists (select from jmsql_internal.queue e where e.name = wanted.name));

-- name: fails_unless_all_are_there
(select case when count(*) = 0 then true else jmsql_internal.refuse('JMS06', 'a queue is missing') = 0 end
 from pg_catalog.unnest(%(destination)s::text[]) as wanted (name)
 where not exists (select from jmsql_internal.queue e where e.name = wanted.name));

-- name: queues_to_copy_to
-- The queues that there are, if the role may copy messages into them: COPY knows no row security.
select q.name, q.queue_id
from {waiting}pg_catalog.unnest(%(names)s::text[]) as wanted (name)
join jmsql_internal.queue q using (name)
where not row_security_active('{table}'::regclass::oid) and pg_current_xact_id() is not null;

-- name: copy
copy {table} ({columns}) from stdin (encoding 'UTF8');

-- name: no_flush
-- The transaction of the statement alone commits without waiting for the disk: a crash of the server may lose it.
with commit as materialized (select set_config('synchronous_commit', 'off', true));

-- name: publish
with {commit}
target as materialized (
    select s.queue_id, s.selector, pg_catalog.array_position(%(known)s::text[], s.selector) as number
    from jmsql_internal.topic t
    join jmsql_internal.subscription s using (topic_id)
    where t.name = %(topic)s
      and not (s.no_local and case
               when s.durable then s.client_id is not distinct from %(client_id)s::text
               else exists (select from jmsql_internal.subscriber c
                            where c.queue_id = s.queue_id and c.connection_id = %(connection_id)s::bigint) end)),
unknown as materialized (select from target where selector is not null and number is null limit 1),
m as materialized (
    select m.*, {chosen} as chosen,
           {size} > {shared_size} and (select count(*) from target) > 1 and not exists (select from unknown) as is_shared
    from {waiting}{messages}),
shared as (
    insert into jmsql_internal.body (position, {bodies})
    select m.position, {message_bodies} from m where m.is_shared
    returning body_id, position),
sent as (
    insert into {table} (queue_id, body_id, {columns})
    select t.queue_id, b.body_id, {values}
    from m left join shared b on m.is_shared and b.position = m.position cross join target t
    where not exists (select from unknown) and pg_current_xact_id() is not null and (t.number is null or m.chosen[t.number])
    order by m.position)
select distinct s.selector
from jmsql_internal.topic t
join jmsql_internal.subscription s using (topic_id)
where t.name = %(topic)s and s.selector is not null and exists (select from unknown);
