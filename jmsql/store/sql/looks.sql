-- Looks that stay cheap however much there is: each statement reads at most about 20,000 rows, and pages go on by key.

-- name: begin_look
-- Nobody knows how many messages a queue has. The planner takes it for few, and would rather read and sort them all than
-- the first of them in the order of the key. Plans that are forced so look expensive, and to compile them would take
-- longer than the look. To plan each statement for its values would take as long as to run it, and brings nothing: the plans
-- for any values read by the key, too. Nothing else runs in the transaction that this could harm.
select set_config('transaction_read_only', 'on', true), set_config('lock_timeout', '500ms', true),
       set_config('statement_timeout', %(timeout)s, true), set_config('enable_sort', 'off', true),
       set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true),
       set_config('plan_cache_mode', 'force_generic_plan', true);

-- name: rights
select current_user::text, {administers},
       has_table_privilege('jmsql_internal.message'::regclass::oid, 'insert'::text)
           and (not pg_catalog.row_security_active('jmsql_internal.message'::regclass::oid)
                or jmsql_internal.has_access_to_all('send', current_user)),
       {sees_all};

-- name: administers
(has_table_privilege('jmsql_internal.message'::regclass::oid, 'delete'::text)
 and (not pg_catalog.row_security_active('jmsql_internal.message'::regclass::oid)
      or jmsql_internal.has_access_to_all('administer', current_user)));

-- name: destinations
-- By their numbers. Of each priority, the first message tells which is the oldest.
select q.queue_id, coalesce(s.topic_id, q.topic_id), s.queue_id is not null, coalesce(q.name, o.name), s.name,
       s.client_id, coalesce(q.connection_id, o.connection_id) is not null, q.deleted_at is not null, q.paused,
       q.history, q.is_browsable,
       f.inverse_priority is not null,
       least(f.since, g.since, case when g.inverse_priority < 9 then (
           select min(greatest(m.jms_timestamp, m.jms_delivery_time))
           from generate_series(g.inverse_priority + 1, 9) p
           cross join lateral (
               select n.transaction_id, n.jms_timestamp, n.jms_delivery_time from jmsql_internal.message n
               where n.queue_id = q.queue_id and n.inverse_priority = p::smallint
               order by n.queue_id, n.inverse_priority, n.sequence limit 1) m
           where {is_sent}) end),
       coalesce(t.sent, 0), coalesce(t.acknowledged, 0), coalesce(t.rolled_back, 0), coalesce(t.redelivered, 0),
       coalesce(t.waited, 0), coalesce(t.calls, 0), coalesce(t.handled, 0)
from (
    select q.queue_id, q.topic_id, q.name, q.connection_id, q.deleted_at, q.paused, q.history,
           {is_browsable} as is_browsable
    from jmsql_internal.queue q where q.queue_id = any(%(queue_ids)s::integer[]) offset 0) q
left join lateral (
    select s.queue_id, s.topic_id, s.name, s.client_id from jmsql_internal.subscription s
    where s.queue_id = q.queue_id offset 0) s on true
left join lateral (
    select o.name, o.connection_id from jmsql_internal.topic o
    where o.topic_id = coalesce(s.topic_id, q.topic_id) offset 0) o on true
left join lateral (
    select t.sent, t.acknowledged, t.rolled_back, t.redelivered, t.waited, t.calls, t.handled
    from jmsql_internal.destination_counters t
    where t.destination_id = q.queue_id offset 0) t on true
left join lateral (
    select m.inverse_priority, case when {is_sent} then greatest(m.jms_timestamp, m.jms_delivery_time) end as since
    from jmsql_internal.message m
    where m.queue_id = q.queue_id and q.is_browsable and q.deleted_at is null
    order by m.queue_id, m.inverse_priority, m.sequence limit 1) f on true
left join lateral (
    select m.inverse_priority, case when {is_sent} then greatest(m.jms_timestamp, m.jms_delivery_time) end as since
    from jmsql_internal.message m
    where m.queue_id = q.queue_id and m.inverse_priority > f.inverse_priority
    order by m.queue_id, m.inverse_priority, m.sequence limit 1) g on true
{chosen};

