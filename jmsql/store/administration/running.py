"""The messages that are being handled, as far as their handlers report their progress."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from jmsql.store.statement import Query, SqlFile, records
from jmsql.values.postgresql_text import from_postgresql

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


def _to_running(row: tuple[Any, ...]) -> RunningMessage:
    found = RunningMessage._make(row)
    subscription = None if found.subscription is None else from_postgresql(found.subscription)
    return found._replace(subscription=subscription, note=from_postgresql(found.note))


_running = _sql.statement("running", "looking at progress", records(_to_running))


def running(most: int, *, queue_id: int | None = None, like: str | None = None) -> Query[list[RunningMessage]]:
    """Return messages whose handlers have reported their progress, those that run longest first.

    Args:
        most: How many at most.
        queue_id: The queue, or a subscription's queue; None: all.
        like: A pattern as for SQL's LIKE, for the name of the destination or subscription; None: all.
    """
    return _running.bind(most=most, queue_id=queue_id, like=like)
