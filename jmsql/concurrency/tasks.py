"""What runs side by side, and how it waits: asyncio's tasks. `threads` has the same names for threads."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import sys
import threading
import types
from asyncio import CancelledError, Condition, Event, Lock, Semaphore, sleep
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future as ThreadFuture
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager, nullcontext
from types import TracebackType
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from jmsql.concurrency import forks
from jmsql.concurrency.functions import refuse_generator, refuse_generator_function
from jmsql.exceptions import IllegalStateException, JMSException

__all__ = [
    "Answer",
    "BackgroundTask",
    "CancelledError",
    "Condition",
    "Event",
    "Exchange",
    "InterruptibleCall",
    "Lock",
    "Notifications",
    "Opening",
    "RLock",
    "Turns",
    "apart",
    "at_once",
    "begin",
    "call",
    "call_isolated",
    "calling",
    "check_function",
    "current",
    "detached",
    "ends_task",
    "finished",
    "from_thread",
    "in_thread",
    "interruptible",
    "is_cancelled",
    "is_driven",
    "is_failure",
    "is_over",
    "obtain",
    "opened_in_thread",
    "opens",
    "sleep",
    "unfinished",
    "uninterrupted",
    "unlocked",
]

logger = logging.getLogger("jmsql")

T = TypeVar("T")
Parameters = ParamSpec("Parameters")

# The event loop refers to tasks weakly, so this keeps those that are not awaited. It serves for nothing else: neither
# cancellation nor `finished` looks here.
_running: set[asyncio.Future[Any]] = set()


def unfinished() -> list[asyncio.Future[Any]]:
    """Return the tasks of jmsql that have not ended, of all event loops."""
    return [task for task in _running if not task.done()]


# Who is who


class _Call:
    """A call on behalf of a task, by which the tasks that it starts count as that task until it returns."""

    __slots__ = ("is_active", "owner")

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.is_active = True


_call: contextvars.ContextVar[_Call | None] = contextvars.ContextVar("jmsql_call", default=None)


def current() -> object:
    """Return what tells the caller's task from all others.

    What a listener starts and awaits counts as the listener: with Python 3.11 `asyncio.wait_for` starts a task.
    """
    call = _call.get()
    return call.owner if call is not None and call.is_active else asyncio.current_task()


@contextmanager
def calling() -> Iterator[None]:
    """Enclose a call of the application's code, whose tasks count as the caller's until the block ends."""
    call = _Call(current())
    token = _call.set(call)
    try:
        yield
    finally:
        call.is_active = False
        _call.reset(token)


async def entered(exits: AsyncExitStack, manager: Any) -> None:
    """Enter a context manager of the application's, an asynchronous one or another, until a stack of them ends."""
    if hasattr(manager, "__aenter__"):
        await exits.enter_async_context(manager)
    else:
        exits.enter_context(manager)


def check_function(function: object) -> None:
    """Make sure that a call of the application's function can run it.

    Raises:
        TypeError: It is a generator function.
    """
    refuse_generator_function(function)


