"""The interfaces of one domain: queues alone, or topics alone (JMS 1.1, chapters 5 and 6)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Self

from jmsql.client._async.connection.connection import Connection
from jmsql.client._async.connection.factory import ConnectionFactory
from jmsql.client._async.session.producer import MessageProducer
from jmsql.client._async.session.session import Session
from jmsql.client.acknowledge_mode import AcknowledgeMode, mode_of_session
from jmsql.concurrency import ASYNC
from jmsql.concurrency.tasks import async_resource, run_detached
from jmsql.exceptions import IllegalStateException
from jmsql.public_names import set_module
from jmsql.values.clock import monotonic
from jmsql.values.destinations import (
    AnyQueue,
    AnyTopic,
    Queue,
    TemporaryQueue,
    TemporaryTopic,
    Topic,
    require_queue,
    require_topic,
)
from jmsql.values.duration import seconds

if TYPE_CHECKING:
    from jmsql.client._async.session.consumer import MessageConsumer, QueueReceiver, TopicSubscriber
    from jmsql.client.listeners import CompletionListener
    from jmsql.messages import ForeignMessage, Message


# JMS 1.1 has the interfaces of queues and of topics beside the common ones. A class here is the common class with the
# names of one domain, and the methods of the other one refuse. A new feature goes into the common class.


def _belongs_to_other_domain(method: str) -> Callable[..., NoReturn]:
    """Return a method that raises IllegalStateException for any arguments (JMS 1.1, chapter 4.11)."""

    def refuse(self: object, *_: object, **__: object) -> NoReturn:
        raise IllegalStateException(
            f"{type(self).__name__} has no {method}(). Connections that ConnectionFactory.create_connection makes, "
            "and their sessions, are for queues and topics alike."
        )

    refuse.__name__ = method
    return refuse


@set_module("jmsql.asyncio.domains")
@dataclass(frozen=True, slots=True)
class QueueConnectionFactory(ConnectionFactory):
    """Makes connections for queues, and all others that a [`ConnectionFactory`][jmsql.ConnectionFactory] makes."""

    @async_resource
    async def create_queue_connection(self, user: str | None = None, password: str | None = None) -> QueueConnection:
        """Connect to the database; the connection is stopped.

        Args:
            user: The PostgreSQL role to connect as; None: the URL's.
            password: Its password.

        Raises:
            JMSException: As `create_connection`.
        """
        return await self._connect(QueueConnection, user, password)


@set_module("jmsql.asyncio.domains")
class QueueConnection(Connection):
    """A connection that makes sessions for queues.

    Made by
    [`QueueConnectionFactory.create_queue_connection`][jmsql.domains.QueueConnectionFactory.create_queue_connection].
    """

    _require_destination = staticmethod(require_queue)

    def create_queue_session(
        self, transacted: bool | AcknowledgeMode = False, acknowledge_mode: AcknowledgeMode = AcknowledgeMode.AUTO
    ) -> QueueSession:
        """Make a session for queues.

        Args:
            transacted: True if it works in transactions; or, as in JMS 2.0, its `AcknowledgeMode` alone.
            acknowledge_mode: How it acknowledges messages, if it is not transacted.

        Raises:
            IllegalStateException: The connection is closed.
            JMSException: That is neither a bool nor an `AcknowledgeMode`, or a session that is not transacted would
                have the mode TRANSACTED.
        """
        self._use()
        return self.open_session(QueueSession, mode_of_session(transacted, acknowledge_mode))

    create_durable_connection_consumer = _belongs_to_other_domain("create_durable_connection_consumer")
    create_shared_connection_consumer = _belongs_to_other_domain("create_shared_connection_consumer")
    create_shared_durable_connection_consumer = _belongs_to_other_domain("create_shared_durable_connection_consumer")


@set_module("jmsql.asyncio.domains")
class QueueSession(Session):
    """A session for queues: the methods for topics raise IllegalStateException, and a topic is no destination to it.

    Made by [`QueueConnection.create_queue_session`][jmsql.domains.QueueConnection.create_queue_session].
    """

    _require_destination = staticmethod(require_queue)

    @async_resource
    async def create_receiver(self, queue: AnyQueue, selector: str | None = None) -> QueueReceiver:
        """Make a consumer of a queue.

        Args:
            queue: The queue, or its name.
            selector: Which of its messages are wanted; None or "": all.

        Raises:
            InvalidDestinationException: It is no queue.
            InvalidSelectorException: The selector has an error; the message shows where.
        """
        self._check_open()
        return await self._receive_from(require_queue(queue), selector)

    @async_resource
    async def create_sender(self, queue: AnyQueue | None = None) -> QueueSender:
        """Make a producer for queues.

        Args:
            queue: Where it sends to, a queue or its name; None: each send names its own queue.

        Raises:
            InvalidDestinationException: It is no queue.
        """
        self._check_open()
        return await QueueSender.open(self._transaction, require_queue, queue)

    create_topic = _belongs_to_other_domain("create_topic")
    create_temporary_topic = _belongs_to_other_domain("create_temporary_topic")
    create_durable_subscriber = _belongs_to_other_domain("create_durable_subscriber")
    create_durable_consumer = _belongs_to_other_domain("create_durable_consumer")
    create_shared_consumer = _belongs_to_other_domain("create_shared_consumer")
    create_shared_durable_consumer = _belongs_to_other_domain("create_shared_durable_consumer")
    unsubscribe = _belongs_to_other_domain("unsubscribe")


@set_module("jmsql.asyncio.domains")
class QueueSender(MessageProducer):
    """Sends messages to queues.

    Made by [`QueueSession.create_sender`][jmsql.domains.QueueSession.create_sender].
    """

    _destination: Queue | None

    @property
    def queue(self) -> Queue | None:
        """Where messages go; None if each send names its own queue.

        Raises:
            IllegalStateException: The sender is closed.
        """
        self._check_open()
        return self._destination


@set_module("jmsql.asyncio.domains")
@dataclass(frozen=True, slots=True)
class TopicConnectionFactory(ConnectionFactory):
    """Makes connections for topics, and all others that a [`ConnectionFactory`][jmsql.ConnectionFactory] makes."""

    @async_resource
    async def create_topic_connection(self, user: str | None = None, password: str | None = None) -> TopicConnection:
        """Connect to the database; the connection is stopped.

        Args:
            user: The PostgreSQL role to connect as; None: the URL's.
            password: Its password.

        Raises:
            JMSException: As `create_connection`.
        """
        return await self._connect(TopicConnection, user, password)


@set_module("jmsql.asyncio.domains")
class TopicConnection(Connection):
    """A connection that makes sessions for topics.

    Made by
    [`TopicConnectionFactory.create_topic_connection`][jmsql.domains.TopicConnectionFactory.create_topic_connection].
    """

    _require_destination = staticmethod(require_topic)

    def create_topic_session(
        self, transacted: bool | AcknowledgeMode = False, acknowledge_mode: AcknowledgeMode = AcknowledgeMode.AUTO
    ) -> TopicSession:
        """Make a session for topics.

        Args:
            transacted: True if it works in transactions; or, as in JMS 2.0, its `AcknowledgeMode` alone.
            acknowledge_mode: How it acknowledges messages, if it is not transacted.

        Raises:
            IllegalStateException: The connection is closed.
            JMSException: That is neither a bool nor an `AcknowledgeMode`, or a session that is not transacted would
                have the mode TRANSACTED.
        """
        self._use()
        return self.open_session(TopicSession, mode_of_session(transacted, acknowledge_mode))


@set_module("jmsql.asyncio.domains")
class TopicSession(Session):
    """A session for topics: the methods for queues raise IllegalStateException, and a queue is no destination to it.

    Made by [`TopicConnection.create_topic_session`][jmsql.domains.TopicConnection.create_topic_session].
    """

    _require_destination = staticmethod(require_topic)

    @async_resource
    async def create_subscriber(
        self, topic: AnyTopic, selector: str | None = None, *, no_local: bool = False
    ) -> TopicSubscriber:
        """Subscribe to a topic from now until the subscriber is closed.

        Args:
            topic: The topic, or its name.
            selector: Which of its messages are wanted; None or "": all.
            no_local: Whether to leave out messages that this connection publishes.

        Raises:
            InvalidDestinationException: It is no topic.
            InvalidSelectorException: The selector has an error; the message shows where.
        """
        self._check_open()
        return await self._subscribe_once(require_topic(topic), selector, no_local=no_local)

    @async_resource
    async def create_publisher(self, topic: AnyTopic | None = None) -> TopicPublisher:
        """Make a producer for topics.

        Args:
            topic: Where it publishes, a topic or its name; None: each message names its own topic.

        Raises:
            InvalidDestinationException: It is no topic.
        """
        self._check_open()
        return await TopicPublisher.open(self._transaction, require_topic, topic)

    create_queue = _belongs_to_other_domain("create_queue")
    create_temporary_queue = _belongs_to_other_domain("create_temporary_queue")
    create_browser = _belongs_to_other_domain("create_browser")


@set_module("jmsql.asyncio.domains")
class TopicPublisher(MessageProducer):
    """Publishes messages on topics.

    Made by [`TopicSession.create_publisher`][jmsql.domains.TopicSession.create_publisher].
    """

    _destination: Topic | None

    @property
    def topic(self) -> Topic | None:
        """Where messages go; None if each names its own topic.

        Raises:
            IllegalStateException: The publisher is closed.
        """
        self._check_open()
        return self._destination

    async def publish(
        self,
        message: Message | ForeignMessage,
        topic: AnyTopic | None = None,
        *,
        delivery_mode: int | None = None,
        priority: int | None = None,
        time_to_live: float | timedelta | None = None,
        completion_listener: CompletionListener | None = None,
    ) -> None:
        """Publish a message, as [`MessageProducer.send`][jmsql.MessageProducer.send] sends it.

        Args:
            message: A jmsql message, or another provider's with the same attributes.
            topic: Where to publish it, a topic or its name, for a publisher that was made without a topic.
            delivery_mode: PERSISTENT or NON_PERSISTENT; None: the publisher's.
            priority: 0 (lowest) to 9; None: the publisher's.
            time_to_live: After how many seconds (or a `timedelta`) it expires, 0: never; None: the publisher's.
            completion_listener: Called with the outcome; None: wait.

        Raises:
            UnsupportedOperationException: The publisher has a topic and one is given, or neither.
            InvalidDestinationException: The topic does not exist, or is not a topic.
            MessageFormatException: The message is not a `Message`.
            JMSException: It was not published; the message says why.
        """
        await self.send(
            message,
            topic,
            delivery_mode=delivery_mode,
            priority=priority,
            time_to_live=time_to_live,
            completion_listener=completion_listener,
        )


class _Exchange(NamedTuple):
    """The replies' destination and consumer, and the requests' producer."""

    replies: TemporaryQueue | TemporaryTopic
    consumer: MessageConsumer
    producer: MessageProducer


async def _discard(replies: TemporaryQueue | TemporaryTopic, consumer: MessageConsumer | None) -> None:
    if consumer is not None:
        await consumer.close()
    await replies.delete()


class _Requestor:
    """The base of requestors for queues and topics."""

    def __init__(
        self,
        session: Session,
        destination: Queue | Topic,
        create_replies: Callable[[], Awaitable[TemporaryQueue | TemporaryTopic]],
    ) -> None:
        self._session = session
        self._destination = destination
        self._create_replies = create_replies
        self._exchange: _Exchange | None = None
        self._closed = False
        if not ASYNC:
            self._open()

    async def _open(self) -> _Exchange:
        """Make the producer of requests and the consumer of replies, once."""
        if self._exchange is None:
            replies = await self._create_replies()
            consumer: MessageConsumer | None = None
            try:
                consumer = await self._session.create_consumer(replies)
                self._exchange = _Exchange(replies, consumer, await self._session.create_producer(self._destination))
            except BaseException:
                await run_detached(_discard(replies, consumer))
                raise
        return self._exchange

    async def request(self, message: Message, timeout: float | timedelta | None = None) -> Message | None:
        """Send a request and wait for the reply.

        JMSReplyTo of the message is set to where the reply is expected. The replier sets JMSCorrelationID to the
        request's JMSMessageID, or copies its JMSCorrelationID. A reply that says so of an earlier request, which came
        too late, is dropped; one without JMSCorrelationID counts as the reply to this request.

        Args:
            message: The request.
            timeout: At most how long to wait: seconds, or a `timedelta`; None waits for ever. The connection must be
                started.

        Returns:
            The reply; None if none came in time.

        Raises:
            IllegalStateException: The requestor or its session is closed.
            JMSException: The request was not sent, or the server could not be asked for the reply.
        """
        remaining = None if timeout is None else seconds(timeout, "timeout")
        deadline = None if remaining is None else monotonic() + remaining
        exchange = await self._open()
        message.jms_reply_to = exchange.replies
        await exchange.producer.send(message)
        answered = {None, message.jms_message_id, message.jms_correlation_id}
        while (reply := await exchange.consumer.receive(remaining)) is not None:
            if reply.jms_correlation_id in answered:
                break
            if deadline is not None:
                remaining = max(0.0, deadline - monotonic())
        return reply

    async def close(self) -> None:
        """Close the requestor and its session, and delete where the replies come in. Closing again does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._exchange is not None:
                await run_detached(_discard(self._exchange.replies, self._exchange.consumer))
        finally:
            await self._session.close()

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._destination}{' closed' if self._closed else ''}>"


