"""Joining the caller's own transaction."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, overload, runtime_checkable
from weakref import WeakKeyDictionary

import psycopg
import sqlalchemy
from sqlalchemy import event

from jmsql.client._sync.connection.context import JMSContext
from jmsql.client.enlistment.async_context import AsyncJMSConsumer, AsyncJMSContext, AsyncJMSProducer
from jmsql.client.enlistment.enlisted_session import CallerTransaction, EnlistedSession
from jmsql.client.enlistment.greenlet_runner import GreenletRunner
from jmsql.exceptions import IllegalStateException
from jmsql.public_names import set_module
from jmsql.store._sync.runner import PsycopgRunner, Runner
from jmsql.store.errors import is_connection_lost
from jmsql.store.statement import Result
from jmsql.timings import Timings

if TYPE_CHECKING:
    from sqlalchemy import orm
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

__all__ = ["AsyncJMSConsumer", "AsyncJMSContext", "AsyncJMSProducer", "enlist"]


@runtime_checkable
class DjangoConnection(Protocol):
    """Django's `connection`, which connects when it is first used."""

    connection: Any

    def ensure_connection(self) -> None:
        """Connect, unless it is connected."""


class _PsycopgTransaction(CallerTransaction):
    """A transaction on a psycopg connection."""

    def __init__(self, connection: object) -> None:
        if not isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
            raise TypeError(f"jmsql needs a psycopg 3 connection to PostgreSQL, not {type(connection).__qualname__}.")
        self._connection = connection

    def runner(self, schema: str) -> Runner:
        if isinstance(self._connection, psycopg.AsyncConnection):
            return GreenletRunner(self._connection, schema)
        return PsycopgRunner(self._connection, schema)


class _InvalidatingRunner(Runner):
    """Tells SQLAlchemy when its connection is lost, so that the caller can roll back and go on as usual."""

    __slots__ = ("_connection", "_runner")

    def __init__(self, runner: Runner, connection: sqlalchemy.Connection) -> None:
        super().__init__(runner.schema)
        self._runner = runner
        self._connection = connection

    @property
    def is_idle(self) -> bool:
        return self._runner.is_idle

    def execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        try:
            return self._runner.execute(statement, parameters)
        except psycopg.Error as error:
            if is_connection_lost(error):
                self._connection.invalidate(error)
            raise

    def sleep(self, seconds: float) -> None:
        self._runner.sleep(seconds)


class _ConnectionTransaction(CallerTransaction):
    """A transaction on a SQLAlchemy connection."""

    def __init__(self, connection: sqlalchemy.Connection, *, buffers: bool = False) -> None:
        self._connection = connection
        self.buffers = buffers

    def begin(self) -> None:
        if not self._connection.in_transaction():
            self._connection.begin()
        if self.buffers:
            _refuse_autocommit(self._connection)

    def runner(self, schema: str) -> Runner:
        self.begin()
        joined = _PsycopgTransaction(self._connection.connection.driver_connection)
        return _InvalidatingRunner(joined.runner(schema), self._connection)


class _SessionTransaction(CallerTransaction):
    """A transaction of a SQLAlchemy ORM session."""

    def __init__(self, session: orm.Session, *, buffers: bool = False) -> None:
        self._session = session
        self.buffers = buffers

    def begin(self) -> None:
        if not self._session.in_transaction():
            self._session.begin()
        if self.buffers:
            for connection in _connections_of(self._session):
                _refuse_autocommit(connection)

    def runner(self, schema: str) -> Runner:
        return _ConnectionTransaction(self._session.connection(), buffers=self.buffers).runner(schema)


def _connections_of(session: orm.Session) -> list[sqlalchemy.Connection]:
    """Return the connections that a session's transaction has so far; to ask for one could make it connect."""
    transaction = session.get_transaction()
    if transaction is None:
        return []
    found = transaction._connections  # noqa: SLF001 - SQLAlchemy tells of them publicly since 2.1.7 alone
    return [connection for connection, *_ in set(found.values())]


def _refuse_autocommit(connection: sqlalchemy.Connection) -> None:
    """Refuse to let messages wait for a commit that makes no difference to the rows, and perhaps never comes.

    Raises:
        IllegalStateException: The connection is in autocommit mode.
    """
    if not connection.invalidated and getattr(connection.connection.driver_connection, "autocommit", False):
        raise IllegalStateException(
            "The connection's isolation level is AUTOCOMMIT: its rows do not wait for a commit, as messages do that "
            "are sent through an AsyncSession or AsyncConnection. Leave AUTOCOMMIT out, or enlist a psycopg "
            "AsyncConnection, which sends each message at once."
        )


# By schema and timings: one session for each object of the caller's that waits for its commit, so that messages keep
# their order.
_buffering: WeakKeyDictionary[object, dict[tuple[str, Timings], EnlistedSession]] = WeakKeyDictionary()


