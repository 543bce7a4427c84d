"""Operations of a cancelled task: those that happen as a whole, or not at all."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import sys
import threading
import types
from collections.abc import Coroutine, Generator
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Protocol, TypeVar

from jmsql.concurrency.tasks.identity import start_task, wake
from jmsql.logs import contained_logger

logger = contained_logger("jmsql")

T = TypeVar("T")

# Cancellation
#
# Goals, in this order:
#
# 1. An operation that returns has happened, and one that raises CancelledError has not. So a caller that is cancelled
#    can repeat it, and loses and doubles nothing.
# 2. A cancelled task ends soon, also while the server executes a long statement.
# 3. `asyncio.timeout`, task groups and anyio's cancel scopes work as everywhere, and find no surprise afterwards.
#
# asyncio cancels a task where it waits, by an exception. In the middle of an exchange with PostgreSQL the client could
# not tell then how far the server had got, and would take the answers that it had not read for those to the next
# statement. A driver gives up the connection for that reason, and its transaction with it. Here the exchange goes on
# instead, and the cancellation waits for its end, which is a round trip away as a rule.
#
# The rules that follow from it:
#
# - Waits that may take long and are no exchange come first and can be cancelled: for another session's turn, for a
#   connection of the pool, for connecting. Nothing has changed by then. Each step that changes something is awaited by
#   `run_to_completion`.
# - `run_to_completion` drives its coroutine by hand, in the caller's own task. The coroutine awaits everything behind a
#   future that is made for the purpose, and that alone is cancelled with the task: a lock, a look-up or an exchange
#   inside never hears of it. There is no other task, so none has to be kept alive, registered, or identified as the
#   caller.
# - A noted cancellation takes effect behind the block, where the task waits next, since `run_to_completion` has a value
#   to return. A loop of operations, each of which is done in time, would never wait where it can be cancelled; so the
#   next block raises CancelledError before it begins anything.
# - A time-out that has ended meanwhile takes its cancellation back (`Task.uncancel`), which is then no longer
#   requested. By the count of cancellations a late one knows that; before Python 3.13 it must not even be requested at
#   once.
# - An exchange says how to interrupt it. The server is asked after a grace, in which short statements end by
#   themselves: a request takes a connection of its own, and a transaction in which a statement was interrupted is lost.
#   Only the answer tells whether the request came in time. If it did, nothing has happened and CancelledError is
#   raised; if not, the operation has happened and returns.
# - A request must not hit the next statement of the connection. So its end is awaited, and if that fails, the
#   connection is given up.
# - After an interruption come rollbacks and the like, which are not interrupted again.
# - anyio cancels once more in each turn of the event loop until its scope is left. Work that goes on after a
#   cancellation waits in a shielded scope, else it would take all processor time.
#
# Things that do not work:
#
# - A driver's own wait that limits its time by `asyncio.timeout`, as psycopg's did up to 3.3.0 and asyncpg's connecting
#   does. Such a time-out cancels the task that it runs in, and `run_to_completion` would take that for a request. So
#   statements on an application's connections, and connecting, run `in_own_task`. jmsql's own connections wait by
#   `jmsql.store.wire.waiting`.
# - asyncpg's statements in the caller's task: asyncpg interrupts a statement only if the task that runs it is
#   cancelled.


def is_cancelled() -> bool:
    """Return True if the end of the caller's task is requested."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def is_failure(error: BaseException) -> bool:
    """Return True if an exception of the application's code is its failure alone; else the program is to end.

    In the main thread a KeyboardInterrupt may be Ctrl-C.
    """
    if isinstance(error, asyncio.CancelledError):
        return not is_cancelled()
    if isinstance(error, KeyboardInterrupt):
        return threading.current_thread() is not threading.main_thread()
    return not isinstance(error, GeneratorExit)  # Python ends a coroutine by it that is awaited no more


def ends_task(error: BaseException) -> bool:
    """Return True if an exception of the application's code ends the task that called it: a cancellation, Ctrl-C."""
    return not (is_failure(error) or isinstance(error, GeneratorExit))


class Exchange(Protocol):
    """A conversation with the server, which can be asked to interrupt its work."""

    @property
    def can_be_interrupted(self) -> bool:
        """True if the server is at the statement that is to be interrupted, and at nothing before it."""

    async def interrupt(self) -> None:
        """Ask the server to interrupt it, and return when the request can hit nothing later."""

    def was_interrupted(self, error: BaseException) -> bool:
        """Return whether an error says that the server has done so, and that nothing has come of the statement."""

    def end_connection(self) -> None:
        """End the connection: a request may be under way that would interrupt the next statement."""


_GRACE = 0.5
"""Seconds in which a statement whose caller was cancelled may still end by itself, and between two requests."""


