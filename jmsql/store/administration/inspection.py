"""The contents of the store: queues, subscriptions, clients, and the messages of a queue."""

from datetime import datetime
from typing import Any, NamedTuple, Self

from jmsql.messages import Message
from jmsql.public_names import set_module
from jmsql.selectors import Selector
from jmsql.store.administration.places import Place
from jmsql.store.destinations.lookup import existing_queue
from jmsql.store.rows.columns import and_chosen, message_columns
from jmsql.store.rows.message_rows import MessageRow
from jmsql.store.statement import Query, SqlFile, Statement, Steps, fill, first_value, records, value
from jmsql.values.destinations import Queue, Topic
from jmsql.values.postgresql_text import optional_to_postgresql, to_postgresql


@set_module("jmsql.admin")
class QueueSummary(NamedTuple):
    """A row of the view ``queues``, and whether its delivery is paused.

    Where the role may not browse it, `browsable` is False, and the numbers are 0.
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

    Where the role may not browse it, `browsable` is False, and the numbers are 0.
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
    place: Place
    """The message's place, for `Administration.at` and other methods that take `places`."""


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
    number: int
    """By which methods of `Administration` find its queue or subscription."""


_WIDTH = len(MessageRow._fields) - 1  # without the snapshot, which scans alone return
_STATE = _WIDTH + len(DeliveryState._fields)

_sql = SqlFile("inspection")
ACCESS = {"is_browsable": fill(_sql["is_browsable"], sees_all=_sql["sees_all"]), "sees_all": _sql["sees_all"]}
DELIVERED = fill(_sql["delivered"], columns=message_columns(), state=_sql["state"])
"""The columns of a message `m` with the delivery `d`, for `Delivered`."""
DELAYED = fill(_sql["delayed"], columns=message_columns())
"""The columns of a delayed message `m`, for `Delivered`."""
_parts = {"delivered": DELIVERED, "delayed": DELAYED, "held": _sql["held"], "places": _sql["places"]}


class Delivered(NamedTuple):
    """A message as it is stored, and where its delivery stands."""

    row: MessageRow
    delivery: DeliveryState

    @classmethod
    def of(cls, values: tuple[Any, ...]) -> Self:
        """Read a row of `DELIVERED` or `DELAYED`."""
        row = MessageRow(*values[:_WIDTH])
        state, count, claimed_by, next_attempt, error, delayed = values[_WIDTH:_STATE]
        place = Place((row.jms_delivery_time or 0) if delayed else row.inverse_priority, row.sequence, delayed)
        return cls(row, DeliveryState(state, count, claimed_by, next_attempt, error, place))

    def place(self, *, delayed: bool) -> Place:  # noqa: ARG002 - it knows
        """Return where it is."""
        return self.delivery.place


def _to_found(values: tuple[Any, ...]) -> FoundMessage:
    queue, topic, subscription, client_id, number = values[_STATE:]
    found = Delivered.of(values[:_STATE])
    message = found.row.message(Queue(queue) if topic is None else Topic(topic))
    return FoundMessage(message, found.delivery, subscription, client_id, number)


queues = _sql.statement("queues", "looking at the queues", records(QueueSummary._make), ACCESS).bind()
"""All queues, by name, with the number of their messages."""
subscriptions = _sql.statement(
    "subscriptions", "looking at the subscriptions", records(SubscriptionSummary._make), ACCESS
).bind()
"""All subscriptions, by topic and name, with the number of their messages."""
clients = _sql.statement("clients", "looking at the clients", records(ClientSummary._make)).bind()
"""The connections of clients, the oldest first."""
sees_all_messages = _sql.statement("sees_all_messages", "looking at the rights", value(bool), ACCESS).bind()
"""True if no policy hides messages from the role."""
server_time: Query[datetime] = _sql.statement("server_time", "asking for the time", first_value).bind()
_find_message = _sql.statement("find_message", "looking for the message", records(_to_found), _parts)


def subscription(name: str, client_id: str | None) -> Steps[SubscriptionSummary | None]:
    """Return a durable subscription, or None if there is none of the name for the client identifier."""
    wanted = to_postgresql(name), optional_to_postgresql(client_id)
    durable = (each for each in (yield from subscriptions) if each.durable)
    return next((each for each in durable if (each.subscription, each.client_id) == wanted), None)


def count(queue: str, selector: Selector | None) -> Steps[int]:
    """Return the number of a queue's messages that match a selector, in any state.

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
