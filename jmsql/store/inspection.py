"""The contents of the store: queues, subscriptions, clients, and the messages of a queue."""

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import chain, islice
from operator import attrgetter
from typing import Any, NamedTuple

from jmsql.destinations import Destination, Queue, Topic
from jmsql.exceptions import InvalidDestinationException
from jmsql.messages import Message
from jmsql.postgresql_text import optional_to_postgresql, to_postgresql
from jmsql.selectors import Selector
from jmsql.store.autocommit_connection import AutocommitConnection
from jmsql.store.columns import message_columns
from jmsql.store.errors import jms_errors
from jmsql.store.identifier import Schema, quote_identifier
from jmsql.store.migration import current_version
from jmsql.store.rows import MessageRow
from jmsql.store.selection import selector_condition

__all__ = [
    "BrowsedMessage",
    "ClientSummary",
    "DeliveryState",
    "FoundMessage",
    "Inspection",
    "QueueSummary",
    "SubscriptionSummary",
    "client_summaries",
    "schema_version",
]

_BROWSED_AT_ONCE = 100


class QueueSummary(NamedTuple):
    """A row of the view ``queues``."""

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


class SubscriptionSummary(NamedTuple):
    """A row of the view ``subscriptions``."""

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


class DeliveryState(NamedTuple):
    """Where the delivery of a message stands."""

    state: str
    delivery_count: int
    claimed_by: int | None
    next_attempt: datetime | None
    last_error: str | None


class BrowsedMessage(NamedTuple):
    """A message, and where its delivery stands."""

    message: Message
    delivery: DeliveryState


class FoundMessage(NamedTuple):
    """A message, where it is, and where its delivery stands; its `jms_destination` is a queue or the topic."""

    message: Message
    delivery: DeliveryState
    subscription: str | None
    """The name of the subscription that holds it, if it is a topic's and has one."""
    client_id: str | None


