"""The simplified interface: a connection and a session in one (Jakarta Messaging 3.1, chapter 2.8)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from jmsql.client._async.connection.simplified import JMSConsumer, JMSProducer
from jmsql.client.acknowledge_mode import require_mode
from jmsql.concurrency import settable
from jmsql.concurrency.tasks import async_resource
from jmsql.exceptions import IllegalStateException
from jmsql.messages import DeliveryMode
from jmsql.public_names import set_module
from jmsql.values.destinations import AnyDestination, AnyQueue, AnyTopic, Destination

if TYPE_CHECKING:
    from jmsql.client._async.connection.connection import Connection
    from jmsql.client._async.session.browser import QueueBrowser
    from jmsql.client._async.session.consumer import MessageConsumer
    from jmsql.client._async.session.producer import MessageProducer
    from jmsql.client._async.session.session import Session
    from jmsql.client._async.shared.endings import Endings
    from jmsql.client._async.shared.exception_listening import ExceptionListener
    from jmsql.client.acknowledge_mode import AcknowledgeMode
    from jmsql.client.listeners import CompletionListener
    from jmsql.client.metadata import ConnectionMetaData
    from jmsql.messages import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
    from jmsql.store.statement import Query, Steps
    from jmsql.values.destinations import Queue, TemporaryQueue, TemporaryTopic, Topic

# Contexts of one connection know each other by `_siblings`, a set that all of them share: the connection closes with
# the last one. A context in the caller's transaction has a session and no connection.


T = TypeVar("T")
Part = TypeVar("Part", bound="MessageProducer | MessageConsumer")
"""A producer or consumer that a context makes."""


@set_module("jmsql.asyncio")
class JMSContext:
    """A connection and a session in one.

    Made by [`ConnectionFactory.create_context`][jmsql.ConnectionFactory.create_context], or, for the caller's own
    transaction, by [`jmsql.asyncio.enlist`][jmsql.asyncio.enlist]. Its connection starts with the first consumer,
    unless `auto_start` is set to False.
    """

    def __init__(
        self,
        session: Session,
        connection: Connection | None = None,
        siblings: set[JMSContext] | None = None,
    ) -> None:
        self._own_session = session
        self._connection = connection
        self._siblings = set() if siblings is None else siblings
        self._siblings.add(self)
        self.auto_start = True
        """True if making a consumer starts the connection."""

    def _check_open(self) -> None:
        """Make sure that the context is open, or that its listener runs, which keeps the use of it."""
        if self._own_session.closed:
            raise IllegalStateException("The session is closed.")

    @property
    def _session(self) -> Session:
        self._check_open()
        return self._own_session

    @property
    def session_mode(self) -> AcknowledgeMode:
        """How the session acknowledges messages."""
        return self._own_session.acknowledge_mode

    @property
    def transacted(self) -> bool:
        """True if the session is transacted."""
        return self._own_session.transacted

    # The connection

    def create_context(self, session_mode: AcknowledgeMode) -> JMSContext:
        """Make another context, with a session of its own, on the same connection: for another thread, say.

        The connection closes with the last of its contexts.

        Args:
            session_mode: How the session acknowledges messages; TRANSACTED for one with transactions.

        Raises:
            IllegalStateException: The context is closed, or has no connection of its own.
            JMSException: The mode is not an `AcknowledgeMode`.
        """
        connection = self._require_connection()
        return JMSContext(connection.create_session(require_mode(session_mode)), connection, self._siblings)

    @property
    @settable
    def client_id(self) -> str | None:
        """The client identifier of the connection; see [`Connection.client_id`][jmsql.Connection.client_id].

        Setting it is the same as `set_client_id`.

        Raises:
            IllegalStateException: The context is closed, or has no connection of its own.
        """
        return self._require_connection().client_id

    async def set_client_id(self, client_id: str) -> None:
        """Take a client identifier; see [`Connection.set_client_id`][jmsql.Connection.set_client_id].

        It can be set once, before anything else is done with the context.

        Args:
            client_id: The identifier, of at least one character.

        Raises:
            IllegalStateException: The context is closed, has no connection of its own, is in use, or has an identifier
                already.
            InvalidClientIDException: The identifier is empty, or another live connection has it.
        """
        await self._require_connection().set_client_id(client_id)

    @property
    def metadata(self) -> ConnectionMetaData:
        """Facts about the provider.

        Raises:
            IllegalStateException: The context is closed, or has no connection of its own.
        """
        return self._require_connection().metadata

    @property
    def exception_listener(self) -> ExceptionListener | None:
        """Called when the server is lost; see [`Connection`][jmsql.Connection.exception_listener]."""
        return self._require_connection().exception_listener

    @exception_listener.setter
    def exception_listener(self, listener: ExceptionListener | None) -> None:
        self.set_exception_listener(listener)

    def set_exception_listener(self, listener: ExceptionListener | None) -> None:
        """Have a listener told; see [`Connection`][jmsql.Connection.set_exception_listener]."""
        self._require_connection().set_exception_listener(listener)

    def _require_connection(self) -> Connection:
        self._check_open()
        if self._connection is None:
            raise IllegalStateException("This context is part of an existing session, and has no connection.")
        return self._connection

    # Destinations and messages

    def create_queue(self, name: str) -> Queue:
        """Return the queue of that name."""
        return self._session.create_queue(name)

    def create_topic(self, name: str) -> Topic:
        """Return the topic of that name."""
        return self._session.create_topic(name)

    async def create_temporary_queue(self) -> TemporaryQueue:
        """Make a queue that lives as long as the connection, for its own consumers: for replies, say."""
        return await self._session.create_temporary_queue()

    async def create_temporary_topic(self) -> TemporaryTopic:
        """Make a topic that lives as long as the connection, for its own consumers."""
        return await self._session.create_temporary_topic()

    async def make_queue(self, queue: Queue) -> None:
        """Make a queue if it is missing, beside the session's transaction if that can be."""
        self._check_open()
        await self._session.make_queue(queue)

    async def run_steps(self, work: Query[T] | Steps[T]) -> T:
        """Run statements in the session's transaction; without one they take effect when this returns."""
        self._check_open()
        return await self._session.run_steps(work)

    def endings(self) -> Endings:
        """Return the reader of messages' ends."""
        return self._session.endings()

    def create_message(self) -> Message:
        """Make a message without a body."""
        return self._session.create_message()

    def create_text_message(self, text: str | None = None) -> TextMessage:
        """Make a message with a text."""
        return self._session.create_text_message(text)

    def create_bytes_message(self) -> BytesMessage:
        """Make a message with bytes, to be written."""
        return self._session.create_bytes_message()

    def create_map_message(self) -> MapMessage:
        """Make a message with named values."""
        return self._session.create_map_message()

    def create_stream_message(self) -> StreamMessage:
        """Make a message with a sequence of values, to be written."""
        return self._session.create_stream_message()

    def create_object_message(self, object: Any = None) -> ObjectMessage:  # noqa: A002 - JMS's name
        """Make a message with a copy of an object."""
        return self._session.create_object_message(object)

    # Sending and receiving

    def create_producer(
        self,
        *,
        delivery_mode: int = DeliveryMode.PERSISTENT,
        priority: int = 4,
        time_to_live: float | timedelta = 0.0,
        delivery_delay: float | timedelta = 0.0,
        properties: Mapping[str, Any] | None = None,
        jms_correlation_id: str | None = None,
        jms_type: str | None = None,
        jms_reply_to: Destination | None = None,
        completion_listener: CompletionListener | None = None,
    ) -> JMSProducer:
        """Make a producer, with defaults for its messages.

        Args:
            delivery_mode: PERSISTENT or NON_PERSISTENT.
            priority: 0 (lowest) to 9.
            time_to_live: After how many seconds (or a `timedelta`) messages expire; 0: never.
            delivery_delay: Default delivery delay in seconds, or as a `timedelta`.
            properties: Properties that each message gets.
            jms_correlation_id: The JMSCorrelationID that each message gets; None: its own.
            jms_type: The JMSType that each message gets; None: its own.
            jms_reply_to: The JMSReplyTo that each message gets; None: its own.
            completion_listener: Called with the outcome of each message, which is then sent asynchronously, as by
                [`MessageProducer.send`][jmsql.MessageProducer.send]; None: sends wait.
        """
        producer = JMSProducer(self._made(self._session.unidentified_producer()))
        producer.set_delivery_mode(delivery_mode).set_priority(priority)
        producer.set_time_to_live(time_to_live).set_delivery_delay(delivery_delay)
        producer.properties.update(properties or {})
        producer.set_jms_correlation_id(jms_correlation_id).set_jms_type(jms_type).set_jms_reply_to(jms_reply_to)
        return producer.set_async(completion_listener)

    @async_resource
    async def create_consumer(
        self, destination: AnyDestination, selector: str | None = None, *, no_local: bool = False
    ) -> JMSConsumer:
        """Make a consumer, and start the connection if `auto_start` is set.

        Args:
            destination: The queue or topic to receive from; a string is a queue's name, ``queue://NAME`` or
                ``topic://NAME``.
            selector: Which of its messages are wanted; None or "": all.
            no_local: Whether to leave out messages that this connection publishes. Means nothing for a queue.

        Raises:
            InvalidDestinationException: It is no destination.
            InvalidSelectorException: The selector has an error; the message shows where.
        """
        return await self._started(await self._session.create_consumer(destination, selector, no_local=no_local))

    @async_resource
    async def create_durable_consumer(
        self, topic: AnyTopic, name: str, selector: str | None = None, *, no_local: bool = False
    ) -> JMSConsumer:
        """Make the consumer of a durable subscription, as `Session.create_durable_consumer` does."""
        return await self._started(
            await self._session.create_durable_consumer(topic, name, selector, no_local=no_local)
        )

    @async_resource
    async def create_shared_consumer(self, topic: AnyTopic, name: str, selector: str | None = None) -> JMSConsumer:
        """Make a consumer that shares a subscription, as `Session.create_shared_consumer` does."""
        return await self._started(await self._session.create_shared_consumer(topic, name, selector))

    @async_resource
    async def create_shared_durable_consumer(
        self, topic: AnyTopic, name: str, selector: str | None = None
    ) -> JMSConsumer:
        """Make a consumer that shares a durable subscription, as `Session.create_shared_durable_consumer` does."""
        return await self._started(await self._session.create_shared_durable_consumer(topic, name, selector))

    async def unsubscribe(self, name: str) -> None:
        """End a durable subscription, with the messages that it has collected.

        Raises:
            InvalidDestinationException: There is no such subscription.
            IllegalStateException: It has a consumer, or messages of it are not acknowledged or committed.
        """
        await self._session.unsubscribe(name)

    async def _started(self, consumer: MessageConsumer) -> JMSConsumer:
        if self.auto_start:
            await self.start()
        return JMSConsumer(self._made(consumer))

    def _made(self, part: Part) -> Part:
        """Return a producer or consumer that the context has just made; for classes to remember it."""
        return part

    @async_resource
    async def create_browser(self, queue: AnyQueue, selector: str | None = None) -> QueueBrowser:
        """Make a browser, which looks at the messages of a queue and leaves them there."""
        return await self._session.create_browser(queue, selector)

    async def start(self) -> None:
        """Deliver messages from now on. Starting again does nothing.

        Raises:
            IllegalStateException: The context is closed.
        """
        self._check_open()
        if self._connection is not None:
            await self._connection.start()

    async def stop(self) -> None:
        """Pause the delivery of messages by the connection, until `start`.

        Raises:
            IllegalStateException: The context is closed, or it is called from a listener that another one waits for;
                see [`Connection.stop`][jmsql.Connection.stop].
        """
        self._check_open()
        if self._connection is not None:
            await self._connection.stop()

    async def commit(self) -> None:
        """Commit the transaction.

        Raises:
            IllegalStateException: The session is not transacted.
            TransactionInProgressException: The transaction is the caller's.
            TransactionRolledBackException: It was rolled back instead.
        """
        await self._session.commit()

    async def rollback(self, error: BaseException | str | None = None) -> None:
        """Roll the transaction back.

        Args:
            error: Why; see [`Session.rollback`][jmsql.Session.rollback].

        Raises:
            IllegalStateException: The session is not transacted.
            TransactionInProgressException: The transaction is the caller's.
        """
        await self._session.rollback(error)

    async def recover(self, error: BaseException | str | None = None) -> None:
        """Deliver the messages again that were received and not acknowledged.

        Args:
            error: Why; see [`Session.recover`][jmsql.Session.recover].

        Raises:
            IllegalStateException: The session is transacted.
        """
        await self._session.recover(error)

    async def acknowledge(self) -> None:
        """Acknowledge all that was received, if the session mode is CLIENT."""
        await self._session.acknowledge()

    async def close(self) -> None:
        """Close the session, and the connection if no other context uses it. Closing again does nothing."""
        await self._own_session.close()
        self._siblings.discard(self)
        if self._connection is not None and not self._siblings:
            await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._own_session!r}>"