-- name: delivery_of_m
select t.claim_id, t.connection_id, t.claimed_at, t.next_attempt, t.delivery_count, t.last_error, t.first_failed_at
from jmsql_internal.delivery t
where (t.queue_id, t.inverse_priority, t.sequence) = (m.queue_id, m.inverse_priority, m.sequence)
offset 0

-- name: settings
select jmsql_internal.queue_settings(q), q.created_at from jmsql_internal.queue q
where q.queue_id = %(queue_id)s::integer;

-- name: subscription
select s.selector, s.durable, s.shared, s.no_local from jmsql_internal.subscription s where s.queue_id = %(queue_id)s::integer;

-- name: topic
select o.topic_id, o.name, o.connection_id is not null, coalesce(q.paused, false),
       case when q.queue_id is null then '{}'::jsonb else jmsql_internal.queue_settings(q) end, o.created_at,
       coalesce(t.sent, 0), coalesce(q.history, false)
from jmsql_internal.topic o
left join jmsql_internal.queue q on q.topic_id = o.topic_id
left join jmsql_internal.destination_counters t on t.destination_id = -o.topic_id
where o.topic_id = %(topic_id)s::integer;

-- name: topic_subscriptions
select f.queue_id, f.name, f.client_id, f.durable, f.shared, f.selector
from (select s.queue_id, s.name, s.client_id, s.durable, s.shared, s.selector
      from jmsql_internal.subscription s where s.topic_id = %(topic_id)s::integer limit 10000) f
where f.queue_id > %(after)s::integer
order by f.queue_id
limit %(limit)s;

-- name: find_queues
-- By a part of their names, among the next so many.
select f.queue_id, f.name, f.topic_id
from (
    select q.queue_id, coalesce(q.name, s.name) as name, s.topic_id
    from (select q.queue_id, q.name from jmsql_internal.queue q
          where q.queue_id > %(after)s::integer order by q.queue_id limit %(window)s) q
    left join lateral (
        select s.name, s.topic_id from jmsql_internal.subscription s
        where s.queue_id = q.queue_id and q.name is null offset 0) s on true) f
where strpos(lower(f.name), lower(%(text)s::text)) > 0
order by f.queue_id
limit %(limit)s;

-- name: last_of_window
select max(f.queue_id), count(*) from (
    select q.queue_id from jmsql_internal.queue q where q.queue_id > %(after)s::integer order by q.queue_id limit %(window)s) f;

-- name: last_topic_of_window
select max(f.topic_id), count(*) from (
    select o.topic_id from jmsql_internal.topic o
    where o.topic_id > %(after)s::integer order by o.topic_id limit %(window)s) f;

-- name: find_topics
select f.topic_id, f.name
from (select o.topic_id, o.name from jmsql_internal.topic o
      where o.topic_id > %(after)s::integer order by o.topic_id limit %(window)s) f
where strpos(lower(f.name), lower(%(text)s::text)) > 0
order by f.topic_id
limit %(limit)s;

-- name: consumers
select c.connection_id, k.client_id, k.host, k.process_id, k.user_name, nullif(c.selector, ''), c.consumers, c.listeners
from (select c.connection_id, c.selector, c.consumers, c.listeners from jmsql_internal.consumer c
      where c.queue_id = %(queue_id)s::integer limit %(limit)s) c
cross join lateral (
    select k.client_id, k.host, k.process_id, k.user_name from jmsql_internal.connection k
    where k.connection_id = c.connection_id offset 0) k
order by c.connection_id, c.selector;

-- name: listed
-- What a list says of a message `m`. A shared body is looked up for its beginning alone.
m.inverse_priority, m.sequence, m.jms_message_id::text, m.message_type::text, m.jms_type, m.jms_correlation_id,
       m.jms_timestamp, m.jms_expiration, m.jms_delivery_time, {preview}, {group}, {letter}

-- name: letter
-- Of a dead letter: where it comes from, and when it died.
m.properties ->> 'JMS_jmsql_OriginalDestination'::text, m.properties ->> 'JMS_jmsql_OriginalSubscription'::text,
       m.properties ->> 'JMS_jmsql_OriginalClientID'::text,
       jmsql_internal.whole_number(m.properties ->> 'JMS_jmsql_DeadLetterTime'::text)

