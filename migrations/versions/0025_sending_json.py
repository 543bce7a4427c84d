"""A function that sends JSON as it is in the database."""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

# A literal of unknown type is text, as before: PostgreSQL prefers strings.
SEND = """
create function {schema}.send(
    destination text, body jsonb, properties jsonb default null, priority integer default 4,
    time_to_live interval default null, delivery_delay interval default null, correlation_id text default null,
    reply_to text default null, jms_type text default null) returns text
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
begin
    return {schema}.send(destination, body::text, properties, priority, time_to_live, delivery_delay, correlation_id,
                         reply_to, jms_type);
end
$$;
comment on function {schema}.send(text, jsonb, jsonb, integer, interval, interval, text, text, text) is
    'Sends JSON as a TextMessage, as the function of the same name for text does.';
"""


def upgrade() -> None:
    op.execute(SEND.format(schema=target_schema()))


def downgrade() -> None:
    op.execute(
        f"drop function {target_schema()}.send(text, jsonb, jsonb, integer, interval, interval, text, text, text)"
    )
