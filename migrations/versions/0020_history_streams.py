"""Streaming reads of the history: where each of them stands, so that retention leaves what it has not passed."""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

TABLES = """
create table {schema}.spark_cursor (
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
comment on table {schema}.spark_cursor is
    'A streaming read of the history by Spark; its number stands in the checkpoint. It has passed what comes before '
    '(transaction_id, sequence).';
comment on column {schema}.spark_cursor.destination is 'Null: the history of all destinations.';
comment on column {schema}.spark_cursor.epoch is 'The fence: which driver reads. Those before it can do nothing more.';
comment on column {schema}.spark_cursor.since is 'What left its destination before is not read; null: all is.';
comment on column {schema}.spark_cursor.last_transaction_id is
    'With last_sequence: the furthest place that was given to Spark. A checkpoint beyond it is of another database.';
comment on column {schema}.spark_cursor.holds is
    'Whether retention keeps what it has not passed: from when Spark has noted its first batch.';
comment on column {schema}.spark_cursor.lost_at is 'When history was removed that it had not passed.';
comment on column {schema}.spark_cursor.passed_at is
    'When what it had passed was all there was: its lag is the time since then.';

create function {schema}.cursors_before(partition regclass, destinations text[]) returns setof uuid
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    cursor_row {schema}.spark_cursor;
    is_before boolean;
begin
    for cursor_row in
        select * from {schema}.spark_cursor c
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
comment on function {schema}.cursors_before(regclass, text[]) is
    'The streaming reads that have not passed all of the history of some destinations, or of all, in a partition.';
"""

FORMER_VIEW = """
create view {schema}.spark_sources with (security_invoker) as
select s.source_id, q.name as queue, t.name as topic, n.name as subscription, s.epoch, s.acknowledged as last_batch,
       coalesce(sum(b.messages), 0)::bigint as claimed, s.created_at, s.used_at
from {schema}.spark_source s
join {schema}.queue q using (queue_id)
left join {schema}.subscription n using (queue_id)
left join {schema}.topic t on t.topic_id = n.topic_id
left join {schema}.spark_batch b using (source_id)
group by s.source_id, q.queue_id, n.queue_id, t.topic_id;
"""

VIEW = """
create or replace view {schema}.spark_sources with (security_invoker) as
select s.source_id, q.name as queue, t.name as topic, n.name as subscription, s.epoch, s.acknowledged as last_batch,
       coalesce(sum(b.messages), 0)::bigint as claimed, s.created_at, s.used_at, false as history,
       null::text as position, null::interval as lag
from {schema}.spark_source s
join {schema}.queue q using (queue_id)
left join {schema}.subscription n using (queue_id)
left join {schema}.topic t on t.topic_id = n.topic_id
left join {schema}.spark_batch b using (source_id)
group by s.source_id, q.queue_id, n.queue_id, t.topic_id
union all
select c.source_id, case when not c.is_topic then c.destination end, case when c.is_topic then c.destination end,
       c.subscription, c.epoch, null, 0, c.created_at, c.used_at, true,
       format('%s/%s', c.transaction_id, c.sequence), greatest(now() - c.passed_at, interval '0')
from {schema}.spark_cursor c
where c.holds;
"""

COMMENT = "comment on view {schema}.spark_sources is 'One row a streaming read of Spark, running or not.';"

FORGET = """
create or replace function {schema}.forget_spark_source(source uuid) returns bigint
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
    delete from {schema}.spark_source s where s.source_id = source;{cursor}
    return released;
end
$$;
"""


def upgrade() -> None:
    schema = target_schema()
    op.execute(TABLES.format(schema=schema))
    op.execute(VIEW.format(schema=schema))
    delete = f"\n    delete from {schema}.spark_cursor c where c.source_id = source;"
    op.execute(FORGET.format(schema=schema, cursor=delete))
    op.execute(f"select {schema}.renew_privileges()")


def downgrade() -> None:
    schema = target_schema()
    op.execute(FORGET.format(schema=schema, cursor=""))
    op.execute(f"drop view {schema}.spark_sources")
    op.execute(FORMER_VIEW.format(schema=schema))
    op.execute(COMMENT.format(schema=schema))
    op.execute(f"drop function {schema}.cursors_before(regclass, text[])")
    op.execute(f"drop table {schema}.spark_cursor")
