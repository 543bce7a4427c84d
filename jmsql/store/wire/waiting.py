"""Waiting for PostgreSQL under asyncio, in the caller's task and for as long as it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, Generic, TypeVar

import psycopg
from psycopg.waiting import Ready, Wait

from jmsql.concurrency.tasks import Answer

T = TypeVar("T")

_INTERVAL = 1.0
"""Seconds between checks of a waiting connection, whose socket may have been closed silently."""

# psycopg wakes the task for each piece of an answer: the event loop sets a future, and in its next turn the task
# unregisters the socket, reads, and registers the socket again. A hundred messages come in four pieces. Here the loop's
# callback continues the conversation on each piece, and the task is woken once, at the end. The socket stays
# registered.
#
# No cancellation arrives here: `finished`, around the wait, defers them. An unfinished conversation would leave answers
# on the connection, so it closes the connection.


async def wait_for_server(work: Generator[Any, Any, T], socket: int) -> T:
    """Carry a conversation with the server to its end. Call it behind `finished`.

    psycopg's own wait may cancel its task to limit its time, as in release 3.3.0.

    Raises:
        psycopg.Error: The conversation failed, or the connection was closed.
    """
    conversation = _Conversation(work, socket)
    try:
        conversation.go_on(None)
        await conversation
        return conversation.outcome()
    except OSError as error:
        raise psycopg.OperationalError("the socket of the connection was closed") from error
    finally:
        conversation.end()


class _Conversation(Answer, Generic[T]):
    """A conversation with the server that the event loop carries on."""

    __slots__ = ("_error", "_loop", "_result", "_socket", "_timer", "_wanted", "_work")

    def __init__(self, work: Generator[Any, Any, T], socket: int) -> None:
        super().__init__()
        self._work = work
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self._wanted = 0
        self._timer: asyncio.TimerHandle | None = None
        self._result: T
        self._error: BaseException | None = None

    def go_on(self, ready: Ready | None) -> None:
        """Resume the conversation when the socket is ready, then wait for its next request, or wake its task."""
        try:
            wanted = self._work.send(ready)
            if wanted != self._wanted:
                self._wait_for(wanted)
        except StopIteration as end:
            self._result = end.value
            self.end()
        except BaseException as error:  # noqa: BLE001 - for the task
            self._error = error
            self.end()

    def outcome(self) -> T:
        """Return the conversation's result, or raise its error."""
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # whose traceback has this frame
        return self._result

    def end(self) -> None:
        """Wait for nothing more, and wake the task."""
        if not self.is_there:
            self.come()
            self._wait_for(0)

    def _wait_for(self, wanted: int) -> None:
        loop, socket, former, self._wanted = self._loop, self._socket, self._wanted, wanted
        if self._timer is None:
            if wanted:
                self._timer = loop.call_later(_INTERVAL, self._look)
        elif not wanted:
            self._timer.cancel()
        changed = former ^ wanted
        if changed & Wait.R:
            if wanted & Wait.R:
                loop.add_reader(socket, self.go_on, Ready.R)
            else:
                loop.remove_reader(socket)
        if changed & Wait.W:
            if wanted & Wait.W:
                loop.add_writer(socket, self.go_on, Ready.W)
            else:
                loop.remove_writer(socket)

    def _look(self) -> None:
        self._timer = self._loop.call_later(_INTERVAL, self._look)
        self.go_on(Ready.NONE)
