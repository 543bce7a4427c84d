"""Waiting for PostgreSQL under asyncio, in the caller's task and for as long as it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
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
# No cancellation arrives here: `run_to_completion`, around the wait, defers them. An unfinished conversation would
# leave answers on the connection, so it closes the connection.


async def wait_for_server(work: Generator[Any, Any, T], socket: int) -> T:
    """Carry a conversation with the server to its end. Call it behind `run_to_completion`.

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


# A statement of the application's own can be cancelled, and psycopg knows what to do then: it asks the server to
# interrupt the statement, reads the answer, and raises the cancellation again. So only the common case is carried on
# here: waiting for an answer. psycopg's wait takes over with all else, from where the conversation is.
#
# psycopg wakes the task for BEGIN's answer and again for the statement's. Each time takes two turns of the event
# loop, a future, a timer, and two system calls, which register the socket and forget it. Between the two answers the
# application's code has nothing to do, so the loop's callback sends the statement itself.
#
# Things that do not work:
#
# - Cancelling the task once more, so that psycopg's wait meets the cancellation: `asyncio.timeout` counts them.
# - Keeping the socket registered between statements: libpq closes it by itself, and its number is used again at once.


async def wait_in_task(work: Generator[Any, Any, T], socket: int, wait: Callable[[Any], Awaitable[T]]) -> T:
    """Carry a conversation with the server on in a task that may be cancelled.

    BEGIN and the statement after it then wake the task once, not twice, and the socket is registered once.

    Args:
        work: The conversation.
        socket: The connection's socket.
        wait: psycopg's own wait.

    Raises:
        psycopg.Error: The conversation failed, or the connection was closed.
    """
    try:
        wanted = next(work)
    except StopIteration as end:
        return await wait(_Rest(work, Wait.R, end))  # which lets others run, if they have waited for long
    if wanted != Wait.R:
        return await wait(_Rest(work, wanted))
    try:
        reading = _Reading(work, socket)
    except OSError as error:
        raise psycopg.OperationalError("the socket of the connection was closed") from error
    cancellation: asyncio.CancelledError | None = None
    try:
        await reading.future
    except asyncio.CancelledError as error:
        cancellation = error
        if reading.is_over:  # the answer has come in the same turn, and is lost with the task's wait, as psycopg's is
            raise
    finally:
        reading.end()
    # psycopg handles the cancellation as one of its own wait: `_Rest` raises it there.
    if not reading.is_over:
        return await wait(_Rest(work, reading.wanted, cancellation))
    return reading.outcome()


class _Rest:
    """The rest of a conversation as psycopg's wait takes it.

    Args:
        work: The conversation.
        wanted: What it waits for.
        error: Raised in place of the first step, for psycopg to handle; None: nothing is.
    """

    def __init__(self, work: Generator[Any, Any, Any], wanted: Any, error: BaseException | None = None) -> None:
        self._wanted = wanted
        self._error = error
        self.send = work.send

    def __next__(self) -> Any:
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._wanted


class _Reading(Generic[T]):
    """A conversation that the event loop carries on while it waits for answers alone."""

    __slots__ = ("_error", "_loop", "_result", "_socket", "_timer", "_work", "future", "is_over", "wanted")

    def __init__(self, work: Generator[Any, Any, T], socket: int) -> None:
        self._work = work
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self._loop.create_future()
        """Done when the conversation is over, or waits for something else."""
        self.is_over = False
        self._result: T
        self._error: BaseException | None = None
        self.wanted: Any = Wait.R
        """The event for which the conversation waits."""
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(_INTERVAL, self._look)
        self._loop.add_reader(socket, self._go_on, Ready.R)

    def _go_on(self, ready: Ready) -> None:
        try:
            self.wanted = self._work.send(ready)
            if self.wanted == Wait.R:
                return
        except StopIteration as end:
            self.is_over = True
            self._result = end.value
        except BaseException as error:  # noqa: BLE001 - for the task
            # The future does not get it: asyncio would complain of an error that a cancelled task never asks for.
            self.is_over = True
            self._error = error
        self.end()
        if not self.future.done():
            self.future.set_result(None)

    def _look(self) -> None:
        self._timer = self._loop.call_later(_INTERVAL, self._look)
        self._go_on(Ready.NONE)

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
        """Wait for nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._loop.remove_reader(self._socket)
