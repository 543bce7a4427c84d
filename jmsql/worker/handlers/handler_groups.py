"""The handlers of a process: blocking ones in threads, coroutine functions in an event loop; and their progress."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from jmsql.client._sync.connection.factory import ConnectionFactory
from jmsql.concurrency.threads import start_thread
from jmsql.exceptions import JMSException
from jmsql.logs import contained_logger
from jmsql.store.control.counters import Counts
from jmsql.values.clock import monotonic
from jmsql.worker.handlers._sync.handlers import Handlers
from jmsql.worker.handlers.listener import Handling, Listener
from jmsql.worker.limits import MessageQuota
from jmsql.worker.reports import HandlerCounters, Progress
from jmsql.worker.settings import HandlerSettings

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from jmsql import asyncio as jmsql_asyncio
    from jmsql.worker.handlers._async.handlers import Handlers as AsyncHandlers


logger = contained_logger("jmsql.worker")


# The process's first thread supervises, and must never wait for a handler. So blocking handlers run in daemon threads,
# coroutine functions in an event loop that has a thread of its own, and everything that may block (ending a handler,
# stopping, closing) is started in another daemon thread, with a Future for its result. Such a thread may never return;
# the process ends without it (`CUT_OFF`).
#
# A watcher reads the tasks' fields without a lock: each is replaced as a whole, by the task or by the thread that ends
# its overdue handler, and a call that has just ended is at worst taken for one that runs. `supervise` may find the same
# overdue handler several times; `Deadline.expire` lets one of them act.


class WatchedTask(Protocol):
    """A thread or task that calls the handler of a listener."""

    listener: Listener
    counters: HandlerCounters
    has_ended: bool
    is_lost: bool
    """True while its handler runs on after its time-out, and another task has taken its place."""
    failure: BaseException | None
    """Why it takes no more messages, if that was not wanted."""

    @property
    def can_receive(self) -> bool:
        """True unless the server is lost, or refuses its messages."""

    @property
    def handling(self) -> Handling | None:
        """The call that runs, if one does."""

    @property
    def has_open_transaction(self) -> bool:
        """True if a transaction is open at the server in which its handler works; read from any thread."""

    def end_overdue(self, handling: Handling) -> None:
        """End a handler that has taken too long. It may take some seconds, and be called again meanwhile."""


class HandlerWatch:
    """Watches the threads and tasks that call handlers, from any thread.

    Args:
        tasks: Returns the threads and tasks.
        warn_transaction_after: Seconds after which the log names a handler that holds a transaction open.
    """

    def __init__(self, tasks: Callable[[], Sequence[WatchedTask]], warn_transaction_after: float) -> None:
        self._find_tasks = tasks
        self._warn_transaction_after = warn_transaction_after
        # `supervise` alone writes both, and drops calls that have ended.
        self._open_since: dict[Handling, float] = {}
        """When the transaction of a call was first seen open. A handler that uses no database has none."""
        self._named: set[Handling] = set()
        """Calls whose long transactions were named in the log."""

    @property
    def _tasks(self) -> Sequence[WatchedTask]:
        return self._find_tasks()

    @property
    def have_ended(self) -> bool:
        """True if none of them runs."""
        return all(task.has_ended for task in self._tasks)

    @property
    def is_whole(self) -> bool:
        """True if all of them run."""
        return not any(task.has_ended and not task.is_lost for task in self._tasks)

    @property
    def failure(self) -> JMSException | None:
        """The error to raise because one of them unexpectedly takes no more messages; None: all do."""
        for task in self._tasks:
            if task.failure is not None:
                error = JMSException(f"{task.listener} takes no more messages: {task.failure!r}")
                error.__cause__ = task.failure
                return error
        return None

    def supervise(self) -> None:
        """Warn of handlers that hold a transaction for long, once of each call, and end those that are overdue."""
        now = monotonic()
        calls = [(task, handling) for task in self._tasks if (handling := task.handling) is not None]
        in_transaction = {handling for task, handling in calls if task.has_open_transaction}
        self._open_since = {handling: self._open_since.get(handling, now) for handling in in_transaction}
        for task, handling in calls:
            seconds = now - self._open_since.get(handling, now)
            if handling in in_transaction and handling not in self._named and seconds >= self._warn_transaction_after:
                self._named.add(handling)
                self._warn(task, handling, seconds)
            is_running = not (task.has_ended or task.is_lost)
            if handling.deadline is not None and handling.deadline.overdue(now) > 0 and is_running:
                _in_daemon_thread(partial(task.end_overdue, handling), "end of an overdue handler")
        self._named.intersection_update([handling for _, handling in calls])

    def _warn(self, task: WatchedTask, handling: Handling, seconds: float) -> None:
        task.counters.long_transactions += 1
        logger.warning(
            "%s has held a transaction open for %.0f s, for the message %s. That keeps its locks, and vacuum from its "
            "work; do what takes long elsewhere, or register the handler with transacted=False.",
            task.listener,
            seconds,
            handling.message_id,
            extra={
                "listener": task.listener.name,
                "destination": str(task.listener.destination),
                "message_id": handling.message_id,
                "seconds": round(seconds, 6),
            },
        )

    def name_unfinished(self) -> None:
        """Warn of handlers that are abandoned: their connections cannot be closed in order."""
        for task in self._tasks:
            if task.handling is not None:
                logger.warning(
                    "%s has not finished, and does not let the process end in order; its message is delivered again.",
                    task.listener,
                    extra={"listener": task.listener.name, "destination": str(task.listener.destination)},
                )

    def progress(self, destination_counters: Mapping[str, Counts]) -> Progress:
        """Return the report for the supervisor.

        Args:
            destination_counters: The process's sent and received messages, if the worker counts them.
        """
        handler_counters: dict[str, HandlerCounters] = {}
        for task in {id(each.counters): each for each in self._tasks}.values():  # a lost one shares its successor's
            handler_counters.setdefault(task.listener.name, HandlerCounters()).add(task.counters)
        now = monotonic()
        running = [handling for task in self._tasks if (handling := task.handling) is not None]
        open_since = self._open_since
        longest = max((now - open_since.get(handling, now) for handling in running), default=0.0)
        can_receive = all(task.can_receive for task in self._tasks)
        return Progress(len(running), longest, handler_counters, destination_counters, can_receive=can_receive)


T = TypeVar("T")


class HandlerGroup(Protocol):
    """Handlers of one kind, as the thread sees them that supervises the process."""

    @property
    def members(self) -> Sequence[WatchedTask]:
        """Their callers."""

    def start(self) -> None:
        """Handle messages from now on."""

    def close(self) -> None:
        """Close the connection of handlers that were not started."""

    def stop_receiving(self) -> Future[None]:
        """Begin to take no more messages."""

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
        settings: HandlerSettings,
        quota: MessageQuota | None = None,
    ) -> Self:
        """Connect; for arguments and errors, see `Handlers.open`."""
        return cls(Handlers.open(factory, listeners, settings, quota))

    def start(self) -> None:
        """Handle messages from now on."""
        self._handlers.start()

    def close(self) -> None:
        """Close the connection of handlers that were not started."""
        self._handlers.close()

    def stop_receiving(self) -> Future[None]:
        """Begin to take no more messages."""
        return _in_daemon_thread(self._handlers.stop_receiving, "stop of the handlers")

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
        settings: HandlerSettings,
        quota: MessageQuota | None = None,
    ) -> Self:
        """Connect; for arguments and errors, see `Handlers.open`."""
        from jmsql.worker.handlers._async.handlers import Handlers as AsyncHandlers

        loop = _EventLoopThread()
        loop.start()
        try:
            return cls(loop, loop.submit(AsyncHandlers.open(factory, listeners, settings, quota)).result())
        except BaseException:
            loop.end()
            raise

    def start(self) -> None:
        """Handle messages from now on."""
        self._loop.submit(self._handlers.start()).result()

    def close(self) -> None:
        """Close the connection of handlers that were not started."""
        self._loop.submit(self._handlers.close()).result()
        self._loop.end()

    def stop_receiving(self) -> Future[None]:
        """Begin to take no more messages."""
        return self._loop.submit(self._handlers.stop_receiving())

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
    """Call a function that may never return, without keeping the process alive."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            future.set_exception(error)

    start_thread(threading.Thread(target=run, name=name, daemon=True))
    return future


def synchronous(factory: ConnectionFactory | jmsql_asyncio.ConnectionFactory | None) -> ConnectionFactory:
    """Return the factory, for threads."""
    return (
        factory if isinstance(factory, ConnectionFactory) else ConnectionFactory(**_values(factory, ConnectionFactory))
    )


def asynchronous(
    factory: ConnectionFactory | jmsql_asyncio.ConnectionFactory | None,
) -> jmsql_asyncio.ConnectionFactory:
    """Return the factory, for asyncio."""
    from jmsql.client._async.connection import factory as asyncio_factory

    kind = asyncio_factory.ConnectionFactory
    return factory if isinstance(factory, kind) else kind(**_values(factory, kind))


def _values(
    factory: ConnectionFactory | jmsql_asyncio.ConnectionFactory | None,
    kind: type[ConnectionFactory | jmsql_asyncio.ConnectionFactory],
) -> dict[str, Any]:
    """Return the settings for a factory of the other kind; a factory for threads has no `max_connections`."""
    names = {field.name for field in fields(kind)}
    return {} if factory is None else {name: getattr(factory, name) for name in names if hasattr(factory, name)}
