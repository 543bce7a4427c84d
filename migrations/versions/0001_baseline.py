"""The schema, as the files of the folder ``baseline`` make it.

Nothing is released: a change edits the one text of its object there, or adds a file to ``THEMES``. Once a release has
this revision, it stays as it is. A change is then a file of SQL by theme in a folder named after a new revision, with
the whole text of each function and view that it replaces (``create or replace``), and ``alter table`` for tables:

- The release before works with the new schema, and the new release with the schema before: functions and columns that
  either calls stay, with their parameters, and new ones are used only where they are there.
- Nothing rewrites a table or reads all of a large one, and locks last for moments: a column has a constant default or
  none, a constraint is added ``not valid``. All files run in one transaction, and the last statement is
  ``select jmsql_internal.renew_privileges()``.
- A revision locks at most one of the tables that clients send and receive by, against writers or readers: clients hold
  one of them and wait for another all the time, so that under load two are never free at once.

In both, a public view, column or function has a comment; what roles use stands in ``set_privileges``, or in
``functions_of_administrators``.
"""

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
    "dequeue",
    "once",
    "results",
    "schedules",
    "batches",
    "cancelling",
    "delivering",
    "due",
    "progress",
    "activity",
    "limits",
    "rates",
    "comments",
    "access",
)


def upgrade() -> None:
    apply_revision(revision, [BASELINE / f"{theme}.sql" for theme in THEMES])


def downgrade() -> None:
    refuse_downgrade()