@set_module("jmsql.asyncio.domains")
class QueueRequestor(_Requestor):
    """Sends requests to a queue and waits for the replies (JMS 1.1, chapter 5.10).

    Args:
        session: A session without transactions, which is the requestor's from now on.
        queue: Where requests go: a queue, or its name.

    Raises:
        IllegalStateException: The session is closed, is transacted, or is a TopicSession.
        InvalidDestinationException: It is no queue, or does not exist.
    """

    def __init__(self, session: Session, queue: AnyQueue) -> None:
        _refuse_transactions(session)
        super().__init__(session, require_queue(queue), session.create_temporary_queue)


@set_module("jmsql.asyncio.domains")
class TopicRequestor(_Requestor):
    """Publishes requests on a topic and waits for the first reply to each (JMS 1.1, chapter 6.13).

    Args:
        session: A session without transactions, which is the requestor's from now on.
        topic: Where requests go: a topic, or its name.

    Raises:
        IllegalStateException: The session is closed, is transacted, or is a QueueSession.
        InvalidDestinationException: It is no topic, or does not exist.
    """

    def __init__(self, session: Session, topic: AnyTopic) -> None:
        _refuse_transactions(session)
        super().__init__(session, require_topic(topic), session.create_temporary_topic)


def _refuse_transactions(session: Session) -> None:
    if session.transacted:
        raise IllegalStateException(
            "A request in a transaction goes out with the commit, so its reply cannot come before that. Use a "
            "session without transactions."
        )
