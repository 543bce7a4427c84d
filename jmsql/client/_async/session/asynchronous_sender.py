"""Asynchronous sends of a session, and the calls of completion listeners."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import TYPE_CHECKING

from jmsql.client._async.link.lease import Lease
from jmsql.client.listeners import AsynchronousSend
from jmsql.client.send_buffer import SendBuffer
from jmsql.concurrency.tasks import BackgroundTask, Condition, call_isolated, calling, current, is_failure
from jmsql.exceptions import IllegalStateException, InvalidDestinationException, JMSException
from jmsql.logs import contained_logger
from jmsql.messages import DeliveryMode

if TYPE_CHECKING:
    from jmsql.client._async.shared.client_context import ClientContext


logger = contained_logger("jmsql")

_UNREACHABLE = ("08", "28", "3D", "53", "57P")
"""Classes of SQLSTATE with which every message of a batch would fail."""

_BATCH_MESSAGES = 500
_BATCH_BYTES = 4 * 1024 * 1024
_MOST_MESSAGES = 10_000
_MOST_BYTES = 64 * 1024 * 1024


# A send is on its way until its listener has returned: `_unsent` holds it until it is taken for a batch, `_untold` from
# its outcome on. One task does both, inserting and calling, so that listeners are called in the order of the sends.
# `_changed` guards the counts and `_unsent`; `_untold` is the task's own.
#
# Outcomes:
#
# - A message that is refused fails alone: the batch is rolled back, and each of its messages is sent by itself. Errors
#   that would fail each of them (`_UNREACHABLE`) are not repeated for each.
# - A connection that was lost before the commit has sent nothing, and the batch is sent once more.
# - A connection that is lost during the commit leaves the outcome open: the listeners get error 08007, and nothing is
#   repeated.
#
# A completion listener may send, and must not wait for itself: `submit` does not wait for room there, and
# `wait_until_sent` sends the rest in the listener's own call.


class BatchInsertion:
    """For sessions without transactions: each batch is one transaction, on a connection of its own."""

    def __init__(self, client: ClientContext) -> None:
        self._client = client
        self._database = Lease(client.pool, transacted=True)

    async def insert(self, batch: Sequence[AsynchronousSend]) -> list[JMSException | None]:
        """Insert messages and commit, and return the error of each.

        If one of them is refused, each is sent by itself, so that the others go out.
        """
        error = await self._try(batch)
        if error is None or len(batch) == 1 or _fails_all(error):
            return [error] * len(batch)
        outcomes: list[JMSException | None] = []
        for send in batch:
            if error is None or not _fails_all(error):
                error = await self._try([send])
            outcomes.append(error)
        return outcomes

    async def close(self) -> None:
        """Release the connection."""
        await self._database.close()

    async def _try(self, batch: Sequence[AsynchronousSend]) -> JMSException | None:
        """Insert messages and commit; once more if the connection was lost before that, while it was idle, say."""
        is_again = False
        while True:
            try:
                await self._insert(batch)
            except BaseException as error:
                was_lost = self._database.link.is_lost
                await self._database.rollback()  # after any error: else the next batch would commit this one's ids
                if not isinstance(error, JMSException):
                    raise
                if is_again or not was_lost:
                    return error
                is_again = True
            else:
                return None

    async def _insert(self, batch: Sequence[AsynchronousSend]) -> None:
        send_buffer = SendBuffer()
        for send in batch:
            send_buffer.add(send.destination, send.outgoing, send.size)
        flush = any(send.outgoing.jms_delivery_mode == DeliveryMode.PERSISTENT for send in batch)
        try:
            await self._database.run(send_buffer.flush(self._client.publisher, flush=flush))
        except InvalidDestinationException:
            await self._client.destinations.make_again(send_buffer.destinations)
            await self._database.run(send_buffer.flush(self._client.publisher, flush=flush))
        waited_for = await self._database.commit(question=self._client.waited_for(send_buffer.destinations))
        try:
            await self._client.sent(send_buffer.ended(), waited_for)
        except JMSException as error:
            logger.info("Consumers could not be notified of sent messages, and find them a little later: %s", error)


def _fails_all(error: JMSException) -> bool:
    return (error.error_code or "").startswith(_UNREACHABLE)


class AsynchronousSender:
    """Sends the messages of one session in their order, in batches of the messages that have come together.

    A batch waits for the disk once. While it does, the next one collects. At most 10,000 messages, or 64 MiB, are on
    their way; then `submit` waits. Listeners are called one at a time, in the order of the sends (Jakarta Messaging
    3.1, chapter 7.3). `start` starts its thread.

    `insert` returns the error, or None, for each message. `release` releases the connection that `insert` has taken.
    """

    def __init__(
        self,
        insert: Callable[[Sequence[AsynchronousSend]], Awaitable[list[JMSException | None]]],
        release: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._insert = insert
        self._release = release
        self._changed = Condition()
        self._unsent: deque[AsynchronousSend] = deque()
        self._untold: deque[tuple[AsynchronousSend, JMSException | None]] = deque()
        self._unsent_count = 0
        """How many sends are not inserted, with those that are just being inserted. Written under `_changed`."""
        self._untold_count = 0
        """How many sends have listeners that have not returned; `submit` limits them. Written under `_changed`."""
        self._bytes = 0
        """The bytes of those, which `submit` limits, too. Written under `_changed`."""
        self._closed = False
        """True if no send is submitted any more. `close` writes it under `_changed`."""
        self._task = BackgroundTask(self._run, "jmsql-sender")

    def start(self) -> None:
        """Begin to send submitted messages."""
        Context().run(self._task.start)  # not in that of the first send, which listeners of later ones would see

    @property
    def identity(self) -> object:
        """The identity of the thread or task in which completion listeners are called, once it is started."""
        return self._task.identity

    @property
    def is_current(self) -> bool:
        """True if the caller is a completion listener."""
        return current() is self.identity

    async def wait_for_room(self) -> None:
        """Wait while too many sends are on their way, except in a completion listener."""
        if not (self._has_room or self.is_current):
            async with self._changed:
                await self._changed.wait_for(lambda: self._closed or self._has_room)

    async def submit(self, send: AsynchronousSend) -> None:
        """Have a message sent; wait while too many are on their way, except in a completion listener.

        Raises:
            IllegalStateException: The sender is closed.
        """
        async with self._changed:
            if not (self._has_room or self.is_current):
                await self._changed.wait_for(lambda: self._closed or self._has_room)
            if self._closed:
                raise IllegalStateException("The session is closed.")
            if not self._unsent:
                self._changed.notify_all()
            self._unsent.append(send)
            self._unsent_count += 1
            self._untold_count += 1
            self._bytes += send.size

    async def wait_until_sent(self) -> None:
        """Wait until all that was submitted is in the store, or has failed."""
        if self.is_current:
            while self._unsent:
                await self._send_batch()
            return
        async with self._changed:
            await self._changed.wait_for(lambda: not self._unsent_count)

    async def wait_until_told(self) -> None:
        """Wait until the listeners of all that was submitted have returned."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._untold_count)

    async def close(self) -> None:
        """Send no more, once the listeners of all that was submitted have returned."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()
        await self._task.join()
        if self._release is not None:
            await self._release()

    @property
    def _has_room(self) -> bool:
        return self._untold_count < _MOST_MESSAGES and self._bytes < _MOST_BYTES

    async def _run(self) -> None:
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._closed or self._unsent)
                if not self._unsent:
                    return
            await self._send_batch()
            await self._tell_listeners()

    async def _send_batch(self) -> None:
        batch: list[AsynchronousSend] = []
        size = 0
        async with self._changed:
            while self._unsent and len(batch) < _BATCH_MESSAGES and size < _BATCH_BYTES:
                batch.append(self._unsent.popleft())
                size += batch[-1].size
        self._untold.extend(zip(batch, await self._outcomes(batch), strict=True))
        async with self._changed:
            self._unsent_count -= len(batch)
            self._changed.notify_all()

    async def _outcomes(self, batch: list[AsynchronousSend]) -> list[JMSException | None]:
        try:
            return await self._insert(batch)
        except BaseException as error:  # also sys.exit() in an application's hook: commits wait for this thread
            if not is_failure(error):
                raise
            logger.exception("Asynchronous sends failed with an unexpected error.")
            failure = JMSException(f"sending: {error!r}")
            failure.__cause__ = error
            return [failure] * len(batch)

    async def _tell_listeners(self) -> None:
        told, size = 0, 0
        while self._untold:
            send, error = self._untold.popleft()
            try:
                with calling():
                    await call_isolated(send.complete, error)
            except BaseException as raised:  # also sys.exit(): the next sends wait for this thread
                if not is_failure(raised):
                    raise
                logger.exception("The completion listener %r failed with %r.", send.listener, send.message)
            told += 1
            size += send.size
        async with self._changed:
            self._untold_count -= told
            self._bytes -= size
            self._changed.notify_all()
