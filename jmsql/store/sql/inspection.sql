-- What a person or a program looks up: queues, subscriptions, clients, and the messages of a queue.

-- name: queues
select v.queue, v.ready, v.claimed, v.waiting, v.expired, v.redelivered, v.oldest_sent_at, v.expiry_queue, v.created_at,
       v.delayed, q.paused, {is_browsable}
from jmsql.queues v join jmsql_internal.queue q on q.name = v.queue
order by v.queue;

-- name: subscriptions
select v.topic, v.subscription, v.client_id, v.durable, v.shared, v.selector, v.no_local, v.consumers, v.ready, v.claimed,
       v.waiting, v.expired, v.redelivered, v.oldest_sent_at, v.created_at, coalesce(q.paused, false),
       coalesce({is_browsable}, {sees_all})
from jmsql.subscriptions v
join jmsql_internal.topic t on t.name = v.topic
left join jmsql_internal.queue q on q.topic_id = t.topic_id
order by v.topic, v.subscription, v.client_id, v.created_at, v.selector;

-- name: server_time
select clock_timestamp();

-- name: sees_all_messages
select {sees_all};

-- name: sees_all
-- Whether no policy hides messages from the role.
(select not pg_catalog.row_security_active('jmsql_internal.message'::regclass)
        or jmsql_internal.has_access_to_all('browse', current_user));

-- name: is_browsable
-- Whether the role sees the messages of a queue, or of the topic whose settings `q` has.
({sees_all} or q.queue_id = any((select jmsql_internal.accessible_queues('browse', current_user))::integer[])
 or q.topic_id = any((select jmsql_internal.accessible_topics('browse', current_user))::integer[]));

-- name: clients
select connection_id, client_id, user_name, host, process_id, started_at, connected, claimed
from jmsql.clients order by connection_id;

-- name: find_durable_subscription
select s.queue_id, t.name from jmsql_internal.subscription s join jmsql_internal.topic t using (topic_id)
where s.durable and s.client_id is not distinct from %(client_id)s::text and s.name = %(name)s;

-- name: count
select (select count(*) from jmsql_internal.message m where m.queue_id = %(queue_id)s and {is_sent} {chosen})
     + (select count(*) from jmsql_internal.delayed_message m where m.queue_id = %(queue_id)s {chosen});

-- name: state
-- Of a message `m` with the delivery `d`, if it has one.
case when m.jms_expiration <= jmsql_internal.current_milliseconds() then 'expired'
     when d.claim_id is not null then 'claimed'
     when d.next_attempt > statement_timestamp() then 'waiting'
     else 'ready' end;

-- name: delivered
-- A message `m` with the delivery `d`, if it has one: a MessageRow, a DeliveryState, and that it is not delayed.
{columns}, null, d.delivery_count, null, {state}, coalesce(d.delivery_count, 0), d.connection_id,
nullif(d.next_attempt, 'infinity'), d.last_error, false;

-- name: delayed
-- The same of a delayed message `m`.
{columns}, null, null, null,
case when m.jms_expiration <= jmsql_internal.current_milliseconds() then 'expired' else 'delayed' end, 0, null::bigint,
null::timestamptz, null::text, true;

-- name: find_message
select {delivered}, {held}
from jmsql_internal.message m
left join jmsql_internal.delivery d using (queue_id, inverse_priority, sequence)
{places} and {is_sent}
union all
select {delayed}, {held}
from jmsql_internal.delayed_message m
{places};

-- name: held
-- Where a message is: its queue, or its topic and subscription.
q.name, t.name, s.name, s.client_id, m.queue_id;

-- name: places
join jmsql_internal.queue q using (queue_id)
left join jmsql_internal.subscription s using (queue_id)
left join jmsql_internal.topic t on t.topic_id = s.topic_id
where m.jms_message_id::text = %(message_id)s and (q.name is not null or t.name is not null);

-- name: last_sequence
-- What is sent from now on has a higher one.
select last_value from jmsql_internal.message_sequence;

-- name: free
-- Candidates that no session holds. The state is read under the rows' locks: a claim cannot come in between.
candidate as materialized (
    {candidates}),
state as materialized (
    select s.* from jmsql_internal.delivery_state(%(queue_id)s,
        (select pg_catalog.array_agg(inverse_priority) from candidate),
        (select pg_catalog.array_agg(sequence) from candidate)) s),
free as materialized (
    select c.*, s.delivery_count from candidate c left join state s using (inverse_priority, sequence)
    where s.claim_id is null)

-- name: candidates
select m.ctid as address, m.inverse_priority, m.sequence
    from jmsql_internal.message m
    where m.queue_id = %(queue_id)s and m.sequence <= %(newest)s
      and (m.inverse_priority, m.sequence) > (%(inverse_priority)s::smallint, %(sequence)s::bigint)
      and {is_sent} {chosen}
    order by m.queue_id, m.inverse_priority, m.sequence
    limit %(limit)s
    for update of m skip locked

-- name: purge
with {free},
{history},
deleted as (
    delete from jmsql_internal.message m
    where m.ctid = any(array(select f.address from free f)) and {recorded}
      and (select jmsql_internal.note_ending('cancelled'))
    returning m.queue_id, m.inverse_priority, m.sequence, m.jms_message_id),
