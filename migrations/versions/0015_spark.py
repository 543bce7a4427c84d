"""What Spark needs in the database.

Where its tasks put what they write, and which writes are done; its streaming reads, and the numbered batches into which
they claim messages.
"""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

WRITES = """
create table {schema}.spark_attempt (
    attempt_id bigint generated always as identity primary key,
    started_at timestamptz not null default now()
);
comment on table {schema}.spark_attempt is
    'An attempt of a Spark task to write, whose messages are staged. Nobody sees them before the whole write commits.';

-- A crash of the server empties it. The commit counts what it finds, and fails if something is missing.
create unlogged table {schema}.spark_staging (
    attempt_id         bigint not null,
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
    primary key (attempt_id, position)
);
comment on table {schema}.spark_staging is 'Messages that Spark''s tasks have written, until the write commits.';

create table {schema}.spark_write (
    write_id   text not null,
    batch_id   bigint not null,
    messages   bigint not null,
    written_at timestamptz not null default now(),
    primary key (write_id, batch_id)
);
comment on table {schema}.spark_write is
    'The writes of Spark that are done: a batch of a streaming query, or a batch write with its writeId.';
"""

SOURCES = """
create table {schema}.spark_source (
    source_id       uuid primary key default gen_random_uuid(),
    queue_id        integer not null references {schema}.queue on delete cascade,
    epoch           bigint not null default 0,
    acknowledged    bigint not null default 0,
    first_sequence  bigint not null default 0,
    first_timestamp bigint not null default 0,
    created_at      timestamptz not null default now(),
    used_at         timestamptz not null default now()
);
comment on table {schema}.spark_source is 'A streaming read of Spark; its number stands in the checkpoint.';
comment on column {schema}.spark_source.epoch is 'The fence: which driver reads. Those before it can do nothing more.';
comment on column {schema}.spark_source.acknowledged is 'The last batch whose messages are gone.';
create index spark_source_queue on {schema}.spark_source (queue_id);

create table {schema}.spark_batch (
    source_id  uuid not null references {schema}.spark_source on delete cascade,
    batch      bigint not null,
    claim_id   bigint not null,
    messages   bigint not null,
    bytes      bigint not null,
    frozen     boolean not null default false,
    claimed_at timestamptz not null default now(),
    primary key (source_id, batch)
);
comment on table {schema}.spark_batch is 'Messages that a streaming read has claimed and not acknowledged.';
comment on column {schema}.spark_batch.frozen is
    'Whether a task may have read it: its claims then stay when the driver dies, until the query comes back.';

create view {schema}.spark_sources with (security_invoker) as
select s.source_id, q.name as queue, t.name as topic, n.name as subscription, s.epoch, s.acknowledged as last_batch,
       coalesce(sum(b.messages), 0)::bigint as claimed, s.created_at, s.used_at
from {schema}.spark_source s
join {schema}.queue q using (queue_id)
left join {schema}.subscription n using (queue_id)
left join {schema}.topic t on t.topic_id = n.topic_id
left join {schema}.spark_batch b using (source_id)
group by s.source_id, q.queue_id, n.queue_id, t.topic_id;
comment on view {schema}.spark_sources is 'One row a streaming read of Spark, running or not.';

create function {schema}.forget_spark_source(source uuid) returns bigint
    language plpgsql volatile strict
    set search_path = pg_catalog, pg_temp
as $$
declare
    released bigint;
begin
    perform from {schema}.spark_source s where s.source_id = source for update;
    update {schema}.delivery d set claim_id = null, connection_id = null, claimed_at = null
    from {schema}.spark_source s join {schema}.spark_batch b using (source_id)
    where s.source_id = source and d.queue_id = s.queue_id and d.claim_id = b.claim_id;
    get diagnostics released = row_count;
    delete from {schema}.spark_source s where s.source_id = source;
    return released;
end
$$;
comment on function {schema}.forget_spark_source(uuid) is
    'Ends a streaming read whose checkpoint is gone: gives back what it has claimed, and returns how much that was.';
"""


def upgrade() -> None:
    schema = target_schema()
    for script in (WRITES, SOURCES):
        op.execute(script.format(schema=schema))


def downgrade() -> None:
    schema = target_schema()
    op.execute(
        f"""
        drop function {schema}.forget_spark_source(uuid);
        drop view {schema}.spark_sources;
        drop table {schema}.spark_batch, {schema}.spark_source;
        drop table {schema}.spark_write, {schema}.spark_staging, {schema}.spark_attempt;
        """
    )
