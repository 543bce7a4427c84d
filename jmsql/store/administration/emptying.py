"""Deleting and moving messages in small steps: those that a selector chooses, or those at known places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from jmsql.exceptions import JMSException
from jmsql.selectors import Selector
from jmsql.store.administration import looks
from jmsql.store.administration.dead_letters import HOMELESS, Retry, origins
from jmsql.store.administration.places import Place, key_parameters, parts_of
from jmsql.store.destinations.lookup import existing_queue, last_sequence
from jmsql.store.history.keeping import RECORDED, history
from jmsql.store.receiving.candidates import LOOK_UPS
from jmsql.store.rows.columns import DELAYED_COLUMNS, and_chosen
from jmsql.store.statement import Item, Items, SqlFile, Statement, Steps, fill, rows, value
from jmsql.values.destinations import Queue

_AT_ONCE = 5000

_sql = SqlFile("inspection")
_history = history(
    queues="array[%(queue_id)s::integer]",
    addresses="array(select address from free)",
    deliveries="array(select delivery_count from free)",
    outcome="purged",
)
_FREE = _sql["free"]
_PURGE = fill(_sql["purge"], free=_FREE, history=_history, recorded=RECORDED)
"""Returns the last deleted message's place, and how many are gone."""
_looks = SqlFile("looks")
_retry_keys = _looks.statement("retry_keys", "moving dead letters back", rows)
_homeless_of_keys = Statement(
    "homeless_of_keys",
    fill(HOMELESS, letters=_looks["letters_of_keys"]),
    "looking for the origins of dead letters",
    rows,
)
_candidates_of_keys = _looks["candidates_of_keys"]
_move_parts = {
    "free_of_keys": fill(_FREE, candidates=_candidates_of_keys),
    "noted": _looks["noted_move"],
    "moved_columns": ", ".join([*(name for name, _ in DELAYED_COLUMNS if name != "destination"), "body_id"]),
}
_purge = {
    False: Statement("purge_keys", fill(_PURGE, candidates=_candidates_of_keys), "purging", rows),
    True: _looks.statement("purge_delayed_keys", "purging", rows),
}
_move = {
    False: _looks.statement("move_keys", "moving messages", rows, _move_parts),
    True: _looks.statement("move_delayed_keys", "moving messages", rows, _move_parts),
}


def purge(queue: str, selector: Selector | None, newest: int | None = None) -> Items[int]:
    """Delete the messages that are in a queue now, or have at most a sequence, but for those that a session holds.

    Each statement has to commit by itself.

    Yields:
        How many were deleted, after each step. Each step commits.

    Raises:
        InvalidDestinationException: There is no such queue.
    """
    chosen, parameters = and_chosen(selector)
    text = fill(_PURGE, candidates=_sql["candidates"])
    step = Statement("purge", fill(text, chosen=chosen), "purging", rows, parameters)
    queue_id = yield from existing_queue(queue)
    if newest is None:
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


def purge_at(queue: Queue | int, places: Iterable[Place]) -> Items[int]:
    """Delete messages, but for those that a session holds or that are gone.

    Yields:
        How many were deleted, after each step. Each step commits.

    Raises:
        InvalidDestinationException: There is no such queue.
    """
    queue_id, _ = yield from looks.located(queue)
    for delayed, part in parts_of(places, looks.WINDOW):
        found = yield from _purge[delayed].bind(key_parameters(part), queue_id=queue_id)
        yield Item(int(found[0][0 if delayed else -1]) if found else 0)


def move_at(queue: Queue | int, target: Queue, places: Iterable[Place]) -> Items[int]:
    """Move messages to another queue, but for those that a session holds or that are gone.

    Yields:
        How many were moved, after each step. Each step is a transaction: a message is in one of the queues.

    Raises:
        InvalidDestinationException: One of the queues is not there.
        JMSException: They are in that queue.
    """
    queue_id, _ = yield from looks.located(queue)
    target_id, _ = yield from looks.located(target)
    if queue_id == target_id:
        raise JMSException("The messages are in that queue already.")
    for delayed, part in parts_of(places, looks.WINDOW):
        found = yield from _move[delayed].bind(key_parameters(part), queue_id=queue_id, target=target_id)
        yield Item(int(found[0][0]))


def retry_at(queue: Queue | int, places: Iterable[Place]) -> Steps[Retry]:
    """Move dead letters back to where they come from.

    Other messages stay, as do those that a session holds, and those whose origin is gone.

    Raises:
        InvalidDestinationException: There is no such queue.
    """
    queue_id, _ = yield from looks.located(queue)
    chosen = list(dict.fromkeys(places))
    returned: Counter[str] = Counter()
    gone: Counter[str] = Counter()
    for delayed, part in parts_of(chosen, looks.WINDOW):
        if not delayed:
            keys = key_parameters(part)
            back = origins((yield from _retry_keys.bind(keys, queue_id=queue_id)))
            returned.update(back)
            if sum(back.values()) < len(part):
                gone.update(origins((yield from _homeless_of_keys.bind(keys, queue_id=queue_id))))
    return Retry(dict(returned), len(chosen) - returned.total(), dict(gone))
