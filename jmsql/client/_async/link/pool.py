"""The connections of a client's sessions."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

import psycopg

from jmsql.client._async.link.watched_connection import WatchedConnection
from jmsql.client.connection_limit import ConnectionLimit
from jmsql.client.openings import Openings
from jmsql.concurrency.tasks import Lock, Turns, in_thread, run_to_completion
from jmsql.store.connections.engine import Endpoint, synchronous
from jmsql.store.errors import jms_errors
from jmsql.store.wire._async.runner import PsycopgRunner, Runner

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

_AT_ONCE = 4
"""How many tasks do something beside the sessions' transactions at once."""


# A client has one pool for its sessions, and another for work beside them where the sessions' could be exhausted:
# behind a pooler, whose connections open transactions may occupy, and where the number of connections is limited.
# `Connection.open` decides that.
#
# How a connection moves: the pool opens it or takes an idle one; a session leases it until the limit hands it on, or a
# pause of a worker's session or the session's end gives it back. `give_back` waits for a commit whose answer was not
# read yet, so that an idle connection never owes an answer. A connection that the server has ended is invalidated, and
# not given to the next session.
#
# SQLAlchemy's engine is made with the first connection, in a thread: importing SQLAlchemy takes longer than an event
# loop may wait. The engine, and the number of idle connections that it keeps, are written with `_lock` held, since
# threads share the pool.


class HoldsTransaction(Protocol):
    """A session's part that may have a transaction open."""

    @property
    def has_open_transaction(self) -> bool:
        """True if a transaction is open, or prepared."""


class ConnectionPool:
    """The connections of a client's sessions. Its engine is made when the first of them is needed."""

    def __init__(self, endpoint: Endpoint, facts: tuple[Hashable, ...], schema: str) -> None:
        self.url = endpoint.url
        self.schema = schema
        """The schema that statements on its connections are for."""
        self.limit: ConnectionLimit[AsyncConnection] = ConnectionLimit(give_back)
        """The sessions that have connections, and those that wait for one."""
        self.turns = Turns(_AT_ONCE)
        """For statements beside the sessions' transactions, which a thousand tasks may run at once."""
        self._openings = Openings(self._open, give_back, _discard)
        self._endpoint = endpoint
        self._facts = facts
        self._lock = threading.Lock()
        self._engine: AsyncEngine | None = None
        # How many sessions share connections, for each of which the engine's pool keeps one more idle connection at
        # most. Written under `_lock`.
        self._sharing = 0
        self.open_connections: WeakSet[psycopg.AsyncConnection[Any]] = WeakSet()
        """Connections that were taken, and have not been given up since."""
        self._transacted: WeakSet[HoldsTransaction] = WeakSet()
        self.looking = Lock()
        """Held by a session that shares connections while it looks for messages: so one connection does for all."""

    def add_transacted(self, holder: HoldsTransaction) -> None:
        """Note a session whose statements run in transactions."""
        with self._lock:
            self._transacted.add(holder)

    @property
    def has_open_transaction(self) -> bool:
        """True if one of the sessions has a transaction open, or prepared."""
        with self._lock:
            holders = list(self._transacted)
        return any(holder.has_open_transaction for holder in holders)

    def keep_one_more(self) -> None:
        """Keep one idle connection more, as long as so many are needed at times."""
        with self._lock:
            self._sharing += 1
            if self._engine is not None:
                _keep_more(self._engine, 1)

    async def connect(self, *, transacted: bool) -> AsyncConnection:
        """Take a connection from the pool, or make one.

        Args:
            transacted: False has each statement commit by itself.

        Raises:
            JMSException: The server cannot be reached, or refuses.
        """
        connection = await self._openings.take()
        return (
            connection
            if transacted
            else await run_to_completion(connection.execution_options(isolation_level="AUTOCOMMIT"))
        )

    async def _open(self) -> AsyncConnection:
        if self._engine is None:
            await in_thread(self._make_engine)  # the first one imports SQLAlchemy, for which an event loop cannot wait
        assert self._engine is not None
        with jms_errors("connecting"):
            connection = await self._engine.connect()
        self.open_connections.add(driver_connection(connection))
        return connection

    def _make_engine(self) -> None:
        with self._lock:
            if self._engine is None:
                engine = self._endpoint.open_async_engine(self._facts, WatchedConnection)
                _keep_more(engine, self._sharing)
                self._engine = engine

    @asynccontextmanager
    async def runner(self, *, prepares: bool = True) -> AsyncIterator[Runner]:
        """Run statements, each of which commits by itself, on a connection of the pool while a block runs.

        With `prepares=False` nothing is prepared: for statements that differ each time.

        Raises:
            JMSException: The server cannot be reached, or refuses.
        """
        connection = await self.connect(transacted=False)
        driver = driver_connection(connection)
        try:
            yield PsycopgRunner(driver, self.schema, prepares=prepares)
        finally:
            if driver.broken:
                await connection.invalidate()
            await connection.close()

    async def close(self) -> None:
        """End the connections of the pool."""
        self._openings.close()
        if self._engine is not None:
            await self._engine.dispose()


async def give_back(connection: AsyncConnection) -> None:
    """Return a connection to its pool, on which no transaction is open but one that is being committed."""
    if connection.closed:
        return
    driver = driver_connection(connection)
    assert isinstance(driver, WatchedConnection)
    await driver.settle()
    if driver.closed:
        await connection.invalidate()
    await connection.close()


async def _discard(connection: AsyncConnection) -> None:
    """Close a connection whose pool is closed already."""
    await connection.invalidate()
    await connection.close()


def _keep_more(engine: AsyncEngine, number: int) -> None:
    from jmsql.store.connections.pools import DemandPool  # loads SQLAlchemy, as the engine has

    assert isinstance(engine.pool, DemandPool)
    engine.pool.most_idle += number


def driver_connection(connection: AsyncConnection) -> psycopg.AsyncConnection[Any]:
    """Return psycopg's connection."""
    pooled = synchronous(connection).connection
    found = pooled.driver_connection
    if found is None:  # the application has detached it from its pool
        found = getattr(pooled.dbapi_connection, "driver_connection", pooled.dbapi_connection)
    assert isinstance(found, psycopg.AsyncConnection)
    return found
