"""Connections that are being opened. Under asyncio their callers may be cancelled meanwhile."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from jmsql.concurrency.tasks import start_task

T = TypeVar("T")


# A caller that is cancelled while it connects loses only its wait. If the opening were cancelled with it, callers with
# a time-out below the time that connecting takes would begin again for ever
# (test_a_connection_that_was_being_opened_for_another_caller_goes_to_the_next_one).
#
# An opening has one owner at each moment: the caller that awaits it; `_left`, if that caller was cancelled; the next
# caller, which takes it from there; or, once it is open without a caller, the pool.


class Openings(Generic[T]):
    """Opens connections, each in a task of its own.

    A caller that is cancelled meanwhile leaves its connection to the next one, who waits for less then. Callers that
    give up sooner than a connection is open would never get one otherwise.

    Args:
        open_: Opens a connection.
        give_back: Returns a connection to its pool, if no waiter is left when it is open.
        discard: Closes a connection.
    """

    def __init__(
        self,
        open_: Callable[[], Coroutine[Any, Any, T]],
        give_back: Callable[[T], Coroutine[Any, Any, object]],
        discard: Callable[[T], Coroutine[Any, Any, object]],
    ) -> None:
        self._open = open_
        self._give_back = give_back
        self._discard = discard
        self._left: deque[asyncio.Task[T]] = deque()
        self._closed = False

    async def take(self) -> T:
        """Open a connection, or return one that was being opened for another session."""
        opening = self._left.popleft() if self._left else self._begin()
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._leave(opening)
            raise

    def _begin(self) -> asyncio.Task[T]:
        opening = start_task(self._open())
        opening.add_done_callback(self._done)
        return opening

    def _leave(self, opening: asyncio.Task[T]) -> None:
        self._left.append(opening)
        if opening.done():
            self._done(opening)

    def _done(self, opening: asyncio.Task[T]) -> None:
        has_failed = opening.cancelled() or opening.exception() is not None
        if opening in self._left:
            self._left.remove(opening)
            if not has_failed:
                start_task((self._discard if self._closed else self._give_back)(opening.result()))

    def close(self) -> None:
        """Discard connections without a waiter as soon as they are open."""
        self._closed = True


class Opener(Generic[T]):
    """Opens connections for threads, which are not cancelled."""

    def __init__(
        self,
        open_: Callable[[], T],
        give_back: Callable[[T], object],  # noqa: ARG002 - each caller takes what it has opened
        discard: Callable[[T], object],  # noqa: ARG002
    ) -> None:
        self.take = open_
        """Opens a connection."""

    def close(self) -> None:
        """Do nothing: none is left."""
