"""The transactions that applications have open, and how a session joins them."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from sqlalchemy.util import ThreadLocalRegistry

from jmsql.client.callers.tasks import (
    DRIVERS,
    close_transaction,
    driver_runner,
    notifications,
    pooled_connection,
)
from jmsql.client.creation_beside import conninfo_of, conninfo_of_url
from jmsql.concurrency.tasks import Notifications, in_own_task, run_to_completion
from jmsql.exceptions import IllegalStateException
from jmsql.store.connections.engine import SESSION, synchronous
from jmsql.store.errors import is_connection_lost
from jmsql.store.wire._async.runner import PsycopgRunner, Runner

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection
    from sqlalchemy.ext.asyncio import AsyncSession as CallersSession
    from sqlalchemy.util import ScopedRegistry

    from jmsql.store.statement import Result


# `runner` joins: it returns an object that runs statements in the caller's transaction, after waiting for the
# statements of other tasks on the same connection. The transaction begins with jmsql's first statement if the caller
# has not begun it; `is_open`, read before, tells.
#
# The drivers' own operations run `in_own_task`. Some limit their time by `asyncio.timeout`, which cancels the task that
# they run in: see `jmsql.concurrency.tasks.cancellation`.


class CallerTransaction(ABC):
    """A transaction that belongs to the caller, who alone commits it or rolls it back."""

    connection: Hashable = None
    """Tells the connection that was last joined from all others of the process."""

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """True if the caller has begun it."""

    def goes_on(self) -> bool:
        """Return False if the transaction of the last `note_receipt` has ended, as far as the driver can tell."""
        return self.is_open

    def note_receipt(self) -> None:  # noqa: B027 - psycopg has no object to compare
        """Note that a message was received in the open transaction."""

    @property
    def ends_in_two_phases(self) -> bool:
        """True if the joined transaction will be prepared: PostgreSQL prepares none that has notified."""
        return False

    @property
    def conninfo(self) -> str | None:
        """The parameters that lead to the server of the connection that was last joined; None: they are not known."""
        return None

    @abstractmethod
    async def runner(self, schema: str) -> Runner:
        """Return the runner of statements in the transaction, which begins with them if it is not open."""

    def news(self) -> Notifications:
        """Make the object that wakes a waiting receive."""
        return Notifications()

    @abstractmethod
    async def end(self) -> None:
        """End a transaction that was not open before jmsql looked at a queue, and in which nothing else was done."""


class PsycopgTransaction(CallerTransaction):
    """A transaction on a psycopg connection.

    The connection's row factory, cursor factory and adapters are left alone.
    """

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection
        self.connection = weakref.ref(connection)

    @property
    def is_open(self) -> bool:
        pgconn = self._connection.pgconn
        # It is unknown where the connection is closed. In a pipeline the server may not have answered that one began.
        ended = pgconn.transaction_status in (TransactionStatus.IDLE, TransactionStatus.UNKNOWN)
        return not ended or pgconn.pipeline_status != PipelineStatus.OFF

    @property
    def ends_in_two_phases(self) -> bool:
        return self._connection._tpc is not None  # noqa: SLF001 - psycopg has no public name for it

    @property
    def conninfo(self) -> str | None:
        return conninfo_of(self._connection)

    async def runner(self, schema: str) -> Runner:
        runner = PsycopgRunner(self._connection, schema)
        await runner.wait_for_others()
        return runner

    async def end(self) -> None:
        await in_own_task(self._connection.rollback())


class _SQLAlchemyTransaction(CallerTransaction):
    """A transaction for which SQLAlchemy has an object, and another one for the next."""

    _last: object = None
    """The object of the transaction that last received. Written by `note_receipt`."""

    def goes_on(self) -> bool:
        return self._last is not None and self._last is self._root()

    def note_receipt(self) -> None:
        self._last = self._root()

    @abstractmethod
    def _root(self) -> object:
        """Return SQLAlchemy's object of the transaction that is open; None: none is."""


