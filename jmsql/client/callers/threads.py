"""An application's transaction for threads. `tasks` has the same names for asyncio."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import psycopg

from jmsql.concurrency.threads import Notifications
from jmsql.store.wire._sync.runner import PsycopgRunner, Runner

if TYPE_CHECKING:
    import sqlalchemy
    from sqlalchemy import orm
    from sqlalchemy.pool import PoolProxiedConnection

# An application under asyncio may call code that does not await, inside SQLAlchemy's `run_sync`. Its connections then
# belong to asyncio's drivers, and statements run from a greenlet.

DRIVERS = "psycopg 3 (postgresql+psycopg://…)"
"""SQLAlchemy's drivers that jmsql supports."""


def pooled_connection(connection: sqlalchemy.Connection) -> PoolProxiedConnection:
    """Return the connection as SQLAlchemy's pool has it."""
    return connection.connection


def driver_runner(driver_connection: object, dialect: sqlalchemy.Dialect, schema: str) -> Runner | None:
    """Return a runner of statements on a driver's connection; None: jmsql does not know the driver."""
    if isinstance(driver_connection, psycopg.Connection):
        return PsycopgRunner(driver_connection, schema)
    if dialect.is_async:
        from jmsql.store.wire import greenlets

        return greenlets.runner(driver_connection, dialect.driver, schema)
    return None


def notifications(dialect: Callable[[], sqlalchemy.Dialect]) -> Notifications:
    """Make the object that wakes a waiting receive."""
    if not dialect().is_async:
        return Notifications()
    from jmsql.store.wire import greenlets

    return greenlets.GreenletNotifications()


def close_transaction(session: orm.Session) -> None:
    """End a transaction. `Session.rollback` would let all that the session has loaded before expire."""
    transaction = session.get_transaction()
    if transaction is not None:
        transaction.close()
