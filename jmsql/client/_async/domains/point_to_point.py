"""The older interfaces for queues alone (JMS 1.1, chapter 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jmsql.client._async.connection.connection import Connection
from jmsql.client._async.connection.factory import ConnectionFactory
from jmsql.client._async.exchange.producer import MessageProducer
from jmsql.client._async.session.session import Session
from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.domain import belongs_to_other_domain
from jmsql.concurrency.tasks import opens
from jmsql.public_names import set_module
from jmsql.values.destinations import Queue, require_queue

if TYPE_CHECKING:
    from jmsql.client._async.exchange.consumer import QueueReceiver

__all__ = ["QueueConnection", "QueueConnectionFactory", "QueueSender", "QueueSession"]


@set_module("jmsql.asyncio.domains")
@dataclass(frozen=True, slots=True)
class QueueConnectionFactory(ConnectionFactory):
    """Makes connections for queues, and all others that a [`ConnectionFactory`][jmsql.ConnectionFactory] makes."""

    @opens
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
        self, transacted: bool = False, acknowledge_mode: AcknowledgeMode = AcknowledgeMode.AUTO
    ) -> QueueSession:
        """Make a session for queues.

        Args:
            transacted: Whether it works in transactions.
            acknowledge_mode: How it acknowledges what it receives, if it is not transacted.

        Raises:
            IllegalStateException: The connection is closed.
            JMSException: The acknowledge mode is none.
        """
        self._use()
        return self.open_session(QueueSession, transacted, acknowledge_mode)

    create_durable_connection_consumer = belongs_to_other_domain("create_durable_connection_consumer")
    create_shared_connection_consumer = belongs_to_other_domain("create_shared_connection_consumer")
    create_shared_durable_connection_consumer = belongs_to_other_domain("create_shared_durable_connection_consumer")


@set_module("jmsql.asyncio.domains")
class QueueSession(Session):
    """A session for queues: the methods for topics raise IllegalStateException, and a topic is no destination to it.

    Made by [`QueueConnection.create_queue_session`][jmsql.domains.QueueConnection.create_queue_session].
    """

    _require_destination = staticmethod(require_queue)

    @opens
    async def create_receiver(self, queue: Queue, selector: str | None = None) -> QueueReceiver:
        """Make a consumer of a queue.

        Args:
            queue: The queue.
            selector: Which of its messages are wanted; None or "": all.

        Raises:
            InvalidDestinationException: It is no queue.
            InvalidSelectorException: The selector has an error; the message shows where.
        """
        self._check_open()
        return await self._receive_from(require_queue(queue), selector)

    @opens
    async def create_sender(self, queue: Queue | None = None) -> QueueSender:
        """Make a producer for queues.

        Args:
            queue: Where it sends to; None: each send names its own queue.

        Raises:
            InvalidDestinationException: It is no queue.
        """
        self._check_open()
        return await QueueSender.open(self._sending, require_queue, queue)

    create_topic = belongs_to_other_domain("create_topic")
    create_temporary_topic = belongs_to_other_domain("create_temporary_topic")
    create_durable_subscriber = belongs_to_other_domain("create_durable_subscriber")
    create_durable_consumer = belongs_to_other_domain("create_durable_consumer")
    create_shared_consumer = belongs_to_other_domain("create_shared_consumer")
    create_shared_durable_consumer = belongs_to_other_domain("create_shared_durable_consumer")
    unsubscribe = belongs_to_other_domain("unsubscribe")


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
