-- What a client's control connection asks: who lives, who listens, and what each client does.

-- name: listen
listen {schema};

-- name: unlisten
unlisten {schema};

-- name: delivering_queues
select q.queue_id from jmsql_internal.queue q
where q.queue_id = any(%(queue_ids)s::integer[]) and not q.paused and q.deleted_at is null;

-- name: notify
-- Where the server's queue of notifications is full, the commit would fail. Consumers then hear of messages when they poll.
select pg_notify({channel}, payload) from pg_catalog.unnest(%(payloads)s::text[]) as payload
where (select pg_notification_queue_usage()) < 0.9::float8;

-- name: announce_waits
-- The buckets of channels for whose messages the client's consumers wait from now on. Where a sender asks just now, or a role
-- holds the lock against all, there is none; senders then notify, for the role, or are asked again.
select bucket from pg_catalog.unnest(%(buckets)s::integer[]) as bucket
where pg_try_advisory_lock_shared(hashtextextended({channel}, bucket::bigint));

-- name: end_waits
select pg_advisory_unlock_shared(hashtextextended({channel}, bucket::bigint)) from pg_catalog.unnest(%(buckets)s::integer[]) as bucket;

-- name: waited_for
-- After a commit: who begins to wait later looks once it has its lock, and finds what was committed.
select array(select channel from pg_catalog.unnest(%(channels)s::integer[]) as channel where {may_be_waited_for});

-- name: notify_after_commit
-- The same, and it notifies those who wait. PostgreSQL gives the transaction of a notification a number, and its commit would
-- wait for the disk; and it waits for other commits that notify, but not for longer than a sender can bear.
with commit as materialized (
    select set_config('synchronous_commit', 'off', true), set_config('lock_timeout', %(lock_timeout)s, true)),
told as materialized (
    select channel, pg_notify({channel}, channel::text)
    from commit cross join pg_catalog.unnest(%(channels)s::integer[]) as channel where {may_be_waited_for})
select array(select channel from told);

-- name: notify_where_waited_for
select pg_notify({channel}, channel::text) from pg_catalog.unnest(%(channels)s::integer[]) as channel
where (select pg_notification_queue_usage()) < 0.9::float8 and ({may_be_waited_for});

-- name: may_be_waited_for
not pg_try_advisory_xact_lock(hashtextextended({channel}, (channel & {last_bucket})::bigint));

-- name: connect
-- From now on no statement waits long for a lock, and no transaction that was left open holds up others for long. The connection
-- itself may be idle for hours: its end is the client's.
select jmsql_internal.connect_client(%(host)s, %(process_id)s),
       set_config('synchronous_commit', 'off', false), set_config('lock_timeout', %(lock_timeout)s, false),
       set_config('idle_in_transaction_session_timeout', %(idle_in_transaction_timeout)s, false),
       set_config('idle_session_timeout', '0', false);

-- name: connect_with_heartbeat
insert into jmsql_internal.connection (host, process_id, heartbeat_at, heartbeat_timeout)
values (%(host)s, %(process_id)s, clock_timestamp(), %(timeout)s)
returning connection_id;

-- name: beat
-- It need not reach the disk: a crash of the server is one for all clients.
with commit as materialized (select set_config('synchronous_commit', 'off', true))
update jmsql_internal.connection c set heartbeat_at = clock_timestamp()
from commit
where c.connection_id = %(connection_id)s and c.heartbeat_at is not null;

-- name: disconnect
-- A trigger deletes the row, which restricted roles cannot.
update jmsql_internal.connection set closing = true where connection_id = %(connection_id)s;

-- name: set_client_id
-- A trigger takes it from a connection that is gone.
update jmsql_internal.connection set client_id = %(client_id)s where connection_id = %(connection_id)s;

-- name: is_connected
select jmsql_internal.is_connected(%(connection_id)s::bigint);

