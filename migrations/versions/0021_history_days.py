"""The days of the history are read from the names of its partitions alone, whatever the plan."""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

# Without the fence, a condition on the day may be checked before the join: on each relation of the database, most of
# whose names end with no day.
VIEW = """
create or replace view {schema}.history_days with (security_invoker = true) as
select d.day, d.partition, d.estimated_messages, d.bytes, {schema}.is_history_settled(d.day) as settled
from (
    select to_date(right(c.relname, 8), 'YYYYMMDD') as day,
           c.oid::regclass as partition,
           greatest(c.reltuples, 0)::bigint as estimated_messages,
           pg_total_relation_size(c.oid) as bytes
    from pg_catalog.pg_inherits i
    join pg_catalog.pg_class c on c.oid = i.inhrelid
    where i.inhparent = '{schema}.message_history'::regclass and not i.inhdetachpending {fence}) d
"""


def upgrade() -> None:
    op.execute(VIEW.format(schema=target_schema(), fence="offset 0"))


def downgrade() -> None:
    op.execute(VIEW.format(schema=target_schema(), fence=""))
