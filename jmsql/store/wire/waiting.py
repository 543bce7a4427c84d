"""Waiting for PostgreSQL under asyncio, in the caller's task and for as long as it takes."""

from __future__ import annotations

import asyncio
import select
import weakref
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
# callback continues the conversation on each piece, and the task is woken once, at the end.
#
# To register a socket in an event loop and to forget it takes thirty Python calls and two system calls. So `_Sockets`
# has an epoll object of its own, which is registered in the loop once. A socket in it is armed for one event at a time,
# by one system call, and needs no disarming. libpq closes its socket by itself, and the number is used again at once:
# the kernel then removes the socket from the epoll object, where the event loop would keep its number. Should an event
# come for a socket that is gone, as after a fork, the conversation with that number reads nothing and waits on.
#
# One timer checks all conversations of the loop, whose sockets may have been closed silently.
#
# No cancellation arrives here: `run_to_completion`, around the wait, defers them. An unfinished conversation would
# leave answers on the connection, so it closes the connection.


class _Sockets:
    """The sockets of an event loop's conversations with servers; without epoll, the loop itself watches them."""

    def __init__(self) -> None:
        # The loop's callbacks keep it.
        self._waiting: dict[int, Callable[[Ready], object]] = {}
        """The conversations that wait for an answer, by their sockets."""
        self._is_checking = False

    def watch(self, loop: asyncio.AbstractEventLoop, socket: int, go_on: Callable[[Ready], object]) -> None:
        """Call a function once the socket can be read, and every second until then with `Ready.NONE`.

        Raises:
            OSError: The socket is closed.
        """
        self._arm(loop, socket)
        self._waiting[socket] = go_on
        if not self._is_checking:
            self._is_checking = True
            loop.call_later(_INTERVAL, self._check, loop)

    def forget(self, loop: asyncio.AbstractEventLoop, socket: int) -> None:
        """Call the function no more."""
        if self._waiting.pop(socket, None) is not None:
            self._disarm(loop, socket)

    def _arm(self, loop: asyncio.AbstractEventLoop, socket: int) -> None:
        loop.add_reader(socket, self._ready, loop, socket)

    def _disarm(self, loop: asyncio.AbstractEventLoop, socket: int) -> None:
        loop.remove_reader(socket)

    def _ready(self, loop: asyncio.AbstractEventLoop, socket: int) -> None:
        loop.remove_reader(socket)
        go_on = self._waiting.pop(socket, None)
        if go_on is not None:
            go_on(Ready.R)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting = list(self._waiting.values())
        self._is_checking = bool(waiting)
        if waiting:
            loop.call_later(_INTERVAL, self._check, loop)
        for go_on in waiting:
            go_on(Ready.NONE)


class _EpollSockets(_Sockets):
    """Watches sockets by an epoll object, which the event loop watches."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._epoll = select.epoll()
        loop.add_reader(self._epoll.fileno(), self._dispatch)

    def _arm(self, loop: asyncio.AbstractEventLoop, socket: int) -> None:  # noqa: ARG002 - the epoll object does
        try:
            self._epoll.modify(socket, _ONCE)
        except FileNotFoundError:
            self._epoll.register(socket, _ONCE)

    def _disarm(self, loop: asyncio.AbstractEventLoop, socket: int) -> None:
        """Leave it armed: an event that nothing waits for is ignored, and disarms it."""

    def _dispatch(self) -> None:
        for socket, _ in self._epoll.poll(0, _MOST_EVENTS):
            go_on = self._waiting.pop(socket, None)
            if go_on is not None:
                go_on(Ready.R)


HAS_EPOLL = hasattr(select, "epoll")
_ONCE = select.EPOLLIN | select.EPOLLONESHOT if HAS_EPOLL else 0
_MOST_EVENTS = 64
_sockets = weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[_Sockets]]()
"""References to the sockets of loops. The loops own them, which may end while conversations wait."""


def _sockets_of(loop: asyncio.AbstractEventLoop) -> _Sockets:
    reference = _sockets.get(loop)
    found = None if reference is None else reference()
    if found is None:
        found = _EpollSockets(loop) if HAS_EPOLL else _Sockets()
        _sockets[loop] = weakref.ref(found)
    return found


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

    __slots__ = ("_error", "_loop", "_result", "_socket", "_sockets", "_wanted", "_work")

    def __init__(self, work: Generator[Any, Any, T], socket: int) -> None:
        super().__init__()
        self._work = work
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self._sockets = _sockets_of(self._loop)
        self._wanted = 0
        self._result: T
        self._error: BaseException | None = None

    def go_on(self, ready: Ready | None) -> None:
        """Resume the conversation when the socket is ready, then wait for its next request, or wake its task."""
        try:
            if ready == Ready.R:
                self._wanted &= ~Wait.R  # for each answer the socket is armed again
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
        changed = former ^ wanted
        if changed & Wait.R:
            if wanted & Wait.R:
                self._sockets.watch(loop, socket, self.go_on)
            else:
                self._sockets.forget(loop, socket)
        if changed & Wait.W:
            if wanted & Wait.W:
                loop.add_writer(socket, self.go_on, Ready.W)
            else:
                loop.remove_writer(socket)


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
# - Keeping the socket registered in the event loop between statements: libpq closes it by itself, and its number is
#   used again at once.


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

    __slots__ = ("_error", "_loop", "_result", "_socket", "_sockets", "_work", "future", "is_over", "wanted")

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
        self._sockets = _sockets_of(self._loop)
        self._sockets.watch(self._loop, socket, self._go_on)

    def _go_on(self, ready: Ready) -> None:
        try:
            self.wanted = self._work.send(ready)
            if self.wanted == Wait.R:
                if ready == Ready.R:
                    self._sockets.watch(self._loop, self._socket, self._go_on)
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
        self._sockets.forget(self._loop, self._socket)
