"""Threads: concurrent calls, and their waits. `tasks` has the same names for asyncio."""

from __future__ import annotations

import threading
from asyncio import CancelledError
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from contextvars import copy_context
from threading import Condition, Event, Lock, RLock
from time import sleep
from typing import Any, ParamSpec, Protocol, TypeVar

from jmsql.concurrency import forks
from jmsql.concurrency.functions import (
    refuse_awaitable,
    refuse_coroutine_function,
    refuse_generator,
    refuse_generator_function,
)
from jmsql.concurrency.interruptible_call import InterruptibleCall
from jmsql.exceptions import ResourceAllocationException

__all__ = [
    "BackgroundTask",
    "CallGuard",
    "CancelledError",
    "Condition",
    "Event",
    "InterruptibleCall",
    "Lock",
    "Notifications",
    "RLock",
    "Turns",
    "call",
    "call_isolated",
    "calling",
    "check_function",
    "current",
    "ends_task",
    "entered",
    "from_thread",
    "in_thread",
    "is_failure",
    "is_over",
    "obtain",
    "opened_in_thread",
    "owning_loop",
    "sleep",
    "start_thread",
    "taken_within",
    "try_acquire",
]

T = TypeVar("T")
Parameters = ParamSpec("Parameters")


def current() -> object:
    """Return an object that identifies the caller's thread."""
    return threading.current_thread()


class CallGuard(Protocol):
    """A guard of an object that not every caller may use."""

    def check(self, kind: str) -> None:
        """Raise an exception if the caller may not use the object, of a kind such as "session"."""


def owning_loop() -> CallGuard | None:
    """Return None: objects of one thread can be used in others."""
    return None


def calling() -> AbstractContextManager[None]:
    """Enclose a call of the application's code: nothing has to be done for threads."""
    return nullcontext()


def entered(exits: ExitStack, manager: Any) -> None:
    """Enter a context manager of the application's until a stack of them ends."""
    exits.enter_context(manager)


def check_function(function: object) -> None:
    """Make sure that a call of the application's function can run it.

    Raises:
        TypeError: It is a coroutine function or a generator function.
    """
    refuse_coroutine_function(function)
    refuse_generator_function(function)


def call(function: Callable[..., T], /, *arguments: Any, **options: Any) -> T:
    """Call the application's code.

    Raises:
        TypeError: It returned a coroutine, another awaitable or a generator: nothing has run, or it runs still.
    """
    generation = forks.generation
    try:
        returned = function(*arguments, **options)
    except BaseException as error:
        if forks.generation != generation:
            forks.end_forked_child(error)
        raise
    if forks.generation != generation:
        forks.end_forked_child()
    if returned is not None:
        refuse_awaitable(function, returned)
        refuse_generator(function, returned)
    return returned


def call_isolated(function: Callable[..., T], *arguments: Any) -> T:
    """Call as `call` does, in a copy of the context: the context variables that it sets hold for this call alone."""
    return copy_context().run(call, function, *arguments)


def obtain(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function that returns a value."""
    return function(*arguments)


def is_failure(error: BaseException) -> bool:
    """Return True if an exception of the application's code is its failure alone; else the program is to end.

    In the main thread a KeyboardInterrupt may be Ctrl-C.
    """
    return not isinstance(error, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread()


def ends_task(error: BaseException) -> bool:  # noqa: ARG001 - nothing does
    """Tell whether an error of the application's code ends the calling task. In a thread no error does."""
    return False


def taken_within(lock: RLock, seconds: float) -> bool:
    """Take a lock unless another thread has it for so long; return whether it is taken."""
    return lock.acquire(timeout=seconds)


def try_acquire(lock: AbstractContextManager[bool]) -> AbstractContextManager[bool]:
    """Enclose code that does not wait: a thread waits until the lock is free, and holds it meanwhile."""
    return lock


def in_thread(function: Callable[Parameters, T], *arguments: Parameters.args, **options: Parameters.kwargs) -> T:
    """Call a blocking function: the caller's thread is as good as any."""
    return function(*arguments, **options)


def opened_in_thread(
    close: Callable[[T], object],  # noqa: ARG001 - nobody is cancelled
    function: Callable[Parameters, T],
    *arguments: Parameters.args,
    **options: Parameters.kwargs,
) -> T:
    """Call a function that opens something."""
    return function(*arguments, **options)


def from_thread(function: Callable[Parameters, T]) -> Callable[Parameters, T]:
    """Return a function that another thread can call."""
    return function


def is_over() -> Callable[[], bool]:
    """Return a function for the question if the caller's event loop has been closed: threads have none."""
    return lambda: False


def start_thread(thread: threading.Thread) -> None:
    """Start a thread.

    Raises:
        ResourceAllocationException: The system lets the process have no further thread.
    """
    try:
        threading.Thread.start(thread)
    except RuntimeError as error:
        raise ResourceAllocationException(
            f"The thread {thread.name} could not be started: {error}. Raise the limit of threads (ulimit -u, or "
            "pids.max of the container), or use fewer connections, sessions and listeners in this process."
        ) from error


class BackgroundTask(threading.Thread):
    """A thread that does not keep the process alive.

    Args:
        run: The function to run.
        name: The name of the thread.
    """

    def __init__(self, run: Callable[[], object], name: str) -> None:
        super().__init__(target=run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to run.

        Raises:
            ResourceAllocationException: The system lets the process have no further thread.
        """
        start_thread(self)

    @property
    def identity(self) -> object:
        """The value of `current` in the function that it runs."""
        return self


class Turns:
    """Lets any number of threads at once do something: they are never as many as tasks.

    Args:
        number: How many tasks may do it.
    """

    def __init__(self, number: int) -> None:
        """Limit nothing."""

    def __enter__(self) -> None:
        """Begin at once."""

    def __exit__(self, *_: object) -> None:
        """Do nothing: nobody waits."""


class Notifications:
    """Wakes the threads that wait for news of a session; none is missed that comes after `count` was read."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.count = 0
        """How many there have been."""

    def notify(self) -> None:
        """Have those that wait look again; may be called from any thread."""
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait(self, count: int, timeout: float | None) -> None:
        """Wait until there have been more than `count`, at most `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self.count != count, timeout)
