"""A runner with a connection of its own, for those who look at the store and look after it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

import psycopg

from jmsql.concurrency import ASYNC
from jmsql.concurrency.tasks import interruptible
from jmsql.store.errors import jms_errors
from jmsql.store.runners._async.runner import PsycopgRunner
from jmsql.store.statement import Result

__all__ = ["AutocommitRunner"]


class AutocommitRunner(PsycopgRunner):
    """Runs statements each of which commits by itself. A context manager.

    Args:
        connection: The connection.
        schema: The plain name of the schema.
        close: Ends the connection, or gives it back.
        is_pooled: Whether it leads through a pooler.
        prepares: Whether statements are prepared.
        another: Connects once more to the same place.
    """

    __slots__ = ("_another", "_close", "is_pooled")

    def __init__(
        self,
        connection: psycopg.AsyncConnection[Any],
        schema: str,
        close: Callable[[], Awaitable[None]],
        *,
        is_pooled: bool,
        another: Callable[[], Awaitable[AutocommitRunner]],
        prepares: bool = True,
    ) -> None:
        super().__init__(connection, schema, prepares=prepares)
        self._close = close
        self._another = another
        self.is_pooled = is_pooled
        """Whether the connection leads through a pooler."""

    if ASYNC:

        async def execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
            work = partial(super().execute, statement, parameters)
            return await interruptible(work, self.connection.cancel_safe, psycopg.errors.QueryCanceled)

    async def open_another(self) -> AutocommitRunner:
        """Connect once more to the same place.

        Raises:
            JMSException: The database cannot be reached.
        """
        return await self._another()

    async def wait_for_notification(self, timeout: float) -> bool:
        """Tell whether a notification comes within so many seconds."""
        with jms_errors("listening for a notification"):
            async for _ in self.connection.notifies(timeout=timeout, stop_after=1):
                return True
        return False

    async def close(self) -> None:
        """End the connection, also if the server has ended it."""
        await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
