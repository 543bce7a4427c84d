"""The schema of the first release, as the files of the folder ``baseline`` make it."""

from __future__ import annotations

from pathlib import Path

from jmsql.store.schema.migration import apply_revision, refuse_downgrade

revision = "0001"
down_revision = None
branch_labels = ("jmsql",)
depends_on = None

BASELINE = Path(__file__).parent.parent / "baseline"
# Each refers only to what those before it have made.
THEMES = (
    "basics",
    "connections",
    "destinations",
    "messages",
    "delivery",
    "groups",
    "redelivery",
    "history",
    "counters",
    "plans",
    "permissions",
    "moving",
    "sending",
    "administration",
    "spark",
    "selectors",
    "views",
    "comments",
    "access",
)


def upgrade() -> None:
    apply_revision(revision, [BASELINE / f"{theme}.sql" for theme in THEMES])


def downgrade() -> None:
    refuse_downgrade()
