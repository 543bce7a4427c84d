"""The handlers of a process: blocking ones in threads, coroutine functions in an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import fields
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from jmsql.client._sync.connection.factory import ConnectionFactory
from jmsql.store.destinations.subscriptions import SubscriptionChange
from jmsql.worker.handlers._sync.handlers import Handlers
from jmsql.worker.handlers.handler_watch import WatchedTask
from jmsql.worker.handlers.listener import Listener
from jmsql.worker.timings import WorkerTimings

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from jmsql import asyncio as jmsql_asyncio
    from jmsql.worker.handlers._async.handlers import Handlers as AsyncHandlers

__all__ = ["HandlerGroup", "HandlersInEventLoop", "HandlersInThreads", "asynchronous", "synchronous"]

T = TypeVar("T")


class HandlerGroup(Protocol):
    """Handlers of one kind, as the thread sees them that looks after the process."""

    @property
    def members(self) -> Sequence[WatchedTask]:
        """What calls them."""

    def start(self) -> None:
        """Handle messages from now on."""

    def end(self, drain_timeout: float) -> Future[int]:
        """Begin to end, and return how many handlers have not finished `drain_timeout` seconds later."""


class HandlersInThreads:
    """Runs blocking handlers, each in a thread.

    Args:
        handlers: The handlers.
    """

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self.members: Sequence[WatchedTask] = handlers.members

    @classmethod
    def open(
        cls,
        factory: ConnectionFactory,
        listeners: Sequence[Listener],
        concurrency: int,
        timings: WorkerTimings,
        changed_subscriptions: SubscriptionChange,
    ) -> Self:
        """Connect.

        Args:
            factory: Makes the connection.
            listeners: The listeners.
            concurrency: How many messages of each are handled at a time, unless it says so itself.
            timings: The intervals and time-outs.
            changed_subscriptions: What happens to durable subscriptions that listeners want with another selector.

        Raises:
            JMSException: The server cannot be reached, or refuses.
        """
        return cls(Handlers.open(factory, listeners, concurrency, timings, changed_subscriptions))

    def start(self) -> None:
        """Handle messages from now on."""
        self._handlers.start()

    def end(self, drain_timeout: float) -> Future[int]:
        """Begin to end, and return how many handlers have not finished `drain_timeout` seconds later."""
        return _in_daemon_thread(lambda: self._handlers.end(drain_timeout), "end of the handlers")


class HandlersInEventLoop:
    """Runs coroutine functions, in an event loop that has a thread of its own.

    So the process answers its supervisor, and ends in time, even if one of them blocks the loop.

    Args:
        loop: The event loop.
        handlers: The handlers, of that loop.
    """

    def __init__(self, loop: _EventLoopThread, handlers: AsyncHandlers) -> None:
        self._loop = loop
        self._handlers = handlers
        self.members: Sequence[WatchedTask] = handlers.members

    @classmethod
    def open(
        cls,
        factory: jmsql_asyncio.ConnectionFactory,
        listeners: Sequence[Listener],
        concurrency: int,
        timings: WorkerTimings,
        changed_subscriptions: SubscriptionChange,
    ) -> Self:
        """Connect; arguments and errors are those of `HandlersInThreads.open`."""
        from jmsql.worker.handlers._async.handlers import Handlers as AsyncHandlers

        loop = _EventLoopThread()
        loop.start()
        try:
            opening = AsyncHandlers.open(factory, listeners, concurrency, timings, changed_subscriptions)
            return cls(loop, loop.submit(opening).result())
        except BaseException:
            loop.end()
            raise

    def start(self) -> None:
        """Handle messages from now on."""
        self._loop.submit(self._handlers.start()).result()

    def end(self, drain_timeout: float) -> Future[int]:
        """Begin to end, and return how many handlers have not finished `drain_timeout` seconds later."""
        ended = self._loop.submit(self._handlers.end(drain_timeout))
        ended.add_done_callback(lambda _: self._loop.end())
        return ended


class _EventLoopThread:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop: Future[asyncio.AbstractEventLoop] = Future()
        self._ended: asyncio.Event

    def start(self) -> None:
        _in_daemon_thread(lambda: asyncio.run(self._run()), "handlers")

    async def _run(self) -> None:
        self._ended = asyncio.Event()
        self._loop.set_result(asyncio.get_running_loop())
        await self._ended.wait()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop.result())

    def end(self) -> None:
        self._loop.result().call_soon_threadsafe(self._ended.set)


def _in_daemon_thread(function: Callable[[], T], name: str) -> Future[T]:
    """Call what may never return, without keeping the process alive."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def synchronous(
    factory: ConnectionFactory | jmsql_asyncio.ConnectionFactory | None,
) -> ConnectionFactory:
    """Return the factory, for threads."""
    return factory if isinstance(factory, ConnectionFactory) else ConnectionFactory(**_values(factory))


def asynchronous(
    factory: ConnectionFactory | jmsql_asyncio.ConnectionFactory | None,
) -> jmsql_asyncio.ConnectionFactory:
    """Return the factory, for asyncio."""
    from jmsql.client._async.connection import factory as asyncio_factory

    kind = asyncio_factory.ConnectionFactory
    return factory if isinstance(factory, kind) else kind(**_values(factory))


def _values(factory: ConnectionFactory | jmsql_asyncio.ConnectionFactory | None) -> dict[str, Any]:
    return {} if factory is None else {field.name: getattr(factory, field.name) for field in fields(factory)}
