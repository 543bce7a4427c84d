-- The views that tell people and programs how things are.
--
-- The planner knows nothing of how many messages a queue has, and where it takes a table for empty, it joins on
-- parts of the key. So each queue is counted for itself, and rows are looked up by the whole key, behind a fence
-- (`offset 0`).

create view jmsql.destinations with (security_invoker) as
select 'queue' as kind, q.name as destination, q.connection_id is not null as temporary,
       jmsql_internal.queue_settings(q) as settings, q.created_at
from jmsql_internal.queue q
where q.name is not null
union all
select 'topic', t.name, t.connection_id is not null,
       coalesce(
           (select jmsql_internal.queue_settings(q) from jmsql_internal.queue q where q.topic_id = t.topic_id), '{}'),
       t.created_at
from jmsql_internal.topic t;
comment on view jmsql.destinations is 'One row a queue or topic, with what is set for it.';

create view jmsql.queues with (security_invoker) as
select q.name as queue,
       present.all_of_them - present.expired - delivered.claimed - delivered.waiting as ready,
       delivered.claimed,
       delivered.waiting,
       later.all_of_them - later.expired as delayed,
       present.expired + later.expired as expired,
       delivered.redelivered,
       jmsql_internal.to_timestamp(least(present.oldest, later.oldest)) as oldest_sent_at,
       (select e.name from jmsql_internal.queue e where e.queue_id = q.expiry_queue_id) as expiry_queue,
       q.created_at
from jmsql_internal.queue q
cross join lateral (
    select count(*) as all_of_them,
           count(*) filter (where n.jms_expiration <= (select jmsql_internal.current_milliseconds())) as expired,
           min(n.jms_timestamp) as oldest
    from jmsql_internal.message n
    where n.queue_id = q.queue_id and nullif(n.transaction_id = any(array(
          select p.transaction_id from jmsql_internal.pending_transaction p)), true) is not null) present
cross join lateral (
    select count(*) as all_of_them,
           count(*) filter (where n.jms_expiration <= (select jmsql_internal.current_milliseconds())) as expired,
           min(n.jms_timestamp) as oldest
    from jmsql_internal.delayed_message n where n.queue_id = q.queue_id) later
cross join lateral (
    select count(*) filter (where d.claim_id is not null and m.is_fresh) as claimed,
           count(*) filter (where d.claim_id is null and d.next_attempt > now() and m.is_fresh) as waiting,
           count(*) filter (where d.delivery_count > 0) as redelivered
    from jmsql_internal.delivery d
    cross join lateral (
        select (n.jms_expiration <= (select jmsql_internal.current_milliseconds())) is not true as is_fresh
        from jmsql_internal.message n
        where (n.queue_id, n.inverse_priority, n.sequence) = (d.queue_id, d.inverse_priority, d.sequence)
        offset 0) m
    where d.queue_id = q.queue_id) delivered
where q.name is not null;
comment on view jmsql.queues is 'One row a queue, with the number of its messages by state.';

create view jmsql.subscriptions with (security_invoker) as
select t.name as topic, s.name as subscription, s.client_id, s.durable, s.shared, s.selector, s.no_local,
       (select coalesce(sum(c.consumers), 0) from jmsql_internal.subscriber c
        where c.queue_id = s.queue_id) as consumers,
       present.all_of_them - present.expired - delivered.claimed - delivered.waiting as ready,
       delivered.claimed,
       delivered.waiting,
       later.all_of_them - later.expired as delayed,
       present.expired + later.expired as expired,
       delivered.redelivered,
       jmsql_internal.to_timestamp(least(present.oldest, later.oldest)) as oldest_sent_at,
       s.created_at
from jmsql_internal.subscription s
join jmsql_internal.topic t using (topic_id)
cross join lateral (
    select count(*) as all_of_them,
           count(*) filter (where n.jms_expiration <= (select jmsql_internal.current_milliseconds())) as expired,
           min(n.jms_timestamp) as oldest
    from jmsql_internal.message n
    where n.queue_id = s.queue_id and nullif(n.transaction_id = any(array(
          select p.transaction_id from jmsql_internal.pending_transaction p)), true) is not null) present
