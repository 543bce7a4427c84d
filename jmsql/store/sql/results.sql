-- The results of messages, for listeners that keep them, and the states of all messages.

-- name: keep_for
-- The queue may be gone: then a consumer that is making it again asks again.
insert into jmsql_internal.result_keeping as k (queue_id, seconds, keeps_message)
select q.queue_id, %(seconds)s::float8, %(keeps_message)s::boolean from jmsql_internal.queue q
where q.queue_id = %(queue_id)s::integer
on conflict (queue_id) do update set seconds = excluded.seconds, keeps_message = excluded.keeps_message
where (k.seconds, k.keeps_message) <> (excluded.seconds, excluded.keeps_message);

-- name: keep
insert into jmsql_internal.result as r
    (message_id, queue_id, deliveries, sent_at, started_at, finished_at, kept_until, state, value, error, jms_type, properties,
     text_body)
values (%(message_id)s::uuid, %(queue_id)s::integer, %(deliveries)s::integer,
        jmsql_internal.to_timestamp(%(sent_at)s::bigint), clock_timestamp() - %(seconds)s::float8 * interval '1 second',
        clock_timestamp(), clock_timestamp() + %(keep)s::float8 * interval '1 second', %(state)s::text, %(value)s::json,
        %(error)s::text, %(jms_type)s::text, %(properties)s::jsonb, %(text_body)s::text)
on conflict (message_id, queue_id) do update set {replaced};

-- name: replaced
deliveries = excluded.deliveries, sent_at = excluded.sent_at, started_at = excluded.started_at,
    finished_at = excluded.finished_at, kept_until = excluded.kept_until, state = excluded.state, value = excluded.value,
    error = excluded.error, jms_type = excluded.jms_type, properties = excluded.properties, text_body = excluded.text_body

-- name: find_result
-- A dead letter that another queue has handled has a result of each.
select r.state, coalesce(q.name, t.name), r.value::text, r.error, r.deliveries, {sent_at}, {started_at}, {finished_at},
       null::bigint, {kept_until}, r.jms_type, r.properties::text, r.text_body, null::float8, null::text
from jmsql_internal.result r
left join jmsql_internal.queue q on q.queue_id = r.queue_id
left join jmsql_internal.subscription s on s.queue_id = r.queue_id
left join jmsql_internal.topic t on t.topic_id = s.topic_id
where r.message_id = %(message_id)s::uuid
order by r.finished_at desc, r.queue_id desc
limit 1;

-- name: find_message
-- No index has the identifiers, which each send would pay for: all messages are read.
select f.state, coalesce(q.name, t.name), null::text, f.error, f.deliveries, {sent_at}, {claimed_at}, {died_at}, {next_attempt},
       null::bigint, f.jms_type, f.properties::text, f.text_body, f.fraction, f.note
