"""The tasks that handle the messages of an application's listeners."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Self

from jmsql.client._async.connection.connection import Connection
from jmsql.client._async.connection.factory import ConnectionFactory
from jmsql.concurrency import ASYNC
from jmsql.concurrency.tasks import Lock, Notifications
from jmsql.exceptions import IllegalStateException
from jmsql.store.destinations.subscriptions import ChangeRefusedException, SubscriptionChange
from jmsql.worker.handlers._async.handler_task import HandlerTask
from jmsql.worker.handlers.listener import Listener, way_out
from jmsql.worker.timings import WorkerTimings

__all__ = ["Handlers"]

logger = logging.getLogger("jmsql.worker")


class Handlers:
    """Handles the messages of listeners, on a connection of its own.

    Args:
        connection: The connection.
        timings: The intervals and time-outs.
    """

    def __init__(self, connection: Connection, timings: WorkerTimings) -> None:
        self._connection = connection
        self._timings = timings
        self._ended = Notifications()
        self.members: list[HandlerTask] = []
        """Each handles one message at a time."""

    @classmethod
    async def open(
        cls,
        factory: ConnectionFactory,
        listeners: Sequence[Listener],
        concurrency: int,
        timings: WorkerTimings,
        changed_subscriptions: SubscriptionChange,
    ) -> Self:
        """Connect, and make the consumers.

        Args:
            factory: Makes the connection.
            listeners: The listeners.
            concurrency: How many messages of each are handled at a time, unless it says so itself.
            timings: The intervals and time-outs.
            changed_subscriptions: What happens to durable subscriptions that listeners want with another selector.

        Raises:
            JMSException: The server cannot be reached, or refuses; or a durable subscription has another topic or
                selector, and is not changed.
        """
        connection = await factory.create_connection()
        handlers = cls(connection, timings)
        try:
            for listener in listeners:
                turn = Lock()
                for number in range(1, (listener.concurrency or concurrency) + 1):
                    task = await handlers._open_task(listener, number, turn, changed_subscriptions)
                    handlers.members.append(task)
        except BaseException:
            await connection.close()
            raise
        return handlers

    async def _open_task(
        self, listener: Listener, number: int, turn: Lock, changed_subscriptions: SubscriptionChange
    ) -> HandlerTask:
        try:
            return await HandlerTask.open(
                self._connection, listener, number, self._timings, changed_subscriptions, turn, self._ended.notify
            )
        except ChangeRefusedException as error:
            raise IllegalStateException(f"{listener}: {error} {way_out(error, listener)}") from error

    async def start(self) -> None:
        """Handle messages until `end`."""
        for task in self.members:
            task.start()
        await self._connection.start()

    async def end(self, drain_timeout: float) -> int:
        """Take no more messages, let the handlers that run finish until the deadline, and close the connection.

        Args:
            drain_timeout: How many seconds they have. What runs then is interrupted and rolled back.

        Returns:
            How many have not finished.
        """
        deadline = time.monotonic() + drain_timeout
        await self._connection.stop()
        for task in self.members:
            await task.stop()
        logger.debug("%d handlers finish what they have begun.", len(self.members))
        left = await self._wait_until(deadline)
        for task in left:
            logger.warning(
                "%s has not finished within %g s; its transaction is rolled back, and the message is delivered again.",
                task.listener,
                drain_timeout,
                extra={"listener": task.listener.name, "destination": str(task.listener.destination)},
            )
            await task.interrupt()
        if ASYNC:
            await self._wait_until(time.monotonic() + self._timings.cancel_timeout)
        await self._connection.close()
        return len(left)

    async def close(self) -> None:
        """Close the connection of handlers that were not started."""
        await self._connection.close()

    async def _wait_until(self, deadline: float) -> list[HandlerTask]:
        """Wait until all have ended, or the deadline; return those that have not."""
        while True:
            news = self._ended.count
            running = [task for task in self.members if not task.has_ended]
            remaining = deadline - time.monotonic()
            if not running or remaining <= 0:
                return running
            await self._ended.wait(news, remaining)