-- name: lead
-- Beside the answer, what a client wants to know now and then: for how many seconds another client has the lease, if one
-- has; whether this one is next in line, of the clients of its role; the time; the queues that keep history. Next are the two
-- with the lowest numbers, the lowest in another process than the leader's, and the lowest on another host: others of its process
-- or host may end with the leader.
select jmsql_internal.lead(%(connection_id)s, %(duration)s),
       (select extract(epoch from least(l.expires_at, clock_timestamp() + interval '1 day') - clock_timestamp())::float8
        from jmsql_internal.leadership l
        where l.connection_id <> %(connection_id)s and l.expires_at > clock_timestamp()),
       has_table_privilege('jmsql_internal.leadership'::regclass::oid, 'insert') and coalesce((
           with earlier as (
               select c.host, c.process_id
               from jmsql_internal.connection own
               join jmsql_internal.connection c on c.connection_id < own.connection_id and c.user_name = own.user_name
               where own.connection_id = %(connection_id)s
                 and c.connection_id is distinct from (select l.connection_id from jmsql_internal.leadership l))
           select (select count(*) from (select from earlier limit 2) two) < 2
                  or (own.host, own.process_id) is distinct from (leader.host, leader.process_id)
                     and not exists (
                         select from earlier e
                         where (e.host, e.process_id) is distinct from (leader.host, leader.process_id))
                  or own.host is distinct from leader.host
                     and not exists (select from earlier e where e.host is distinct from leader.host)
           from jmsql_internal.connection own
           left join (jmsql_internal.leadership l join jmsql_internal.connection leader using (connection_id)) on true
           where own.connection_id = %(connection_id)s), true),
       (extract(epoch from clock_timestamp()) * 1000::numeric)::bigint,
       array(select q.queue_id from jmsql_internal.queue q where q.history);

-- name: has_message
-- Whether the queue `q` has a message that can be received, unless some transaction has locked it.
not q.paused and q.deleted_at is null and exists (
    select from pg_catalog.unnest('{0,1,2,3,4,5,6,7,8,9}'::smallint[]) as p (inverse_priority)
    cross join lateral (
        select m.sequence from jmsql_internal.message m
        left join {delivery_of_m} on true
        where m.queue_id = q.queue_id and m.inverse_priority = p.inverse_priority
          and m.sequence between 0 and {last_sequence}
          and (m.jms_expiration is null or m.jms_expiration > (select jmsql_internal.current_milliseconds()))
          and {is_sent}
          and d.claim_id is null and (d.next_attempt is null or d.next_attempt <= statement_timestamp())
        order by m.queue_id, m.inverse_priority, m.sequence
        limit 1) found
    offset 0);

-- name: lead_and_look
{lead}, array(select q.queue_id from jmsql_internal.queue q where q.queue_id = any(%(queue_ids)s::integer[]) and {has_message});

-- name: missed_messages
select q.queue_id
from (select distinct c.queue_id from jmsql_internal.consumer c) c
join jmsql_internal.queue q using (queue_id)
where {has_message};

-- name: queues_with_history
select queue_id from jmsql_internal.queue where history;

-- name: add_counters
-- In one order, so that two clients do not wait for each other. What was deleted meanwhile is not counted, nor what the role has
-- lost its access to: a single refused row would take the counts of all others with it. So would one beyond the limits of the
-- policies, to which any sender can set the counters. The client's own consumers tell what they have ended, and when.
with own as (
    update jmsql_internal.consumer n
    set acknowledged = n.acknowledged + c.acknowledged, rolled_back = n.rolled_back + c.rolled_back,
        last_at = statement_timestamp()
    from unnest(%(destination_ids)s::integer[], %(acknowledged)s::bigint[], %(rolled_back)s::bigint[])
        as c (queue_id, acknowledged, rolled_back)
    where n.connection_id = %(connection_id)s::bigint and n.queue_id = c.queue_id and c.acknowledged + c.rolled_back > 0)
insert into jmsql_internal.destination_counters as t
    (destination_id, sent, acknowledged, rolled_back, redelivered, waited, calls, handled)
