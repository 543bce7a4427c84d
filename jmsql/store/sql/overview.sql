-- Which destinations need a look, and how much waits there, counted to a limit. Each statement reads at most 20,000 rows.

-- name: last_of_window
select max(f.queue_id), count(*) from (
    select q.queue_id from jmsql_internal.queue q
    where q.queue_id > %(after)s::integer order by q.queue_id limit %(window)s::integer) f;

-- name: queues
-- The queues and subscriptions of some numbers. Only queues are chosen by name here: the names of topics are looked up later.
(
    select q.queue_id, q.name from jmsql_internal.queue q
    where q.queue_id > %(after)s::integer and q.queue_id <= %(last)s::integer
      and q.deleted_at is null and q.connection_id is null and {is_browsable}
      and (%(pattern)s::text is null or q.name is null or q.name like %(pattern)s::text)
      and (%(kind)s::text is null or (q.name is not null) = (%(kind)s::text = 'queue')) offset 0);

-- name: oldest
-- Of the queues and subscriptions of some numbers, those in which messages were sent first, by the sequences. Two lookups for
-- each: its first message, and the first of a lower priority. Messages of more than two priorities are rare, and looked for
-- where there are some. What is a queue is known to be listed; only of subscriptions the topics are looked up.
select w.queue_id, w.sequence
from (
    select q.queue_id, q.name,
           least(f.sequence, g.sequence, case when g.inverse_priority < 9 then (
               select min(n.sequence)
               from generate_series(g.inverse_priority + 1, 9) p
               cross join lateral (
                   select m.sequence from jmsql_internal.message m
                   where m.queue_id = q.queue_id and m.inverse_priority = p::smallint
                   order by m.queue_id, m.inverse_priority, m.sequence limit 1) n) end) as sequence
    from {queues} q
    cross join lateral (
        select m.inverse_priority, m.sequence from jmsql_internal.message m
        where m.queue_id = q.queue_id
        order by m.queue_id, m.inverse_priority, m.sequence limit 1) f
    left join lateral (
        select m.inverse_priority, m.sequence from jmsql_internal.message m
        where m.queue_id = q.queue_id and m.inverse_priority > f.inverse_priority
        order by m.queue_id, m.inverse_priority, m.sequence limit 1) g on true
    order by 3 offset 0) w
where w.name is not null or exists ({wanted})
order by w.sequence
limit %(limit)s;

-- name: wanted
-- Whether a queue or subscription `w` is to be listed.
select from jmsql_internal.queue q
left join lateral (
    select s.topic_id, s.name from jmsql_internal.subscription s where s.queue_id = q.queue_id offset 0) s on true
left join lateral (
    select o.name, o.connection_id from jmsql_internal.topic o where o.topic_id = s.topic_id offset 0) o on true
where q.queue_id = w.queue_id and q.deleted_at is null and q.connection_id is null and o.connection_id is null
  and coalesce(q.name, o.name) is not null
  and (%(kind)s::text is null or case when s.topic_id is null then 'queue' else 'subscription' end = %(kind)s::text)
  and (%(pattern)s::text is null or coalesce(q.name, o.name) like %(pattern)s::text or s.name like %(pattern)s::text)
offset 0

-- name: chosen
-- Of the destinations by their numbers, those of a kind and of some names.
where (%(kind)s::text is null or case when s.queue_id is null then 'queue' else 'subscription' end = %(kind)s::text)
  and (%(pattern)s::text is null or coalesce(q.name, o.name) like %(pattern)s::text or s.name like %(pattern)s::text)

-- name: pages
select pg_relation_size('jmsql_internal.message'::regclass) / current_setting('block_size')::bigint,
       pg_relation_size('jmsql_internal.delayed_message'::regclass) / current_setting('block_size')::bigint;

