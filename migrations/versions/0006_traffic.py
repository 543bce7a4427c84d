"""How many messages went through each queue and topic."""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TRAFFIC = """
create table {schema}.destination_traffic (
    destination_id integer primary key,
    sent           bigint not null default 0,
    acknowledged   bigint not null default 0,
    rolled_back    bigint not null default 0,
    redelivered    bigint not null default 0
) with (fillfactor = 50, vacuum_truncate = off);
comment on table {schema}.destination_traffic is
    'What went through a queue, or a topic (minus its number), as the clients count it: once a second.';

create function {schema}.forget_traffic() returns trigger
    language plpgsql
as $$
begin
    if tg_argv[0] = 'queue' then
        delete from {schema}.destination_traffic t using removed q where t.destination_id = q.queue_id;
    else
        delete from {schema}.destination_traffic t using removed o where t.destination_id = -o.topic_id;
    end if;
    return null;
end
$$;
create trigger traffic_goes_with_its_queue after delete on {schema}.queue
    referencing old table as removed for each statement execute function {schema}.forget_traffic('queue');
create trigger traffic_goes_with_its_topic after delete on {schema}.topic
    referencing old table as removed for each statement execute function {schema}.forget_traffic('topic');

create view {schema}.traffic as
select case when q.name is not null then 'queue' when s.queue_id is not null then 'subscription' else 'topic' end
           as kind,
       coalesce(q.name, o.name) as destination,
       s.name as subscription,
       s.client_id,
       t.sent, t.acknowledged, t.rolled_back, t.redelivered
from {schema}.destination_traffic t
left join {schema}.queue q on q.queue_id = t.destination_id
left join {schema}.subscription s on s.queue_id = t.destination_id
left join {schema}.topic o on o.topic_id = coalesce(s.topic_id, -t.destination_id)
where q.deleted_at is null;
comment on view {schema}.traffic is
    'How many messages went through each destination so far, as the clients count: one row a destination.';
"""


def upgrade() -> None:
    op.execute(TRAFFIC.format(schema=target_schema()))


def downgrade() -> None:
    schema = target_schema()
    op.execute(
        f"""
        drop view {schema}.traffic;
        drop trigger traffic_goes_with_its_topic on {schema}.topic;
        drop trigger traffic_goes_with_its_queue on {schema}.queue;
        drop function {schema}.forget_traffic();
        drop table {schema}.destination_traffic;
        """
    )
