"""Administration from Python: destinations, messages and subscriptions, and a look at what there is."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Engine

from jmsql.client.destination_administration import DestinationAdministration
from jmsql.client.factory import ConnectionFactory
from jmsql.client.history import History
from jmsql.destinations import Queue, Topic, named_destination, require_topic
from jmsql.exceptions import IllegalStateException
from jmsql.selectors import Selector
from jmsql.store.dead_letters import DeadLetter, DeadLetters, Retry
from jmsql.store.errors import jms_errors
from jmsql.store.inspection import (
    BrowsedMessage,
    ClientSummary,
    FoundMessage,
    Inspection,
    QueueSummary,
    SubscriptionSummary,
)
from jmsql.store.move import Move
from jmsql.store.purge import Purge
from jmsql.store.subscriptions import SubscriptionDefinition, create_durable, unsubscribe

__all__ = ["Administration"]


class Administration(DestinationAdministration):
    """Looks at what there is in a database, and looks after it. Each change commits by itself. A context manager.

    A destination is given as an object, or as text: a queue's name, ``queue://NAME`` or ``topic://NAME``.

    Args:
        database: A URL, a connection factory, or a SQLAlchemy engine that uses psycopg. None: what the environment
            variable ``JMSQL_URL`` says, else the embedded server.
        schema: The PostgreSQL schema of jmsql's tables; None: the factory's, else ``jmsql``.

    Raises:
        JMSException: The database cannot be reached, or the schema is missing or of another version.
    """

    def __init__(self, database: str | ConnectionFactory | Engine | None = None, *, schema: str | None = None) -> None:
        super().__init__(database, schema=schema)
        self._inspection = Inspection(self._connection, self._schema)
        self._dead_letters = DeadLetters(self._connection, self._schema)
        self._history = History(self._connection, self._schema, self._timings.prune_lock_timeout)

    # What there is

    def queues(self) -> list[QueueSummary]:
        """Return all queues, by name, with the number of their messages."""
        return self._inspection.queues()

    def subscriptions(self) -> list[SubscriptionSummary]:
        """Return all subscriptions, by topic and name, with the number of their messages."""
        return self._inspection.subscriptions()

    def clients(self) -> list[ClientSummary]:
        """Return the connections of clients, the oldest first."""
        return self._inspection.clients()

    def count(self, queue: Queue | str, selector: str | None = None) -> int:
        """Return how many messages a queue holds that match a selector, whatever their state.

        Raises:
            InvalidDestinationException: There is no such queue.
            InvalidSelectorException: The selector has an error; the message shows where.
        """
        return self._inspection.count(_queue_name(queue), Selector.parse(selector))

    def browse(self, queue: Queue | str, selector: str | None = None, *, limit: int = 100) -> Iterator[BrowsedMessage]:
        """Return the first messages of a queue in their order, whatever their state; those that are delayed come last.

        Raises:
            InvalidDestinationException: There is no such queue.
            InvalidSelectorException: The selector has an error; the message shows where.
        """
        return self._inspection.browse(_queue_name(queue), Selector.parse(selector), limit)

    def browse_subscription(
        self, name: str, selector: str | None = None, *, client_id: str | None = None, limit: int = 100
    ) -> Iterator[BrowsedMessage]:
        """Return the first messages that a durable subscription has collected, as `browse` does those of a queue.

        Raises:
            InvalidDestinationException: There is no subscription of that name for the client identifier.
            InvalidSelectorException: The selector has an error; the message shows where.
        """
        return self._inspection.browse_subscription(name, client_id, Selector.parse(selector), limit)

    def message(self, message_id: str) -> list[FoundMessage]:
        """Return a message, once for each queue and subscription that holds it, whatever its state.

        All messages are read for it. What has left its destination is in the `history`, if that is kept.

        Args:
            message_id: Its JMSMessageID, with or without ``ID:``.
        """
        return self._inspection.message(message_id)

    def subscription(self, name: str, client_id: str | None = None) -> SubscriptionSummary | None:
        """Return a durable subscription, or None if there is none of that name for the client identifier."""
        return self._inspection.subscription(name, client_id)

    @property
    def history(self) -> History:
        """What has left the destinations that keep history."""
        return self._history

    # Messages and subscriptions

    def purge(self, queue: Queue | str, selector: str | None = None) -> Iterator[int]:
        """Delete the messages that are in a queue now, but for those that a session holds.

        Yields:
            How many were deleted, after each step. Each step commits.

        Raises:
            InvalidDestinationException: There is no such queue.
            InvalidSelectorException: The selector has an error; the message shows where.
        """
        return Purge(self._connection, self._schema).steps(_queue_name(queue), Selector.parse(selector))

    def subscribe(
        self,
        topic: Topic | str,
        name: str,
        selector: str | None = None,
        *,
        client_id: str | None = None,
        shared: bool = False,
        no_local: bool = False,
    ) -> bool:
        """Make a durable subscription if it is not there: it collects messages before its first consumer comes.

        Args:
            topic: The topic, which is made if need be.
            name: The subscription's name.
            selector: Which of the topic's messages are wanted; None or "": all.
            client_id: The client identifier that it belongs to; None: it is shared, and belongs to none.
            shared: Whether its consumers share it; see `Session.create_shared_durable_consumer`.
            no_local: Whether to leave out what that client publishes.

        Returns:
            Whether it was made.

        Raises:
            IllegalStateException: There is another of that name, with another topic, selector or `no_local`, which is
                left as it is; or it is neither shared nor given a client identifier.
            InvalidDestinationException: The topic is none.
            InvalidSelectorException: The selector has an error; the message shows where.
            ValueError: The name is empty.
        """
        target = require_topic(
            Topic(topic) if isinstance(topic, str) and "://" not in topic else named_destination(topic)
        )
        if not name:
            raise ValueError("A subscription's name has at least one character.")
        if client_id is None and not shared:
            raise IllegalStateException(
                "A durable subscription belongs to a client identifier, unless it is shared; give one of the two."
            )
        definition = SubscriptionDefinition(
            target.name, Selector.parse(selector), name, client_id, durable=True, shared=shared, no_local=no_local
        )
        with jms_errors("making a subscription"), self._connection.psycopg.transaction():
            return self._connection.runner(self._schema).run(create_durable(definition))

    def dead_letters(
        self, queue: Queue | str | None = None, selector: str | None = None, *, limit: int = 100
    ) -> list[DeadLetter]:
        """Return the dead letters, those that died last first: where they come from, and why they are dead.

        Args:
            queue: Those in this queue; None: in all queues.
            selector: Which of them; their properties ``JMS_jmsql_…`` may be compared as well. None: all.
            limit: At most so many.

        Raises:
            InvalidDestinationException: There is no such queue.
            InvalidSelectorException: The selector has an error; the message shows where.
        """
        return self._dead_letters.first(None if queue is None else _queue_name(queue), Selector.parse(selector), limit)

    def retry(self, queue: Queue | str = "DLQ", selector: str | None = None, *, limit: int | None = None) -> Retry:
        """Move the dead letters in a queue back to where they come from, in one transaction.

        They keep their identifiers, headers, properties and bodies, and count as never delivered. They queue up behind
        what is there. Those that a session holds stay, and those whose queue or subscription is gone.

        Args:
            queue: Where they are now.
            selector: Which of them; None: all.
            limit: The first so many; None: all.

        Raises:
            InvalidDestinationException: There is no such queue.
            InvalidSelectorException: The selector has an error; the message shows where.
        """
        return self._dead_letters.retry(_queue_name(queue), Selector.parse(selector), limit)

    def move(
        self, source: Queue | str, target: Queue | str, selector: str | None = None, *, limit: int | None = None
    ) -> Iterator[int]:
        """Move the messages that are in a queue now to another queue, but for those that a session holds.

        They keep their headers, and come after those that are in the target already. Doing it again moves what is left.

        Yields:
            How many were moved, after each step. Each step is one transaction, of 5,000 messages at the most.

        Raises:
            InvalidDestinationException: One of the queues is not there.
            InvalidSelectorException: The selector has an error; the message shows where.
            JMSException: The two queues are the same.
        """
        steps = Move(self._connection, self._schema).steps
        return steps(_queue_name(source), _queue_name(target), Selector.parse(selector), limit)

    def unsubscribe(self, name: str, client_id: str | None = None) -> None:
        """End a durable subscription, with its messages.

        Raises:
            InvalidDestinationException: There is none of that name for the client identifier.
            IllegalStateException: It has a consumer, or messages that a session has not acknowledged.
        """
        with jms_errors("ending a subscription"), self._connection.psycopg.transaction():
            self._connection.runner(self._schema).run(unsubscribe(name, client_id))


def _queue_name(queue: Queue | str) -> str:
    return queue.name if isinstance(queue, Queue) else queue
