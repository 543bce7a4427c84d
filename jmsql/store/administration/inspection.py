"""The contents of the store: queues, subscriptions, clients, and the messages of a queue."""

from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

from jmsql.exceptions import InvalidDestinationException
from jmsql.messages import Message
from jmsql.public_names import set_module
from jmsql.selectors import Selector
from jmsql.store.destinations.lookup import existing_queue, require_access
from jmsql.store.rows.columns import and_chosen, message_columns
from jmsql.store.rows.message_rows import MessageRow
from jmsql.store.statement import Item, Items, Query, Result, SqlFile, Statement, Steps, fill, records, rows, value
from jmsql.values.destinations import Destination, Queue, Topic
from jmsql.values.postgresql_text import optional_to_postgresql, to_postgresql

_BROWSED_AT_ONCE = 100


@set_module("jmsql.admin")
class QueueSummary(NamedTuple):
    """A row of the view ``queues``, and whether its delivery is paused.

    Where the role may not browse it, `browsable` is False, and the numbers are 0 whatever there is.
    """

    queue: str
    ready: int
    claimed: int
    waiting: int
    expired: int
    redelivered: int
    oldest_sent_at: datetime | None
    expiry_queue: str | None
    created_at: datetime
    delayed: int
    paused: bool = False
    browsable: bool = True


@set_module("jmsql.admin")
class SubscriptionSummary(NamedTuple):
    """A row of the view ``subscriptions``, and whether the delivery from its topic is paused.

    Where the role may not browse it, `browsable` is False, and the numbers are 0 whatever there is.
    """

    topic: str
    subscription: str | None
    client_id: str | None
    durable: bool
    shared: bool
    selector: str | None
    no_local: bool
    consumers: int
    ready: int
    claimed: int
    waiting: int
    expired: int
    redelivered: int
    oldest_sent_at: datetime | None
    created_at: datetime
    paused: bool = False
    browsable: bool = True


@set_module("jmsql.admin")
class ClientSummary(NamedTuple):
    """A row of the view ``clients``."""

    connection_id: int
    client_id: str | None
    user_name: str
    host: str
    process_id: int
    started_at: datetime
    connected: bool
    claimed: int


@set_module("jmsql.admin")
class DeliveryState(NamedTuple):
    """Where the delivery of a message stands."""

    state: str
    delivery_count: int
    claimed_by: int | None
    next_attempt: datetime | None
    last_error: str | None


@set_module("jmsql.admin")
class BrowsedMessage(NamedTuple):
    """A message, and where its delivery stands."""

    message: Message
    delivery: DeliveryState


@set_module("jmsql.admin")
class FoundMessage(NamedTuple):
    """A message, where it is, and where its delivery stands; its `jms_destination` is a queue or the topic."""

    message: Message
    delivery: DeliveryState
    subscription: str | None
    """The name of the subscription that holds it, if it is a topic's and has one."""
    client_id: str | None


_WIDTH = len(MessageRow._fields)
_PLACES = len(DeliveryState._fields) + _WIDTH

_sql = SqlFile("inspection")
ACCESS = {"is_browsable": fill(_sql["is_browsable"], sees_all=_sql["sees_all"]), "sees_all": _sql["sees_all"]}
_parts = {
    "columns": message_columns(),
    "delivery": fill(_sql["delivery"], state=_sql["state"]),
    "delay": _sql["delay"],
    "held": _sql["held"],
    "places": _sql["places"],
}


def _to_found(row: tuple[Any, ...]) -> FoundMessage:
    queue, topic, subscription, client_id = row[_PLACES:]
    found = MessageRow._make(row[:_WIDTH]).message(Queue(queue) if topic is None else Topic(topic))
    return FoundMessage(found, DeliveryState._make(row[_WIDTH:_PLACES]), subscription, client_id)


def _to_page(result: Result) -> list[tuple[MessageRow, DeliveryState]]:
    return [(MessageRow._make(row[:_WIDTH]), DeliveryState._make(row[_WIDTH:])) for row in result.rows]


queues = _sql.statement("queues", "looking at the queues", records(QueueSummary._make), ACCESS).bind()
"""All queues, by name, with the number of their messages."""
subscriptions = _sql.statement(
    "subscriptions", "looking at the subscriptions", records(SubscriptionSummary._make), ACCESS
).bind()
"""All subscriptions, by topic and name, with the number of their messages."""
clients = _sql.statement("clients", "looking at the clients", records(ClientSummary._make)).bind()
"""The connections of clients, the oldest first."""
sees_all_messages = _sql.statement("sees_all_messages", "looking at the rights", value(bool), ACCESS).bind()
"""Whether no policy hides messages from the role."""
_find_durable = _sql.statement("find_durable_subscription", "looking up the subscription {name!r}", rows)
_find_message = _sql.statement("find_message", "looking for the message", records(_to_found), _parts)


def subscription(name: str, client_id: str | None) -> Steps[SubscriptionSummary | None]:
    """Return a durable subscription, or None if there is none of the name for the client identifier."""
    wanted = to_postgresql(name), optional_to_postgresql(client_id)
    durable = (each for each in (yield from subscriptions) if each.durable)
    return next((each for each in durable if (each.subscription, each.client_id) == wanted), None)


def count(queue: str, selector: Selector | None) -> Steps[int]:
    """Return how many messages a queue holds that match a selector, whatever their state.

    Raises:
        InvalidDestinationException: There is no such queue.
    """
    chosen, parameters = and_chosen(selector)
    statement = Statement("count", fill(_sql["count"], chosen=chosen), "counting", value(int), parameters)
    queue_id = yield from existing_queue(queue)
    return (yield from statement.bind(queue_id=queue_id))


def message(message_id: str) -> Query[list[FoundMessage]]:
    """Return a message, once for each queue and subscription that holds it. All messages are read for it."""
    return _find_message.bind(message_id=message_id.removeprefix("ID:").lower())


def browse(queue: str, selector: Selector | None, limit: int) -> Items[BrowsedMessage]:
    """Return the first messages of a queue in their order, whatever their state; those that are delayed come last.

    Raises:
        InvalidDestinationException: There is no such queue.
        JMSSecurityException: The role may not browse it.
    """
    queue_id = yield from existing_queue(queue)
    yield from _browse(Queue(queue), queue_id, selector, limit)


def browse_subscription(
    name: str, client_id: str | None, selector: Selector | None, limit: int
) -> Items[BrowsedMessage]:
    """Return the first messages that a durable subscription has collected, as `browse` does.

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
    yield from _browse(Topic(topic), queue_id, selector, limit)


def _browse(destination: Destination, queue_id: int, selector: Selector | None, limit: int) -> Items[BrowsedMessage]:
    yield from require_access(queue_id, "browse")
    chosen, parameters = and_chosen(selector)
    page_size, remaining = min(limit, _BROWSED_AT_ONCE), limit
    for name, first in (
        ("browse_present", attrgetter("inverse_priority")),
        ("browse_delayed", attrgetter("jms_delivery_time")),
    ):
        statement = _sql.statement(name, "browsing", _to_page, _parts | {"chosen": chosen})
        place = {"first": -1, "sequence": 0}
        while remaining > 0:
            page = yield from statement.bind(parameters, queue_id=queue_id, limit=page_size, **place)
            for row, state in page[:remaining]:
                yield Item(BrowsedMessage(row.message(destination), state))
            remaining -= len(page)
            if len(page) < page_size:
                break
            last, _ = page[-1]
            place = {"first": first(last), "sequence": last.sequence}
