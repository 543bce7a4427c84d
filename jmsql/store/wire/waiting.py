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
"""Seconds after which a wait looks at its connection, whose socket may have been closed without a word."""

# psycopg wakes the task for each piece of an answer: the event loop calls what sets a future, and in its next turn the
# task, which has the loop forget the socket, reads, and has it look at the socket once more. A hundred messages come in
# four pieces. Here the loop itself goes on with the conversation when something has come, and the task is woken once,
# at the end. The loop looks at the socket all the time.
#
# Nothing here heeds a cancellation: the wait runs behind `finished`, which keeps them away. A conversation that is left
# half-way would leave answers on the connection, and ends with it.


async def wait_for_server(work: Generator[Any, Any, T], socket: int) -> T:
    """Carry a conversation with the server to its end. What is awaited has to be `finished`.

    psycopg's own wait may cancel the task that it runs in, to limit its time, as that of release 3.3.0 does.

    Raises:
        psycopg.Error: As the conversation, or the connection was closed.
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
        """Tell the conversation what has come, and wait for what it wants then, or wake its task."""
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
        """Return what has come of it, or raise that."""
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
