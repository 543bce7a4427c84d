"""How often a message's deliveries have failed with errors, by which the pause before the next one grows."""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

_UPGRADE = """
alter table {schema}.delivery add column error_count integer not null default 0;
comment on column {schema}.delivery.error_count is
    'How many of its deliveries have failed with errors: the others were rolled back for no reason given, or cut off.';
update {schema}.delivery set error_count = delivery_count where last_error is not null;
"""


def upgrade() -> None:
    """Add the column."""
    op.execute(_UPGRADE.format(schema=target_schema()))


def downgrade() -> None:
    """Drop it."""
    op.execute(f"alter table {target_schema()}.delivery drop column error_count")
