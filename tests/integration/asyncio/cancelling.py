"""Cancelling a task where it waits for the so many-th time."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Outcome(NamedTuple):
    """What came of an operation whose task was cancelled.

    `waited` is how often the task waited, `was_cancelled` whether the operation raised CancelledError.
    """

    result: Any
    was_cancelled: bool
    waited: int


@types.coroutine
def _counted(work: Coroutine[Any, Any, T], on_wait: Callable[[int], None]) -> Generator[Any, Any, T]:
    count = 0
    errors: list[BaseException] = []  # emptied before it is thrown, whose traceback refers to what is here
    while True:
        try:
            awaited = work.throw(errors.pop()) if errors else work.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        count += 1
        on_wait(count)
        try:
            yield awaited
        except BaseException as error:  # noqa: BLE001 - it is for the operation
            errors.append(error)


async def cancelled_at(number: int, work: Coroutine[Any, Any, Any]) -> Outcome:
    """Run an operation as a task, cancel that where it waits for the so many-th time, and await it."""
    waited = 0

    def on_wait(count: int) -> None:
        nonlocal waited
        waited = count
        if count == number:
            asyncio.get_running_loop().call_soon(task.cancel)

    async def run() -> Any:
        return await _counted(work, on_wait)

    task = asyncio.get_running_loop().create_task(run())
    try:
        return Outcome(await task, was_cancelled=False, waited=waited)
    except asyncio.CancelledError:
        return Outcome(None, was_cancelled=True, waited=waited)
