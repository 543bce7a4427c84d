"""Emptying a queue in small steps: its messages are deleted, or moved to another queue."""

from __future__ import annotations

from jmsql.selectors import Selector
from jmsql.store.destinations.lookup import existing_queue, last_sequence
from jmsql.store.history.keeping import RECORDED, history
from jmsql.store.receiving.candidates import LOOK_UPS
from jmsql.store.rows.columns import and_chosen
from jmsql.store.statement import Item, Items, SqlFile, Statement, fill, rows, value

_AT_ONCE = 5000

_sql = SqlFile("inspection")
_history = history(
    queues="array[%(queue_id)s::integer]",
    addresses="array(select address from free)",
    deliveries="array(select delivery_count from free)",
    outcome="purged",
)
FREE = _sql["free"]
"""The part of a statement that locks the messages which `candidates` selects, but for those that a session holds."""
PURGE = fill(_sql["purge"], free=FREE, history=_history, recorded=RECORDED)
"""The deletion of the messages which `candidates` selects. It returns the last one's place, and how many are gone."""


def purge(queue: str, selector: Selector | None) -> Items[int]:
    """Delete the messages that are in a queue now, but for those that a session holds.

    Each statement has to commit by itself.

    Yields:
        How many were deleted, after each step. Each step commits.

    Raises:
        InvalidDestinationException: There is no such queue.
    """
    chosen, parameters = and_chosen(selector)
    text = fill(PURGE, candidates=_sql["candidates"])
    step = Statement("purge", fill(text, chosen=chosen), "purging", rows, parameters)
    queue_id = yield from existing_queue(queue)
    newest = yield from last_sequence
    place = {"inverse_priority": -1, "sequence": 0}
    while found := (yield from step.bind(place, queue_id=queue_id, newest=newest, limit=_AT_ONCE)):
        place["inverse_priority"], place["sequence"], deleted = found[0]
        yield Item(deleted)
    text = fill(_sql["purge_delayed"], chosen=chosen)
    delayed = Statement("purge_delayed", text, "purging", value(int), parameters)
    while deleted := (yield from delayed.bind(queue_id=queue_id, newest=newest, limit=_AT_ONCE)):
        yield Item(deleted)


def move(source: str, target: str, selector: Selector | None, limit: int | None) -> Items[int]:
    """Move the messages that are in a queue now, but for those that a session holds.

    Each statement has to commit by itself.

    Yields:
        How many were moved, after each step. Each step is a transaction: a message is in one of the queues.

    Raises:
        InvalidDestinationException: One of the queues is not there.
        JMSException: They are the same.
    """
    queues = {"source": (yield from existing_queue(source)), "target": (yield from existing_queue(target))}
    newest = yield from last_sequence
    remaining = limit
    for delayed in (False, True):
        step = _step(selector, delayed=delayed)
        while remaining is None or remaining > 0:
            most = _AT_ONCE if remaining is None else min(remaining, _AT_ONCE)
            moved = yield from step.bind(queues, newest=newest, most=most)
            if not moved:
                break
            remaining = None if remaining is None else remaining - moved
            yield Item(moved)


def _step(selector: Selector | None, *, delayed: bool) -> Statement[int]:
    """Move the messages of some sequences, which a selector chooses, or the first ones."""
    chosen, parameters = and_chosen(selector)
    sequences = "null"
    if selector is not None:
        scan = _sql["chosen_delayed" if delayed else "chosen_present"]
        sequences = fill(scan, **LOOK_UPS, chosen=chosen)
    text = fill(_sql["move"], sequences=sequences, delayed=str(delayed).lower())
    return Statement("move", text, "moving messages", value(int), parameters)