-- name: preview
case when m.body_id is not null then
         (select left(coalesce(b.text_body, left(b.json_body::text, 200), encode(substring(b.bytes_body from 1 for 32), 'hex'::text)), 200)
          from jmsql_internal.body b where b.body_id = m.body_id)
     else left(coalesce(m.text_body, left(m.json_body::text, 200),
                        encode(substring(m.bytes_body from 1 for 32), 'hex'::text)), 200) end

-- name: shown_of_present
{listed}, {state}, coalesce(d.delivery_count, 0), nullif(d.next_attempt, 'infinity'), {error}

-- name: shown_of_delayed
{listed}, {delayed_state}, 0, null::timestamptz, null::text

-- name: present
select {shown}
from (
    select m.* from jmsql_internal.message m
    where m.queue_id = %(queue_id)s::integer
      and (m.inverse_priority, m.sequence) > (%(first)s::smallint, %(sequence)s::bigint)
    order by m.queue_id, m.inverse_priority, m.sequence
    limit %(window)s) m
left join lateral ({delivery_of_m}) d on true
where {is_sent} {chosen} and (%(state)s::text is null or {state} = %(state)s::text)
order by m.inverse_priority, m.sequence
limit %(limit)s;

-- name: end_of_present
-- The last place that a look at the next so many messages comes to.
select m.inverse_priority, m.sequence from jmsql_internal.message m
where m.queue_id = %(queue_id)s::integer
  and (m.inverse_priority, m.sequence) > (%(first)s::smallint, %(sequence)s::bigint)
order by m.queue_id, m.inverse_priority, m.sequence
limit 1 offset %(window)s::integer - 1;

-- name: delayed
select {shown}
from (
    select m.* from jmsql_internal.delayed_message m
    where m.queue_id = %(queue_id)s::integer
      and (m.jms_delivery_time, m.sequence) > (%(first)s::bigint, %(sequence)s::bigint)
    order by m.queue_id, m.jms_delivery_time, m.sequence
    limit %(window)s) m
where true {chosen} and (%(state)s::text is null or {delayed_state} = %(state)s::text)
order by m.jms_delivery_time, m.sequence
limit %(limit)s;

-- name: delayed_state
case when m.jms_expiration <= jmsql_internal.current_milliseconds() then 'expired' else 'delayed' end

-- name: end_of_delayed
select m.jms_delivery_time, m.sequence from jmsql_internal.delayed_message m
where m.queue_id = %(queue_id)s::integer
  and (m.jms_delivery_time, m.sequence) > (%(first)s::bigint, %(sequence)s::bigint)
order by m.queue_id, m.jms_delivery_time, m.sequence
limit 1 offset %(window)s::integer - 1;

-- name: present_keys
-- The messages of a window that an action is for, and how far the window goes.
select m.inverse_priority, m.sequence
from (
    select m.* from jmsql_internal.message m
    where m.queue_id = %(queue_id)s::integer
      and (m.inverse_priority, m.sequence) > (%(first)s::smallint, %(sequence)s::bigint)
    order by m.queue_id, m.inverse_priority, m.sequence
    limit %(window)s) m
left join lateral ({delivery_of_m}) d on true
where m.sequence <= %(newest)s::bigint and {is_sent} {chosen} and (%(state)s::text is null or {state} = %(state)s::text);

-- name: delayed_keys
select m.jms_delivery_time, m.sequence
from (
    select m.* from jmsql_internal.delayed_message m
    where m.queue_id = %(queue_id)s::integer
      and (m.jms_delivery_time, m.sequence) > (%(first)s::bigint, %(sequence)s::bigint)
    order by m.queue_id, m.jms_delivery_time, m.sequence
    limit %(window)s) m
where m.sequence <= %(newest)s::bigint {chosen} and (%(state)s::text is null or {delayed_state} = %(state)s::text);

-- name: present_at
select {shown}
from jmsql_internal.message m
left join lateral ({delivery_of_m}) d on true
where (m.queue_id, m.inverse_priority, m.sequence) = (%(queue_id)s::integer, %(first)s::smallint, %(sequence)s::bigint)
  and {is_sent};

-- name: delayed_at
select {shown}
from jmsql_internal.delayed_message m
where (m.queue_id, m.jms_delivery_time, m.sequence) = (%(queue_id)s::integer, %(first)s::bigint, %(sequence)s::bigint);

