-- What Spark needs: which of its writes are done; its streaming reads, and the numbered batches into which they claim
-- messages.

-- A task that cannot copy its messages into their queues puts them here first. They are gone when its transaction ends.
create unlogged table jmsql_internal.spark_staging (
    transaction_id     xid8 not null default pg_current_xact_id(),
    position           bigint not null,
    jms_expiration     bigint,
    jms_delivery_time  bigint,
    inverse_priority   smallint not null,
    jms_delivery_mode  smallint not null,
    destination        text collate "C" not null,
    message_type       text not null,
    jms_correlation_id text,
    jms_reply_to       text,
    jms_type           text,
    properties         jsonb,
    property_types     jsonb,
    text_body          text,
    json_body          jsonb,
    body_types         jsonb,
    bytes_body         bytea,
    jms_message_id     uuid,
    primary key (transaction_id, position)
);
comment on table jmsql_internal.spark_staging is
    'Messages that a task of Spark is about to send with SQL: to topics, or where row security is active.';

create table jmsql_internal.spark_write (
    write_id   text not null,
    batch_id   bigint not null,
    messages   bigint not null,
    written_at timestamptz not null default now(),
    expires_at timestamptz,
    query_id   text,
    primary key (write_id, batch_id)
);
comment on table jmsql_internal.spark_write is
    'The writes of Spark that are done: a batch of a streaming query, or a batch write with its writeId.';
comment on column jmsql_internal.spark_write.expires_at is
    'When the row is removed. A write that comes again after that is done again.';
-- The ledger of Spark's writes tells apart the queries that write under one name.
comment on column jmsql_internal.spark_write.query_id is
    'The streaming query that has written the batch, as its checkpoint names it; null: a batch write, or the release '
    'before wrote it.';

create table jmsql_internal.spark_source (
    source_id       uuid primary key default gen_random_uuid(),
    queue_id        integer not null references jmsql_internal.queue on delete cascade,
    epoch           bigint not null default 0,
    acknowledged    bigint not null default 0,
    first_sequence  bigint not null default 0,
    first_timestamp bigint not null default 0,
    created_at      timestamptz not null default now(),
    used_at         timestamptz not null default now()
);
comment on table jmsql_internal.spark_source is 'A streaming read of Spark; its number stands in the checkpoint.';
comment on column jmsql_internal.spark_source.epoch is
    'The fence: which driver reads. Those before it can do nothing more.';
comment on column jmsql_internal.spark_source.acknowledged is 'The last batch whose messages are gone.';
create index spark_source_queue on jmsql_internal.spark_source (queue_id);

create table jmsql_internal.spark_batch (
    source_id  uuid not null references jmsql_internal.spark_source on delete cascade,
    batch      bigint not null,
    claim_id   bigint not null,
    messages   bigint not null,
    bytes      bigint not null,
    frozen     boolean not null default false,
    claimed_at timestamptz not null default now(),
    primary key (source_id, batch)
);
comment on table jmsql_internal.spark_batch is 'Messages that a streaming read has claimed and not acknowledged.';
comment on column jmsql_internal.spark_batch.claim_id is
    'The number of its claims, with which a driver claims them; they have the negative one when they are frozen.';
comment on column jmsql_internal.spark_batch.frozen is
    'Whether a task may have read it: its claims then stay when the driver dies, until the query comes back.';

create function jmsql.forget_spark_source(source uuid) returns bigint
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    released bigint;
begin
    if not exists (select from jmsql_internal.spark_source s where s.source_id = source
                   union all select from jmsql_internal.spark_cursor c where c.source_id = source) then
        raise exception 'There is no streaming read "%".', source using errcode = 'JMS03',
            hint = 'The view spark_sources lists those there are.';
    end if;
    perform from jmsql_internal.spark_source s where s.source_id = source for update;
    update jmsql_internal.delivery d set claim_id = null, connection_id = null, claimed_at = null
    from jmsql_internal.spark_source s join jmsql_internal.spark_batch b using (source_id)
    where s.source_id = source and d.queue_id = s.queue_id and d.claim_id in (b.claim_id, - b.claim_id);
    get diagnostics released = row_count;
    delete from jmsql_internal.spark_source s where s.source_id = source;
    delete from jmsql_internal.spark_cursor c where c.source_id = source;
    return released;
