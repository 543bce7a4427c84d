"""The task that counts as the caller, and the tasks that are started for it."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

# The event loop refers to tasks weakly, so this keeps those that are not awaited. It serves for nothing else: neither
# cancellation nor `run_to_completion` looks here.
_running: set[asyncio.Future[Any]] = set()


def unfinished() -> list[asyncio.Future[Any]]:
    """Return the tasks of jmsql that have not ended, of all event loops."""
    return [task for task in _running if not task.done()]


class Call:
    """A call on behalf of a task, by which the tasks that it starts count as that task until it returns."""

    __slots__ = ("is_active", "owner")

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.is_active = True


acting_for: contextvars.ContextVar[Call | None] = contextvars.ContextVar("jmsql_call", default=None)


def current() -> object:
    """Return an object that identifies the caller's task.

    A task that a listener starts and awaits counts as the listener: with Python 3.11 `asyncio.wait_for` starts a task.
    """
    call = acting_for.get()
    return call.owner if call is not None and call.is_active else asyncio.current_task()


@contextmanager
def calling() -> Iterator[None]:
    """Enclose a call of the application's code, whose tasks count as the caller's until the block ends."""
    call = Call(current())
    token = acting_for.set(call)
    try:
        yield
    finally:
        call.is_active = False
        acting_for.reset(token)


def start_task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task that counts as the caller's."""
    # In a copy of the caller's context, as every task: so its calls count as the caller's there. The shield in it
    # does not, since that knows its task.
    context = contextvars.copy_context()
    context.run(acting_for.set, Call(current()))
    task = asyncio.get_running_loop().create_task(work, context=context)
    keep(task)
    return task


def keep(task: asyncio.Task[Any]) -> None:
    """Refer to a task until it ends, as the event loop does not."""
    _running.add(task)
    task.add_done_callback(_running.discard)


def wake(waiter: asyncio.Future[None], _: object) -> None:
    """Let the task that awaits a future go on."""
    if not waiter.done():
        waiter.set_result(None)
