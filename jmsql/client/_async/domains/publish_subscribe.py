"""The older interfaces for topics alone (JMS 1.1, chapter 6)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from jmsql.client._async.connection.connection import Connection
from jmsql.client._async.connection.factory import ConnectionFactory
from jmsql.client._async.exchange.producer import MessageProducer
from jmsql.client._async.session.session import Session
from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.domain import belongs_to_other_domain
from jmsql.concurrency.tasks import opens
from jmsql.public_names import set_module
from jmsql.values.destinations import Topic, require_topic

if TYPE_CHECKING:
    from jmsql.client._async.exchange.consumer import TopicSubscriber
    from jmsql.client.sending.completion import CompletionListener
    from jmsql.messages import ForeignMessage, Message

__all__ = ["TopicConnection", "TopicConnectionFactory", "TopicPublisher", "TopicSession"]


@set_module("jmsql.asyncio.domains")
@dataclass(frozen=True, slots=True)
class TopicConnectionFactory(ConnectionFactory):
    """Makes connections for topics, and all others that a [`ConnectionFactory`][jmsql.ConnectionFactory] makes."""

    @opens
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
        self, transacted: bool = False, acknowledge_mode: AcknowledgeMode = AcknowledgeMode.AUTO
    ) -> TopicSession:
        """Make a session for topics.

        Args:
            transacted: Whether it works in transactions.
            acknowledge_mode: How it acknowledges what it receives, if it is not transacted.

        Raises:
            IllegalStateException: The connection is closed.
            JMSException: The acknowledge mode is none.
        """
        self._use()
        return self.open_session(TopicSession, transacted, acknowledge_mode)


@set_module("jmsql.asyncio.domains")
class TopicSession(Session):
    """A session for topics: the methods for queues raise IllegalStateException, and a queue is no destination to it.

    Made by [`TopicConnection.create_topic_session`][jmsql.domains.TopicConnection.create_topic_session].
    """

    _require_destination = staticmethod(require_topic)

    @opens
    async def create_subscriber(
        self, topic: Topic, selector: str | None = None, *, no_local: bool = False
    ) -> TopicSubscriber:
        """Subscribe to a topic from now until the subscriber is closed.

        Args:
            topic: The topic.
            selector: Which of its messages are wanted; None or "": all.
            no_local: Whether to leave out what this connection publishes.

        Raises:
            InvalidDestinationException: It is no topic.
            InvalidSelectorException: The selector has an error; the message shows where.
        """
        self._check_open()
        return await self._subscribe_once(require_topic(topic), selector, no_local=no_local)

    @opens
    async def create_publisher(self, topic: Topic | None = None) -> TopicPublisher:
        """Make a producer for topics.

        Args:
            topic: Where it publishes; None: each message names its own topic.

        Raises:
            InvalidDestinationException: It is no topic.
        """
        self._check_open()
        return await TopicPublisher.open(self._sending, require_topic, topic)

    create_queue = belongs_to_other_domain("create_queue")
    create_temporary_queue = belongs_to_other_domain("create_temporary_queue")
    create_browser = belongs_to_other_domain("create_browser")


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
        topic: Topic | None = None,
        *,
        delivery_mode: int | None = None,
        priority: int | None = None,
        time_to_live: float | timedelta | None = None,
        completion_listener: CompletionListener | None = None,
    ) -> None:
        """Publish a message, as [`MessageProducer.send`][jmsql.MessageProducer.send] sends it.

        Args:
            message: A message of jmsql's, or of any other provider that has the same attributes.
            topic: Where to publish it, for a publisher that was made without a topic.
            delivery_mode: PERSISTENT or NON_PERSISTENT; None: the publisher's.
            priority: 0 (lowest) to 9; None: the publisher's.
            time_to_live: After how many seconds (or a `timedelta`) it expires, 0: never; None: the publisher's.
            completion_listener: What is told what became of it; None: wait.

        Raises:
            UnsupportedOperationException: The publisher has a topic and one is given, or neither.
            InvalidDestinationException: The topic does not exist, or is none.
            MessageFormatException: The message is none.
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
