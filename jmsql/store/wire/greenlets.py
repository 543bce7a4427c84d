"""Drivers of asyncio for code that does not await, inside SQLAlchemy's `run_sync`.

SQLAlchemy runs such code in a greenlet, and awaits on its behalf.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from sqlalchemy.util import await_only

from jmsql.concurrency import tasks, threads
from jmsql.store.statement import Result
from jmsql.store.wire._async.runner import PsycopgRunner
from jmsql.store.wire._async.runner import Runner as AsyncRunner
from jmsql.store.wire._sync.runner import Runner

# The application uses asyncio, and SQLAlchemy's `run_sync` runs code that does not await in a greenlet. jmsql's client
# for threads runs there, on the application's connection. Each statement switches to the event loop, and back with its
# result; other tasks run meanwhile. All of it is one task, so a cancellation could reach it in the middle of a
# statement. `run_to_completion` defers it, as in the client for asyncio.


class GreenletRunner(Runner):
    """Runs statements with a runner of asyncio."""

    __slots__ = ("_runner",)

    def __init__(self, runner: AsyncRunner) -> None:
        super().__init__(runner.schema)
        self._runner = runner

    @property
    def is_idle(self) -> bool:
        return self._runner.is_idle

    @property
    def role(self) -> str | None:
        return self._runner.role

    def execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        await_only(self._runner.wait_for_others())
        return await_only(tasks.run_to_completion(self._runner.execute(statement, parameters)))

    def copy(self, statement: bytes, data: bytes) -> Result:
        await_only(self._runner.wait_for_others())
        return await_only(tasks.run_to_completion(self._runner.copy(statement, data)))

    def sleep(self, seconds: float) -> None:
        await_only(self._runner.sleep(seconds))


def runner(driver_connection: Any, driver: str, schema: str) -> Runner | None:
    """Return a runner for an asyncio driver's connection; None if jmsql does not know the driver."""
    if isinstance(driver_connection, psycopg.AsyncConnection):
        return GreenletRunner(PsycopgRunner(driver_connection, schema))
    if driver == "asyncpg":
        from jmsql.store.wire.asyncpg_runner import AsyncpgRunner

        return GreenletRunner(AsyncpgRunner(driver_connection, schema))
    return None


class GreenletNotifications(threads.Notifications):
    """Wakes a greenlet that waits, while the event loop runs other tasks."""

    def __init__(self) -> None:
        super().__init__()
        self._tasks = tasks.Notifications()

    def notify(self) -> None:
        self.count += 1
        self._tasks.notify()

    def wait(self, count: int, timeout: float | None) -> None:
        if self.count == count:
            await_only(self._tasks.wait(self._tasks.count, timeout))
