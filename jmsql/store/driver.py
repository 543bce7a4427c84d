"""Running a statement on a connection: the one place where the store meets a driver."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Protocol

import psycopg
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.rows import tuple_row
from sqlalchemy.util import await_only

from jmsql.store.statement import Result

__all__ = ["AsyncDriver", "Driver", "PsycopgDriver", "driver_for"]


class Driver(Protocol):
    """Runs statements on one connection, in whatever transaction it is in."""

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open."""

    def execute(self, statement: str | bytes, parameters: Mapping[str, Any] | None = None) -> Result:
        """Prepare a statement, unless it is, and run it."""

    def sleep(self, seconds: float) -> None:
        """Let time pass, without holding up others."""


class PsycopgDriver:
    """Statements on a psycopg connection.

    Args:
        connection: The connection; its row factory, cursor factory and adapters are left alone.
        prepares: Whether statements are prepared, which takes a round trip more the first time.
    """

    def __init__(self, connection: psycopg.Connection[Any], *, prepares: bool = True) -> None:
        self.connection = connection
        self._prepares = prepares

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open."""
        return self.connection.pgconn.transaction_status == TransactionStatus.IDLE

    def execute(self, statement: str | bytes, parameters: Mapping[str, Any] | None = None) -> Result:
        """Prepare a statement, unless it is, and run it."""
        cursor = psycopg.Cursor(self.connection, row_factory=tuple_row)
        cursor.execute(_encoded(statement), parameters, prepare=self._prepares, binary=True)
        # Not `cursor.description`, which is made again each time, at more cost than many a statement.
        result = cursor.pgresult
        if result is not None:
            return Result(cursor.fetchall() if result.nfields else [], cursor.rowcount)
        try:  # in a pipeline there is no result before it is fetched
            return Result(cursor.fetchall(), cursor.rowcount)
        except psycopg.ProgrammingError:
            _require_no_rows(cursor)
            return Result([], cursor.rowcount)

    def sleep(self, seconds: float) -> None:
        """Let time pass; other threads go on."""
        time.sleep(seconds)


class AsyncDriver:
    """Statements on an asynchronous psycopg connection, for synchronous code that SQLAlchemy runs in a greenlet.

    Args:
        connection: The connection; its row factory, cursor factory and adapters are left alone.
    """

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self.connection = connection

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open."""
        return self.connection.pgconn.transaction_status == TransactionStatus.IDLE

    def execute(self, statement: str | bytes, parameters: Mapping[str, Any] | None = None) -> Result:
        """Prepare a statement, unless it is, and run it."""

        async def run() -> Result:
            async with psycopg.AsyncCursor(self.connection, row_factory=tuple_row) as cursor:
                await cursor.execute(_encoded(statement), parameters, prepare=True, binary=True)
                try:
                    return Result(await cursor.fetchall(), cursor.rowcount)
                except psycopg.ProgrammingError:
                    _require_no_rows(cursor)
                    return Result([], cursor.rowcount)

        return await_only(run())

    def sleep(self, seconds: float) -> None:
        """Let time pass; other tasks go on."""
        await_only(asyncio.sleep(seconds))


def _encoded(statement: str | bytes) -> bytes:
    return statement if isinstance(statement, bytes) else statement.encode()


def _require_no_rows(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> None:
    """Raise the error that is being handled again, unless it says that the statement returns no rows."""
    if cursor.pgresult is None or cursor.pgresult.status != ExecStatus.COMMAND_OK:
        raise  # noqa: PLE0704 - called while it is handled


def driver_for(connection: object) -> Driver | None:
    """Return the driver for a psycopg connection, or None for anything else."""
    if isinstance(connection, psycopg.Connection):
        return PsycopgDriver(connection)
    if isinstance(connection, psycopg.AsyncConnection):
        return AsyncDriver(connection)
    return None