from (
    select m.queue_id,
           case when m.properties ->> 'JMS_jmsql_DeadLetterReason'::text = 'expired' then 'expired'
                when m.properties ? 'JMS_jmsql_DeadLetterReason'::text or d.dead_letter_queue_id is not null then 'failed'
                when d.claim_id is not null then 'running'
                when m.jms_expiration <= (select jmsql_internal.current_milliseconds()) then 'expired'
                when d.delivery_count > 0 then 'retrying'
                else 'waiting' end as state,
           coalesce(m.properties ->> 'JMS_jmsql_LastError'::text, d.last_error) as error,
           coalesce(jmsql_internal.whole_number(m.properties ->> 'JMS_jmsql_Deliveries'::text),
                    d.delivery_count + case when d.claim_id is null then 0 else 1 end, 0)::integer as deliveries,
           jmsql_internal.to_timestamp(m.jms_timestamp) as sent_at, d.claimed_at,
           jmsql_internal.to_timestamp(
               jmsql_internal.whole_number(m.properties ->> 'JMS_jmsql_DeadLetterTime'::text)) as died_at,
           nullif(d.next_attempt, 'infinity') as next_attempt, m.jms_type, m.properties, m.text_body, p.fraction,
           p.note
    from jmsql_internal.message m
    left join lateral (
        select t.claim_id, t.claimed_at, t.next_attempt, t.delivery_count, t.last_error, t.dead_letter_queue_id
        from jmsql_internal.delivery t
        where (t.queue_id, t.inverse_priority, t.sequence) = (m.queue_id, m.inverse_priority, m.sequence)
        offset 0) d on true
    left join lateral (
        select r.fraction, r.note from jmsql_internal.reported_progress r
        where (r.queue_id, r.inverse_priority, r.sequence) = (m.queue_id, m.inverse_priority, m.sequence)
          and r.claim_id = d.claim_id
        offset 0) p on true
    where m.jms_message_id = %(message_id)s::uuid and {is_sent}
    union all
    select m.queue_id,
           case when m.jms_expiration <= (select jmsql_internal.current_milliseconds()) then 'expired' else 'waiting' end,
           null::text, 0, jmsql_internal.to_timestamp(m.jms_timestamp), null::timestamptz, null::timestamptz,
           jmsql_internal.to_timestamp(m.jms_delivery_time), m.jms_type, m.properties, m.text_body, null::float8, null::text
    from jmsql_internal.delayed_message m
    where m.jms_message_id = %(message_id)s::uuid) f
join jmsql_internal.queue q on q.queue_id = f.queue_id
left join jmsql_internal.subscription s on s.queue_id = f.queue_id
left join jmsql_internal.topic t on t.topic_id = s.topic_id
where q.deleted_at is null
-- A message of a topic is in each subscription: as long as it is in one of them, it has not ended.
order by case f.state when 'running' then 1 when 'retrying' then 2 when 'waiting' then 3 else 4 end, f.queue_id
limit 1;

-- name: find_past
select case h.outcome::text when 'acknowledged' then 'done' when 'dead-lettered' then 'failed' else h.outcome::text end,
       h.destination, null::text, null::text, h.delivery_count, {sent_at}, null::bigint, {left_at}, null::bigint,
       null::bigint, h.jms_type, h.properties::text, h.text_body, null::float8, null::text
from jmsql_internal.message_history h
where h.jms_message_id = %(message_id)s::uuid and h.outcome <> 'purged'
order by h.acknowledged_at desc, h.transaction_id desc, h.sequence desc
limit 1;

-- name: microseconds
(extract(epoch from {time}) * 1000000::numeric)::bigint

-- name: remove_results
delete from jmsql_internal.result where ctid = any(array(
    select r.ctid from jmsql_internal.result r
    where r.kept_until between '-infinity' and (select clock_timestamp())
    order by r.kept_until
    limit %(limit)s
    for update skip locked));

-- name: kept_of_expired
-- Of expired messages `e` with their states `s`. A message may have been replayed under its identifier, and be there twice.
, kept as (
    insert into jmsql_internal.result as r
        (message_id, queue_id, deliveries, sent_at, finished_at, kept_until, state, jms_type, properties, text_body, error)
    select distinct on (e.jms_message_id, e.queue_id)
           e.jms_message_id, e.queue_id, coalesce(s.delivery_count, 0), jmsql_internal.to_timestamp(e.jms_timestamp),
           clock_timestamp(), clock_timestamp() + k.seconds * interval '1 second', 'expired',
           case when k.keeps_message then e.jms_type end, case when k.keeps_message then e.properties end,
           case when k.keeps_message then e.text_body end, s.last_error
    from expired e
    join deleted d using (queue_id, inverse_priority, sequence)
    join jmsql_internal.result_keeping k using (queue_id)
    left join state s using (queue_id, inverse_priority, sequence)
    where e.jms_message_id is not null
    on conflict (message_id, queue_id) do update set {replaced}
    returning r.message_id),
told as (
    select jmsql_internal.notify(jmsql_internal.result_channel(k.message_id)::text) from kept k)

-- name: count_of_told
+ 0 * (select count(*) from told)
