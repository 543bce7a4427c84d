"""Coroutines that open something, as asynchronous context managers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, cast

T = TypeVar("T")
Parameters = ParamSpec("Parameters")

_ADVICE = ": await it first, as in `producer = await session.create_producer(queue)`."


class Opening(Coroutine[Any, Any, T]):
    """A coroutine that opens something; as an asynchronous context manager it closes it, too.

    A coroutine, and not merely awaitable, so that `asyncio.create_task` and task groups accept it.
    """

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._opened: Any = None

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work.__await__()

    if not TYPE_CHECKING:  # else a type checker would find every attribute

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"A call that was not awaited has no {name!r}{_ADVICE}", name=name, obj=self)

    def send(self, value: Any) -> Any:
        """Run the coroutine until it waits.

        Raises:
            TypeError: It is taken for the producer that it opens.
        """
        if value is not None:  # asyncio passes nothing else
            raise TypeError(f"A call that was not awaited sends no message{_ADVICE}")
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


def async_resource(function: Callable[Parameters, Coroutine[Any, Any, T]]) -> Callable[Parameters, Opening[T]]:
    """Let the object that a coroutine function opens be used in ``async with`` without another ``await``."""

    @functools.wraps(function)
    def opening(*arguments: Parameters.args, **options: Parameters.kwargs) -> Opening[T]:
        return Opening(function(*arguments, **options))

    return opening