class ConnectionTransaction(_SQLAlchemyTransaction):
    """A transaction on a SQLAlchemy connection."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    @property
    def is_open(self) -> bool:
        return self._connection.in_transaction()

    def _root(self) -> object:
        return synchronous(self._connection).get_transaction()

    @property
    def ends_in_two_phases(self) -> bool:
        from sqlalchemy.engine import TwoPhaseTransaction

        connection = synchronous(self._connection)
        lender = connection.get_execution_options().get(SESSION)  # of an XA session, perhaps
        if lender is not None and lender.ends_in_two_phases:
            return True
        return isinstance(connection.get_transaction(), TwoPhaseTransaction)

    @property
    def conninfo(self) -> str | None:
        connection = self.connection
        if not isinstance(connection, weakref.ref):
            return None
        return conninfo_of(connection()) or conninfo_of_url(self._connection.engine.url)

    async def runner(self, schema: str) -> Runner:
        if not self.is_open:
            await self._connection.begin()
        runner = await self._driver_runner(schema)
        await runner.wait_for_others()
        runner.around = self._notice_loss
        return runner

    async def _notice_loss(self, run: Callable[[], Awaitable[Result]], *_: object) -> Result:
        """Run a statement; tell SQLAlchemy if its connection is lost, so that the caller can roll back and go on."""
        try:
            return await run()
        except Exception as error:
            if is_connection_lost(error):
                await self._connection.invalidate(error)
            raise

    async def _driver_runner(self, schema: str) -> Runner:
        pooled = await pooled_connection(self._connection)
        driver_connection: Any = pooled.driver_connection
        dialect = self._connection.dialect
        runner = driver_runner(driver_connection, dialect, schema)
        if runner is None:
            raise TypeError(f"jmsql needs SQLAlchemy with {DRIVERS}, not with {dialect.driver}.")
        self.connection = weakref.ref(driver_connection)
        dbapi_connection: Any = pooled.dbapi_connection
        if dialect.driver == "asyncpg" and runner.is_idle and not dbapi_connection.autocommit:
            # SQLAlchemy begins the server's transaction with its own first statement.
            await run_to_completion(self._begin_at_server())
        return runner

    async def _begin_at_server(self) -> None:
        await in_own_task(self._connection.exec_driver_sql("select 1"))

    def news(self) -> Notifications:
        return notifications(lambda: self._connection.dialect)

    async def end(self) -> None:
        await in_own_task(self._connection.rollback())


def _holds(registry: ScopedRegistry[CallersSession], session: CallersSession) -> bool:
    """Return True if a `scoped_session` has the session still.

    Only a thread's registry is asked for the scope of the moment: `asyncio.wait_for` may send in a task of its own.
    """
    if isinstance(registry, ThreadLocalRegistry):
        return registry.has() and registry() is session
    return any(held is session for held in list(registry.registry.values()))


class SessionTransaction(_SQLAlchemyTransaction):
    """A transaction of a SQLAlchemy ORM session."""

    def __init__(self, session: CallersSession, registry: ScopedRegistry[CallersSession] | None = None) -> None:
        """Initialize it.

        Args:
            session: The session.
            registry: Of the `scoped_session` that the application has, which is to have this session still: it would
                commit another one.
        """
        self._session = session
        self._registry = registry
        self._joined: ConnectionTransaction | None = None

    @property
    def is_open(self) -> bool:
        return self._session.in_transaction()

    def _root(self) -> object:
        return getattr(self._session, "sync_session", self._session).get_transaction()

    @property
    def ends_in_two_phases(self) -> bool:
        return self._joined is not None and self._joined.ends_in_two_phases

    @property
    def conninfo(self) -> str | None:
        return None if self._joined is None else self._joined.conninfo

    async def runner(self, schema: str) -> Runner:
        if self._registry is not None and not _holds(self._registry, self._session):
            raise IllegalStateException(
                "The scoped_session has another session than at the enlistment, and would commit that one: after "
                "remove(), and in another thread, enlist it again."
            )
        # This begins the transaction, or refuses to: with `autobegin=False` the application begins each one, and
        # would not commit another.
        self._joined = transaction = ConnectionTransaction(await self._session.connection())
        runner = await transaction.runner(schema)
        self.connection = transaction.connection
        return runner

    def news(self) -> Notifications:
        return notifications(lambda: self._session.get_bind().dialect)

    async def end(self) -> None:
        await close_transaction(self._session)