-- name: sampled
-- By how many of a sample of the messages they have.
select w.queue_id, w.messages
from (
    select f.queue_id, count(*) as messages
    from (select m.queue_id
          from (select m.queue_id, m.transaction_id
                from jmsql_internal.message m tablesample system (%(percentage)s::real) limit 15000) m
          where {is_sent}
          union all
          (select m.queue_id
           from jmsql_internal.delayed_message m tablesample system (%(percentage_of_delayed)s::real) limit 3000)) f
    group by f.queue_id order by 2 desc, 1 offset 0) w
cross join lateral ({wanted}) q
order by w.messages desc, w.queue_id
limit %(limit)s;

-- name: bounds
-- Of the queues and subscriptions of some numbers, those with messages, and how many each can have at most. Sequences are
-- unique: of a priority there are no more messages than numbers from the first to the last. Of delayed messages, whose
-- key begins with a time, a few are counted, and more are taken for any number.
select w.queue_id, w.most
from (
    select q.queue_id, q.name,
           p.most + case when d.messages < 5 then d.messages else 2147483647 end as most
    from {queues} q
    left join lateral (
        select m.inverse_priority, m.sequence from jmsql_internal.message m
        where m.queue_id = q.queue_id
        order by m.queue_id, m.inverse_priority, m.sequence limit 1) f on true
    left join lateral (
        select m.inverse_priority, m.sequence from jmsql_internal.message m
        where m.queue_id = q.queue_id
        order by m.queue_id desc, m.inverse_priority desc, m.sequence desc limit 1) l on true
    cross join lateral (
        select case
            when f.sequence is null then 0
            when f.inverse_priority = l.inverse_priority then l.sequence - f.sequence + 1
            else (
                select coalesce(sum(y.sequence - x.sequence + 1), 0)::bigint
                from generate_series(f.inverse_priority::integer, l.inverse_priority::integer) n
                cross join lateral (
                    select m.sequence from jmsql_internal.message m
                    where m.queue_id = q.queue_id and m.inverse_priority = n::smallint
                    order by m.queue_id, m.inverse_priority, m.sequence limit 1) x
                cross join lateral (
                    select m.sequence from jmsql_internal.message m
                    where m.queue_id = q.queue_id and m.inverse_priority = n::smallint
                    order by m.queue_id desc, m.inverse_priority desc, m.sequence desc limit 1) y) end as most) p
    cross join lateral (
        select count(*) as messages from (
            select from jmsql_internal.delayed_message m where m.queue_id = q.queue_id
            order by m.queue_id, m.jms_delivery_time, m.sequence limit 5) m) d
    offset 0) w
where w.most > 0 and (w.name is not null or exists ({wanted}));

-- name: depths
-- How many messages some queues and subscriptions have, counted to a limit.
select q.queue_id, p.messages + d.messages
from (select q.queue_id from pg_catalog.unnest(%(queue_ids)s::integer[]) q (queue_id)) q
cross join lateral (
    select count(*) filter (where m.is_sent) as messages from (
        select {is_sent} as is_sent from jmsql_internal.message m where m.queue_id = q.queue_id
        order by m.queue_id, m.inverse_priority, m.sequence limit %(most)s::bigint) m) p
cross join lateral (
    select count(*) as messages from (
        select from jmsql_internal.delayed_message m where m.queue_id = q.queue_id
        order by m.queue_id, m.jms_delivery_time, m.sequence limit %(most)s::bigint) m) d;

-- name: counters
select t.destination_id, t.sent, t.acknowledged, t.rolled_back from jmsql_internal.destination_counters t limit 20000;

-- name: named_queues
select q.queue_id
from (select q.queue_id, q.name, q.deleted_at, q.connection_id from jmsql_internal.queue q
      where q.name is not null order by q.name limit 20000) q
where q.deleted_at is null and q.connection_id is null and (%(pattern)s::text is null or q.name like %(pattern)s::text)
order by q.name
limit %(limit)s;

-- name: named_subscriptions
select s.queue_id
from (select s.queue_id, s.topic_id, s.name, s.client_id from jmsql_internal.subscription s limit 6000) s
cross join lateral (
    select o.name, o.connection_id from jmsql_internal.topic o where o.topic_id = s.topic_id offset 0) o