async def call(function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
    """Call the application's code, and await the result if that can be awaited.

    A coroutine that comes of that is awaited, too: a decorator's wrapper may be a coroutine function that forgets to.

    Raises:
        TypeError: It returned a generator: nothing has run.
    """
    generation = forks.generation
    try:
        returned = function(*arguments, **options)
        if inspect.isawaitable(returned):
            returned = await returned
            while inspect.iscoroutine(returned):
                returned = await returned
    except BaseException as error:
        if forks.generation != generation:
            forks.end_forked_child(error)
        raise
    if forks.generation != generation:
        forks.end_forked_child()
    if returned is not None:
        refuse_generator(function, returned)
    return returned


class InterruptibleCall:
    """One call of a coroutine function, which its task's cancellation ends."""

    async def run(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
        """Call the function."""
        return await function(*arguments, **options)

    def end(self) -> None:
        """Do nothing: its task has ended."""


async def call_isolated(function: Callable[..., Any], *arguments: Any) -> Any:
    """Do what `call` does, in a copy of the context: the context variables that it sets hold for this call alone."""
    context = contextvars.copy_context()
    try:
        return await _run_in(context, call(function, *arguments))
    finally:
        # These are about the task.
        _left.set(context.get(_left))
        _late.set(context.get(_late))


@types.coroutine
def _run_in(context: contextvars.Context, work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Run a coroutine in the caller's task, and in another context: a task of its own would cost each call more."""
    step, argument = work.send, None
    while True:
        try:
            awaited = context.run(step, argument)
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            step, argument = work.send, (yield awaited)
        except BaseException as error:  # noqa: BLE001 - which the coroutine raises, or not
            step, argument = work.throw, error


async def obtain(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that returns a value, or an awaitable of one."""
    returned = function(*arguments)
    return await returned if inspect.isawaitable(returned) else returned


# Cancellation
#
# Goals, in this order:
#
# 1. An operation that returns has happened, and one that raises CancelledError has not. So a caller that is cancelled
#    can repeat it, and loses and doubles nothing.
# 2. A cancelled task ends soon, whatever the server is at.
# 3. `asyncio.timeout`, task groups and anyio's cancel scopes work as everywhere, and find no surprise afterwards.
#
# asyncio cancels a task where it waits, by an exception. In the middle of an exchange with PostgreSQL nobody could tell
# then how far the server had got, and the answers that were not read would be taken for those to the next statement. A
# driver gives up the connection for that reason, and its transaction with it. Here the exchange goes on instead, and
# the cancellation waits for its end, which is a round trip away as a rule.
#
# The rules that follow from it:
#
# - Whatever may take long and is no exchange comes first and can be cancelled: another session's turn, a connection of
#   the pool, connecting. Nothing has changed by then. All that changes something is `finished`.
# - `finished` drives its coroutine by hand, in the caller's own task. What the coroutine awaits, it awaits behind a
#   future that is made for the purpose, and that alone is cancelled with the task: a lock, a look-up or an exchange
#   inside never hears of it. There is no other task, so nothing has to be kept alive, registered, or told who it is.
# - What is noted takes effect behind the block, where the task waits next, since `finished` has something to return. A
#   loop of operations each of which is finished in time would never wait where it can be cancelled; so the next block
#   raises CancelledError before it begins anything.
# - A time-out that has ended meanwhile takes its cancellation back (`Task.uncancel`), and then nobody wants it any
#   more. By the count of cancellations a late one knows that; before Python 3.13 it must not even be requested at once.
# - An exchange says how to interrupt it. The server is asked after a grace, in which short statements end by
#   themselves: a request takes a connection of its own, and a transaction in which a statement was interrupted is lost.
#   Only the answer tells whether the request came in time. If it did, nothing has happened and CancelledError is
#   raised; if not, the operation has happened and returns.
# - A request must not hit what comes next on the connection. So its end is awaited, and if that fails, the connection
#   is given up.
# - After an interruption come rollbacks and the like, which are not interrupted again.
# - anyio cancels once more in each turn of the event loop until its scope is left. What goes on after a cancellation
#   waits in a shielded scope, else it would take all processor time.
#
# What cannot run in the caller's task: a driver's own wait that limits its time by `asyncio.timeout`, as psycopg's did
# up to 3.3.0 and asyncpg's connecting does. Such a time-out cancels the task that it runs in, which `finished` would
# take for somebody's wish. asyncpg, too, interrupts a statement only if the task is cancelled that runs it. So
# statements on connections of an application's, and connecting, run `apart`, in tasks of their own. jmsql's own
# connections wait by `jmsql.store.wire.waiting`.


def is_cancelled() -> bool:
    """Return whether somebody wants the caller's task to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def is_failure(error: BaseException) -> bool:
    """Tell whether what the application's code has raised is its failure alone; else the program is to end.

    In the main thread a KeyboardInterrupt may be Ctrl-C.
    """
    if isinstance(error, asyncio.CancelledError):
        return not is_cancelled()
    if isinstance(error, KeyboardInterrupt):
        return threading.current_thread() is not threading.main_thread()
    return not isinstance(error, GeneratorExit)  # by which Python ends a coroutine that nobody awaits any more


def ends_task(error: BaseException) -> bool:
    """Tell whether what the application's code has raised ends the task that has called it: a cancellation, Ctrl-C."""
    return not (is_failure(error) or isinstance(error, GeneratorExit))


class Exchange(Protocol):
    """A conversation with the server, which can be asked to interrupt what it does for it."""

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
            self._request = begin(self._exchange.interrupt())
        # The server ignores a request that comes between two statements, so one may not be enough.
        self._timer = asyncio.get_running_loop().call_later(_GRACE, self._ask)

    async def end(self) -> None:
        """Make sure that no request reaches what the connection is used for next."""
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
        # The count tells later whether somebody has taken one back. One of them may be stale: of a program that has
        # caught a CancelledError and gone on.
        self._requests = task.cancelling()
        self.arguments = arguments

    def is_due(self, task: asyncio.Task[Any] | None) -> bool:
        """Return whether the task is to be cancelled now: once, and only as long as somebody wants it."""
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
    """What keeps the cancellations of a task away from what it does as a whole."""

    __slots__ = ("exchange", "interruption", "is_driving", "is_interrupted", "noted", "task")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.is_driving = False
        """True if `finished` runs, so that what is awaited can wait for anything."""
        self.noted: _Cancellation | None = None
        """The first cancellation that was kept away."""
        self.exchange: Exchange | None = None
        """The conversation with the server that goes on now, if it is one to be interrupted."""
        self.is_interrupted = False
        """True if the server has interrupted a statement. What tidies up after that runs to its end."""
        self.interruption: _Interruption | None = None

    def cancelled(self, error: asyncio.CancelledError) -> None:
        """Note a cancellation, and have the server asked to interrupt what it does."""
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
_late: contextvars.ContextVar[_Cancellation | None] = contextvars.ContextVar("jmsql_late", default=None)
"""A cancellation of the task that came too late for its last operation, and has not taken effect."""


def is_driven() -> bool:
    """Return whether the caller is a part of what is `finished`, which cancellations of the task do not reach."""
    return _driving_shield() is not None


def _driving_shield() -> _Shield | None:
    shield = _shield.get()
    return shield if shield is not None and shield.is_driving and shield.task is asyncio.current_task() else None


class uninterrupted:  # noqa: N801 - used as a statement
    """A block that is done as a whole, or not at all if its task was cancelled before.

    What it awaits has to be `finished`. If the task is cancelled meanwhile, that takes effect behind the block, where
    the task waits next.
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
        late = _late.get()
        if late is not None:
            _late.set(None)
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
            _late.set(noted)
            asyncio.get_running_loop().call_soon(noted.repeat)


async def finished(work: Coroutine[Any, Any, T]) -> T:
    """Await something to its end, whether the task is cancelled meanwhile or not.

    By itself it is done as a whole, or not at all if the task was cancelled before; in an `uninterrupted` block it is a
    part of that.

    Raises:
        asyncio.CancelledError: It was cancelled before it began, or the server has interrupted an `interruptible` part.
    """
    if _driving_shield() is not None:
        return await work
    try:
        with uninterrupted() as shield:
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
            # By this flag the event loop tells what was awaited from what was merely yielded: it wants the waiter's.
            awaited._asyncio_future_blocking = False  # noqa: SLF001
        if shield.noted is None:
            yield from _wait(awaited, shield)
        if not awaited.done():
            with _shielded_from_anyio():
                while not awaited.done():
                    yield from _wait(awaited, shield)


class Answer:
    """What comes from the server, for a task that is driven: it is woken at once, and not in the next turn of the loop.

    No future, since nothing but `finished` sees what is awaited there; it takes a fraction of one's time.
    """

    __slots__ = ("is_there", "waiter")

    def __init__(self) -> None:
        self.is_there = False
        """True if it has come."""
        self.waiter: asyncio.Future[None] | None = None
        """What the task waits for meanwhile."""

    def come(self) -> None:
        """Note that it is there."""
        self.is_there = True
        if self.waiter is not None:
            _wake(self.waiter, None)

    def done(self) -> bool:
        """Return whether it has come."""
        return self.is_there

    def __await__(self) -> Generator[Any, None, None]:
        while not self.is_there:
            yield self


def _wait(awaited: asyncio.Future[Any] | Answer, shield: _Shield) -> Generator[Any, Any, None]:
    """Wait for what a coroutine awaits, or a cancellation: behind a future that alone is cancelled with the task."""
    waiter = shield.task.get_loop().create_future()
    if isinstance(awaited, Answer):
        awaited.waiter = waiter
        try:
            yield from waiter
        except asyncio.CancelledError as error:
            shield.cancelled(error)
        return
    wake = functools.partial(_wake, waiter)
    awaited.add_done_callback(wake)
    try:
        yield from waiter
    except asyncio.CancelledError as error:
        awaited.remove_done_callback(wake)
        shield.cancelled(error)


async def interruptible(work: Coroutine[Any, Any, T], exchange: Exchange, *, is_apart: bool = False) -> T:
    """Await a conversation with the server, which is asked to interrupt it if the task is cancelled.

    It is done, or raises CancelledError. It is also done if the server was asked too late.

    Args:
        work: Talks to the server.
        exchange: Knows how to have that interrupted.
        is_apart: Whether it runs `apart`.
    """
    shield = _driving_shield()
    if shield is None:
        try:
            return await finished(interruptible(work, exchange, is_apart=is_apart))
        finally:
            work.close()  # which has not begun if the task was cancelled before
    if is_apart:
        work = apart(work)
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


async def apart(work: Coroutine[Any, Any, T]) -> T:
    """Await, in a task of its own, what limits its own time, as drivers do: that cancels the task which it runs in."""
    return await begin(work)


_left: contextvars.ContextVar[asyncio.Task[Any] | None] = contextvars.ContextVar("jmsql_left", default=None)
"""What the task has left to run `detached`, and which counts as the task: the two must not have one lock at a time."""


async def detached(work: Coroutine[Any, Any, T]) -> T:
    """Do something to its end; a caller that is cancelled does not wait for that.

    It may go on with something else. But where that wants an `RLock`, it waits after all.
    """
    left = _left.get()
    if left is not None and left.done():
        _left.set(None)  # so that the new task's context does not keep it
    task = begin(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        _left.set(task)
        raise


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def begin(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task that counts as the caller's."""
    # In a copy of the caller's context, as every task: so what it calls counts as the caller there. The shield in it
    # does not, since that knows its task.
    context = contextvars.copy_context()
    context.run(_call.set, _Call(current()))
    task = asyncio.get_running_loop().create_task(work, context=context)
    _keep(task)
    return task


def _keep(task: asyncio.Task[Any]) -> None:
    _running.add(task)
    task.add_done_callback(_running.discard)


def _wake(waiter: asyncio.Future[None], _: object) -> None:
    if not waiter.done():
        waiter.set_result(None)


# Threads


async def in_thread(function: Callable[Parameters, T], *arguments: Parameters.args, **options: Parameters.kwargs) -> T:
    """Call what blocks in a thread. A caller that is cancelled meanwhile gets what it returns all the same."""
    return await finished(asyncio.to_thread(function, *arguments, **options))


async def opened_in_thread(
    close: Callable[[T], object],
    function: Callable[Parameters, T],
    *arguments: Parameters.args,
    **options: Parameters.kwargs,
) -> T:
    """Open something in a thread, which may take long; close it there if the caller has been cancelled meanwhile."""
    state = threading.Lock()
    is_abandoned = False
    unclaimed: list[T] = []

    def open_or_close() -> T:
        opened = function(*arguments, **options)
        with state:
            unclaimed.append(opened)
            is_unwanted = is_abandoned
        # A loop that ends waits for its threads, but lets them run nothing more: so this thread closes what it opened.
        if is_unwanted:
            close(opened)
        return opened

    try:
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, open_or_close))
    except asyncio.CancelledError:
        with state:
            is_abandoned = True
            late = list(unclaimed)
        for opened in late:  # the result was on its way to the caller
            threading.Thread(target=close, args=(opened,)).start()
        raise


def from_thread(function: Callable[Parameters, Awaitable[T]]) -> Callable[Parameters, T]:
    """Return a function that another thread can call: it runs in the event loop, and that thread waits for it."""
    loop = asyncio.get_running_loop()

    def run(*arguments: Parameters.args, **options: Parameters.kwargs) -> T:
        async def awaited() -> T:
            return await function(*arguments, **options)

        work = awaited()
        try:
            future: ThreadFuture[T] = asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError as error:
            work.close()
            raise JMSException("The event loop of the connection is closed; close connections before it.") from error
        return future.result()

    return run


def is_over() -> Callable[[], bool]:
    """Return what tells, from any thread, whether the running event loop has been closed."""
    return asyncio.get_running_loop().is_closed


class BackgroundTask:
    """A task that runs beside others.

    Args:
        run: What it runs.
        name: What it is called.
    """

    def __init__(self, run: Callable[[], Coroutine[Any, Any, object]], name: str) -> None:
        self._run = run
        self._name = name
        self._task: asyncio.Task[object] | None = None

    def start(self) -> None:
        """Begin to run."""
        context = contextvars.copy_context()
        context.run(_call.set, None)
        self._task = asyncio.get_running_loop().create_task(self._run(), name=self._name, context=context)
        _keep(self._task)

    @property
    def identity(self) -> object:
        """What `current` returns to what it runs, once it is started."""
        return self._task

    async def join(self) -> None:
        """Wait until it has run."""
        if self._task is not None:
            await asyncio.wait([self._task])


class Home:
    """The event loop in which something was made, and is used."""

    __slots__ = ("_loop",)

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def check(self, kind: str) -> None:
        """Raise IllegalStateException if the caller runs in another event loop."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:  # a thread, which waits for nothing
            return
        if running is not self._loop:
            raise IllegalStateException(
                f"The {kind} belongs to another event loop. Make a connection in each event loop, or run this in the "
                f"loop of the {kind} (asyncio.run_coroutine_threadsafe)."
            )


def home() -> Home | None:
    """Return the caller's event loop, in which what it makes is used."""
    return Home()


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
            return  # nobody has waited yet
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
        timer = None if timeout is None else loop.call_later(timeout, _wake, waiter, None)
        self._waiting.add(waiter)
        if self.count != count:  # another thread has just notified
            _wake(waiter, None)
        try:
            await waiter
        finally:
            self._waiting.discard(waiter)
            if timer is not None:
                timer.cancel()


async def unlocked(lock: Lock) -> None:
    """Wait until nobody has a lock. Until the caller waits for something, nobody else can take it."""
    while lock.locked():
        async with lock:
            pass


# What follows has the names of `threads`, and what is generated for threads imports them from there.


class Turns(Semaphore):
    """Lets so many tasks at once do something, and the others wait."""


class RLock:
    """A lock that its owner can take again: a task, or what counts as it. Those that wait get it in turn."""

    __slots__ = ("_depth", "_owner", "_waiting")

    def __init__(self) -> None:
        self._owner: object = None
        self._depth = 0
        self._waiting: deque[tuple[asyncio.Future[None], object]] = deque()

    @property
    def is_free(self) -> bool:
        """True if nobody has it. Until the caller waits for something, nobody else can take it."""
        return self._owner is None

    async def __aenter__(self) -> bool:
        left = _left.get()
        if left is not None and not left.done():
            await asyncio.wait([left])
        owner = current()
        if self._owner is None:
            self._owner = owner
        elif self._owner is not owner:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append((waiter, owner))
            try:
                await waiter
            except asyncio.CancelledError:
                # It may have been given the lock before it could run, and been cancelled then.
                if waiter.done() and not waiter.cancelled():
                    self._hand_over()
                raise
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
                waiter.set_result(None)
                break


async def taken_within(lock: RLock, seconds: float) -> bool:
    """Take a lock unless another task has it for so long; return whether it is taken."""
    try:
        async with asyncio.timeout(seconds):
            await lock.__aenter__()
    except TimeoutError:
        return False
    return True


def at_once(lock: RLock) -> AbstractContextManager[bool]:
    """Enclose what waits for nothing, so that no other task runs meanwhile; it gets whether the lock is free."""
    return nullcontext(lock.is_free)


# What is opened


class Opening(Coroutine[Any, Any, T]):
    """A coroutine that opens something; as an asynchronous context manager it closes it, too.

    A coroutine, and not merely awaitable, so that `asyncio.create_task` and task groups accept it.
    """

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._opened: Any = None

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work.__await__()

    def send(self, value: Any) -> Any:
        """Run the coroutine until it waits."""
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an exception where the coroutine waits."""
        return self._work.throw(*error)

    def close(self) -> None:
        """End the coroutine where it waits."""
        self._work.close()

    async def __aenter__(self) -> T:
        self._opened = await self._work
        return cast("T", await self._opened.__aenter__())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._opened.__aexit__(kind, error, traceback)


def opens(function: Callable[Parameters, Coroutine[Any, Any, T]]) -> Callable[Parameters, Opening[T]]:
    """Let what a coroutine function opens be used in ``async with`` without another ``await``."""

    @functools.wraps(function)
    def opening(*arguments: Parameters.args, **options: Parameters.kwargs) -> Opening[T]:
        return Opening(function(*arguments, **options))

    return opening
