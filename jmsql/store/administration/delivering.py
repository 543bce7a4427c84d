"""The delivery, now, of messages that wait for their next attempt or their delivery time."""

from __future__ import annotations

from collections.abc import Iterable

from jmsql.selectors import Selector
from jmsql.store.administration.looks import (
    WINDOW,
    Choice,
    MessageState,
    Window,
    choose,
    condition_of,
    located,
)
from jmsql.store.administration.places import BEGINNING, BEGINNING_OF_DELAYED, Place, key_parameters, parts_of
from jmsql.store.destinations.lookup import last_sequence
from jmsql.store.statement import Item, Items, SqlFile, Steps, rows, value
from jmsql.values.destinations import Queue

_sql = SqlFile("delivering")
_end_of_waiting = _sql.statement("end_of_waiting", "looking at the messages", rows)
_deliver = {
    False: _sql.statement("deliver_waiting", "delivering messages", value(int)),
    True: _sql.statement("deliver_delayed", "delivering messages", value(int)),
}


def choose_waiting(queue_id: int, choice: Choice, after: Place, *, hidden: bool = False) -> Steps[Window]:
    """Find the waiting and delayed messages of the next window that are meant.

    Args:
        queue_id: Where they are.
        choice: Which messages; of another state than waiting or delayed, there are none.
        after: The place before them.
        hidden: Whether a selector may compare headers alone.

    Raises:
        JMSSecurityException: The selector compares properties though they are hidden.
    """
    if after.delayed:
        if choice.state in {None, MessageState.DELAYED}:
            return (yield from choose(queue_id, choice._replace(state=MessageState.DELAYED), after, hidden=hidden))
        return Window([], None)
    chosen, parameters = condition_of(choice, hidden=hidden)
    if choice.state not in {None, MessageState.WAITING}:
        return Window([], BEGINNING_OF_DELAYED)
    where = {"queue_id": queue_id, "first": after.first, "sequence": after.sequence, "window": WINDOW}
    statement = _sql.statement("waiting_keys", "choosing messages", rows, {"chosen": chosen})
    keys = yield from statement.bind(parameters, **where, newest=choice.newest)
    end = yield from _end_of_waiting.bind(where)
    return Window([Place(*key) for key in keys], Place(*end[0]) if end else BEGINNING_OF_DELAYED)


def deliver(queue: Queue | int, places: Iterable[Place]) -> Items[int]:
    """Deliver messages now, but for those that do not wait, or are gone.

    Yields:
        How many are delivered, after each step. Each step commits.

    Raises:
        InvalidDestinationException: There is no such queue.
    """
    queue_id, _ = yield from located(queue)
    for delayed, part in parts_of(sorted(places), WINDOW):
        yield Item((yield from _deliver[delayed].bind(key_parameters(part), queue_id=queue_id)))


def deliver_chosen(queue: Queue, selector: Selector | None, limit: int | None) -> Items[int]:
    """Deliver the messages now that wait in a queue, the first so many; as `deliver`.

    A message that fails meanwhile, and waits once more, is not delivered a second time.
    """
    queue_id, _ = yield from located(queue)
    newest = yield from last_sequence
    choice = Choice(selector, newest=newest)
    remaining = limit
    place: Place | None = BEGINNING
    while place is not None and remaining != 0:
        window = yield from choose_waiting(queue_id, choice, place)
        for delayed, part in parts_of(window.places[:remaining], WINDOW):
            delivered = yield from _deliver[delayed].bind(key_parameters(part), queue_id=queue_id)
            remaining = None if remaining is None else remaining - delivered
            yield Item(delivered)
        place = window.next