-- name: shown_of_whole
{whole}, {state}, coalesce(d.delivery_count, 0), d.connection_id, d.claimed_at,
       nullif(d.next_attempt, 'infinity'), d.first_failed_at, {error}

-- name: shown_of_whole_delayed
{whole}, {delayed_state}, 0, null::bigint, null::timestamptz, null::timestamptz, null::timestamptz, null::text

-- name: whole
-- A message `m` with the first so many characters and bytes of what may be long, and how long that is.
m.inverse_priority, m.sequence, m.jms_message_id::text, m.jms_timestamp, m.jms_expiration, m.jms_delivery_mode,
       m.message_type::text, m.jms_correlation_id, m.jms_reply_to, m.jms_type, m.jms_delivery_time, {content}

-- name: content
left(m.properties::text, %(most)s::integer), left(m.property_types::text, %(most)s::integer),
       coalesce(octet_length(m.properties::text), 0), {contents_of_body}

-- name: contents_of_body
(select pg_catalog.row_to_json(x) from (
           select left(b.text_body, %(most)s::integer) as text, left(b.json_body::text, %(most)s::integer) as json,
                  left(b.body_types::text, %(most)s::integer) as types,
                  encode(substring(b.bytes_body from 1 for %(most)s::integer), 'base64'::text) as bytes,
                  coalesce(octet_length(b.text_body), octet_length(b.json_body::text), octet_length(b.bytes_body)) as size
           from (select m.text_body, m.json_body, m.body_types, m.bytes_body where m.body_id is null
                 union all
                 select t.text_body, t.json_body, t.body_types, t.bytes_body from jmsql_internal.body t
                 where t.body_id = m.body_id) b limit 1) x)::text

-- name: dead_letters
-- The newest dead letters of a queue, by cause. Each row shows the newest letter's error.
select g.reason, g.origin, g.subscription, g.client_id, g.error, g.errors, g.messages, g.first_died_at, g.last_died_at,
       g.inverse_priority, g.sequence, g.cause, {is_homeless}, g.recent
from (
    select f.cause, f.reason, f.origin, f.subscription, f.client_id, count(*) as messages,
           count(distinct f.error) as errors, min(f.died_at) as first_died_at, max(f.died_at) as last_died_at,
           (pg_catalog.array_agg(f.error order by f.sequence desc))[1] as error,
           (pg_catalog.array_agg(f.inverse_priority order by f.sequence desc))[1] as inverse_priority,
           max(f.sequence) as sequence,
           count(*) filter (where f.died_at > statement_timestamp() - interval '1 hour') as recent
    from (
        select m.inverse_priority, m.sequence,
               m.properties ->> 'JMS_jmsql_DeadLetterReason'::text as reason,
               m.properties ->> 'JMS_jmsql_OriginalDestination'::text as origin,
               m.properties ->> 'JMS_jmsql_OriginalSubscription'::text as subscription,
               m.properties ->> 'JMS_jmsql_OriginalClientID'::text as client_id,
               e.line as error, {cause} as cause,
               jmsql_internal.to_timestamp(
                   jmsql_internal.whole_number(m.properties ->> 'JMS_jmsql_DeadLetterTime'::text)) as died_at
        from jmsql_internal.message m
        cross join lateral (select {error_line} as line offset 0) e
        where m.queue_id = %(queue_id)s::integer and m.properties ? 'JMS_jmsql_DeadLetterReason'::text
        order by m.queue_id, m.sequence desc
        limit %(window)s) f
    group by f.cause, f.reason, f.origin, f.subscription, f.client_id) g
order by g.last_died_at desc nulls last, g.sequence desc;

-- name: cause
-- A digest of a dead letter's origin and reason, and of its error without numbers and identifiers. A digest keeps names
-- and errors out of addresses.
encode(sha256(convert_to(pg_catalog.jsonb_build_array(
    m.properties ->> 'JMS_jmsql_DeadLetterReason'::text, m.properties ->> 'JMS_jmsql_OriginalDestination'::text,
    m.properties ->> 'JMS_jmsql_OriginalSubscription'::text, m.properties ->> 'JMS_jmsql_OriginalClientID'::text,
    {alike})::text, 'UTF8'::name)), 'hex'::text)