end
$$;
comment on function jmsql.forget_spark_source(uuid) is
    'Ends a streaming read whose checkpoint is gone: releases what it has claimed, and returns how much that was.';

create table jmsql_internal.spark_cursor (
    source_id              uuid primary key default gen_random_uuid(),
    destination            text collate "C",
    is_topic               boolean,
    subscription           text collate "C",
    subscription_client_id text collate "C",
    epoch                  bigint not null default 0,
    since                  timestamptz,
    transaction_id         xid8 not null,
    sequence               bigint not null,
    last_transaction_id    xid8 not null,
    last_sequence          bigint not null,
    holds                  boolean not null default false,
    lost_at                timestamptz,
    passed_at              timestamptz not null default now(),
    created_at             timestamptz not null default now(),
    used_at                timestamptz not null default now()
);
comment on table jmsql_internal.spark_cursor is
    'A streaming read of the history by Spark; its number stands in the checkpoint. It has passed what comes before '
    '(transaction_id, sequence).';
comment on column jmsql_internal.spark_cursor.destination is 'Null: the history of all destinations.';
comment on column jmsql_internal.spark_cursor.epoch is
    'The fence: which driver reads. Those before it can do nothing more.';
comment on column jmsql_internal.spark_cursor.since is 'What left its destination before is not read; null: all is.';
comment on column jmsql_internal.spark_cursor.last_transaction_id is
    'With last_sequence: the furthest place that was given to Spark. A checkpoint beyond it is of another database.';
comment on column jmsql_internal.spark_cursor.holds is
    'Whether retention keeps what it has not passed: from when Spark has noted its first batch.';
comment on column jmsql_internal.spark_cursor.lost_at is 'When history was removed that it had not passed.';
comment on column jmsql_internal.spark_cursor.passed_at is
    'When what it had passed was all there was: its lag is the time since then.';

create function jmsql_internal.cursors_before(partition regclass, destinations text[]) returns setof uuid
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    cursor_row jmsql_internal.spark_cursor;
    is_before boolean;
begin
    for cursor_row in
        select * from jmsql_internal.spark_cursor c
        where c.holds and (destinations is null or c.destination is null or c.destination = any(destinations))
    loop
        execute format(
            'with recursive known (name) as ('
                'select min(destination) from %1$s '
                'union all '
                'select (select min(h.destination) from %1$s h where h.destination > known.name) '
                'from known where known.name is not null) '
            'select exists ('
                'select from known k cross join lateral ('
                    'select from %1$s h where h.destination = k.name '
                    'and (h.transaction_id, h.sequence) >= ($1, $2) '
                    'and h.acknowledged_at >= coalesce($3, ''-infinity'') '
                    'and ($4 is null or h.is_topic = $5) limit 1) h '
                'where (k.name = $4 or $4 is null) and ($6 is null or k.name = any($6)))', partition)
        into is_before
        using cursor_row.transaction_id, cursor_row.sequence, cursor_row.since, cursor_row.destination,
              cursor_row.is_topic, destinations;
        if is_before then
            return next cursor_row.source_id;
        end if;
    end loop;
end
$$;
comment on function jmsql_internal.cursors_before(regclass, text[]) is
    'The streaming reads that have not passed all of the history of some destinations, or of all, in a partition.';

create function jmsql_internal.note_history_loss(partition regclass, destinations text[]) returns void
    language sql volatile
    set search_path = pg_catalog, pg_temp
begin atomic
    update jmsql_internal.spark_cursor set lost_at = now()
    where source_id in (select c from jmsql_internal.cursors_before(partition, destinations) c);
end;
comment on function jmsql_internal.note_history_loss(regclass, text[]) is
    'Tells the streaming reads that have not passed it that history is removed from a partition.';