class _Interruption:
    """The requests to interrupt an exchange whose task was cancelled."""

    __slots__ = ("_exchange", "_request", "_timer")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._request: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(_GRACE, self._ask)

    @property
    def is_requested(self) -> bool:
        return self._request is not None

    def _ask(self) -> None:
        if self._exchange.can_be_interrupted and (self._request is None or self._request.done()):
            self._request = start_task(self._exchange.interrupt())
        # The server ignores a request that comes between two statements, so one may not be enough.
        self._timer = asyncio.get_running_loop().call_later(_GRACE, self._ask)

    async def end(self) -> None:
        """Make sure that no request reaches the next statement of the connection."""
        self._timer.cancel()
        if self._request is not None:
            await asyncio.wait([self._request])
            error = self._request.exception()
            if error is not None:
                logger.info("The server could not be asked to interrupt a statement.", exc_info=error)
                self._exchange.end_connection()


class _Cancellation:
    """A cancellation of a task that has not taken effect yet.

    Args:
        task: The task.
        arguments: Those of the CancelledError, by which anyio knows its own.
    """

    __slots__ = ("_requests", "_task", "arguments")

    def __init__(self, task: asyncio.Task[Any], arguments: tuple[Any, ...]) -> None:
        self._task: asyncio.Task[Any] | None = task
        # The count tells later if one was taken back. One of them may be stale: of a program that has
        # caught a CancelledError and gone on.
        self._requests = task.cancelling()
        self.arguments = arguments

    def is_due(self, task: asyncio.Task[Any] | None) -> bool:
        """Return whether the task is to be cancelled now: once, and only while a request stands."""
        if self._task is None or self._task is not task:
            return False
        self._task = None
        return task.cancelling() >= self._requests

    def repeat(self) -> None:
        """Cancel the task where it waits, unless that has happened."""
        task = self._task
        if task is not None and self.is_due(task) and not task.done():
            task.uncancel()
            task.cancel(*self.arguments)


class _Shield:
    """A shield that keeps the cancellations of a task away from its indivisible operations."""

    __slots__ = ("exchange", "interruption", "is_driving", "is_interrupted", "noted", "task")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.is_driving = False
        """True while `run_to_completion` runs, in which the awaited operation may wait for anything."""
        self.noted: _Cancellation | None = None
        """The first cancellation that was kept away."""
        self.exchange: Exchange | None = None
        """The conversation with the server that goes on now, if it is one to be interrupted."""
        self.is_interrupted = False
        """True if the server has interrupted a statement. The clean-up after that runs to its end."""
        self.interruption: _Interruption | None = None

    def cancelled(self, error: asyncio.CancelledError) -> None:
        """Note a cancellation, and have the server asked to interrupt its work."""
        if self.noted is None:
            self.noted = _Cancellation(self.task, error.args)
        self.interrupt()

    def interrupt(self) -> None:
        """Begin to ask the server, if a cancellation was noted and there is something to interrupt."""
        if self.noted is not None and self.exchange is not None and self.interruption is None:
            self.interruption = _Interruption(self.exchange)

    @property
    def has_asked(self) -> bool:
        """True if the server was asked to interrupt the exchange."""
        return self.interruption is not None and self.interruption.is_requested


_shield: contextvars.ContextVar[_Shield | None] = contextvars.ContextVar("jmsql_shield", default=None)
late_cancellation: contextvars.ContextVar[_Cancellation | None] = contextvars.ContextVar("jmsql_late", default=None)
"""A cancellation of the task that came too late for its last operation, and has not taken effect."""


def is_driven() -> bool:
    """Return True if `run_to_completion` drives the caller, so that cancellations of the task do not reach it."""
    return _driving_shield() is not None


def _driving_shield() -> _Shield | None:
    shield = _shield.get()
    return shield if shield is not None and shield.is_driving and shield.task is asyncio.current_task() else None


class shielded:  # noqa: N801 - used as a statement
    """A block that is done as a whole, or not at all if its task was cancelled before.

    Each operation in it has to be awaited by `run_to_completion`. If the task is cancelled meanwhile, that takes effect
    behind the block, where the task waits next.
    """

    __slots__ = ("_shield", "_token")

    _shield: _Shield
    _token: contextvars.Token[_Shield | None] | None

    def __enter__(self) -> _Shield:
        task = _this_task()
        shield = _shield.get()
        if shield is not None and shield.task is task:
            self._shield, self._token = shield, None
            return shield
        late = late_cancellation.get()
        if late is not None:
            late_cancellation.set(None)
            if late.is_due(task):
                raise asyncio.CancelledError(*late.arguments)
        self._shield = _Shield(task)
        self._token = _shield.set(self._shield)
        return self._shield

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._token is None:
            return
        _shield.reset(self._token)
        noted = self._shield.noted
        if noted is not None and not isinstance(error, asyncio.CancelledError):
            # Not at once: before Python 3.13 the task could not get rid of it at the end of `asyncio.timeout`.
            late_cancellation.set(noted)
            asyncio.get_running_loop().call_soon(noted.repeat)