class Inspection:
    """Looks at the queues, subscriptions and clients.

    Args:
        connection: Where to ask.
        schema: The name of the schema.
    """

    def __init__(self, connection: AutocommitConnection, schema: str) -> None:
        self._connection = connection
        self._schema_name = schema
        self._schema = Schema(schema)

    def queues(self) -> list[QueueSummary]:
        """Return all queues, by name, with the number of their messages."""
        columns = ", ".join(QueueSummary._fields)
        with jms_errors("looking at the queues"):
            return [
                QueueSummary._make(row)
                for row in self._connection.rows(f"select {columns} from {self._schema}.queues order by queue")
            ]

    def subscriptions(self) -> list[SubscriptionSummary]:
        """Return all subscriptions, by topic and name, with the number of their messages."""
        columns = ", ".join(SubscriptionSummary._fields)
        statement = f"select {columns} from {self._schema}.subscriptions order by topic, subscription, client_id"
        with jms_errors("looking at the subscriptions"):
            return [SubscriptionSummary._make(row) for row in self._connection.rows(statement)]

    def clients(self) -> list[ClientSummary]:
        """Return the connections of clients, the oldest first."""
        return client_summaries(self._connection, self._schema_name)

    def queue_id(self, queue: str) -> int:
        """Return the number of a queue.

        Raises:
            InvalidDestinationException: There is no such queue.
        """
        with jms_errors(f"looking up the queue {queue!r}"):
            rows = self._connection.rows(
                f"select queue_id from {self._schema.internal}.queue where name = %(name)s", name=queue
            )
        if not rows:
            raise InvalidDestinationException(
                f"There is no queue {queue!r}. `jmsql destination list` lists those there are."
            )
        return int(rows[0][0])

    def subscription(self, name: str, client_id: str | None) -> SubscriptionSummary | None:
        """Return a durable subscription, or None if there is none of the name for the client identifier."""
        wanted = to_postgresql(name), optional_to_postgresql(client_id)
        durable = (each for each in self.subscriptions() if each.durable)
        return next((each for each in durable if (each.subscription, each.client_id) == wanted), None)

    def count(self, queue: str, selector: Selector | None) -> int:
        """Return how many messages a queue holds that match a selector, whatever their state."""
        condition, parameters = selector_condition(selector, self._schema_name)
        counts = (
            f"(select count(*) from {self._schema.internal}.{table} m where m.queue_id = %(queue_id)s {condition})"
            for table in ("message", "delayed_message")
        )
        statement = f"select {' + '.join(counts)}"
        queue_id = self.queue_id(queue)
        with jms_errors("counting"):
            return int(self._connection.rows(statement, queue_id=queue_id, **parameters)[0][0])

    def browse(self, queue: str, selector: Selector | None, limit: int) -> Iterator[BrowsedMessage]:
        """Return the first messages of a queue in their order, whatever their state; those that are delayed come last.

        Raises:
            InvalidDestinationException: There is no such queue.
        """
        return self._browse(Queue(queue), self.queue_id(queue), selector, limit)

    def browse_subscription(
        self, name: str, client_id: str | None, selector: Selector | None, limit: int
    ) -> Iterator[BrowsedMessage]:
        """Return the first messages that a durable subscription has collected, as `browse` does.

        Raises:
            InvalidDestinationException: There is no such subscription.
        """
        statement = f"""
            select s.queue_id, t.name from {self._schema.internal}.subscription s
            join {self._schema.internal}.topic t using (topic_id)
            where s.durable and s.client_id is not distinct from %(client_id)s::text and s.name = %(name)s"""
        with jms_errors(f"looking up the subscription {name!r}"):
            rows = self._connection.rows(
                statement, name=to_postgresql(name), client_id=optional_to_postgresql(client_id)
            )
        if not rows:
            raise InvalidDestinationException(
                f"That client has no durable subscription {name!r}. `jmsql subscriptions` lists those there are."
            )
        [(queue_id, topic)] = rows
        return self._browse(Topic(topic), queue_id, selector, limit)

    def message(self, message_id: str) -> list[FoundMessage]:
        """Return a message, once for each queue and subscription that holds it. All messages are read for it."""
        expired = f"m.jms_expiration <= {self._schema.internal}.current_milliseconds()"
        held = "q.name, t.name, s.name, s.client_id"
        places = f"""
            join {self._schema.internal}.queue q using (queue_id)
            left join {self._schema.internal}.subscription s using (queue_id)
            left join {self._schema.internal}.topic t on t.topic_id = s.topic_id
            where m.jms_message_id::text = %(message_id)s and (q.name is not null or t.name is not null)"""
        statement = f"""
            select {message_columns(self._schema.internal)}, null, d.delivery_count, null, {_state(expired)},
                   coalesce(d.delivery_count, 0), d.connection_id,
                   nullif(d.next_attempt, 'infinity'), d.last_error, {held}
            from {self._schema.internal}.message m
            left join {self._schema.internal}.delivery d using (queue_id, inverse_priority, sequence)
            {places}
            union all
            select {message_columns(self._schema.internal)}, null, null, null,
                   case when {expired} then 'expired' else 'delayed' end, 0, null, null, null, {held}
            from {self._schema.internal}.delayed_message m
            {places}"""
        with jms_errors("looking for the message"):
            rows = self._connection.rows(statement, message_id=message_id.removeprefix("ID:").lower())
        width, state = len(MessageRow._fields), len(DeliveryState._fields)
        found = []
        for values in rows:
            queue, topic, subscription, client_id = values[width + state :]
            message = MessageRow._make(values[:width]).message(Queue(queue) if topic is None else Topic(topic))
            delivery = DeliveryState._make(values[width : width + state])
            found.append(FoundMessage(message, delivery, subscription, client_id))
        return found

    def _browse(
        self, destination: Destination, queue_id: int, selector: Selector | None, limit: int
    ) -> Iterator[BrowsedMessage]:
        condition, parameters = selector_condition(selector, self._schema_name)
        parameters |= {"queue_id": queue_id, "limit": min(limit, _BROWSED_AT_ONCE)}
        columns = message_columns(self._schema.internal)
        expired = f"m.jms_expiration <= {self._schema.internal}.current_milliseconds()"
        present = f"""
            select {columns}, null, d.delivery_count, null,
                   {_state(expired)},
                   coalesce(d.delivery_count, 0), d.connection_id,
                   nullif(d.next_attempt, 'infinity'), d.last_error
            from {self._schema.internal}.message m
            left join {self._schema.internal}.delivery d
              on (d.queue_id, d.inverse_priority, d.sequence) = (m.queue_id, m.inverse_priority, m.sequence)
            where m.queue_id = %(queue_id)s
              and (m.inverse_priority, m.sequence) > (%(first)s::smallint, %(sequence)s::bigint)
              {condition}
            order by m.queue_id, m.inverse_priority, m.sequence
            limit %(limit)s"""
        delayed = f"""
            select {columns}, null, null, null,
                   case when {expired} then 'expired' else 'delayed' end, 0, null, null, null
            from {self._schema.internal}.delayed_message m
            where m.queue_id = %(queue_id)s
              and (m.jms_delivery_time, m.sequence) > (%(first)s::bigint, %(sequence)s::bigint)
              {condition}
            order by m.queue_id, m.jms_delivery_time, m.sequence
            limit %(limit)s"""
        found = chain(
            self._pages(present, parameters, attrgetter("inverse_priority")),
            self._pages(delayed, parameters, attrgetter("jms_delivery_time")),
        )
        for row, state in islice(found, limit):
            yield BrowsedMessage(row.message(destination), state)

    def _pages(
        self, statement: str, parameters: dict[str, Any], first: Callable[[MessageRow], int]
    ) -> Iterator[tuple[MessageRow, DeliveryState]]:
        """Return messages page by page.

        Args:
            statement: Returns a page of them, from a place on.
            parameters: Its parameters, but for the place.
            first: The first half of a message's place; the other is its sequence.
        """
        width = len(MessageRow._fields)
        place = {"first": -1, "sequence": 0}
        while True:
            with jms_errors("browsing"):
                rows = self._connection.rows(statement, **place, **parameters)
            for values in rows:
                row = MessageRow._make(values[:width])
                place = {"first": first(row), "sequence": row.sequence}
                yield row, DeliveryState._make(values[width:])
            if len(rows) < parameters["limit"]:
                return


def _state(expired: str) -> str:
    """Return the state of a message with the delivery `d`, in SQL."""
    return f"""case when {expired} then 'expired'
                        when d.claim_id is not null then 'claimed'
                        when d.next_attempt > statement_timestamp() then 'waiting'
                        else 'ready' end"""


def client_summaries(connection: AutocommitConnection, schema: str) -> list[ClientSummary]:
    """Return the connections of clients, the oldest first."""
    columns = ", ".join(ClientSummary._fields)
    with jms_errors("looking at the clients"):
        rows = connection.rows(f"select {columns} from {quote_identifier(schema)}.clients order by connection_id")
    return [ClientSummary._make(row) for row in rows]


def schema_version(url: str, schema: str) -> str | None:
    """Return the version of the schema in a database, or None if the schema is not there.

    Raises:
        JMSException: The database cannot be reached.
    """
    with AutocommitConnection(url) as connection, jms_errors("looking at the schema"):
        return current_version(connection.sqlalchemy, schema)
