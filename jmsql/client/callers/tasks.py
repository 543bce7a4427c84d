"""An application's transaction under asyncio. `threads` has the same names for threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import psycopg

from jmsql.concurrency.tasks import Notifications, in_own_task
from jmsql.store.wire._async.runner import PsycopgRunner, Runner

if TYPE_CHECKING:
    import sqlalchemy
    from sqlalchemy import orm
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.pool import PoolProxiedConnection

DRIVERS = "psycopg 3 (postgresql+psycopg://…) or asyncpg (postgresql+asyncpg://…)"
"""SQLAlchemy's drivers that jmsql supports."""


async def pooled_connection(connection: AsyncConnection) -> PoolProxiedConnection:
    """Return the connection as SQLAlchemy's pool has it."""
    return await connection.get_raw_connection()


def driver_runner(driver_connection: object, dialect: sqlalchemy.Dialect, schema: str) -> Runner | None:
    """Return a runner of statements on a driver's connection; None: jmsql does not know the driver."""
    if isinstance(driver_connection, psycopg.AsyncConnection):
        return PsycopgRunner(driver_connection, schema)
    if dialect.driver == "asyncpg":
        from jmsql.store.wire.asyncpg_runner import AsyncpgRunner

        return AsyncpgRunner(driver_connection, schema)
    return None


def notifications(dialect: Callable[[], sqlalchemy.Dialect]) -> Notifications:  # noqa: ARG001 - the same for all
    """Make the object that wakes a waiting receive."""
    return Notifications()


async def close_transaction(session: AsyncSession) -> None:
    """End a transaction. `AsyncSession.rollback` would let all that the session has loaded before expire."""

    def close(inner: orm.Session) -> None:
        transaction = inner.get_transaction()
        if transaction is not None:
            transaction.close()

    await in_own_task(session.run_sync(close))
