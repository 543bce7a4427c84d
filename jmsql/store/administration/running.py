"""The messages that are being handled, as far as their handlers report their progress."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from jmsql.store.statement import Query, SqlFile, records

_sql = SqlFile("progress")


class RunningMessage(NamedTuple):
    """A message that is being handled."""

    destination: str
    subscription: str | None
    message_id: str
    progress: float | None
    """The part that is done, from 0 to 1; None: unknown."""
    note: str
    claimed_at: datetime
    reported_at: datetime


_running = _sql.statement("running", "looking at progress", records(RunningMessage._make))


def running(most: int, *, queue_id: int | None = None, like: str | None = None) -> Query[list[RunningMessage]]:
    """Return messages whose handlers have reported their progress, those that run longest first.

    Args:
        most: How many at most.
        queue_id: The queue, or a subscription's queue; None: all.
        like: A pattern as for SQL's LIKE, for the name of the destination or subscription; None: all.
    """
    return _running.bind(most=most, queue_id=queue_id, like=like)
