"""Deleting the messages of a queue, in small steps."""

from __future__ import annotations

from jmsql.selectors import Selector
from jmsql.store.destinations.lookup import existing_queue, last_sequence
from jmsql.store.history.statements import RECORDED, history
from jmsql.store.rows.selection import and_chosen
from jmsql.store.statement import Item, Items, SqlFile, Statement, fill, rows, value

__all__ = ["purge"]

_PURGED_AT_ONCE = 5000

_sql = SqlFile("inspection")
_history = history(
    "jmsql_internal",
    queues="array[%(queue_id)s::integer]",
    addresses="array(select address from free)",
    deliveries="array(select delivery_count from free)",
    outcome="purged",
)


def purge(queue: str, selector: Selector | None) -> Items[int]:
    """Delete the messages that are in a queue now, but for those that a session holds.

    Each statement has to commit by itself.

    Args:
        queue: The name of the queue.
        selector: Which messages; None: all.

    Yields:
        How many were deleted, after each step. Each step commits.

    Raises:
        InvalidDestinationException: There is no such queue.
    """
    chosen, parameters = and_chosen(selector)
    text = fill(_sql["purge"], history=_history, recorded=RECORDED, chosen=chosen)
    step = Statement("purge", text, "purging", rows, parameters)
    queue_id = yield from existing_queue(queue)
    newest = yield from last_sequence
    place = {"inverse_priority": -1, "sequence": 0}
    while found := (yield from step.bind(place, queue_id=queue_id, newest=newest, limit=_PURGED_AT_ONCE)):
        place["inverse_priority"], place["sequence"], deleted = found[0]
        yield Item(deleted)
    text = fill(_sql["purge_delayed"], chosen=chosen)
    delayed = Statement("purge_delayed", text, "purging", value(int), parameters)
    while deleted := (yield from delayed.bind(queue_id=queue_id, newest=newest, limit=_PURGED_AT_ONCE)):
        yield Item(deleted)
