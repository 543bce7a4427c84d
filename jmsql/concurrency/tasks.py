"""What runs side by side, and how it waits: asyncio's tasks. `threads` has the same names for threads."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import sys
import threading
from asyncio import Condition, Event, Lock, Semaphore, sleep
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future as ThreadFuture
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Any, Generic, NamedTuple, ParamSpec, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

from jmsql.exceptions import IllegalStateException, JMSException

__all__ = [
    "BackgroundTask",
    "Condition",
    "Event",
    "Exchange",
    "Kept",
    "Lock",
    "Notifications",
    "Opening",
    "RLock",
    "Semaphore",
    "call",
    "calling",
    "current",
    "detached",
    "finished",
    "from_thread",
    "in_thread",
    "interruptible",
    "is_cancelled",
    "is_failure",
    "is_over",
    "nobody_cancels",
    "opened_in_thread",
    "opens",
    "sleep",
    "unfinished",
    "uninterrupted",
]

logger = logging.getLogger("jmsql")

T = TypeVar("T")
Parameters = ParamSpec("Parameters")

# asyncio alone holds running tasks weakly.
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


async def call(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call the application's code, and await what it returns if that can be awaited."""
    returned = function(*arguments, **options)
    return await returned if inspect.isawaitable(returned) else returned


# Cancellation


def is_cancelled() -> bool:
    """Whether somebody wants the caller's task to end."""
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


class _Cancellation(NamedTuple):
    """A cancellation that has not taken effect yet.

    Args:
        requests: How many of the task's cancellations nobody had taken back then. One may be stale: of a program that
            has caught it and gone on.
        arguments: Its message, by which anyio knows its own.
    """

    requests: int
    arguments: tuple[Any, ...]

    def is_wanted(self, task: asyncio.Task[Any]) -> bool:
        return task.cancelling() >= self.requests


class Exchange(Protocol):
    """A conversation with the server, which can be asked to interrupt what it does for it."""

    @property
    def can_be_interrupted(self) -> bool:
        """Whether the server is at the statement that is to be interrupted, and at nothing before it."""

    async def interrupt(self) -> None:
        """Ask the server to interrupt it, and return when the request can hit nothing later."""

    def was_interrupted(self, error: BaseException) -> bool:
        """Whether an error says that the server has done so, and that nothing has come of the statement."""

    def give_up(self) -> None:
        """End the connection: a request may be under way that would interrupt the next statement."""


_GRACE = 0.5
"""Seconds in which a statement whose caller was cancelled may still end by itself, and between two requests."""


class _Interruption:
    """The requests to interrupt an exchange whose caller was cancelled."""

    __slots__ = ("_exchange", "_request", "_timer")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._timer: asyncio.TimerHandle | None = None
        self._request: asyncio.Task[None] | None = None

    @property
    def is_requested(self) -> bool:
        return self._request is not None

    @property
    def has_begun(self) -> bool:
        return self._timer is not None

    def begin(self) -> None:
        """Have the server asked, unless that has begun or the exchange ends soon."""
        if self._timer is None:
            self._set_timer()

    def _set_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_GRACE, self._ask)

    def _ask(self) -> None:
        if self._exchange.can_be_interrupted and (self._request is None or self._request.done()):
            self._request = _begin(self._exchange.interrupt())
        self._set_timer()  # the server ignores a request that comes between two statements

    async def end(self) -> None:
        """Make sure that no request reaches what the connection is used for next."""
        assert self._timer is not None
        self._timer.cancel()
        if self._request is not None:
            await asyncio.wait([self._request])
            error = self._request.exception()
            if error is not None:
                logger.info("The server could not be asked to interrupt a statement.", exc_info=error)
                self._exchange.give_up()


class _Finishing:
    """What a task does to its end, whether its caller is cancelled or not."""

    __slots__ = ("interruption", "is_abandonable", "is_interrupted", "is_unwanted")

    def __init__(self) -> None:
        self.is_unwanted = False
        """Whether its caller was cancelled."""
        self.is_abandonable = False
        """Whether it waits for something else than the server."""
        self.is_interrupted = False
        """Whether the server has interrupted a statement of it. What tidies up after that runs to its end."""
        self.interruption: _Interruption | None = None

    def caller_was_cancelled(self, task: asyncio.Task[Any]) -> None:
        self.is_unwanted = True
        if self.is_abandonable:
            task.cancel()
        elif self.interruption is not None:
            self.interruption.begin()


# Tasks that were cancelled while they did what is done as a whole.
_postponed: WeakKeyDictionary[asyncio.Task[Any], _Cancellation] = WeakKeyDictionary()
# Tasks that do it, which nobody else cancels.
_finishing: dict[asyncio.Task[Any], _Finishing] = {}


