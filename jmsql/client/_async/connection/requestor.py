"""Requests to queues, and the replies to them: many at a time."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from jmsql.client._async.connection.simplified import message_of
from jmsql.client.destination_of import body_for
from jmsql.client.transaction_of_caller import open_transaction
from jmsql.concurrency.tasks import Lock, Notifications, run_detached
from jmsql.exceptions import IllegalStateException, RequestFailed
from jmsql.messages import Message, TextMessage
from jmsql.public_names import set_module
from jmsql.values.clock import monotonic
from jmsql.values.destinations import Queue, TemporaryQueue
from jmsql.values.duration import seconds

if TYPE_CHECKING:
    from jmsql.client._async.session.producer import MessageProducer
    from jmsql.client._async.session.session import Session
    from jmsql.client._async.shared.client_context import ClientContext


_REQUEST_FAILED = "JMS_jmsql_RequestFailed"
"""The property of the server's message in place of a reply: the request is a dead letter, and the text its error."""


# A reply is found by its JMSCorrelationID: the requestor's own, or the request's JMSMessageID, which the send makes
# known only as it returns. A fast replier may answer before that. So while a request is being sent (`_is_sending`),
# replies that no request expects are kept in `_early`, and `_sent` looks there. `_sending` lets one request be sent at
# a time, so that there is one such window.
#
# `_lock` guards `_pending` and `_early` between the threads that request and the listener. A request removes its keys
# in any case, so a late reply finds nothing and is dropped.


class _Pending:
    """A request that waits for its reply."""

    __slots__ = ("notifications", "reply")

    def __init__(self) -> None:
        self.notifications = Notifications()
        self.reply: Message | None = None
        """The reply, once it has come. The listener and `Replies._sent` write it, under the lock."""


class Replies:
    """The temporary queue of a connection for the replies to all its requests, and the requests that wait."""

    def __init__(
        self,
        create_session: Callable[[], Session],
        create_queue: Callable[[], Coroutine[Any, Any, TemporaryQueue]],
        check_open: Callable[[], None],
        client: ClientContext,
    ) -> None:
        self._create_session = create_session
        self._create_queue = create_queue
        self._check_open = check_open
        self._client = client
        self._sending = Lock()
        self._lock = threading.Lock()
        # By the identifiers that a reply may name. Guarded by `_lock`, except for the entry that a request makes before
        # it is sent.
        self._pending: dict[str, _Pending] = {}
        self._early: dict[str, Message] = {}
        self._is_sending = False
        self._closed = False
        self._queue: TemporaryQueue | None = None
        self._producer: MessageProducer

    @property
    def pending(self) -> int:
        """How many requests wait."""
        return len(set(self._pending.copy().values()))

    async def request(self, queue: Queue, message: Message, timeout: float) -> Message:
        """Send a request and wait for its reply; see `Requestor.request`."""
        self._check_open()  # before any lock: in a forked child, a thread of the parent may hold it for ever
        deadline = monotonic() + timeout
        pending = _Pending()
        keys = [uuid.uuid4().hex]
        message.jms_correlation_id = keys[0]
        try:
            self._pending[keys[0]] = pending
            async with self._sending:
                await self._open()
                message.jms_reply_to = self._queue
                remaining = deadline - monotonic()
                if remaining <= 0:
                    raise TimeoutError(f"The request to {queue} could not be sent within {timeout:g} s.")
                self._is_sending = True
                try:
                    await self._producer.send(message, queue, time_to_live=remaining)
                finally:
                    keys.append(message.jms_message_id or "")  # by which repliers outside of jmsql may answer
                    self._sent(keys[-1], pending)
            while True:
                count = pending.notifications.count
                if pending.reply is not None:
                    return _checked(pending.reply, queue)
                remaining = deadline - monotonic()
                if self._closed:
                    raise IllegalStateException("The connection was closed while a request waited for its reply.")
                if remaining <= 0:
                    raise TimeoutError(f"No reply to the request to {queue} has come within {timeout:g} s.")
                await pending.notifications.wait(count, remaining)
        finally:
            with self._lock:
                for key in keys:
                    self._pending.pop(key, None)

    def _sent(self, message_id: str, pending: _Pending) -> None:
        """Note that a reply may name the request's message id; it may have come already."""
        with self._lock:
            if message_id:
                self._pending[message_id] = pending
            self._is_sending = False
            pending.reply = pending.reply or self._early.get(message_id)
            self._early.clear()

    async def _open(self) -> None:
        """Make the queue and its consumer, once."""
        if not self._client.started:
            raise IllegalStateException("Start the connection: while it is stopped, no reply is delivered.")
        if self._queue is not None:
            return
        sender, receiver = self._create_session(), self._create_session()
        try:
            self._producer = await sender.create_producer(None)
            queue = await self._create_queue()
            consumer = await receiver.create_consumer(queue)
            await consumer.set_message_listener(self._replied)
        except BaseException:
            await run_detached(_close(sender, receiver))
            raise
        self._queue = queue

    def _replied(self, reply: Message) -> None:
        """Give a reply to the request that waits for it; a late reply is dropped."""
        correlation_id = reply.jms_correlation_id or ""
        with self._lock:
            pending = self._pending.get(correlation_id)
            if pending is not None:
                pending.reply = reply  # under the lock, as `_sent` writes it, too
            elif self._is_sending:
                self._early[correlation_id] = reply
        if pending is not None:
            pending.notifications.notify()

    def close(self) -> None:
        """End all requests that wait: the connection closes, and with it the queue."""
        self._closed = True
        for pending in list(self._pending.values()):
            pending.notifications.notify()


