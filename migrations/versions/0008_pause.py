"""Queues can be paused: they take messages and deliver none."""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

PAUSE = """
alter table {schema}.queue add column paused boolean not null default false;
comment on column {schema}.queue.paused is 'The queue takes messages and delivers none.';

create function {schema}.tell_of_change() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform pg_notify(tg_table_schema, old.queue_id || ' 0 0');
    return null;
end
$$;
comment on function {schema}.tell_of_change() is
    'Has consumers let go of the messages that they have fetched and not delivered, and look at their queue anew.';
create trigger consumers_hear_of_a_pause after update of paused on {schema}.queue
    for each row when (old.paused <> new.paused) execute function {schema}.tell_of_change();

create function {schema}.pause(destination text) returns void
    language sql volatile strict
begin atomic
    select {schema}.alter_destination(destination, '{{"paused": true}}');
end;
comment on function {schema}.pause(text) is 'Stops the delivery of messages from a queue, or a topic''s subscriptions.';

create function {schema}.resume(destination text) returns void
    language sql volatile strict
begin atomic
    select {schema}.alter_destination(destination, '{{"paused": false}}');
end;
comment on function {schema}.resume(text) is 'Goes on with the delivery of messages that a pause has stopped.';
"""


def upgrade() -> None:
    op.execute(PAUSE.format(schema=target_schema()))


def downgrade() -> None:
    schema = target_schema()
    op.execute(
        f"""
        drop function {schema}.resume(text), {schema}.pause(text);
        drop trigger consumers_hear_of_a_pause on {schema}.queue;
        drop function {schema}.tell_of_change();
        alter table {schema}.queue drop column paused;
        """
    )
