"""Privileges from one list of functions, and one function that makes queues and topics.

A change of the schema is a file of SQL by theme in a folder named after the revision, with its own text of all that it
replaces: ``create or replace`` for functions and views, ``alter table`` for tables. The files of released revisions
stay as they are; until a release has it, further changes join this revision. What a change must heed:

- The release before works with the new schema, and this release with the one before: functions and columns that either
  calls stay, with their parameters, and new ones are used only where they are there, or where the schema is new.
- Nothing rewrites a table or reads all of a large one, and locks last for moments: a column has a constant default or
  none, a constraint is added ``not valid``. All files run in one transaction, ``access`` last.
- A revision locks at most one of the tables that clients send and receive by, against writers or readers: clients hold
  one of them and wait for another all the time, so that under load two are never free at once.
- A public view, column or function has a comment; what roles use stands in ``set_privileges``, or in
  ``functions_of_administrators``.
"""

from __future__ import annotations

from pathlib import Path

from jmsql.store.schema.migration import apply_revision, refuse_downgrade

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

CHANGES = Path(__file__).parent.parent / "0002"
# Each refers only to what those before it have made.
THEMES = (
    "baseline",
    "permissions",
    "delivery",
    "redelivery",
    "dequeue",
    "administration",
    "functions",
    "waiting",
    "once",
    "clocks",
    "looks",
    "spark",
    "results",
    "schedules",
    "cancelling",
    "delivering",
    "progress",
    "search_path",
    "access",
)


def upgrade() -> None:
    apply_revision(revision, [CHANGES / f"{theme}.sql" for theme in THEMES])


def downgrade() -> None:
    refuse_downgrade()
