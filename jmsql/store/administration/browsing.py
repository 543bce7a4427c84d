"""Messages of a queue or subscription, whole: one after the other, or the one at a place."""

from __future__ import annotations

from jmsql.exceptions import InvalidDestinationException
from jmsql.selectors import Selector
from jmsql.store.administration import looks
from jmsql.store.administration.inspection import DELAYED, DELIVERED, BrowsedMessage, Delivered
from jmsql.store.administration.looks import Choice
from jmsql.store.administration.places import BEGINNING, Place
from jmsql.store.destinations.lookup import require_access
from jmsql.store.rows.columns import and_chosen
from jmsql.store.statement import Item, Items, SqlFile, Statement, Steps, records, rows
from jmsql.values.destinations import Destination, Queue, Topic
from jmsql.values.postgresql_text import optional_to_postgresql, to_postgresql

_AT_ONCE = 100

_sql = SqlFile("looks")
_find_durable = SqlFile("inspection").statement(
    "find_durable_subscription", "looking up the subscription {name!r}", rows
)


def browse(queue: Queue | int, selector: Selector | None, after: Place | None, limit: int) -> Items[BrowsedMessage]:
    """Return messages of a queue or subscription in their order and in any state; the delayed ones come last.

    Raises:
        InvalidDestinationException: There is no such queue.
        JMSSecurityException: The role may not browse it.
    """
    queue_id, owner = yield from looks.located(queue)
    yield from _browse(queue_id, owner, selector, after, limit)


def browse_subscription(
    name: str, client_id: str | None, selector: Selector | None, after: Place | None, limit: int
) -> Items[BrowsedMessage]:
    """Return messages that a durable subscription has collected, as `browse` does.

    Raises:
        InvalidDestinationException: There is no such subscription.
        JMSSecurityException: The role may not browse its topic.
    """
    found = yield from _find_durable.bind(name=to_postgresql(name), client_id=optional_to_postgresql(client_id))
    if not found:
        raise InvalidDestinationException(
            f"That client has no durable subscription {name!r}. `jmsql subscriptions` lists those there are."
        )
    [(queue_id, topic)] = found
    yield from _browse(queue_id, Topic(topic), selector, after, limit)


def _browse(
    queue_id: int, owner: Destination, selector: Selector | None, after: Place | None, limit: int
) -> Items[BrowsedMessage]:
    chosen, parameters = and_chosen(selector)
    statements = _statements(chosen)
    yield from require_access(queue_id, "browse")
    remaining, place = limit, BEGINNING if after is None else after
    while remaining > 0:
        page = yield from looks.read_only(
            looks.walk(queue_id, Choice(selector), place, min(remaining, _AT_ONCE), statements, parameters)
        )
        for _, each in page.messages:
            yield Item(BrowsedMessage(each.row.message(owner), each.delivery))
        remaining -= len(page.messages)
        if page.next is None:
            break
        place = page.next


def _statements(chosen: str) -> dict[bool, Statement[list[Delivered]]]:
    shown = {False: DELIVERED, True: DELAYED}
    return {
        delayed: _sql.statement(
            name, "browsing", records(Delivered.of), {"shown": shown[delayed]} | looks.PARTS | {"chosen": chosen}
        )
        for delayed, name in looks.TABLES
    }


def at(queue: Queue | int, place: Place) -> Steps[BrowsedMessage | None]:
    """Return the message at a place of a queue or subscription, or None if it is not there any more.

    Raises:
        InvalidDestinationException: There is no such queue.
        JMSSecurityException: The role may not browse it.
    """
    queue_id, owner = yield from looks.located(queue)
    yield from require_access(queue_id, "browse")
    statement = _sql.statement(
        "delayed_at" if place.delayed else "present_at",
        "looking at a message",
        records(Delivered.of),
        {"shown": DELAYED if place.delayed else DELIVERED} | looks.PARTS,
    )
    found = yield from looks.read_only(statement.bind(queue_id=queue_id, first=place.first, sequence=place.sequence))
    return BrowsedMessage(found[0].row.message(owner), found[0].delivery) if found else None