cross join lateral (select q.deleted_at from jmsql_internal.queue q where q.queue_id = s.queue_id offset 0) q
where o.connection_id is null and q.deleted_at is null
  and (%(pattern)s::text is null or o.name like %(pattern)s::text or s.name like %(pattern)s::text)
order by o.name, s.name, s.client_id, s.queue_id
limit %(limit)s;

-- name: named_topics
select o.topic_id
from (select o.topic_id, o.name, o.connection_id from jmsql_internal.topic o order by o.name limit 20000) o
where o.connection_id is null and (%(pattern)s::text is null or o.name like %(pattern)s::text)
order by o.name
limit %(limit)s;

-- name: topics
select o.topic_id, o.name, coalesce(q.paused, false), coalesce(t.sent, 0), coalesce(t.acknowledged, 0),
       coalesce(t.rolled_back, 0), coalesce(t.redelivered, 0)
from (select o.topic_id, o.name, o.connection_id from jmsql_internal.topic o
      where o.topic_id = any(%(topic_ids)s::integer[]) offset 0) o
left join lateral (
    select q.paused from jmsql_internal.queue q where q.topic_id = o.topic_id offset 0) q on true
left join lateral (
    select t.sent, t.acknowledged, t.rolled_back, t.redelivered from jmsql_internal.destination_counters t
    where t.destination_id = -o.topic_id offset 0) t on true
where o.connection_id is null and (%(pattern)s::text is null or o.name like %(pattern)s::text);

-- name: counts
-- Of a few queues and subscriptions: how many messages of each state they have, each counted to a limit, and who receives.
-- Where no message can expire and no transaction is pending, all messages count alike, and the index tells how many there are.
select q.queue_id, a.messages + p.messages, p.expired, l.messages, l.expired, y.deliveries, y.claimed, y.waiting, y.redelivered,
       y.oldest_claim, c.consumers
from (
    select q.queue_id, {is_browsable} as is_browsable,
           not exists (select from jmsql_internal.pending_transaction)
               and (select m.jms_expiration from jmsql_internal.message m where m.jms_expiration is not null
                    order by m.jms_expiration limit 1) is null as is_alike
    from jmsql_internal.queue q
    where q.queue_id = any(%(queue_ids)s::integer[]) offset 0) q
cross join lateral (
    select count(*) as messages
    from (
        select from jmsql_internal.message m
        where m.queue_id = q.queue_id and q.is_browsable and q.is_alike
        order by m.queue_id, m.inverse_priority, m.sequence limit %(most)s) m) a
cross join lateral (
    select count(*) filter (where m.is_sent) as messages,
           count(*) filter (where m.is_sent
                              and m.jms_expiration <= (select jmsql_internal.current_milliseconds())) as expired
    from (
        select {is_sent} as is_sent, m.jms_expiration from jmsql_internal.message m
        where m.queue_id = q.queue_id and q.is_browsable and not q.is_alike
        order by m.queue_id, m.inverse_priority, m.sequence limit %(most)s) m) p
cross join lateral (
    select count(*) as messages,
           count(*) filter (where m.jms_expiration <= (select jmsql_internal.current_milliseconds())) as expired
    from (
        select m.jms_expiration from jmsql_internal.delayed_message m
        where m.queue_id = q.queue_id and q.is_browsable
        order by m.queue_id, m.jms_delivery_time, m.sequence limit %(most)s) m) l
cross join lateral (
    select count(*) as deliveries,
           count(*) filter (where d.claim_id is not null and m.is_fresh) as claimed,
           count(*) filter (where d.claim_id is null and m.is_fresh
                              and d.next_attempt > statement_timestamp()) as waiting,
           count(*) filter (where d.delivery_count > 0) as redelivered,
           min(d.claimed_at) as oldest_claim
    from (
        select d.queue_id, d.inverse_priority, d.sequence, d.claim_id, d.claimed_at, d.next_attempt, d.delivery_count
        from jmsql_internal.delivery d
        where d.queue_id = q.queue_id and q.is_browsable
        order by d.queue_id, d.inverse_priority, d.sequence limit %(most)s) d
    cross join lateral (
        select (n.jms_expiration <= (select jmsql_internal.current_milliseconds())) is not true as is_fresh
        from jmsql_internal.message n
        where (n.queue_id, n.inverse_priority, n.sequence) = (d.queue_id, d.inverse_priority, d.sequence)
        offset 0) m) y
