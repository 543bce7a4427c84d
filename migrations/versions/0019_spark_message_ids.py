"""Spark's tasks make the ids of the messages that they write, which took the server most of the time of a write."""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Null in what is staged at this moment, whose write then sends messages without an id, and in nothing else.
    op.execute(f"alter table {target_schema()}.spark_staging add column jms_message_id uuid")


def downgrade() -> None:
    op.execute(f"alter table {target_schema()}.spark_staging drop column jms_message_id")
