"""Which client receives from which queue."""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

CONSUMERS = """
create table {schema}.consumer (
    connection_id bigint not null references {schema}.connection on delete cascade,
    queue_id      integer not null,
    selector      text not null,
    consumers     integer not null check (consumers > 0),
    primary key (connection_id, queue_id, selector)
);
create index consumer_queue on {schema}.consumer (queue_id);
comment on table {schema}.consumer is
    'How many consumers of a queue or subscription a connection has, and with which selector, if not an empty one.';

create view {schema}.consumers with (security_invoker) as
select q.name as queue, o.name as topic, s.name as subscription, s.client_id,
       nullif(c.selector, '') as selector, c.consumers, c.connection_id, k.host, k.process_id, k.user_name
from {schema}.consumer c
join {schema}.connection k using (connection_id)
join {schema}.queue q using (queue_id)
left join {schema}.subscription s using (queue_id)
left join {schema}.topic o on o.topic_id = s.topic_id;
comment on view {schema}.consumers is
    'Who receives from what: one row a connection, queue or subscription, and selector, about a second old.';

insert into {schema}.required_privilege (action, privilege, object)
select a.action, r.privilege, r.object
from unnest(array['send', 'receive', 'browse', 'administer']) as a (action)
cross join (values ('select, insert, update, delete', '{quoted}.consumer'), ('select', '{quoted}.consumers'))
    as r (privilege, object);
select {schema}.renew_privileges();
"""


def upgrade() -> None:
    schema = target_schema()
    quoted = schema.replace("'", "''")
    op.execute(CONSUMERS.format(schema=schema, quoted=quoted))


def downgrade() -> None:
    schema = target_schema()
    quoted = schema.replace("'", "''")
    op.execute(
        f"""
        delete from {schema}.required_privilege where object in ('{quoted}.consumer', '{quoted}.consumers');
        drop view {schema}.consumers;
        drop table {schema}.consumer;
        """
    )
