"""The application's functions: their kinds, and results that say that a call has done nothing."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


def is_coroutine_function(function: object) -> bool:
    """Return True for a coroutine function, and for an object whose call is one."""
    return _is(inspect.iscoroutinefunction, function)


def is_generator_function(function: object) -> bool:
    """Return True for a generator function, asynchronous or not, and for an object whose call is one."""
    return _is(inspect.isgeneratorfunction, function) or _is(inspect.isasyncgenfunction, function)


def _is(test: Callable[[Any], bool], function: object) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return test(function) or test(getattr(function, "__call__", None))  # noqa: B004 - of an object whose call is one


def name_of(function: object) -> str:
    """Return the name of a function for errors."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__qualname__", None) or repr(function)


def refuse_generator_function(function: object) -> None:
    """Make sure that a call of a function runs it.

    Raises:
        TypeError: It is a generator function: its calls make generators, and run nothing.
    """
    if is_generator_function(function):
        raise TypeError(f"{name_of(function)} is a generator function, whose calls run nothing. Leave out its `yield`.")


def refuse_coroutine_function(function: object) -> None:
    """Make sure that a thread can call a function.

    Raises:
        TypeError: It is a coroutine function: its calls make coroutines, and run nothing.
    """
    if is_coroutine_function(function):
        raise TypeError(
            f"{name_of(function)} is a coroutine function, and threads await nothing. Give a plain function, or use "
            "jmsql.asyncio."
        )


def refuse_generator(function: object, returned: object) -> None:
    """Make sure that a call has run its function.

    Raises:
        TypeError: It has returned a generator, as a wrapper around a generator function does.
    """
    if inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        if inspect.isgenerator(returned):
            returned.close()
        raise TypeError(
            f"{name_of(function)} returned a generator, of which nothing has run. Call it with a plain function."
        )


def refuse_awaitable(function: object, returned: object) -> None:
    """Make sure that a call in a thread has run its function.

    Raises:
        TypeError: It has returned a coroutine, as a plain wrapper around a coroutine function does, or a future.
    """
    if inspect.iscoroutine(returned):
        returned.close()  # which also spares the log Python's warning that nothing has awaited it
    elif not inspect.isawaitable(returned):
        return
    raise TypeError(
        f"{name_of(function)} is no coroutine function and returned {type(returned).__name__!r}, which a thread cannot "
        "await: its work is not done. Make it an `async def`, like each decorator around one; with the API for "
        "threads, make it a plain function that returns when the work is done."
    )
