"""Handlers in the process and the event loop of an application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Self

from jmsql.logs import contained_logger
from jmsql.worker.competition import warn_of_competition
from jmsql.worker.handlers._async.handlers import Handlers
from jmsql.worker.handlers.handler_groups import HandlersInThreads, HandlerWatch, asynchronous, synchronous
from jmsql.worker.handlers.listener import Listener
from jmsql.worker.logs import enable_loggers
from jmsql.worker.metrics import handler_collector
from jmsql.worker.settings import HandlerSettings

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from jmsql.client._async.connection.factory import ConnectionFactory as AsyncConnectionFactory
    from jmsql.client._sync.connection.factory import ConnectionFactory


logger = contained_logger("jmsql.worker")


# In an application's own process nothing can be replaced: a thread that is lost, or a listener that takes no more
# messages, ends the block of `running` with the error, and the application decides.
#
# The watcher is a task of the same event loop. It ends the block by cancelling the task that has entered it, and takes
# the cancellation back (`uncancel`) when that has arrived, unless another one was requested as well: then the task was
# to be cancelled in any case.


class Running:
    """Handles messages until `end`: coroutine functions in the event loop, other handlers in threads."""

    def __init__(
        self, handlers: Handlers | None, in_threads: HandlersInThreads | None, settings: HandlerSettings
    ) -> None:
        self._handlers = handlers
        self._in_threads = in_threads
        self._drain_timeout = settings.drain_timeout
        self._timings = settings.timings
        groups = [group for group in (handlers, in_threads) if group is not None]
        self._watch = HandlerWatch(
            lambda: [task for group in groups for task in list(group.members)], settings.warn_transaction_after
        )

    @classmethod
    async def open(
        cls,
        factory: ConnectionFactory | AsyncConnectionFactory | None,
        listeners: Sequence[Listener],
        settings: HandlerSettings,
    ) -> Self:
        """Connect, and begin.

        Raises:
            JMSException: The server cannot be reached, or refuses.
        """
        enable_loggers()
        warn_of_competition(listener.facts(settings.concurrency) for listener in listeners)
        awaited = [listener for listener in listeners if listener.is_async]
        blocking = [listener for listener in listeners if not listener.is_async]
        handlers, in_threads = None, None
        if awaited:
            handlers = await Handlers.open(asynchronous(factory), awaited, settings)
        try:
            if blocking:
                opening = asyncio.to_thread(HandlersInThreads.open, synchronous(factory), blocking, settings)
                in_threads = await opening
        except BaseException:
            if handlers is not None:
                await handlers.close()
            raise
        running = cls(handlers, in_threads, settings)
        await running._start()
        return running

    async def _start(self) -> None:
        if self._handlers is not None:
            await self._handlers.start()
        if self._in_threads is not None:
            await asyncio.to_thread(self._in_threads.start)

    @contextmanager
    def measured(self, registry: CollectorRegistry) -> Iterator[None]:
        """Show the handlers' metrics in a registry while a block runs."""
        collector = handler_collector(lambda: self._watch.progress({}))
        registry.register(collector)
        try:
            yield
        finally:
            registry.unregister(collector)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Supervise the handlers while a block runs, and cancel it if one of them takes no more messages.

        Raises:
            JMSException: That has happened.
        """
        block = asyncio.current_task()
        assert block is not None
        cancelled_before = block.cancelling()
        watching = asyncio.create_task(self._look_after_handlers(), name="jmsql worker")

        def cancel(_: object) -> None:
            block.cancel()

        watching.add_done_callback(cancel)
        try:
            yield
        except asyncio.CancelledError:
            if not watching.done() or watching.cancelled() or block.uncancel() > cancelled_before:
                raise
        finally:
            watching.remove_done_callback(cancel)
            watching.cancel()
        if (failure := self._watch.failure) is not None:
            raise failure

    async def _look_after_handlers(self) -> None:
        """Return when one of them takes no more messages."""
        while self._watch.failure is None:
            self._watch.supervise()
            await asyncio.sleep(self._timings.check_interval)

    async def end(self) -> None:
        """Take no more messages, let the handlers that run finish until the deadline, and close the connections."""
        ending: list[asyncio.Future[int]] = []
        if self._handlers is not None:
            ending.append(asyncio.create_task(self._handlers.end(self._drain_timeout)))
        if self._in_threads is not None:
            ending.append(asyncio.wrap_future(self._in_threads.end(self._drain_timeout)))
        if ending:
            await asyncio.wait(ending, timeout=self._drain_timeout + self._timings.rollback_timeout)
        for ended in ending:
            if ended.done():
                ended.result()
            else:
                logger.warning(
                    "Handlers have not rolled back within %g s, and are left behind.", self._timings.rollback_timeout
                )
