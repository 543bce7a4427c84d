"""Global transactions with the older interfaces, for queues alone and for topics alone (JMS 1.1, chapter 8.3)."""

from __future__ import annotations

from dataclasses import dataclass

from jmsql.client._async.domains.point_to_point import QueueConnection, QueueConnectionFactory, QueueSession
from jmsql.client._async.domains.publish_subscribe import TopicConnection, TopicConnectionFactory, TopicSession
from jmsql.client._async.xa.xa import XAConnection, XASession
from jmsql.client._async.xa.xa_factory import XAConnectionFactory
from jmsql.concurrency.tasks import opens
from jmsql.public_names import set_module

__all__ = [
    "XAQueueConnection",
    "XAQueueConnectionFactory",
    "XAQueueSession",
    "XATopicConnection",
    "XATopicConnectionFactory",
    "XATopicSession",
]


@set_module("jmsql.asyncio.xa")
@dataclass(frozen=True, slots=True)
class XAQueueConnectionFactory(XAConnectionFactory, QueueConnectionFactory):
    """Makes connections for global transactions on queues, and all others that its base classes make."""

    @opens
    async def create_xa_queue_connection(
        self, user: str | None = None, password: str | None = None
    ) -> XAQueueConnection:
        """Connect to the database; the connection is stopped.

        Args:
            user: The PostgreSQL role to connect as; None: the URL's.
            password: Its password.

        Raises:
            JMSException: As `create_connection`.
        """
        return await self._connect(XAQueueConnection, user, password)


@set_module("jmsql.asyncio.xa")
class XAQueueConnection(XAConnection, QueueConnection):
    """A connection that makes sessions for global transactions on queues.

    Made by
    [`XAQueueConnectionFactory.create_xa_queue_connection`][jmsql.xa.XAQueueConnectionFactory.create_xa_queue_connection].
    """

    async def create_xa_queue_session(self) -> XAQueueSession:
        """Make a session for global transactions on queues.

        Raises:
            IllegalStateException: The connection is closed.
            ResourceAllocationException: The server has two-phase commit switched off.
        """
        self._use()
        return await self.open_xa_session(XAQueueSession)


@set_module("jmsql.asyncio.xa")
class XAQueueSession(XASession, QueueSession):
    """A session for queues, as a [`QueueSession`][jmsql.domains.QueueSession] is, and for global transactions.

    Made by [`XAQueueConnection.create_xa_queue_session`][jmsql.xa.XAQueueConnection.create_xa_queue_session].
    """


@set_module("jmsql.asyncio.xa")
@dataclass(frozen=True, slots=True)
class XATopicConnectionFactory(XAConnectionFactory, TopicConnectionFactory):
    """Makes connections for global transactions on topics, and all others that its base classes make."""

    @opens
    async def create_xa_topic_connection(
        self, user: str | None = None, password: str | None = None
    ) -> XATopicConnection:
        """Connect to the database; the connection is stopped.

        Args:
            user: The PostgreSQL role to connect as; None: the URL's.
            password: Its password.

        Raises:
            JMSException: As `create_connection`.
        """
        return await self._connect(XATopicConnection, user, password)


@set_module("jmsql.asyncio.xa")
class XATopicConnection(XAConnection, TopicConnection):
    """A connection that makes sessions for global transactions on topics.

    Made by
    [`XATopicConnectionFactory.create_xa_topic_connection`][jmsql.xa.XATopicConnectionFactory.create_xa_topic_connection].
    """

    async def create_xa_topic_session(self) -> XATopicSession:
        """Make a session for global transactions on topics.

        Raises:
            IllegalStateException: The connection is closed.
            ResourceAllocationException: The server has two-phase commit switched off.
        """
        self._use()
        return await self.open_xa_session(XATopicSession)


@set_module("jmsql.asyncio.xa")
class XATopicSession(XASession, TopicSession):
    """A session for topics, as a [`TopicSession`][jmsql.domains.TopicSession] is, and for global transactions.

    Made by [`XATopicConnection.create_xa_topic_session`][jmsql.xa.XATopicConnection.create_xa_topic_session].
    """
