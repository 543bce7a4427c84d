-- The stored results as lists and pages show them, the last first.

-- name: listed
-- Of the next so many, which are read in the order of their index.
select {shown}
from (
    select r.* from jmsql_internal.result r
    where (r.finished_at, r.message_id, r.queue_id)
          < (%(finished_at)s::timestamptz, %(message_id)s::uuid, %(queue_id)s::integer)
    order by r.finished_at desc, r.message_id desc, r.queue_id desc
    limit %(window)s) r
left join lateral ({place}) p on true
where (%(destination)s::text is null or p.name = %(destination)s::text)
  and (%(state)s::text is null or r.state = %(state)s::text)
order by r.finished_at desc, r.message_id desc, r.queue_id desc
limit %(limit)s;

-- name: end_of_window
select r.finished_at, r.message_id::text, r.queue_id
from jmsql_internal.result r
where (r.finished_at, r.message_id, r.queue_id) < (%(finished_at)s::timestamptz, %(message_id)s::uuid, %(queue_id)s::integer)
order by r.finished_at desc, r.message_id desc, r.queue_id desc
limit 1 offset %(window)s::integer - 1;

-- name: shown
'ID:' || r.message_id, p.name, r.state, {value}, {error}, r.deliveries, r.sent_at, r.started_at, r.finished_at, r.kept_until, r.queue_id

-- name: beginning_of_value
-- A long value is not unpacked for its beginning.
case when pg_column_size(r.value) <= 8192 then left(r.value::text, 200) end

-- name: place
-- The queue, or the topic of the subscription; no row where it is gone.
select coalesce(q.name, t.name) as name from jmsql_internal.queue q
left join jmsql_internal.subscription s on s.queue_id = q.queue_id
left join jmsql_internal.topic t on t.topic_id = s.topic_id
where q.queue_id = r.queue_id
offset 0

-- name: whole
-- A dead letter that another queue has handled has a result of each.
select {shown}, octet_length(v.text), r.jms_type, {contents}
from (
    select r.* from jmsql_internal.result r where r.message_id = %(message_id)s::uuid
    order by r.finished_at desc, r.queue_id desc limit %(limit)s) r
left join lateral ({place}) p on true
left join lateral (select r.value::text as text offset 0) v on true
order by r.finished_at desc, r.queue_id desc;

-- name: contents
left(r.properties::text, %(longest)s::integer), left(r.text_body, %(longest)s::integer), octet_length(r.text_body)

-- name: no_contents
null::text, null::text, null::integer

-- name: whole_value
left(v.text, %(longest)s::integer)

-- name: whole_error
left(r.error, %(longest)s::integer)

-- name: keeping
-- The queues that keep results, for suggestions.
select q.name from jmsql_internal.result_keeping k join jmsql_internal.queue q using (queue_id)
where q.name is not null and q.deleted_at is null
order by k.queue_id
limit %(limit)s;

-- name: has_result
select exists (select from jmsql_internal.result r where r.message_id = %(message_id)s::uuid);

-- name: keeps_results
select exists (select from jmsql_internal.result_keeping k where k.queue_id = %(queue_id)s::integer);