def _checked(reply: Message, queue: Queue) -> Message:
    """Return a reply, unless the server says by it that the request is a dead letter."""
    if not reply.property_exists(_REQUEST_FAILED):
        return reply
    error = reply.text if isinstance(reply, TextMessage) else None
    last_line = (error or "").rstrip("\n").rpartition("\n")[2]
    raise RequestFailed(f"The request to {queue} has failed: {last_line}", error or None)


async def _close(*sessions: Session) -> None:
    for session in sessions:
        await session.close()


@set_module("jmsql.asyncio")
class Requestor:
    """Sends requests to a queue, and returns their replies: many at a time, from any thread of the process.

    Made by [`Connection.requestor`][jmsql.Connection.requestor]. All requestors of a connection have one temporary
    queue for the replies, which goes with the connection.

    Args:
        replies: Where the replies come.
        queue: Where requests go.
        given: The queue as it was named; a handler checks the bodies.
    """

    def __init__(self, replies: Replies, queue: Queue, given: object) -> None:
        self._replies = replies
        self._queue = queue
        self._given = given

    async def request(self, body: object, timeout: float | timedelta = 30.0) -> Message:
        """Send a request, and wait for its reply.

        The request expires with the timeout. The return value of a [handler](/handlers.md#replies) is the reply;
        any other program sends its reply to JMSReplyTo, with the request's
        JMSCorrelationID, or its JMSMessageID, as the JMSCorrelationID.

        Args:
            body: The request: a message, whose JMSReplyTo and JMSCorrelationID are set, or a body, as for
                `JMSProducer.send`.
            timeout: How long to wait for the reply: seconds, or a `timedelta`.

        Raises:
            TimeoutError: No reply has come in time. The request may have been handled nevertheless.
            RequestFailed: The handler has failed for the last time: the request is a dead letter.
            IllegalStateException: The connection is closed, or stopped; or the caller has a transaction open, which
                would stay open while it waits: a transacted handler's, one that the same thread or task has enlisted,
                or Django's `atomic()`.
            InvalidDestinationException: The queue does not exist.
            MessageFormatException: The body cannot be encoded, or the handler of the queue would refuse it.
            ValueError: The timeout is 0 or negative.
            JMSException: The request was not sent; the message says why.
        """
        transaction = open_transaction()
        if transaction is not None:
            raise IllegalStateException(
                f"A request is made inside of {transaction}: it would stay open until the reply has come, and the "
                "replier cannot see its changes. Make the request before it begins, or after its end."
            )
        limit = seconds(timeout, "timeout")
        if not limit:
            raise ValueError("The timeout of a request must be greater than 0 s.")
        message = message_of(body_for(self._given, body))
        return await self._replies.request(self._queue, message, limit)

    @property
    def pending(self) -> int:
        """How many requests of the connection's requestors wait for their replies."""
        return self._replies.pending

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._queue}>"