class uninterrupted:  # noqa: N801 - used as a statement
    """A block that is done as a whole, or not at all if its task was cancelled before.

    If the task is cancelled meanwhile, the block runs to its end. The cancellation then takes effect where the task
    waits next, unless nobody wants it any more: `asyncio.timeout` may have ended. What waits for anything but the
    server does not belong into it.
    """

    __slots__ = ("_token", "cancelled", "task")

    task: asyncio.Task[Any]
    cancelled: _Cancellation | None

    def __enter__(self) -> None:
        task = _this_task()
        outer = _block.get()
        if outer is None or outer.task is not task:
            _heed_cancellation(task)
        self.task = task
        self.cancelled = None
        self._token = _block.set(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _block.reset(self._token)
        if self.cancelled is not None:
            _note_cancellation(self.task, self.cancelled)


_block: contextvars.ContextVar[uninterrupted | None] = contextvars.ContextVar("jmsql_block", default=None)


async def finished(work: Coroutine[Any, Any, T]) -> T:
    """Await what talks to the server to its end, as a block of its own or as a part of an `uninterrupted` block.

    If the caller is cancelled, the server is asked to interrupt the `interruptible` statement that runs. If it does,
    CancelledError is raised; else the cancellation takes effect where the task waits next.
    """
    task = _this_task()
    if task in _finishing:
        return await work
    block = _block.get()
    if block is None or block.task is not task:
        try:
            _heed_cancellation(task)
        except asyncio.CancelledError:
            work.close()
            raise
    running = _begin(work)
    try:
        await _done(running)
    except asyncio.CancelledError as error:
        cancellation = await _outlast(running, error)
        if running.cancelled():
            raise asyncio.CancelledError(*cancellation.arguments) from None
        _note_cancellation(task, cancellation)
    return running.result()


async def _done(running: asyncio.Task[Any]) -> None:
    waiter = asyncio.get_running_loop().create_future()
    wake = functools.partial(_wake, waiter)
    running.add_done_callback(wake)
    try:
        await waiter
    except asyncio.CancelledError:
        running.remove_done_callback(wake)
        raise


async def _outlast(running: asyncio.Task[Any], error: asyncio.CancelledError) -> _Cancellation:
    """Wait for a task although the caller was cancelled; return the cancellation that is to take effect later."""
    task = _this_task()
    cancellation = _Cancellation(task.cancelling(), error.args)
    with _shielded_from_anyio():
        while not running.done():
            _finishing[running].caller_was_cancelled(running)
            try:
                await _done(running)
            except asyncio.CancelledError as again:
                cancellation = _earlier(cancellation, _Cancellation(task.cancelling(), again.args))
    return cancellation


async def interruptible(work: Coroutine[Any, Any, T], exchange: Exchange) -> T:
    """Await a conversation with the server, which is asked to interrupt it if the caller is cancelled.

    It is done, or raises CancelledError. It is also done if the server was asked too late.

    Args:
        work: Talks to the server.
        exchange: Knows how to have that interrupted.
    """
    finishing = _finishing.get(_this_task())
    if finishing is None:
        try:
            return await finished(interruptible(work, exchange))
        finally:
            work.close()  # which has not begun if the caller was cancelled before
    if finishing.is_interrupted or finishing.interruption is not None:
        return await work
    interruption = finishing.interruption = _Interruption(exchange)
    if finishing.is_unwanted:
        interruption.begin()
    try:
        return await work
    except BaseException as error:
        if not (interruption.is_requested and exchange.was_interrupted(error)):
            raise
        finishing.is_interrupted = True
        raise asyncio.CancelledError from error
    finally:
        finishing.interruption = None
        if interruption.has_begun:
            await interruption.end()


def _shielded_from_anyio() -> AbstractContextManager[object]:
    """Return a block in which anyio's cancel scopes do not cancel the task once more in each turn of the event loop."""
    anyio = sys.modules.get("anyio")
    return nullcontext() if anyio is None else anyio.CancelScope(shield=True)


@contextmanager
def abandonable() -> Iterator[None]:
    """A block in which work waits for something else than the server, and ends if its caller is cancelled.

    Nothing has begun that others would see.
    """
    finishing = _finishing.get(_this_task())
    if finishing is None:
        yield  # the caller itself is cancelled
        return
    if finishing.is_unwanted:
        raise asyncio.CancelledError
    finishing.is_abandonable = True
    try:
        yield
    finally:
        finishing.is_abandonable = False


class Kept(Generic[T]):
    """What takes long to open. If who waits for it is cancelled meanwhile, it is there when somebody asks again.

    Args:
        open_: Opens it.
        discard: Closes what nobody has taken.
    """

    __slots__ = ("_discard", "_is_awaited", "_open", "_opening")

    def __init__(
        self, open_: Callable[[], Coroutine[Any, Any, T]], discard: Callable[[T], Coroutine[Any, Any, object]]
    ) -> None:
        self._open = open_
        self._discard = discard
        self._opening: asyncio.Task[T] | None = None
        self._is_awaited = False

    @property
    def is_left(self) -> bool:
        """Whether it was to be opened, and nobody waits for it any more."""
        return self._opening is not None and not self._is_awaited

    async def take(self) -> T:
        """Open it, unless that has begun, and return it to the caller alone."""
        opening = self._opening
        if opening is None or (opening.done() and _has_failed(opening)):
            opening = self._opening = _begin(self._open())
            opening.add_done_callback(_has_failed)  # nobody else may ever ask
        self._is_awaited = True
        try:
            found = await asyncio.shield(opening)
        except Exception:
            self._opening = None
            raise
        finally:
            self._is_awaited = False
        self._opening = None
        return found

    def give_up(self) -> None:
        """Have it closed, as soon as it is open, if nobody waits for it any more."""
        opening = self._opening
        if opening is None or self._is_awaited:
            return
        self._opening = None

        def discard(opened: asyncio.Task[T]) -> None:
            if not _has_failed(opened):
                _begin(self._discard(opened.result()))

        opening.add_done_callback(discard)


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.cancelled() or task.exception() is not None


def nobody_cancels() -> None:
    """Note that nobody cancels the caller's task but who ends the event loop: what it does needs no task to finish."""
    _finishing[_this_task()] = _Finishing()


async def detached(work: Coroutine[Any, Any, T]) -> T:
    """Do something to its end; a caller that is cancelled does not wait for that."""
    return await asyncio.shield(_begin(work))


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def _begin(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task that counts as the caller's."""
    context = contextvars.copy_context()
    context.run(_call.set, _Call(current()))
    task = asyncio.get_running_loop().create_task(work, context=context)
    _running.add(task)
    _finishing[task] = _Finishing()
    task.add_done_callback(_forget)
    return task


def _forget(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    _finishing.pop(task, None)


def _wake(waiter: asyncio.Future[None], _: object) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _heed_cancellation(task: asyncio.Task[Any]) -> None:
    """Raise CancelledError if the task was cancelled before, while it could not be."""
    if task in _postponed:
        cancellation = _postponed.pop(task)
        if cancellation.is_wanted(task):
            raise asyncio.CancelledError(*cancellation.arguments)


def _earlier(noted: _Cancellation | None, cancellation: _Cancellation) -> _Cancellation:
    return cancellation if noted is None or cancellation.requests < noted.requests else noted


def _note_cancellation(task: asyncio.Task[Any], cancellation: _Cancellation) -> None:
    """Have the task cancelled at the end of the block, where it waits next."""
    block = _block.get()
    if block is not None and block.task is task:
        block.cancelled = _earlier(block.cancelled, cancellation)
    else:
        _postponed[task] = _earlier(_postponed.get(task), cancellation)
        asyncio.get_running_loop().call_soon(_cancel_again, task)


def _cancel_again(task: asyncio.Task[Any]) -> None:
    if task in _postponed and not task.done():
        cancellation = _postponed.pop(task)
        if cancellation.is_wanted(task):
            task.uncancel()
            task.cancel(*cancellation.arguments)


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
    """Call what opens something in a thread, which may take long; if the caller is cancelled meanwhile, close that."""
    loop = asyncio.get_running_loop()
    opening = loop.run_in_executor(None, functools.partial(function, *arguments, **options))

    def discard(opened: asyncio.Future[T]) -> None:
        if not opened.cancelled() and opened.exception() is None and not loop.is_closed():
            loop.run_in_executor(None, close, opened.result())

    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(discard)
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
        _running.add(self._task)
        self._task.add_done_callback(_forget)

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
        """Raise IllegalStateException if the caller runs in another event loop.

        Args:
            kind: What was made.
        """
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:  # a thread, which waits for nothing
            return
        if running is not self._loop:
            raise IllegalStateException(
                f"The {kind} belongs to another event loop. Make a connection in each event loop, or run this in the "
                f"loop of the {kind} (asyncio.run_coroutine_threadsafe)."
            )


class Notifications:
    """Wakes the tasks that wait for news of a session; none is missed that comes after `count` was read."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[None]] = set()
        self.count = 0
        """How many there have been."""

    def notify(self) -> None:
        """Have those that wait look again; may be called from any thread."""
        self.count += 1
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
        waiter: asyncio.Future[None] = self._loop.create_future()
        timer = None if timeout is None else self._loop.call_later(timeout, _wake, waiter, None)
        self._waiting.add(waiter)
        try:
            await waiter
        finally:
            self._waiting.discard(waiter)
            if timer is not None:
                timer.cancel()


class RLock:
    """A lock that its owner can take again: a task, or what counts as it. Those that wait get it in turn."""

    __slots__ = ("_depth", "_owner", "_waiting")

    def __init__(self) -> None:
        self._owner: object = None
        self._depth = 0
        self._waiting: deque[tuple[asyncio.Future[None], object]] = deque()

    @property
    def is_free(self) -> bool:
        """Whether nobody has it. Until the caller waits for something, nobody else can take it."""
        return self._owner is None

    async def __aenter__(self) -> bool:
        owner = current()
        if self._owner is None:
            self._owner = owner
        elif self._owner is not owner:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append((waiter, owner))
            try:
                await waiter
            except asyncio.CancelledError:
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
        self._owner = None
        while self._waiting:
            waiter, owner = self._waiting.popleft()
            if not waiter.done():
                self._owner = owner
                waiter.set_result(None)
                break


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