cross join lateral (
    select count(*) as all_of_them,
           count(*) filter (where n.jms_expiration <= (select jmsql_internal.current_milliseconds())) as expired,
           min(n.jms_timestamp) as oldest
    from jmsql_internal.delayed_message n where n.queue_id = s.queue_id) later
cross join lateral (
    select count(*) filter (where d.claim_id is not null and m.is_fresh) as claimed,
           count(*) filter (where d.claim_id is null and d.next_attempt > now() and m.is_fresh) as waiting,
           count(*) filter (where d.delivery_count > 0) as redelivered
    from jmsql_internal.delivery d
    cross join lateral (
        select (n.jms_expiration <= (select jmsql_internal.current_milliseconds())) is not true as is_fresh
        from jmsql_internal.message n
        where (n.queue_id, n.inverse_priority, n.sequence) = (d.queue_id, d.inverse_priority, d.sequence)
        offset 0) m
    where d.queue_id = s.queue_id) delivered;
comment on view jmsql.subscriptions is 'One row a subscription, with the number of its messages by state.';

create view jmsql.messages with (security_invoker) as
select q.name as queue,
       t.name as topic,
       s.name as subscription,
       s.client_id,
       m.sequence,
       'ID:' || m.jms_message_id as message_id,
       9 - m.inverse_priority as priority,
       jmsql_internal.to_timestamp(m.jms_timestamp) as sent_at,
       jmsql_internal.to_timestamp(m.jms_delivery_time) as delivery_time,
       jmsql_internal.to_timestamp(m.jms_expiration) as expires_at,
       case m.jms_delivery_mode when 1 then 'NON_PERSISTENT' else 'PERSISTENT' end as delivery_mode,
       m.jms_correlation_id as correlation_id,
       m.jms_reply_to as reply_to,
       m.jms_type,
       m.properties ->> 'JMSXGroupID' as group_id,
       coalesce(m.properties, '{}') as properties,
       m.message_type::text as type,
       coalesce(
           m.text_body, m.json_body::text, '\x' || encode(m.bytes_body, 'hex'),
           (select coalesce(b.text_body, b.json_body::text, '\x' || encode(b.bytes_body, 'hex'))
            from jmsql_internal.body b where b.body_id = m.body_id)) as body,
       case when m.jms_expiration <= jmsql_internal.current_milliseconds() then 'expired'
            when m.is_delayed then 'delayed'
            when d.claim_id is not null then 'claimed'
            when d.next_attempt > now() then 'waiting'
            else 'ready' end as state,
       coalesce(d.delivery_count, 0) as delivery_count,
       d.connection_id as claimed_by,
       d.claimed_at,
       nullif(d.next_attempt, 'infinity') as next_attempt,
       d.last_error
from jmsql_internal.queue q
left join jmsql_internal.subscription s on s.queue_id = q.queue_id
left join jmsql_internal.topic t on t.topic_id = s.topic_id
cross join lateral (
    select n.queue_id, n.inverse_priority, n.sequence, n.message_type, n.jms_message_id, n.jms_timestamp,
           n.jms_expiration, n.jms_delivery_mode, n.jms_delivery_time, n.jms_correlation_id, n.jms_reply_to, n.jms_type,
           n.properties, n.text_body, n.json_body, n.bytes_body, n.body_id, false as is_delayed
    from jmsql_internal.message n
    where n.queue_id = q.queue_id and nullif(n.transaction_id = any(array(
          select p.transaction_id from jmsql_internal.pending_transaction p)), true) is not null
    union all
    select n.queue_id, n.inverse_priority, n.sequence, n.message_type, n.jms_message_id, n.jms_timestamp,
           n.jms_expiration, n.jms_delivery_mode, n.jms_delivery_time, n.jms_correlation_id, n.jms_reply_to, n.jms_type,
           n.properties, n.text_body, n.json_body, n.bytes_body, n.body_id, true
    from jmsql_internal.delayed_message n where n.queue_id = q.queue_id
    offset 0) m