noted as materialized (
    select jmsql_internal.note_activity(
        'purge'::text, %(queue_id)s::integer, count(*), pg_catalog.array_agg(m.jms_message_id))
    from deleted m),
forgotten as (
    delete from jmsql_internal.delivery where ctid = any(array(
        select d.address from deleted m
        cross join lateral (
            select t.ctid as address from jmsql_internal.delivery t
            where (t.queue_id, t.inverse_priority, t.sequence) = (m.queue_id, m.inverse_priority, m.sequence)
            offset 0) d)))
select c.inverse_priority, c.sequence, (select count(*) from deleted)
from candidate c where (select count(*) from noted) > 0 order by c.inverse_priority desc, c.sequence desc limit 1;

-- name: purge_delayed
with deleted as (
    delete from jmsql_internal.delayed_message where ctid = any(array(
        select m.ctid from jmsql_internal.delayed_message m
        where m.queue_id = %(queue_id)s and m.sequence <= %(newest)s {chosen}
        limit %(limit)s
        for update skip locked)) and (select jmsql_internal.note_ending('cancelled'))
    returning jms_message_id)
select count(*), jmsql_internal.note_activity(
    'purge'::text, %(queue_id)s::integer, count(*), pg_catalog.array_agg(m.jms_message_id))
from deleted m;

-- name: move
select jmsql_internal.move_step(%(source)s, %(target)s, {sequences}, %(newest)s, %(most)s, {delayed});

-- name: chosen_present
array(
    select m.sequence from jmsql_internal.message m
    left join {delivery_of_m} on true
    where m.queue_id = %(source)s and m.sequence <= %(newest)s and {is_sent} {chosen} and d.claim_id is null
    order by m.queue_id, m.inverse_priority, m.sequence
    limit %(most)s
    for update of m skip locked);

-- name: chosen_delayed
array(
    select m.sequence from jmsql_internal.delayed_message m
    where m.queue_id = %(source)s and m.sequence <= %(newest)s {chosen}
    order by m.queue_id, m.jms_delivery_time, m.sequence
    limit %(most)s
    for update of m skip locked);

-- name: is_dead_letter
m.properties ? 'JMS_jmsql_DeadLetterReason'::text;

-- name: dead_letters
select d.queue, d.sequence, d.original_destination, d.original_subscription, d.reason, d.deliveries, d.error,
       d.first_failed_at, d.died_at, d.message_id, d.type, d.priority, d.sent_at, d.expires_at, d.correlation_id,
       d.jms_type, d.properties::text, d.body, d.original_client_id, d.last_error
from jmsql.dead_letters d
join jmsql_internal.queue q on q.name = d.queue
join jmsql_internal.message m on m.queue_id = q.queue_id and m.sequence = d.sequence
where {is_dead_letter} {of_queue} {chosen}
order by d.died_at desc, d.sequence desc
limit %(limit)s;

-- name: retry_dead_letters
with chosen as materialized (
    select m.inverse_priority, m.sequence from jmsql_internal.message m
    where m.queue_id = %(queue_id)s and {is_dead_letter} {chosen}
    order by m.queue_id, m.inverse_priority, m.sequence
    limit %(limit)s::bigint)
select r.destination, r.subscription, r.returned
from (select pg_catalog.array_agg(inverse_priority) as inverse_priorities, pg_catalog.array_agg(sequence) as sequences from chosen) k
cross join lateral jmsql_internal.return_dead_letters(%(queue_id)s, k.inverse_priorities, k.sequences) r
union all
select null, null, count(*) from chosen;

-- name: homeless
-- The dead letters whose origin is gone, by origin.
select g.origin, g.subscription, g.messages
from (
    select f.origin, f.subscription, f.client_id, count(*) as messages
    from (select m.properties ->> 'JMS_jmsql_OriginalDestination'::text as origin,
                 m.properties ->> 'JMS_jmsql_OriginalSubscription'::text as subscription,
                 m.properties ->> 'JMS_jmsql_OriginalClientID'::text as client_id
          from ({letters}) m
          where m.properties ? 'JMS_jmsql_DeadLetterReason'::text) f
    group by f.origin, f.subscription, f.client_id) g
where {is_homeless};

-- name: is_homeless
-- True if the queue or subscription is gone that letters `g` come from.
not exists (
    select from jmsql_internal.queue q
    where starts_with(g.origin, 'queue://'::text) and q.name = substr(g.origin, 9)
    union all
    select from jmsql_internal.subscription s
    join jmsql_internal.topic t on t.topic_id = s.topic_id
    where starts_with(g.origin, 'topic://'::text) and t.name = substr(g.origin, 9) and s.name = g.subscription
      and s.client_id is not distinct from g.client_id)

-- name: chosen_letters
select m.* from jmsql_internal.message m
    where m.queue_id = %(queue_id)s and {is_dead_letter} {chosen}
    order by m.queue_id, m.inverse_priority, m.sequence
    limit %(limit)s::bigint

-- name: dead_letter_queues
select q.name from jmsql_internal.queue q
where q.name is not null and exists (
    select from jmsql_internal.message m where m.queue_id = q.queue_id and {is_dead_letter})
order by q.name;
