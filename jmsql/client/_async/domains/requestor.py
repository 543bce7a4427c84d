"""Requests, and the replies to them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from jmsql.concurrency import ASYNC
from jmsql.exceptions import IllegalStateException
from jmsql.public_names import set_module
from jmsql.values.destinations import Queue, TemporaryQueue, TemporaryTopic, Topic, require_queue, require_topic
from jmsql.values.duration import seconds

if TYPE_CHECKING:
    from jmsql.client._async.exchange.consumer import MessageConsumer
    from jmsql.client._async.exchange.producer import MessageProducer
    from jmsql.client._async.session.session import Session
    from jmsql.messages import Message

__all__ = ["QueueRequestor", "TopicRequestor"]


class _Exchange(NamedTuple):
    """Where replies come in, what receives them, and what sends requests."""

    replies: TemporaryQueue | TemporaryTopic
    consumer: MessageConsumer
    producer: MessageProducer


class _Requestor:
    """What requests to queues and to topics have in common."""

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
        """Make what requests go out by, and replies come in by, unless it is there."""
        if self._exchange is None:
            replies = await self._create_replies()
            consumer = await self._session.create_consumer(replies)
            self._exchange = _Exchange(replies, consumer, await self._session.create_producer(self._destination))
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
        deadline = None if remaining is None else time.monotonic() + remaining
        exchange = await self._open()
        message.jms_reply_to = exchange.replies
        await exchange.producer.send(message)
        answered = {None, message.jms_message_id, message.jms_correlation_id}
        while (reply := await exchange.consumer.receive(remaining)) is not None:
            if reply.jms_correlation_id in answered:
                break
            if deadline is not None:
                remaining = max(0.0, deadline - time.monotonic())
        return reply

    async def close(self) -> None:
        """Close the requestor and its session, and delete where the replies come in. Closing again does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._exchange is not None:
                await self._exchange.consumer.close()
                await self._exchange.replies.delete()
        finally:
            await self._session.close()

    async def __aenter__(self) -> Self:
        await self._open()
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
        queue: Where requests go.

    Raises:
        IllegalStateException: The session is closed, is transacted, or is a TopicSession.
        InvalidDestinationException: It is no queue, or does not exist.
    """

    def __init__(self, session: Session, queue: Queue) -> None:
        _refuse_transactions(session)
        super().__init__(session, require_queue(queue), session.create_temporary_queue)


@set_module("jmsql.asyncio.domains")
class TopicRequestor(_Requestor):
    """Publishes requests on a topic and waits for the first reply to each (JMS 1.1, chapter 6.13).

    Args:
        session: A session without transactions, which is the requestor's from now on.
        topic: Where requests go.

    Raises:
        IllegalStateException: The session is closed, is transacted, or is a QueueSession.
        InvalidDestinationException: It is no topic, or does not exist.
    """

    def __init__(self, session: Session, topic: Topic) -> None:
        _refuse_transactions(session)
        super().__init__(session, require_topic(topic), session.create_temporary_topic)


def _refuse_transactions(session: Session) -> None:
    if session.transacted:
        raise IllegalStateException(
            "A request in a transaction goes out with the commit, so that its reply would be waited for in vain. Use a "
            "session without transactions."
        )
