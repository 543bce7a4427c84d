"""An event loop in a thread of its own, for tests that call what is awaited from where nothing is awaited."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import AsyncGeneratorType, CoroutineType, FrameType
from typing import Any, TypeVar

from jmsql.concurrency.tasks import obtain, opened_in_thread, run_detached, run_to_completion
from jmsql.testing import wait_for

T = TypeVar("T")

_MOST_LISTENERS = 64


class EventLoopThread:
    """Runs an event loop, in which other threads have functions called, and wait for them.

    What a thread calls runs in a copy of its context: what a listener calls counts as the listener.

    Args:
        loop: The loop, which runs in another thread.
        threads: Where listeners are called that block.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: ThreadPoolExecutor) -> None:
        self._loop = loop
        self._threads = threads
        self._tasks: dict[int, asyncio.Task[Any]] = {}

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a function in the loop, as a task; await what it returns, if need be; return or raise the outcome."""
        assert asyncio._get_running_loop() is not self._loop, "the event loop would wait for itself"
        work = self._call(threading.get_ident(), lambda: function(*arguments, **options))
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _call(self, thread: int, function: Callable[[], Any]) -> Any:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[thread] = task
        try:
            return await obtain(function)
        finally:
            del self._tasks[thread]

    async def call_in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call what blocks in another thread, which counts as the task that awaits this."""
        run = contextvars.copy_context().run
        return await self._loop.run_in_executor(self._threads, run, function, *arguments)

    def innermost_frame(self, thread: int) -> FrameType | None:
        """Return the innermost frame of a thread's call, where it waits; None: it asks the server, or does not wait."""

        def look() -> FrameType | None:
            task = self._tasks.get(thread)
            return None if task is None else _innermost_frame(task.get_coro())

        frame: FrameType | None = self.call(look)
        return frame

    def require_no_tasks(self) -> None:
        """Wait a moment until no task is left.

        Raises:
            AssertionError: There are some: a test leaves none that has closed what it opened.
        """
        wait_for(lambda: not self.call(self._others))

    def _others(self) -> list[asyncio.Task[Any]]:
        return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


@contextmanager
def run_event_loop() -> Iterator[EventLoopThread]:
    """Run an event loop in a thread until the block ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="event-loop", daemon=True)
    thread.start()
    try:
        with ThreadPoolExecutor(_MOST_LISTENERS, "listener") as threads:
            yield EventLoopThread(loop, threads)
    finally:
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def event_loop_called_by(frame: FrameType | None) -> EventLoopThread | None:
    """Return the event loop that a thread has called and waits for, by the thread's innermost frame; None: none."""
    while isinstance(frame, FrameType):  # the caller of a frame that ends meanwhile may be another object
        if frame.f_code is EventLoopThread.call.__code__:
            event_loop: EventLoopThread = frame.f_locals["self"]
            return event_loop
        frame = frame.f_back
    return None


def _innermost_frame(awaited: object) -> FrameType | None:
    """Follow what a coroutine awaits to where it waits; None: for the server's answer."""
    frame: FrameType | None = None
    while isinstance(awaited, CoroutineType | AsyncGeneratorType):
        if isinstance(awaited, CoroutineType):
            frame, awaited = awaited.cr_frame, awaited.cr_await
        else:
            frame, awaited = awaited.ag_frame, awaited.ag_await
        if frame is None or frame.f_code in {run_to_completion.__code__, opened_in_thread.__code__}:
            return None
        if frame.f_code is run_detached.__code__:
            awaited = frame.f_locals["work"]
        elif frame.f_code is next_or.__code__:
            awaited = frame.f_locals["iterator"]
    return frame


async def next_or(iterator: AsyncIterator[T], default: T) -> T:
    """Return the next value of an iterator, or `default` at its end."""
    return await anext(iterator, default)