cross join lateral (
    select coalesce(sum(f.consumers), 0)::bigint as consumers from (
        -- A range, since the order then makes PostgreSQL read the index: for the equation alone it may read the table.
        select c.consumers from jmsql_internal.consumer c
        where c.queue_id >= q.queue_id and c.queue_id <= q.queue_id
        order by c.queue_id limit 100) f) c;

-- name: depth
select count(*)
from (
    select from (
        select {is_sent} as is_sent from jmsql_internal.message m where m.queue_id = %(queue_id)s::integer
        order by m.queue_id, m.inverse_priority, m.sequence limit %(most)s::bigint) m
    where m.is_sent) f;

-- name: dead_letters
-- How many dead letters a few queues have, and the age of the newest.
select q.name, d.letters,
       case when n.died_at is not null
            then greatest(0, jmsql_internal.current_milliseconds() - n.died_at)::float8 / 1000::float8 end
from (select q.queue_id, q.name from jmsql_internal.queue q
      where q.queue_id = any(%(queue_ids)s::integer[]) offset 0) q
cross join lateral (
    select count(*) as letters
    from (
        select from jmsql_internal.message m
        where m.queue_id = q.queue_id and m.properties ? 'JMS_jmsql_DeadLetterReason'::text
        order by m.queue_id, m.sequence limit %(most)s::bigint) m) d
left join lateral (
    select jmsql_internal.whole_number(m.properties ->> 'JMS_jmsql_DeadLetterTime'::text) as died_at
    from jmsql_internal.message m
    where m.queue_id = q.queue_id and m.properties ? 'JMS_jmsql_DeadLetterReason'::text
    order by m.queue_id, m.sequence desc limit 1) n on true
order by q.name;

-- name: unattended
-- Of the queues of some numbers, those with messages and without a consumer.
select q.queue_id
from (
    select q.queue_id from jmsql_internal.queue q
    where q.queue_id > %(after)s::integer and q.queue_id <= %(last)s::integer
      and q.name is not null and q.connection_id is null and q.deleted_at is null and not q.paused
      and q.queue_id <> all(%(letters)s::integer[]) and {is_browsable} offset 0) q
cross join lateral (
    select from (
        select m.transaction_id from jmsql_internal.message m where m.queue_id = q.queue_id
        order by m.queue_id, m.inverse_priority, m.sequence limit 1) m
    where {is_sent}) m
where not exists (
    -- A range, so that PostgreSQL reads the index: see the counts.
    select from jmsql_internal.consumer c where c.queue_id >= q.queue_id and c.queue_id <= q.queue_id)
order by q.queue_id;

-- name: notable
-- What a console shows beside the messages: how many destinations there are, which are paused, and where dead and expired
-- messages go.
select count(*) filter (where q.name is not null or q.topic_id is null),
       coalesce((pg_catalog.array_agg(q.queue_id order by q.queue_id) filter (where q.paused))[1:50], '{}'),
       coalesce(pg_catalog.array_cat(
           pg_catalog.array_cat(
               pg_catalog.array_agg(distinct q.dead_letter_queue_id) filter (where q.dead_letter_queue_id is not null),
               pg_catalog.array_agg(distinct q.expiry_queue_id) filter (where q.expiry_queue_id is not null)),
           pg_catalog.array_agg(q.queue_id) filter (where q.name = 'DLQ')), '{}'),
       count(*) filter (where q.paused)
from (select q.queue_id, q.topic_id, q.name, q.paused, q.dead_letter_queue_id, q.expiry_queue_id
      from jmsql_internal.queue q where q.deleted_at is null and q.connection_id is null limit 20000) q;
