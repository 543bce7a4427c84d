"""Joining the caller's own transaction under asyncio."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg

from jmsql.client._async.connection.context import JMSContext
from jmsql.client._async.session.enlisted_session import EnlistedSession
from jmsql.client._async.session.transactions.caller import (
    CallerTransaction,
    ConnectionTransaction,
    PsycopgTransaction,
    SessionTransaction,
)
from jmsql.client.transaction_of_caller import DJANGO_IN_COROUTINE, kind_of, remember_enlisted
from jmsql.public_names import set_module
from jmsql.store.wire._async.runner import Runner
from jmsql.timings import Timings, complete

if TYPE_CHECKING:
    import asyncpg
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

    from jmsql.client._async.shared.endings import Endings

    Enlistable: TypeAlias = (
        AsyncSession | async_scoped_session[Any] | AsyncConnection | psycopg.AsyncConnection[Any] | asyncpg.Connection
    )


# asyncpg commits each statement by itself unless a transaction was begun, so joining begins none, and `end` has nothing
# to end. Drivers of SQLAlchemy and psycopg begin one with the first statement: see `caller.py`.


class _AsyncpgTransaction(CallerTransaction):
    """A transaction on a connection of asyncpg, where each statement commits by itself unless one was begun."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        # A pool gives each of its users another cover of the connection.
        self.connection = connection.get_settings()

    @property
    def is_open(self) -> bool:
        return bool(self._connection.is_in_transaction())

    async def runner(self, schema: str) -> Runner:
        from jmsql.store.wire.asyncpg_runner import AsyncpgRunner

        return AsyncpgRunner(self._connection, schema)

    async def end(self) -> None:
        """Do nothing: none has begun."""


@set_module("jmsql.asyncio")
def enlist(
    transaction: Enlistable,
    *,
    schema: str = "jmsql",
    timings: Timings = Timings(),
) -> JMSContext:
    """Send and receive inside the caller's own transaction: its commit makes it happen, its rollback undoes it.

    jmsql never commits, rolls back or retries the transaction. It ends only a transaction that it has begun itself to
    look at a queue, and in which it has found nothing. Messages that are rolled back do not count as delivered before.
    A send or receive that is cancelled leaves the transaction and the connection usable.

    Args:
        transaction: A SQLAlchemy `AsyncSession`, `async_scoped_session` or `AsyncConnection`, a psycopg
            `AsyncConnection`, or an asyncpg `Connection`. SQLAlchemy may use psycopg 3 or asyncpg. Connections that
            are not awaited are for [`jmsql.enlist`][jmsql.enlist].
        schema: The PostgreSQL schema of jmsql's tables.
        timings: How often it polls while it waits for a message, and how often it notifies other clients.

    Returns:
        A context whose sends and receives are awaited, and part of the transaction.

    Raises:
        TypeError: It is none of these, or an `AsyncConnection` that is not connected yet.
    """
    joined = caller_transaction(transaction)
    remember_enlisted(transaction, _is_open)
    return JMSContext(EnlistedSession(joined, schema, complete(timings)))


def endings_of_caller(transaction: Enlistable, schema: str) -> Endings:
    """Return the reader of messages' ends, in a transaction that `enlist` takes.

    Raises:
        TypeError: It is none of these.
    """
    return EnlistedSession(caller_transaction(transaction), schema, complete(Timings())).endings()


def _is_open(transaction: object) -> bool:
    return caller_transaction(transaction).is_open


def caller_transaction(transaction: object) -> CallerTransaction:
    """Return how a session joins a transaction.

    Raises:
        TypeError: It is none of these.
    """
    if "sqlalchemy.ext.asyncio" in sys.modules:  # it needs greenlet; without the import there is no object of it
        joined = _sqlalchemy_transaction(transaction)
        if joined is not None:
            return joined
    if isinstance(transaction, psycopg.AsyncConnection):
        return PsycopgTransaction(transaction)
    if "asyncpg" in sys.modules:
        import asyncpg

        if isinstance(transaction, asyncpg.Connection):
            return _AsyncpgTransaction(transaction)
    if hasattr(transaction, "ensure_connection"):
        raise TypeError(DJANGO_IN_COROUTINE)
    raise TypeError(
        "jmsql.asyncio.enlist joins an AsyncSession or AsyncConnection of SQLAlchemy, an AsyncConnection of psycopg 3, "
        "or a Connection of asyncpg, and jmsql.asyncio.send takes jmsql's own connections, sessions and contexts, too, "
        f"but not {kind_of(transaction)}. For one that is not asynchronous, use jmsql itself."
    )


def _sqlalchemy_transaction(transaction: object) -> CallerTransaction | None:
    """Return how a session joins a transaction of SQLAlchemy; None: it belongs to another library.

    Raises:
        TypeError: It is an engine, or a connection that is not open yet.
    """
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session

    if isinstance(transaction, AsyncEngine):
        raise TypeError(
            "An AsyncEngine has no transaction to join; its connections have: `async with engine.begin() as …`."
        )
    if isinstance(transaction, async_scoped_session):
        return SessionTransaction(transaction(), transaction.registry)
    if isinstance(transaction, AsyncSession):
        return SessionTransaction(transaction)
    if isinstance(transaction, AsyncConnection):
        if transaction.sync_connection is None:
            raise TypeError("The AsyncConnection is not connected yet; use it inside its `async with` block.")
        return ConnectionTransaction(transaction)
    return None
