"""Nothing yet."""

from __future__ import annotations

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change nothing."""


def downgrade() -> None:
    """Change nothing."""