left join lateral (
    select t.claim_id, t.connection_id, t.claimed_at, t.next_attempt, t.delivery_count, t.last_error
    from jmsql_internal.delivery t
    where (t.queue_id, t.inverse_priority, t.sequence) = (m.queue_id, m.inverse_priority, m.sequence)
    offset 0) d on true
where q.deleted_at is null;
comment on view jmsql.messages is
    'What is queued, readable: one row a message. Order by queue, priority desc, sequence.';

create view jmsql.message_groups with (security_invoker) as
select q.name as queue,
       t.name as topic,
       s.name as subscription,
       s.client_id,
       g.group_id,
       g.messages,
       g.claimed,
       g.claimed_by,
       g.next_attempt,
       g.oldest_sent_at
from jmsql_internal.queue q
cross join lateral (
    select m.properties ->> 'JMSXGroupID' as group_id,
           count(*) as messages,
           count(d.claim_id) as claimed,
           max(d.connection_id) as claimed_by,
           max(nullif(d.next_attempt, 'infinity')) filter (where d.next_attempt > now()) as next_attempt,
           jmsql_internal.to_timestamp(min(m.jms_timestamp)) as oldest_sent_at
    from jmsql_internal.message m
    left join lateral (
    select t.claim_id, t.connection_id, t.claimed_at, t.next_attempt, t.delivery_count, t.last_error
    from jmsql_internal.delivery t
    where (t.queue_id, t.inverse_priority, t.sequence) = (m.queue_id, m.inverse_priority, m.sequence)
    offset 0) d on true
    -- As the index of groups has it.
    where m.queue_id::bigint = q.queue_id and m.group_hash is not null
      and nullif(m.transaction_id = any(array(
          select p.transaction_id from jmsql_internal.pending_transaction p)), true) is not null
    group by m.properties ->> 'JMSXGroupID') g
left join jmsql_internal.subscription s using (queue_id)
left join jmsql_internal.topic t on t.topic_id = s.topic_id
where q.deleted_at is null;
comment on view jmsql.message_groups is
    'One row a group of a queue or subscription. What an open transaction holds, nobody else can see.';

create view jmsql.dead_letters with (security_invoker) as
select q.name as queue,
       m.sequence,
       'ID:' || m.jms_message_id as message_id,
       m.properties ->> 'JMS_jmsql_OriginalDestination' as original_destination,
       m.properties ->> 'JMS_jmsql_OriginalSubscription' as original_subscription,
       m.properties ->> 'JMS_jmsql_OriginalClientID' as original_client_id,
       9 - m.inverse_priority as priority,
       jmsql_internal.to_timestamp(m.jms_timestamp) as sent_at,
       jmsql_internal.to_timestamp(jmsql_internal.whole_number(m.properties ->> 'JMS_jmsql_OriginalExpiration'))
           as expires_at,
       m.jms_correlation_id as correlation_id,
       m.jms_type,
       m.properties - array(select k from jsonb_object_keys(m.properties) k where starts_with(k, 'JMS_jmsql_'))
           as properties,
       m.message_type::text as type,
       coalesce(
           m.text_body, m.json_body::text, '\x' || encode(m.bytes_body, 'hex'),
           (select coalesce(b.text_body, b.json_body::text, '\x' || encode(b.bytes_body, 'hex'))
            from jmsql_internal.body b where b.body_id = m.body_id)) as body,
       m.properties ->> 'JMS_jmsql_DeadLetterReason' as reason,
       least(jmsql_internal.whole_number(m.properties ->> 'JMS_jmsql_Deliveries'), 2147483647)::integer as deliveries,
       (regexp_match(m.properties ->> 'JMS_jmsql_LastError', '([^\n]*)\s*$'))[1] as error,
       m.properties ->> 'JMS_jmsql_LastError' as last_error,
       jmsql_internal.to_timestamp(jmsql_internal.whole_number(m.properties ->> 'JMS_jmsql_FirstFailure'))
           as first_failed_at,
       jmsql_internal.to_timestamp(jmsql_internal.whole_number(m.properties ->> 'JMS_jmsql_DeadLetterTime')) as died_at
