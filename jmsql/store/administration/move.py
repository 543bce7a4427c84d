"""Moving messages from one queue to another, in steps."""

from __future__ import annotations

from jmsql.selectors import Selector
from jmsql.store.destinations.lookup import existing_queue, last_sequence
from jmsql.store.receiving.candidates import by_key
from jmsql.store.rows.selection import and_chosen
from jmsql.store.statement import Item, Items, SqlFile, Statement, fill, value

__all__ = ["move"]

_MOVED_AT_ONCE = 5000

_sql = SqlFile("inspection")


def move(source: str, target: str, selector: Selector | None, limit: int | None) -> Items[int]:
    """Move the messages that are in a queue now, but for those that a session holds.

    Each statement has to commit by itself.

    Args:
        source: The name of the queue that they are in.
        target: The name of the other.
        selector: Which messages; None: all.
        limit: The most messages to move; None: all.

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
            most = _MOVED_AT_ONCE if remaining is None else min(remaining, _MOVED_AT_ONCE)
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
        sequences = fill(scan, delivery_of_m=by_key("jmsql_internal", "delivery", "d", "m"), chosen=chosen)
    text = fill(_sql["move"], sequences=sequences, delayed=str(delayed).lower())
    return Statement("move", text, "moving messages", value(int), parameters)
