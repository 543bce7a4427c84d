-- What a streaming read of a queue asks: messages are claimed into batches, frozen, and acknowledged.

-- name: forget_unused
-- Those that hold nothing and are not used any more: no driver has taken them on within a day, or used them in more
-- than a year.
delete from jmsql_internal.spark_source s
where s.used_at < now() - case when s.epoch = 0 then interval '1 day' else interval '400 days' end
  and not exists (select from jmsql_internal.spark_batch b where b.source_id = s.source_id);

-- name: create_source
insert into jmsql_internal.spark_source (source_id, queue_id, first_sequence, first_timestamp)
values (coalesce(%(source_id)s::uuid, gen_random_uuid()), %(queue_id)s, %(first_sequence)s, %(first_timestamp)s)
returning source_id::text;

-- name: find_message
select m.sequence from jmsql_internal.message m
where m.queue_id = %(queue_id)s and m.jms_message_id::text = %(message_id)s and {is_sent};

-- name: queue_of_source
select queue_id from jmsql_internal.spark_source where source_id = %(source_id)s;

-- name: begin_epoch
update jmsql_internal.spark_source set epoch = epoch + 1, used_at = now() where source_id = %(source_id)s
returning epoch, queue_id, first_sequence, first_timestamp;

-- name: lock_source
select epoch, acknowledged from jmsql_internal.spark_source where source_id = %(source_id)s for update;

-- name: queue_was_deleted
select q.deleted_at is not null from jmsql_internal.queue q where q.queue_id = %(queue_id)s;

-- name: share_source
-- The next driver waits until the transaction has ended. So what it finds stays.
select epoch from jmsql_internal.spark_source where source_id = %(source_id)s for share;

-- name: subscription_is_durable
select s.durable from jmsql_internal.subscription s where s.queue_id = %(queue_id)s;

-- name: last_sequence
select case when is_called then last_value else 0 end from jmsql_internal.message_sequence;

-- name: finished
select batch, claim_id from jmsql_internal.spark_batch
where source_id = %(source_id)s and batch <= %(batch)s order by batch;

-- name: of_part
(d.inverse_priority, d.sequence) >= (%(first_priority)s::smallint, %(first_sequence)s::bigint)
and (d.inverse_priority, d.sequence) <= (%(last_priority)s::smallint, %(last_sequence)s::bigint);

-- name: keep_history
select jmsql_internal.keep_history(pg_catalog.array_agg(m.address), pg_catalog.array_agg(d.delivery_count), 'acknowledged',
                                  %(connection_id)s::bigint)
from jmsql_internal.delivery d cross join {message_of_d}
where d.queue_id = %(queue_id)s and d.claim_id = %(claim_id)s and {of_part}
  and exists (select from jmsql_internal.queue q where q.queue_id = %(queue_id)s and q.history);

-- name: acknowledge
with acknowledged as (
    delete from jmsql_internal.delivery d
    where d.queue_id = %(queue_id)s and d.claim_id = %(claim_id)s and {of_part}
    returning d.queue_id, d.inverse_priority, d.sequence, d.delivery_count),
deleted as (
    delete from jmsql_internal.message n where n.ctid = any(array(
        select m.address from acknowledged a cross join {message_of_a}))
    returning greatest(n.jms_timestamp, n.jms_delivery_time) as since)
select count(*), count(*) filter (where delivery_count > 0), (
    select coalesce(sum(greatest((select jmsql_internal.current_milliseconds()) - d.since, 0)), 0)::float8 * 1000
    from deleted d)
from acknowledged;

-- name: forget_batch
delete from jmsql_internal.spark_batch where source_id = %(source_id)s and batch = %(batch)s;

-- name: set_acknowledged
update jmsql_internal.spark_source set acknowledged = greatest(acknowledged, %(batch)s), used_at = now()
where source_id = %(source_id)s;

-- name: next_batch
select min(batch) from jmsql_internal.spark_batch where source_id = %(source_id)s and batch > %(batch)s;

-- name: new_claim
select nextval('jmsql_internal.claim_sequence'::regclass);

-- name: pieces
-- The first messages of each priority from a bound on, in pieces of the same number, which are counted in the index.
with recursive piece (inverse_priority, after, last, messages, number) as (
    select b.inverse_priority, null::bigint, b.lowest - 1, 0::bigint, 0
    from unnest('{0,1,2,3,4,5,6,7,8,9}'::smallint[], %(lowest)s::bigint[]) as b (inverse_priority, lowest)
    union all
    select piece.inverse_priority, piece.last, next.last, next.messages, piece.number + 1
    from piece cross join lateral (
        select max(found.sequence) as last, count(*) as messages
        from (select m.sequence from jmsql_internal.message m
              where m.queue_id = %(queue_id)s and m.inverse_priority = piece.inverse_priority
                and m.sequence between piece.last + 1 and %(last_sequence)s::bigint
              order by m.queue_id, m.inverse_priority, m.sequence limit %(limit)s) as found) next
    where piece.number < %(count)s and next.messages > 0)
select inverse_priority, after + 1, last, messages from piece where number > 0 order by inverse_priority, last;

-- name: release_claims
update jmsql_internal.delivery d set claim_id = null, connection_id = null, claimed_at = null
where d.queue_id = %(queue_id)s and d.claim_id = %(claim_id)s;

-- name: create_batch
insert into jmsql_internal.spark_batch (source_id, batch, claim_id, messages, bytes)
values (%(source_id)s, %(batch)s, %(claim_id)s, %(messages)s, %(bytes)s);

-- name: find_batch
select claim_id, messages, frozen from jmsql_internal.spark_batch where source_id = %(source_id)s and batch = %(batch)s;

-- name: freeze_claims
-- No longer the driver's own: its death does not free them. The number is another, since maintenance may be about to
-- release, by the former one, what a dead driver had claimed; it follows from the former one, so that a driver that
-- finds a batch half frozen finds its claims.
update jmsql_internal.delivery d set connection_id = null, claim_id = - %(claim_id)s::bigint
where d.queue_id = %(queue_id)s and d.claim_id = %(claim_id)s and {of_part};

-- name: freeze_batch
update jmsql_internal.spark_batch set frozen = true, claim_id = %(claim_id)s, messages = %(messages)s
where source_id = %(source_id)s and batch = %(batch)s;

-- name: parts
select count(*), pg_catalog.min(key), pg_catalog.max(key)
from (
    select array[d.inverse_priority, d.sequence] as key,
           pg_catalog.ntile(%(partitions)s) over (order by d.inverse_priority, d.sequence) as part
    from jmsql_internal.delivery d
    where d.queue_id = %(queue_id)s and d.claim_id = %(claim_id)s) as claimed
group by part order by part;

-- name: backlog
select count(*), coalesce(sum(pg_catalog.pg_column_size(m.*)), 0)::bigint,
       coalesce(greatest((jmsql_internal.current_milliseconds() - min(m.jms_timestamp))::numeric / 1000.0, 0), 0)::float8
from jmsql_internal.message m
left join {delivery_of_m} on true
where m.queue_id = %(queue_id)s and d.claim_id is null and {is_sent};

-- name: read
-- The messages of a claim, from a key to another, in the order of delivery.
select {columns}
from (
    select m.*, d.delivery_count
    from (
        select d.* from jmsql_internal.delivery d
        where d.queue_id = %(queue_id)s and d.claim_id = %(claim_id)s and {of_part}
        order by d.queue_id, d.inverse_priority, d.sequence) d
    cross join {message_of_d}) m;