from jmsql_internal.message m
join jmsql_internal.queue q using (queue_id)
where m.properties ? 'JMS_jmsql_DeadLetterReason' and q.deleted_at is null;
comment on view jmsql.dead_letters is
    'Messages that were delivered in vain or have expired, where they come from and why. Order by died_at.';

create view jmsql.clients with (security_invoker) as
select c.connection_id, c.client_id, c.user_name, c.host, c.process_id, c.started_at, c.heartbeat_at,
       jmsql_internal.is_connected(c.connection_id) as connected,
       (select count(*) from jmsql_internal.delivery d where d.connection_id = c.connection_id) as claimed
from jmsql_internal.connection c;
comment on view jmsql.clients is 'One row a connection of a client.';

create view jmsql.consumers with (security_invoker) as
select q.name as queue, o.name as topic, s.name as subscription, s.client_id,
       nullif(c.selector, '') as selector, c.consumers, c.connection_id, k.host, k.process_id, k.user_name,
       c.acknowledged, c.rolled_back, c.last_at, c.listeners
from jmsql_internal.consumer c
join jmsql_internal.connection k using (connection_id)
join jmsql_internal.queue q using (queue_id)
left join jmsql_internal.subscription s using (queue_id)
left join jmsql_internal.topic o on o.topic_id = s.topic_id;
comment on view jmsql.consumers is
    'Who receives from what: one row a connection, queue or subscription, and selector, about a second old.';

create view jmsql.counters with (security_invoker) as
select case when q.name is not null then 'queue' when s.queue_id is not null then 'subscription' else 'topic' end
           as kind,
       coalesce(q.name, o.name) as destination,
       s.name as subscription,
       s.client_id,
       t.sent, t.acknowledged, t.rolled_back, t.redelivered,
       t.waited / 1000000::float8 as time_in_queue_seconds, t.calls, t.handled / 1000000::float8 as handling_seconds
from jmsql_internal.destination_counters t
left join jmsql_internal.queue q on q.queue_id = t.destination_id
left join jmsql_internal.subscription s on s.queue_id = t.destination_id
left join jmsql_internal.topic o on o.topic_id = coalesce(s.topic_id, -t.destination_id)
where q.deleted_at is null;
comment on view jmsql.counters is
    'How many messages went through each destination so far, as the clients count: one row a destination.';

create view jmsql.history with (security_invoker) as
select h.destination,
       case when h.is_topic then 'topic' else 'queue' end as destination_type,
       h.subscription,
       h.subscription_client_id,
       h.transaction_id,
       h.sequence,
       'ID:' || h.jms_message_id as message_id,
       9 - h.inverse_priority as priority,
       jmsql_internal.to_timestamp(h.jms_timestamp) as sent_at,
       jmsql_internal.to_timestamp(h.jms_delivery_time) as delivery_time,
       jmsql_internal.to_timestamp(h.jms_expiration) as expires_at,
       case h.jms_delivery_mode when 1 then 'NON_PERSISTENT' else 'PERSISTENT' end as delivery_mode,
       h.jms_correlation_id as correlation_id,
       h.jms_reply_to as reply_to,
       h.jms_type,
       coalesce(h.properties, '{}') as properties,
       h.property_types,
       h.message_type::text as type,
       coalesce(
           h.text_body, h.json_body::text, '\x' || encode(h.bytes_body, 'hex'),
           b.text_body, b.json_body::text, '\x' || encode(b.bytes_body, 'hex')) as body,
       coalesce(h.text_body, b.text_body) as text_body,
       coalesce(h.json_body, b.json_body) as json_body,
       coalesce(h.body_types, b.body_types) as body_types,
       coalesce(h.bytes_body, b.bytes_body) as bytes_body,
       h.outcome::text as outcome,
       h.acknowledged_at,
       h.delivery_count,
       h.acknowledged_at - jmsql_internal.to_timestamp(greatest(h.jms_timestamp, h.jms_delivery_time)) as time_in_queue,
       h.connection_id as consumed_by,
       h.client_id,
       h.user_name
