"""Joining the caller's own transaction under asyncio."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import psycopg

from jmsql.client._async.connection.context import JMSContext
from jmsql.client._async.enlistment.caller_transaction import (
    CallerTransaction,
    ConnectionTransaction,
    PsycopgTransaction,
    SessionTransaction,
)
from jmsql.client._async.enlistment.enlisted_session import EnlistedSession
from jmsql.public_names import set_module
from jmsql.timings import Timings

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

__all__ = ["enlist"]


@set_module("jmsql.asyncio")
def enlist(
    transaction: AsyncSession | async_scoped_session[Any] | AsyncConnection | psycopg.AsyncConnection[Any],
    *,
    schema: str = "jmsql",
    timings: Timings = Timings(),
) -> JMSContext:
    """Send and receive inside the caller's own transaction: its commit makes it happen, its rollback undoes it.

    jmsql never commits, rolls back or retries what you do here. It ends only a transaction that it has begun itself to
    look at a queue, and in which it has found nothing. Messages that are rolled back do not count as delivered before.
    A send or receive that is cancelled leaves the transaction and the connection usable.

    Args:
        transaction: A SQLAlchemy `AsyncSession`, `async_scoped_session` or `AsyncConnection`, or a psycopg
            `AsyncConnection`. For what is not awaited there is [`jmsql.enlist`][jmsql.enlist].
        schema: The PostgreSQL schema of jmsql's tables.
        timings: How often it polls while it waits for a message, and how often it notifies other clients.

    Returns:
        A context whose sends and receives are awaited, and part of the transaction.

    Raises:
        TypeError: It is none of these, or an `AsyncConnection` that is not connected yet.
    """
    return JMSContext(EnlistedSession(_caller_transaction(transaction), schema, timings))


def _caller_transaction(transaction: object) -> CallerTransaction:
    if "sqlalchemy.ext.asyncio" in sys.modules:  # it needs greenlet, and who has not imported it, has no object of it
        from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

        if isinstance(transaction, async_scoped_session):
            transaction = transaction()
        if isinstance(transaction, AsyncSession):
            return SessionTransaction(transaction)
        if isinstance(transaction, AsyncConnection):
            if transaction.sync_connection is None:
                raise TypeError("The AsyncConnection is not connected yet; use it inside its `async with` block.")
            return ConnectionTransaction(transaction)
    if isinstance(transaction, psycopg.AsyncConnection):
        return PsycopgTransaction(transaction)
    raise TypeError(
        "jmsql.asyncio.enlist joins an AsyncSession or AsyncConnection of SQLAlchemy, or a psycopg 3 connection "
        f"(AsyncConnection), not {type(transaction).__qualname__}. Those that are not awaited, use with jmsql.enlist."
    )
