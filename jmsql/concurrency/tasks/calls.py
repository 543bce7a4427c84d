"""Calls of the application's code: functions, coroutine functions and context managers."""

from __future__ import annotations

import contextvars
import inspect
import types
from collections.abc import Callable, Coroutine, Generator
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from jmsql.concurrency import forks
from jmsql.concurrency.functions import refuse_generator, refuse_generator_function
from jmsql.concurrency.tasks.cancellation import late_cancellation, left_running

T = TypeVar("T")


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
    """Call as `call` does, in a copy of the context: the context variables that it sets hold for this call alone."""
    context = contextvars.copy_context()
    try:
        return await _run_in(context, call(function, *arguments))
    finally:
        # These are about the task.
        left_running.set(context.get(left_running))
        late_cancellation.set(context.get(late_cancellation))


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
