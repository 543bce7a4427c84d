"""Calls that block, in threads, and calls from threads into the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future as ThreadFuture
from typing import ParamSpec, TypeVar

from jmsql.concurrency.tasks.cancellation import run_to_completion
from jmsql.exceptions import JMSException

T = TypeVar("T")
Parameters = ParamSpec("Parameters")


async def in_thread(function: Callable[Parameters, T], *arguments: Parameters.args, **options: Parameters.kwargs) -> T:
    """Call a blocking function in a thread. A caller that is cancelled meanwhile gets its value all the same."""
    return await run_to_completion(asyncio.to_thread(function, *arguments, **options))


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
        # A loop that ends waits for its threads, but lets them run nothing more: so this thread closes its object.
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
    """Return a function that tells, in any thread, if the running event loop has been closed."""
    return asyncio.get_running_loop().is_closed
