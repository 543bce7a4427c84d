"""Consumers hear that their queue was removed, so that they find the one that is made in its place."""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

TRIGGERS = """
create trigger consumers_hear_of_a_removal after update of deleted_at on {schema}.queue
    for each row when (old.deleted_at is null and new.deleted_at is not null)
    execute function {schema}.tell_of_change();
create trigger consumers_hear_of_a_deletion after delete on {schema}.queue
    for each row when (old.deleted_at is null) execute function {schema}.tell_of_change();
"""


def upgrade() -> None:
    op.execute(TRIGGERS.format(schema=target_schema()))


def downgrade() -> None:
    schema = target_schema()
    op.execute(
        f"""
        drop trigger consumers_hear_of_a_removal on {schema}.queue;
        drop trigger consumers_hear_of_a_deletion on {schema}.queue;
        """
    )
