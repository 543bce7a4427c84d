"""Requests, and the replies to them."""

from __future__ import annotations

import time
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

from jmsql.destinations import Queue, TemporaryQueue, TemporaryTopic, Topic, require_queue, require_topic
from jmsql.duration import seconds
from jmsql.exceptions import IllegalStateException
from jmsql.public_names import set_module

if TYPE_CHECKING:
    from jmsql.client._sync.session.session import Session
    from jmsql.messages import Message

__all__ = ["QueueRequestor", "TopicRequestor"]


class _Requestor:
    """What requests to queues and to topics have in common."""

    def __init__(self, session: Session, destination: Queue | Topic, replies: TemporaryQueue | TemporaryTopic) -> None:
        self._session = session
        self._replies = replies
        self._consumer = session.create_consumer(replies)
        self._destination = destination
        self._producer = session.create_producer(destination)
        self._closed = False

    def request(self, message: Message, timeout: float | timedelta | None = None) -> Message | None:
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
        message.jms_reply_to = self._replies
        self._producer.send(message)
        answered = {None, message.jms_message_id, message.jms_correlation_id}
        while (reply := self._consumer.receive(remaining)) is not None:
            if reply.jms_correlation_id in answered:
                break
            if deadline is not None:
                remaining = max(0.0, deadline - time.monotonic())
        return reply

    def close(self) -> None:
        """Close the requestor and its session, and delete where the replies come in. Closing again does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            self._consumer.close()
            self._replies.delete()
        finally:
            self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._destination}{' closed' if self._closed else ''}>"


@set_module("jmsql.domains")
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
        super().__init__(session, require_queue(queue), session.create_temporary_queue())


@set_module("jmsql.domains")
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
        super().__init__(session, require_topic(topic), session.create_temporary_topic())


def _refuse_transactions(session: Session) -> None:
    if session.transacted:
        raise IllegalStateException(
            "A request in a transaction goes out with the commit, so that its reply would be waited for in vain. Use a "
            "session without transactions."
        )
