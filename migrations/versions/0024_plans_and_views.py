"""Replica identities for logical replication, pages that keep plans on the key, and views that count fast."""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

# Where a publication has a table, PostgreSQL refuses to update or delete its rows unless they can be told apart: by a
# unique key of plain columns, or by all columns. The primary key of delayed messages has a computed column, which
# PostgreSQL 18 publishes only on request.
IDENTITIES = """
alter table {schema}.delayed_message alter column jms_delivery_time set not null;
drop index {schema}.delayed_message_queue;
create unique index delayed_message_queue on {schema}.delayed_message (queue_id, jms_delivery_time, sequence);
alter table {schema}.delayed_message replica identity using index delayed_message_queue;
alter table {schema}.grouped_queue replica identity full;
alter table {schema}.permission replica identity full;
alter table {schema}.message_history replica identity full;
do $$
declare
    partition regclass;
begin
    for partition in select i.inhrelid from pg_inherits i where i.inhparent = '{quoted}.message_history'::regclass loop
        execute 'alter table ' || partition || ' replica identity full';
    end loop;
end
$$;
"""
FORMER_IDENTITIES = """
do $$
declare
    partition regclass;
begin
    for partition in select i.inhrelid from pg_inherits i where i.inhparent = '{quoted}.message_history'::regclass loop
        execute 'alter table ' || partition || ' replica identity default';
    end loop;
end
$$;
alter table {schema}.message_history replica identity default;
alter table {schema}.permission replica identity default;
alter table {schema}.grouped_queue replica identity default;
alter table {schema}.delayed_message replica identity default;
drop index {schema}.delayed_message_queue;
create index delayed_message_queue on {schema}.delayed_message (queue_id, jms_delivery_time, sequence);
alter table {schema}.delayed_message alter column jms_delivery_time drop not null;
"""

# A partition does not inherit the replica identity.
PARTITIONS = """
create or replace function {schema}.make_history_partition(day date) returns boolean
    language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    partition text := {schema}.history_partition(day);
    first text := quote_literal(to_char(day, 'YYYY-MM-DD') || ' 00:00:00+00');
    next text := quote_literal(to_char(day + 1, 'YYYY-MM-DD') || ' 00:00:00+00');
begin
    if to_regclass(partition) is not null then
        return false;
    end if;
    -- Whoever makes partitions does it alone; the one who waited here finds it made.
    lock table {schema}.message_history in share update exclusive mode;
    if to_regclass(partition) is not null then
        return false;
    end if;
    execute 'create table ' || partition || ' (like {schema}.message_history including all)';
    {identity}
    execute 'alter table {schema}.message_history attach partition ' || partition
        || ' for values from (' || first || ') to (' || next || ')';
    return true;
end
$$;
"""
IDENTITY = "execute 'alter table ' || partition || ' replica identity full';"

# VACUUM FULL, CLUSTER, TRUNCATE and a restored dump leave a table with no more pages than its rows need.
PAGES = """
create function {schema}.tables_without_pages() returns setof text
    language sql stable
    set search_path = pg_catalog, pg_temp
begin atomic
    select c.relname::text from pg_class c
    where c.oid in ('{quoted}.message'::regclass, '{quoted}.delivery'::regclass, '{quoted}.delayed_message'::regclass)
      and pg_relation_size(c.oid) < 128 * current_setting('block_size')::bigint
    order by c.relname;
end;
comment on function {schema}.tables_without_pages() is
    'The tables of messages that have fewer than the 128 pages with which every plan is to count.';

create function {schema}.restore_pages() returns setof text
    language plpgsql volatile security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    name text;
begin
    for name in select t from {schema}.tables_without_pages() t loop
        -- ANALYZE takes this lock as well. If somebody else has it, the next run restores the pages.
        begin
            execute format('lock table {schema}.%I in share update exclusive mode nowait', name);
        exception when lock_not_available then
            continue;
        end;
        -- Nobody else ever sees the rows.
        while exists (select from {schema}.tables_without_pages() t where t = name) loop
            case name
                when 'message' then
                    insert into {schema}.message
                        (queue_id, message_type, inverse_priority, jms_delivery_mode, bytes_body)
                    select 0, 'BytesMessage', 0, 2, decode(repeat('00', 1000), 'hex') from generate_series(1, 64);
                when 'delayed_message' then
                    insert into {schema}.delayed_message
                        (queue_id, message_type, inverse_priority, jms_delivery_mode, jms_delivery_time, bytes_body)
                    select 0, 'BytesMessage', 0, 2, 9223372036854775807, decode(repeat('00', 1000), 'hex')
                    from generate_series(1, 64);
                else
                    insert into {schema}.delivery (queue_id, inverse_priority, sequence, last_error)
                    select 0, 0, nextval('{quoted}.claim_sequence'), repeat(' ', 500) from generate_series(1, 128);
            end case;
        end loop;
        execute format('delete from {schema}.%I where queue_id = 0', name);
        -- All sessions then plan again what they planned without the pages.
        execute format('analyze {schema}.%I', name);
        return next name;
    end loop;
end
$$;
comment on function {schema}.restore_pages() is
    'Gives tables the pages back with which every plan is to count, and returns the names of those that had too few.';
"""


def upgrade() -> None:
    schema = target_schema()
    values = {"schema": schema, "quoted": schema.replace("'", "''"), "identity": IDENTITY}
    for script in (IDENTITIES, PARTITIONS, PAGES):
        op.execute(script.format(**values))


def downgrade() -> None:
    schema = target_schema()
    values = {"schema": schema, "quoted": schema.replace("'", "''"), "identity": ""}
    op.execute(f"drop function {schema}.restore_pages(), {schema}.tables_without_pages()")
    for script in (PARTITIONS, FORMER_IDENTITIES):
        op.execute(script.format(**values))