-- name: alike
-- A word with a digit stands for any other such word: a number, a UUID, an address in memory, an order's name.
regexp_replace({line}, '[[:alnum:]_-]*[0-9][[:alnum:]_-]*([.,:][0-9][[:alnum:]_-]*)*'::text, '#'::text, 'g'::text)

-- name: error_line
-- The line that names the exception, which follows the last frame of the traceback. Its message may have more lines, the
-- last of which is often the same for all errors of a library. Without a traceback, the last line. Found from the end:
-- an expression that matches all of a long traceback takes ten times as long.
(select left((regexp_match(
     case when t.frame > 0 then right(t.error, t.frame) else right(t.error, 2000) end,
     case when t.frame > 0 then '^[^\n]*\n(?:  [^\n]*\n)*([^\n]+)'::text else '([^\n]*)\s*$'::text end))[1], 300)
 from (select e.error, strpos(reverse(e.error), E'" eliF  \n'::text) as frame
       from (select left({failure}, 20000) as error offset 0) e offset 0) t)

-- name: is_of_cause
and m.properties ? 'JMS_jmsql_DeadLetterReason'::text and {cause} = %(cause)s::text

-- name: has_dead_letters
select exists (select from jmsql_internal.message m
               where m.queue_id = %(queue_id)s::integer and m.properties ? 'JMS_jmsql_DeadLetterReason'::text);

-- name: clients
with lock as materialized (
    select l.pid, l.classid, l.objid from pg_catalog.pg_locks l
    where l.locktype = 'advisory' and l.granted and l.objsubid = 1 and l.mode = 'ExclusiveLock'
      and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database()))
select c.connection_id, c.client_id, c.user_name, c.host, c.process_id, c.started_at,
       coalesce(c.heartbeat_at > statement_timestamp() - c.heartbeat_timeout, false) or exists (
           select from lock l where l.pid = c.server_process_id
             and l.classid::bigint = (c.lock_key >> 32) & 4294967295 and l.objid::bigint = c.lock_key & 4294967295)
from (select * from jmsql_internal.connection where connection_id > %(after)s::bigint
      order by connection_id limit %(limit)s) c
order by c.connection_id;

-- name: holders
-- Who holds claimed messages, of the first so many rows of the table of deliveries.
select f.connection_id, f.queue_id, count(*), min(f.claimed_at)
from (select d.connection_id, d.queue_id, d.claimed_at, d.claim_id from jmsql_internal.delivery d
      where {sees_all} limit %(window)s) f
where f.claim_id is not null
group by f.connection_id, f.queue_id
order by min(f.claimed_at), f.connection_id, f.queue_id
limit %(limit)s;

-- name: history
select {past}
from (
    select m.* from jmsql_internal.message_history m
    where m.destination = %(name)s::text
      and (m.transaction_id, m.sequence) < (%(transaction)s::text::xid8, %(sequence)s::bigint)
    order by m.transaction_id desc, m.sequence desc
    limit %(window)s) m
where m.is_topic = %(is_topic)s::boolean and (%(message_id)s::text is null or m.jms_message_id::text = %(message_id)s::text)
order by m.transaction_id desc, m.sequence desc
limit %(limit)s;

-- name: end_of_history
-- The last place that a look at the next so many rows comes to. A queue and a topic of one name share them.
select m.transaction_id::text, m.sequence from jmsql_internal.message_history m
where m.destination = %(name)s::text
  and (m.transaction_id, m.sequence) < (%(transaction)s::text::xid8, %(sequence)s::bigint)
order by m.transaction_id desc, m.sequence desc
limit 1 offset %(window)s::integer - 1;

-- name: past
m.transaction_id::text, m.sequence, m.jms_message_id::text, m.message_type::text, m.subscription, m.outcome::text,
       m.acknowledged_at, m.delivery_count,
       extract(epoch from m.acknowledged_at
               - jmsql_internal.to_timestamp(greatest(m.jms_timestamp, m.jms_delivery_time)))::float8,
       m.client_id, m.user_name, {preview}

-- name: purge_delayed_keys
with gone as (
    delete from jmsql_internal.delayed_message where ctid = any(array(
        select m.address from unnest(%(firsts)s::bigint[], %(sequences)s::bigint[]) k (first, sequence)
        cross join lateral (
            select n.ctid as address from jmsql_internal.delayed_message n
            where (n.queue_id, n.jms_delivery_time, n.sequence) = (%(queue_id)s::integer, k.first, k.sequence)
            offset 0 for update skip locked) m)) and (select jmsql_internal.note_ending('cancelled'))
    returning jms_message_id)
