"""Joining the caller's own transaction."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import psycopg
import sqlalchemy

from jmsql.client._sync.connection.context import JMSContext
from jmsql.client._sync.session.enlisted_session import EnlistedSession
from jmsql.client._sync.session.transactions.caller import (
    CallerTransaction,
    ConnectionTransaction,
    PsycopgTransaction,
    SessionTransaction,
)
from jmsql.client.django_statements import DjangoTransaction
from jmsql.client.transaction_of_caller import DJANGO_IN_COROUTINE, kind_of, remember_enlisted
from jmsql.exceptions import IllegalStateException
from jmsql.public_names import set_module
from jmsql.store.errors import translate
from jmsql.timings import Timings, complete

if TYPE_CHECKING:
    from sqlalchemy import orm

    from jmsql.client._sync.shared.endings import Endings


# `caller_transaction` recognises a transaction by the classes of libraries that the application has imported. A library
# that is not among `sys.modules` cannot have made the object, and is not imported for the question.


class DjangoConnection(Protocol):
    """Django's `connection`, which connects when it is first used."""

    connection: Any

    def ensure_connection(self) -> None:
        """Connect, unless it is connected."""

    def close_if_health_check_failed(self) -> None:
        """Close a connection that does not answer, if a check is due."""


if TYPE_CHECKING:
    Enlistable: TypeAlias = (
        orm.Session | orm.scoped_session[Any] | sqlalchemy.Connection | psycopg.Connection[Any] | DjangoConnection
    )


@set_module("jmsql")
def enlist(
    transaction: Enlistable,
    *,
    schema: str = "jmsql",
    timings: Timings = Timings(),
) -> JMSContext:
    """Send and receive inside the caller's own transaction: its commit makes it happen, its rollback undoes it.

    jmsql never commits, rolls back or retries the transaction. It ends only a transaction that it has begun itself to
    look at a queue, and in which it has found nothing. Messages that are rolled back do not count as delivered before.

    Args:
        transaction: A SQLAlchemy `Session`, `scoped_session` or `Connection`, a psycopg `Connection`, or Django's
            `connection`. Connections that are awaited are for [`jmsql.asyncio.enlist`][jmsql.asyncio.enlist]. Of a
            `scoped_session` it joins the session of the moment, and raises IllegalStateException once that was removed.
        schema: The PostgreSQL schema of jmsql's tables.
        timings: How often it polls while it waits for a message, and how often it notifies other clients.

    Returns:
        A context whose sends and receives are part of the transaction.

    Raises:
        TypeError: It is none of these.
        IllegalStateException: It is Django's connection, and the caller a coroutine function.
    """
    joined = caller_transaction(transaction)
    remember_enlisted(transaction, _is_open)
    return JMSContext(EnlistedSession(joined, schema, complete(timings)))


def endings_of_caller(transaction: Enlistable, schema: str) -> Endings:
    """Return the reader of messages' ends, in a transaction that `enlist` takes.

    Raises:
        TypeError: It is none of these.
        IllegalStateException: It is Django's connection, and the caller a coroutine function.
    """
    return EnlistedSession(caller_transaction(transaction), schema, complete(Timings())).endings()


def _is_open(transaction: object) -> bool:
    if hasattr(transaction, "ensure_connection") and cast("DjangoConnection", transaction).connection is None:
        return False  # Django has closed it, and to join it would open it again
    return caller_transaction(transaction).is_open


def _connected(connection: DjangoConnection) -> object:
    """Return the driver's connection of a Django connection."""
    try:
        # Django's cursors do both. A check is due once in a request, with CONN_HEALTH_CHECKS.
        connection.close_if_health_check_failed()
        connection.ensure_connection()
    except Exception as error:
        if type(error).__name__ == "SynchronousOnlyOperation":  # of Django, which this package does not import
            raise IllegalStateException(DJANGO_IN_COROUTINE) from error
        if isinstance(error.__cause__, psycopg.Error):
            raise translate(error.__cause__, "joining the transaction") from error.__cause__
        raise
    return connection.connection


def caller_transaction(transaction: object) -> CallerTransaction:
    """Return how a session joins a transaction.

    Raises:
        TypeError: It is none of these.
    """
    if "sqlalchemy.orm" in sys.modules:  # the application has no objects of modules that it has not imported
        from sqlalchemy import orm

        if isinstance(transaction, orm.scoped_session):
            return SessionTransaction(transaction(), transaction.registry)
        if isinstance(transaction, orm.Session):
            return SessionTransaction(transaction)
    if isinstance(transaction, sqlalchemy.Connection):
        return ConnectionTransaction(transaction)
    # Not by `isinstance`: Django's `connection` is a proxy, whose attributes it does not see from Python 3.12 on.
    if hasattr(transaction, "ensure_connection"):
        driver_connection = _connected(cast("DjangoConnection", transaction))
        if isinstance(driver_connection, psycopg.Connection):
            return DjangoTransaction(transaction, driver_connection)
        transaction = driver_connection
    if isinstance(transaction, psycopg.Connection):
        return PsycopgTransaction(transaction)
    if isinstance(transaction, sqlalchemy.Engine):
        raise TypeError("An Engine has no transaction to join; its connections have: `with engine.begin() as …`.")
    raise TypeError(
        "jmsql.enlist joins a SQLAlchemy Session or Connection, a psycopg 3 connection, or Django's connection, and "
        f"jmsql.send takes jmsql's own connections, sessions and contexts, too, but not {kind_of(transaction)}. "
        "For an asynchronous one, use jmsql.asyncio."
    )