async def run_to_completion(work: Coroutine[Any, Any, T]) -> T:
    """Await something to its end, whether the task is cancelled meanwhile or not.

    By itself it is done as a whole, or not at all if the task was cancelled before; in a `shielded` block it is a
    part of that.

    Raises:
        asyncio.CancelledError: It was cancelled before it began, or the server has interrupted an `interruptible` part.
    """
    if _driving_shield() is not None:
        return await work
    try:
        with shielded() as shield:
            shield.is_driving = True
            try:
                return await _drive(work, shield)
            finally:
                shield.is_driving = False
    finally:
        work.close()


@types.coroutine
def _drive(work: Coroutine[Any, Any, T], shield: _Shield) -> Generator[Any, Any, T]:
    """Run a coroutine in the caller's task as the event loop would, but for cancellations of the task."""
    while True:
        try:
            awaited: asyncio.Future[Any] | Answer | None = work.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        if awaited is None:  # as in sleep(0): the coroutine goes on in the next turn of the event loop
            try:
                yield
            except asyncio.CancelledError as error:
                shield.cancelled(error)
            continue
        if not isinstance(awaited, Answer):
            # By this flag the event loop tells an awaited future from a merely yielded one: it wants the waiter's.
            awaited._asyncio_future_blocking = False  # noqa: SLF001
        if shield.noted is None:
            yield from _wait(awaited, shield)
        if not awaited.done():
            with _shielded_from_anyio():
                while not awaited.done():
                    yield from _wait(awaited, shield)


class Answer:
    """An answer of the server, for a task that is driven: it is woken at once, and not in the next turn of the loop.

    No future, since nothing but `run_to_completion` sees it; it takes a fraction of one's time.
    """

    __slots__ = ("is_there", "waiter")

    def __init__(self) -> None:
        self.is_there = False
        """True if it has come."""
        self.waiter: asyncio.Future[None] | None = None
        """The future for which the task waits meanwhile."""

    def come(self) -> None:
        """Note that it is there."""
        self.is_there = True
        if self.waiter is not None:
            wake(self.waiter, None)

    def done(self) -> bool:
        """Return whether it has come."""
        return self.is_there

    def __await__(self) -> Generator[Any, None, None]:
        while not self.is_there:
            yield self


def _wait(awaited: asyncio.Future[Any] | Answer, shield: _Shield) -> Generator[Any, Any, None]:
    """Wait for the future of a coroutine, or a cancellation: behind a future that alone is cancelled with the task."""
    waiter = shield.task.get_loop().create_future()
    if isinstance(awaited, Answer):
        awaited.waiter = waiter
        try:
            yield from waiter
        except asyncio.CancelledError as error:
            shield.cancelled(error)
        return
    come = functools.partial(wake, waiter)
    awaited.add_done_callback(come)
    try:
        yield from waiter
    except asyncio.CancelledError as error:
        awaited.remove_done_callback(come)
        shield.cancelled(error)


async def interruptible(work: Coroutine[Any, Any, T], exchange: Exchange, *, needs_own_task: bool = False) -> T:
    """Await a conversation with the server, which is asked to interrupt it if the task is cancelled.

    It is done, or raises CancelledError. It is also done if the server was asked too late.

    Args:
        work: Talks to the server.
        exchange: Knows how to have that interrupted.
        needs_own_task: True if `work` runs `in_own_task`.
    """
    shield = _driving_shield()
    if shield is None:
        try:
            return await run_to_completion(interruptible(work, exchange, needs_own_task=needs_own_task))
        finally:
            work.close()  # which has not begun if the task was cancelled before
    if needs_own_task:
        work = in_own_task(work)
    if shield.is_interrupted or shield.exchange is not None:
        return await work
    shield.exchange = exchange
    shield.interrupt()
    try:
        return await work
    except BaseException as error:
        if not (shield.has_asked and exchange.was_interrupted(error)):
            raise
        shield.is_interrupted = True
        assert shield.noted is not None
        raise asyncio.CancelledError(*shield.noted.arguments) from error
    finally:
        interruption, shield.interruption, shield.exchange = shield.interruption, None, None
        if interruption is not None:
            await interruption.end()


def _shielded_from_anyio() -> AbstractContextManager[object]:
    """Return a block in which anyio's cancel scopes do not cancel the task once more in each turn of the event loop."""
    anyio = sys.modules.get("anyio")
    return nullcontext() if anyio is None else anyio.CancelScope(shield=True)


async def in_own_task(work: Coroutine[Any, Any, T]) -> T:
    """Await, in a task of its own, a driver's operation that limits its time: the limit cancels the task it runs in."""
    return await start_task(work)


left_running: contextvars.ContextVar[asyncio.Task[Any] | None] = contextvars.ContextVar("jmsql_left", default=None)
"""The task's work that `run_detached` left running. It counts as the task, so both must not hold one lock at a time."""


async def run_detached(work: Coroutine[Any, Any, T]) -> T:
    """Do something to its end; a caller that is cancelled does not wait for that.

    It may go on with something else. But where that wants an `RLock`, it waits after all.
    """
    left = left_running.get()
    if left is not None and left.done():
        left_running.set(None)  # so that the new task's context does not keep it
    task = start_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        left_running.set(task)
        raise


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task
