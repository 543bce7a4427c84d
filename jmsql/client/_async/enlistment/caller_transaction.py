"""The transactions that applications have open, and how a session joins them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from jmsql.concurrency import ASYNC
from jmsql.concurrency.tasks import finished
from jmsql.store.errors import is_connection_lost
from jmsql.store.runners._async.runner import PsycopgRunner, Runner
from jmsql.store.statement import Result

if TYPE_CHECKING:
    from sqlalchemy import orm
    from sqlalchemy.ext.asyncio import AsyncConnection

    if ASYNC:
        from sqlalchemy.ext.asyncio import AsyncSession


class CallerTransaction(ABC):
    """A transaction that belongs to the caller, who alone commits it or rolls it back.

    Args:
        owner: The connection or session that it is on.
    """

    def __init__(self, owner: Any) -> None:
        self.owner: object = owner

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether the caller has begun it."""

    @abstractmethod
    async def runner(self, schema: str) -> Runner:
        """Return what runs statements in the transaction, which begins with them if it is not open."""

    @abstractmethod
    async def end(self) -> None:
        """End a transaction that was not open before jmsql looked at a queue, and in which nothing else was done."""


class PsycopgTransaction(CallerTransaction):
    """A transaction on a psycopg connection.

    Args:
        connection: The connection; its row factory, cursor factory and adapters are left alone.
    """

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        super().__init__(connection)
        self._connection = connection

    @property
    def is_open(self) -> bool:
        pgconn = self._connection.pgconn
        # It is unknown where the connection is closed. In a pipeline the server may not have answered that one began.
        ended = pgconn.transaction_status in (TransactionStatus.IDLE, TransactionStatus.UNKNOWN)
        return not ended or pgconn.pipeline_status != PipelineStatus.OFF

    async def runner(self, schema: str) -> Runner:
        return PsycopgRunner(self._connection, schema)

    async def end(self) -> None:
        await self._connection.rollback()


class ConnectionTransaction(CallerTransaction):
    """A transaction on a SQLAlchemy connection."""

    def __init__(self, connection: AsyncConnection) -> None:
        super().__init__(connection)
        self._connection = connection

    @property
    def is_open(self) -> bool:
        return self._connection.in_transaction()

    async def runner(self, schema: str) -> Runner:
        if not self.is_open:
            await self._connection.begin()
        return _InvalidatingRunner(await self._driver_runner(schema), self._connection)

    async def _driver_runner(self, schema: str) -> Runner:
        if ASYNC:
            pooled = await self._connection.get_raw_connection()
        else:
            pooled = self._connection.connection
        driver_connection: Any = pooled.driver_connection
        if isinstance(driver_connection, psycopg.AsyncConnection):
            return PsycopgRunner(driver_connection, schema)
        if ASYNC:
            if self._connection.dialect.driver == "asyncpg":
                from jmsql.store.runners.asyncpg_runner import AsyncpgRunner

                runner = AsyncpgRunner(driver_connection, schema)
                dbapi_connection: Any = pooled.dbapi_connection
                if runner.is_idle and not dbapi_connection.autocommit:
                    # SQLAlchemy begins the server's transaction with its own first statement.
                    await finished(self._connection.exec_driver_sql("select 1"))
                return runner
            drivers = "psycopg 3 (postgresql+psycopg://…) or asyncpg (postgresql+asyncpg://…)"
        else:
            drivers = "psycopg 3 (postgresql+psycopg://…)"
        raise TypeError(f"jmsql needs SQLAlchemy with {drivers}, not with {self._connection.dialect.driver}.")

    async def end(self) -> None:
        await self._connection.rollback()


class SessionTransaction(CallerTransaction):
    """A transaction of a SQLAlchemy ORM session."""

    def __init__(self, session: AsyncSession) -> None:
        super().__init__(session)
        self._session = session

    @property
    def is_open(self) -> bool:
        return self._session.in_transaction()

    async def runner(self, schema: str) -> Runner:
        if not self.is_open:
            await self._session.begin()
        return await ConnectionTransaction(await self._session.connection()).runner(schema)

    async def end(self) -> None:
        if ASYNC:
            await self._session.run_sync(_close_transaction)
        else:
            _close_transaction(self._session)


def _close_transaction(session: orm.Session) -> None:
    # `Session.rollback` would let all that the session has loaded before expire.
    transaction = session.get_transaction()
    if transaction is not None:
        transaction.close()


class _InvalidatingRunner(Runner):
    """Tells SQLAlchemy when its connection is lost, so that the caller can roll back and go on as usual."""

    __slots__ = ("_connection", "_runner")

    def __init__(self, runner: Runner, connection: AsyncConnection) -> None:
        super().__init__(runner.schema)
        self._runner = runner
        self._connection = connection

    @property
    def is_idle(self) -> bool:
        return self._runner.is_idle

    async def execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        try:
            return await self._runner.execute(statement, parameters)
        except Exception as error:
            if is_connection_lost(error):
                await self._connection.invalidate(error)
            raise

    async def sleep(self, seconds: float) -> None:
        await self._runner.sleep(seconds)
