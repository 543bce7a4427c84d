"""Batches, as administrators list, close and delete them."""

from datetime import datetime
from typing import NamedTuple

from jmsql.exceptions import JMSException
from jmsql.public_names import set_module
from jmsql.store.statement import Query, SqlFile, Steps, records, row_count, rows

_sql = SqlFile("batches")


@set_module("jmsql.admin")
class BatchSummary(NamedTuple):
    """A row of the view ``batches``."""

    id: int
    name: str
    role: str
    """The role that has opened it."""
    state: str
    """"open": its block has not ended; "running"; or "ended": its callbacks were sent."""
    total: int
    done: int
    failed: int
    expired: int
    cancelled: int
    waiting: int
    opened_at: datetime
    ended_at: datetime | None
    kept_until: datetime | None
    """When it is removed; None: it has not ended."""


_batches = _sql.statement("batches", "looking at batches", records(BatchSummary._make))
_close = _sql.statement("close", "closing the batch {batch}", row_count)
_delete = _sql.statement("delete", "deleting the batch {batch}", row_count)


_callback_queues = _sql.statement("callback_queues", "looking at the batch {batch}", rows)


def batches(
    name: str | None, limit: int, *, before: int | None = None, number: int | None = None
) -> Query[list[BatchSummary]]:
    """Return the last batches: by name, with numbers below `before`, or the one with a number."""
    return _batches.bind(batch=number, name=name, before=before, limit=limit)


def callback_queues(number: int) -> Query[list[tuple[str, str]]]:
    """Return the events of a batch that send a message, and the queues that they send it to."""
    return _callback_queues.bind(batch=number)


def batch(number: int) -> Steps[BatchSummary]:
    """Return a batch.

    Raises:
        JMSException: There is no such batch.
    """
    found = yield from batches(None, 1, number=number)
    if not found:
        raise _missing(number)
    return found[0]


def close(number: int) -> Steps[None]:
    """End the block of a batch whose opener is gone.

    Raises:
        JMSException: There is no such batch, or it is closed.
    """
    if not (yield from _close.bind(batch=number)):
        yield from batch(number)
        raise JMSException(f"The batch {number} is closed.")


def delete(number: int) -> Steps[None]:
    """Delete a batch, so that no callback comes.

    Raises:
        JMSException: There is no such batch.
    """
    if not (yield from _delete.bind(batch=number)):
        raise _missing(number)


def _missing(number: int) -> JMSException:
    return JMSException(f"There is no batch {number}. `jmsql batch list` lists those there are.")