@overload
def enlist(
    transaction: psycopg.AsyncConnection[Any], *, schema: str = "jmsql", timings: Timings = Timings()
) -> AsyncJMSContext: ...
@overload
def enlist(
    transaction: orm.Session
    | orm.scoped_session[Any]
    | AsyncSession
    | sqlalchemy.Connection
    | AsyncConnection
    | psycopg.Connection[Any]
    | DjangoConnection,
    *,
    schema: str = "jmsql",
    timings: Timings = Timings(),
) -> JMSContext: ...


@set_module("jmsql")
def enlist(transaction: object, *, schema: str = "jmsql", timings: Timings = Timings()) -> JMSContext | AsyncJMSContext:
    """Send and receive inside the caller's own transaction: its commit makes it happen, its rollback undoes it.

    jmsql never commits, rolls back or retries here. Messages that are rolled back do not count as delivered before.

    Args:
        transaction: A SQLAlchemy `Session`, `AsyncSession`, `Connection` or `AsyncConnection`, a psycopg `Connection`
            or `AsyncConnection`, or Django's `connection`.
        schema: The PostgreSQL schema of jmsql's tables.
        timings: How often it polls while it waits for a message, and how often it notifies other clients.

    Returns:
        A context whose sends and receives are part of the transaction. For a SQLAlchemy `AsyncSession` or
        `AsyncConnection` sends wait for the commit, so that they need no `await`; in AUTOCOMMIT they are refused; to
        receive, use it inside `run_sync`. For a psycopg `AsyncConnection` the context's methods are awaited.

    Raises:
        TypeError: It is none of these.
    """
    if isinstance(transaction, psycopg.AsyncConnection):
        return AsyncJMSContext(JMSContext(EnlistedSession(_PsycopgTransaction(transaction), schema, timings)))
    return JMSContext(_enlisted_session(transaction, schema, timings))


def _enlisted_session(transaction: object, schema: str, timings: Timings) -> EnlistedSession:
    # What the application has not imported, it has no object of; and both are slow to import, or need greenlet.
    if "sqlalchemy.ext.asyncio" in sys.modules:
        from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

        if isinstance(transaction, AsyncSession | AsyncConnection):
            sessions = _buffering.setdefault(transaction, {})
            if (schema, timings) not in sessions:
                sessions[schema, timings] = (
                    _join_async_session(transaction, schema, timings)
                    if isinstance(transaction, AsyncSession)
                    else _join_async_connection(transaction, schema, timings)
                )
            return sessions[schema, timings]
    if "sqlalchemy.orm" in sys.modules:
        from sqlalchemy import orm

        if isinstance(transaction, orm.scoped_session):
            transaction = transaction()
        if isinstance(transaction, orm.Session):
            return EnlistedSession(_SessionTransaction(transaction), schema, timings)
    if isinstance(transaction, sqlalchemy.Connection):
        return EnlistedSession(_ConnectionTransaction(transaction), schema, timings)
    if isinstance(transaction, DjangoConnection):
        transaction.ensure_connection()
        transaction = transaction.connection
    return EnlistedSession(_PsycopgTransaction(transaction), schema, timings)


def _join_async_connection(connection: AsyncConnection, schema: str, timings: Timings) -> EnlistedSession:
    """Insert what was sent before each savepoint and before the commit; forget it with a rollback."""
    caller = connection.sync_connection
    if caller is None:
        raise TypeError("The AsyncConnection is not connected yet; use it inside its `async with` block.")
    session = EnlistedSession(_ConnectionTransaction(caller, buffers=True), schema, timings)

    def flush(*_: object) -> None:
        session.flush()

    def forget(*_: object) -> None:
        session.send_buffer.ended()

    for name in ("commit", "prepare_twophase", "savepoint"):
        event.listen(caller, name, flush)
    for name in ("rollback", "rollback_savepoint", "rollback_twophase"):
        event.listen(caller, name, forget)
    return session


def _join_async_session(asynchronous: AsyncSession, schema: str, timings: Timings) -> EnlistedSession:
    """Insert what was sent before each commit, also of a nested transaction; forget it with a rollback."""
    caller = asynchronous.sync_session
    session = EnlistedSession(_SessionTransaction(caller, buffers=True), schema, timings)
    waiting_before: WeakKeyDictionary[orm.SessionTransaction, int] = WeakKeyDictionary()

    def begun(_: orm.Session, transaction: orm.SessionTransaction) -> None:
        waiting_before[transaction] = len(session.send_buffer)

    def flush(_: orm.Session) -> None:
        session.flush()

    def forget(_: orm.Session, transaction: orm.SessionTransaction) -> None:
        session.send_buffer.truncate(waiting_before.get(transaction, 0) if transaction.nested else 0)

    def connected(_: orm.Session, __: orm.SessionTransaction, connection: sqlalchemy.Connection) -> None:
        if session.send_buffer:
            _refuse_autocommit(connection)

    event.listen(caller, "after_begin", connected)
    event.listen(caller, "after_transaction_create", begun)
    event.listen(caller, "before_commit", flush)
    event.listen(caller, "after_soft_rollback", forget)
    return session
