"""Locks, turns and notifications, for which tasks wait."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import Lock, Semaphore
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType

from jmsql.concurrency.tasks.cancellation import left_running
from jmsql.concurrency.tasks.identity import current, wake
from jmsql.logs import contained_logger

logger = contained_logger("jmsql")


class Turns(Semaphore):
    """Lets so many tasks at once do something, and the others wait."""


class RLock:
    """A lock that its owner can take again: a task, or one that counts as it. Those that wait get it in turn."""

    __slots__ = ("_depth", "_owner", "_waiting")

    def __init__(self) -> None:
        self._owner: object = None
        self._depth = 0
        self._waiting: deque[tuple[asyncio.Future[bool], object]] = deque()

    @property
    def is_free(self) -> bool:
        """True if it is free. Until the caller waits for something, no other task can take it."""
        return self._owner is None

    async def __aenter__(self, seconds: float | None = None) -> bool:
        left = left_running.get()
        if left is not None and not left.done():
            await asyncio.wait([left])
        owner = current()
        if self._owner is None:
            self._owner = owner
        elif self._owner is not owner:
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[bool] = loop.create_future()
            self._waiting.append((waiter, owner))
            # `asyncio.timeout` would cancel the task, and a shield take that for the application's wish.
            timer = None if seconds is None else loop.call_later(seconds, _give_up, waiter)
            try:
                is_given = await waiter
            except asyncio.CancelledError:
                # It may have been given the lock before it could run, and been cancelled then.
                if waiter.done() and not waiter.cancelled() and waiter.result():
                    self._hand_over()
                raise
            finally:
                if timer is not None:
                    timer.cancel()
            if not is_given:
                with contextlib.suppress(ValueError):  # the lock may have been handed over meanwhile
                    self._waiting.remove((waiter, owner))
                return False
        self._depth += 1
        return True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._depth -= 1
        if not self._depth:
            self._hand_over()

    def _hand_over(self) -> None:
        # To the first that waits, and not to the task that runs next: a task that releases the lock and takes it again
        # at once would keep all others out.
        self._owner = None
        while self._waiting:
            waiter, owner = self._waiting.popleft()
            if not waiter.done():
                self._owner = owner
                waiter.set_result(True)
                break


def _give_up(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)


async def taken_within(lock: RLock, seconds: float) -> bool:
    """Take a lock unless another task has it for so long; return whether it is taken."""
    return await lock.__aenter__(seconds)


def try_acquire(lock: RLock) -> AbstractContextManager[bool]:
    """Enclose code that waits for nothing, so that no other task runs meanwhile; it gets whether the lock is free.

    With threads the function of this name waits until it is.
    """
    return _FREE if lock.is_free else _TAKEN


# They keep nothing, so one of each is enough.
_FREE, _TAKEN = nullcontext(enter_result=True), nullcontext(enter_result=False)


async def wait_until_unlocked(lock: Lock) -> None:
    """Wait until a lock is free. Until the caller waits for something, no other task can take it."""
    while lock.locked():
        async with lock:
            pass


class Notifications:
    """Wakes the tasks that wait for news of a session; none is missed that comes after `count` was read."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self.count = 0
        """How many there have been."""

    def notify(self) -> None:
        """Have those that wait look again; may be called from any thread."""
        self.count += 1
        if self._loop is None:
            return  # no task has waited yet
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            self._wake()
        elif not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(self._wake)
            except RuntimeError:  # it was closed just now
                logger.debug("The event loop of a session is closed.")

    def _wake(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, count: int, timeout: float | None) -> None:  # noqa: ASYNC109 - as that of threads
        """Wait until there have been more than `count`, at most `timeout` seconds."""
        if self.count != count:
            return
        self._loop = loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        timer = None if timeout is None else loop.call_later(timeout, wake, waiter, None)
        self._waiting.add(waiter)
        if self.count != count:  # another thread has just notified
            wake(waiter, None)
        try:
            await waiter
        finally:
            self._waiting.discard(waiter)
            if timer is not None:
                timer.cancel()
