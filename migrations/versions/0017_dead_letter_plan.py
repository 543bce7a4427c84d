"""The look for dead letters, which are rare, goes by their index, whatever the table's statistics say or do not say."""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(f"alter function {target_schema()}.bury_dead_letters(integer) set enable_seqscan = off")


def downgrade() -> None:
    op.execute(f"alter function {target_schema()}.bury_dead_letters(integer) reset enable_seqscan")