from jmsql_internal.message_history h
left join jmsql_internal.body b using (body_id);
comment on view jmsql.history is
    'What has left the destinations that keep history: one row a message. Give a range of acknowledged_at.';

-- Without the fence, a condition on the day may be checked before the join: on each relation of the database, most of
-- whose names end with no day.
create view jmsql.history_days with (security_invoker) as
select d.day, d.partition, d.estimated_messages, d.bytes, jmsql_internal.is_history_settled(d.day) as settled
from (
    select to_date(right(c.relname, 8), 'YYYYMMDD') as day,
           c.oid::regclass as partition,
           greatest(c.reltuples, 0)::bigint as estimated_messages,
           pg_total_relation_size(c.oid) as bytes
    from pg_catalog.pg_inherits i
    join pg_catalog.pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'jmsql_internal.message_history'::regclass and not i.inhdetachpending offset 0) d;
comment on view jmsql.history_days is 'One row a day of history. A settled day will not change any more.';

create view jmsql.grants with (security_invoker) as
select case when q.queue_id is null then null when t.topic_id is null then 'queue' else 'topic' end as kind,
       coalesce(q.name, t.name) as destination,
       r.rolname as role,
       bool_or(p.action in ('send', 'administer')) as send,
       bool_or(p.action in ('receive', 'administer')) as receive,
       bool_or(p.action in ('browse', 'receive', 'administer')) as browse,
       bool_or(p.action = 'administer') as administer
from jmsql_internal.permission p
join pg_catalog.pg_roles r on r.oid = p.grantee
left join jmsql_internal.queue q using (queue_id)
left join jmsql_internal.topic t using (topic_id)
group by 1, 2, 3;
comment on view jmsql.grants is
    'What roles may do with destinations; one row a role and destination, which is null where it is all of them.';

-- A batch that was not frozen loses its claims when its driver dies, and keeps its row: the claims count, not the row.
create view jmsql.spark_sources with (security_invoker) as
select s.source_id, q.name as queue, t.name as topic, n.name as subscription, s.epoch, s.acknowledged as last_batch,
       coalesce(sum(b.claimed), 0)::bigint as claimed, s.created_at, s.used_at, false as history,
       null::text as position, null::interval as lag
from jmsql_internal.spark_source s
join jmsql_internal.queue q using (queue_id)
left join jmsql_internal.subscription n using (queue_id)
left join jmsql_internal.topic t on t.topic_id = n.topic_id
left join lateral (
    select (select count(*) from jmsql_internal.delivery d
            where d.queue_id = s.queue_id and d.claim_id in (b.claim_id, - b.claim_id)) as claimed
    from jmsql_internal.spark_batch b where b.source_id = s.source_id) b on true
group by s.source_id, q.queue_id, n.queue_id, t.topic_id
union all
select c.source_id, case when not c.is_topic then c.destination end, case when c.is_topic then c.destination end,
       c.subscription, c.epoch, null, 0, c.created_at, c.used_at, true,
       format('%s/%s', c.transaction_id, c.sequence), greatest(now() - c.passed_at, interval '0')
from jmsql_internal.spark_cursor c
where c.holds;
comment on view jmsql.spark_sources is 'One row a streaming read of Spark, running or not.';
