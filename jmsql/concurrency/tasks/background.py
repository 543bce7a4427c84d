"""Tasks that run beside others, and the event loop to which an object belongs."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

from jmsql.concurrency.tasks.identity import acting_for, keep
from jmsql.exceptions import IllegalStateException


class BackgroundTask:
    """A task that runs beside others.

    Args:
        run: The coroutine function to run.
        name: The name of the task.
    """

    def __init__(self, run: Callable[[], Coroutine[Any, Any, object]], name: str) -> None:
        self._run = run
        self._name = name
        self._task: asyncio.Task[object] | None = None

    def start(self) -> None:
        """Begin to run."""
        context = contextvars.copy_context()
        context.run(acting_for.set, None)
        self._task = asyncio.get_running_loop().create_task(self._run(), name=self._name, context=context)
        keep(self._task)

    @property
    def identity(self) -> object:
        """The value of `current` in the function that it runs, once it is started."""
        return self._task

    async def join(self) -> None:
        """Wait until it has run."""
        if self._task is not None:
            await asyncio.wait([self._task])


class CallGuard:
    """The event loop in which an object was made, and where alone it can be used."""

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


def owning_loop() -> CallGuard | None:
    """Return the guard of objects made in the caller's event loop."""
    return CallGuard()