select count(*), jmsql_internal.note_activity(
    'purge'::text, %(queue_id)s::integer, count(*), pg_catalog.array_agg(m.jms_message_id))
from gone m;

-- name: move_delayed_keys
with gone as (
    delete from jmsql_internal.delayed_message where ctid = any(array(
        select m.address from unnest(%(firsts)s::bigint[], %(sequences)s::bigint[]) k (first, sequence)
        cross join lateral (
            select n.ctid as address from jmsql_internal.delayed_message n
            where (n.queue_id, n.jms_delivery_time, n.sequence) = (%(queue_id)s::integer, k.first, k.sequence)
            offset 0 for update skip locked) m))
    returning *),
moved as (
    insert into jmsql_internal.delayed_message (queue_id, {moved_columns})
    select %(target)s::integer, {moved_columns} from gone order by inverse_priority, sequence
    returning jms_message_id)
select count(*), {noted} from moved m;

-- name: move_keys
with {free_of_keys},
forgotten as (
    delete from jmsql_internal.delivery where ctid = any(array(
        select d.address from free f
        cross join lateral (
            select t.ctid as address from jmsql_internal.delivery t
            where (t.queue_id, t.inverse_priority, t.sequence) = (%(queue_id)s::integer, f.inverse_priority, f.sequence)
            offset 0) d))),
gone as (
    delete from jmsql_internal.message where ctid = any(array(select f.address from free f))
    returning *),
moved as (
    insert into jmsql_internal.message (queue_id, {moved_columns})
    select %(target)s::integer, {moved_columns} from gone order by inverse_priority, sequence
    returning jms_message_id),
-- A dead letter that is moved is about to be handled again.
forgotten_results as (
    delete from jmsql_internal.result where message_id = any(array(select g.jms_message_id from gone g)))
select count(*), {noted}, jmsql_internal.notify(%(target)s::integer::text) from moved m;

-- name: noted_move
jmsql_internal.note_activity(
    'move'::text, %(queue_id)s::integer, count(*), pg_catalog.array_agg(m.jms_message_id),
    'done'::text, %(target)s::integer)

-- name: candidates_of_keys
select m.address, m.inverse_priority, m.sequence
    from unnest(%(firsts)s::smallint[], %(sequences)s::bigint[]) k (first, sequence)
    cross join lateral (
        select m.ctid as address, m.inverse_priority, m.sequence from jmsql_internal.message m
        where (m.queue_id, m.inverse_priority, m.sequence) = (%(queue_id)s::integer, k.first, k.sequence) and {is_sent}
        offset 0 for update of m skip locked) m

-- name: retry_keys
select r.destination, r.subscription, r.returned
from jmsql_internal.return_dead_letters(
    %(queue_id)s::integer, %(firsts)s::smallint[], %(sequences)s::bigint[]) as r (destination, subscription, returned);

-- name: message_ids
select 'ID:'::text || m.message_id
from unnest(%(firsts)s::smallint[], %(sequences)s::bigint[]) k (first, sequence)
cross join lateral (
    select n.jms_message_id::text as message_id from jmsql_internal.message n
    where (n.queue_id, n.inverse_priority, n.sequence) = (%(queue_id)s::integer, k.first, k.sequence)
    offset 0) m
where m.message_id is not null;

-- name: message_ids_of_delayed
select 'ID:'::text || m.message_id
from unnest(%(firsts)s::bigint[], %(sequences)s::bigint[]) k (first, sequence)
cross join lateral (
    select n.jms_message_id::text as message_id from jmsql_internal.delayed_message n
    where (n.queue_id, n.jms_delivery_time, n.sequence) = (%(queue_id)s::integer, k.first, k.sequence)
    offset 0) m
where m.message_id is not null;

-- name: letters_of_keys
select m.* from unnest(%(firsts)s::smallint[], %(sequences)s::bigint[]) k (first, sequence)
    cross join lateral (
        select m.* from jmsql_internal.message m
        where (m.queue_id, m.inverse_priority, m.sequence) = (%(queue_id)s::integer, k.first, k.sequence)
        offset 0) m