select c.*
from unnest(%(destination_ids)s::integer[], %(sent)s::bigint[], %(acknowledged)s::bigint[], %(rolled_back)s::bigint[],
            %(redelivered)s::bigint[], %(waited)s::float8[], %(calls)s::bigint[], %(handled)s::float8[])
    as c (destination_id, sent, acknowledged, rolled_back, redelivered, waited, calls, handled)
where (exists (select from jmsql_internal.queue q where q.queue_id = c.destination_id)
       or exists (select from jmsql_internal.topic o where o.topic_id = -c.destination_id))
  and ((select not pg_catalog.row_security_active('jmsql_internal.destination_counters'::regclass)
               or jmsql_internal.has_access_to_all('send', current_user)
               or jmsql_internal.has_access_to_all('receive', current_user))
       or c.destination_id = any((select jmsql_internal.accessible_queues('send', current_user))::integer[])
       or c.destination_id = any((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
       or -c.destination_id = any((select jmsql_internal.accessible_topics('send', current_user))::integer[])
       or -c.destination_id = any((select jmsql_internal.accessible_topics('receive', current_user))::integer[]))
order by c.destination_id
on conflict (destination_id) do update
set sent = least(t.sent + excluded.sent, 1000000000000000),
    acknowledged = least(t.acknowledged + excluded.acknowledged, 1000000000000000),
    rolled_back = least(t.rolled_back + excluded.rolled_back, 1000000000000000),
    redelivered = least(t.redelivered + excluded.redelivered, 1000000000000000),
    waited = least(t.waited + excluded.waited, 1e30),
    calls = least(t.calls + excluded.calls, 1000000000000000),
    handled = least(t.handled + excluded.handled, 1e30);

-- name: replace_consumers
-- Several listeners of a worker may receive the same. Of what the role may not receive from any more, nothing is written down:
-- else the others would not be, either.
with given as (
    select g.queue_id, g.selector, sum(g.consumers)::integer as consumers,
           left(string_agg(nullif(g.listener, ''::text), ', '::text order by g.listener), 300) as listeners
    from unnest(%(queue_ids)s::integer[], %(selectors)s::text[], %(consumers)s::integer[], %(listeners)s::text[])
        as g (queue_id, selector, consumers, listener)
    where exists (select from jmsql_internal.connection c where c.connection_id = %(connection_id)s)
      and ((select not pg_catalog.row_security_active('jmsql_internal.consumer'::regclass)
                   or jmsql_internal.has_access_to_all('receive', current_user))
           or g.queue_id = any((select jmsql_internal.accessible_queues('receive', current_user))::integer[]))
    group by g.queue_id, g.selector),
gone as (
    update jmsql_internal.consumer c set consumers = 0
    where c.connection_id = %(connection_id)s
      and not exists (select from given g where (g.queue_id, g.selector) = (c.queue_id, c.selector)))
insert into jmsql_internal.consumer as c (connection_id, queue_id, selector, consumers, listeners)
select %(connection_id)s, g.* from given g
on conflict (connection_id, queue_id, md5(selector)) do update set consumers = excluded.consumers, listeners = excluded.listeners
where (c.consumers, c.listeners) is distinct from (excluded.consumers, excluded.listeners);

-- name: lost_claims
-- The places, in the list given, of claims that do not hold any more, and whether their messages are still there.
select k.position, exists (
    select from jmsql_internal.message m
    where (m.queue_id, m.inverse_priority, m.sequence) = (k.queue_id, k.inverse_priority, k.sequence)
    offset 0)
from unnest({keys}, %(claim_ids)s::bigint[]) with ordinality as k (queue_id, inverse_priority, sequence, claim_id, position)
where not exists (
    select from jmsql_internal.delivery d
    where (d.queue_id, d.inverse_priority, d.sequence) = (k.queue_id, k.inverse_priority, k.sequence)
      and d.claim_id = k.claim_id
    offset 0);
