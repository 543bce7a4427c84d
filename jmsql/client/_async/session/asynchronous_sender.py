"""The thread on which a session sends what need not be waited for, and tells completion listeners."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from jmsql.client.sending.completion import AsynchronousSend
from jmsql.concurrency.tasks import BackgroundTask, Condition, call, calling, current
from jmsql.exceptions import IllegalStateException, JMSException

__all__ = ["AsynchronousSender", "Insertion"]

logger = logging.getLogger("jmsql")

_BATCH_MESSAGES = 500
_BATCH_BYTES = 4 * 1024 * 1024
_MOST_MESSAGES = 10_000
_MOST_BYTES = 64 * 1024 * 1024


class Insertion(Protocol):
    """How a sender's messages come into the store."""

    async def insert(self, batch: Sequence[AsynchronousSend]) -> list[JMSException | None]:
        """Insert messages in their order, and return what went wrong with each."""

    async def close(self) -> None:
        """Let go of what it has taken."""


class AsynchronousSender:
    """Sends the messages of one session in their order, in batches of whatever has come together.

    A batch waits for the disk once. While it does, the next one collects. At most 10,000 messages, or 64 MiB, are on
    their way; then `submit` waits. Listeners are called one at a time, in the order of the sends (Jakarta Messaging
    3.1, chapter 7.3). `start` starts its thread.

    Args:
        insertion: How messages come into the store.
    """

    def __init__(self, insertion: Insertion) -> None:
        self._insertion = insertion
        self._changed = Condition()
        self._unsent: deque[AsynchronousSend] = deque()
        self._untold: deque[tuple[AsynchronousSend, JMSException | None]] = deque()
        self._unsent_count = 0  # those that are just being inserted count as well
        self._untold_count = 0
        self._bytes = 0
        self._closed = False
        self._task = BackgroundTask(self._run, "jmsql-sender")

    def start(self) -> None:
        """Begin to send what is submitted."""
        self._task.start()

    @property
    def identity(self) -> object:
        """What tells the thread or task in which completion listeners are called, once it is started."""
        return self._task.identity

    @property
    def is_current(self) -> bool:
        """Whether the caller is a completion listener."""
        return current() is self.identity

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
        await self._insertion.close()

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
        self._untold.extend(zip(batch, await self._insert(batch), strict=True))
        async with self._changed:
            self._unsent_count -= len(batch)
            self._changed.notify_all()

    async def _insert(self, batch: list[AsynchronousSend]) -> list[JMSException | None]:
        try:
            return await self._insertion.insert(batch)
        except Exception as error:
            logger.exception("Sending failed unexpectedly.")
            failure = JMSException(f"sending: {error!r}")
            failure.__cause__ = error
            return [failure] * len(batch)

    async def _tell_listeners(self) -> None:
        told, size = 0, 0
        while self._untold:
            send, error = self._untold.popleft()
            try:
                with calling():
                    await call(send.complete, error)
            except Exception:
                logger.exception("The completion listener %r failed with %r.", send.listener, send.message)
            told += 1
            size += send.size
        async with self._changed:
            self._untold_count -= told
            self._bytes -= size
            self._changed.notify_all()
