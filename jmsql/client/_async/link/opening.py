"""Connections beside a client's sessions, for inspecting and administering the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import psycopg

from jmsql.exceptions import IllegalStateException, JMSException
from jmsql.store.connections.database_url import parse_url, url_in_environment
from jmsql.store.connections.engine import POOLED, Endpoint, synchronous
from jmsql.store.errors import jms_errors
from jmsql.store.schema.version import check_name, check_schema
from jmsql.store.statement import Items, Query, SqlFile, Steps, nothing
from jmsql.store.wire._async.runner import Origin, PsycopgRunner
from jmsql.timings import Timings

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine


T = TypeVar("T")

_EXPECTED = "an AsyncEngine of SQLAlchemy, as sqlalchemy.ext.asyncio.create_async_engine returns it"

_limit_statements = SqlFile("administration").statement("limit_statements", "connecting", nothing)


# These connections serve administration: one task at a time, and no session. Each statement commits by itself, or is a
# transaction that `in_transaction` begins and ends. If anything fails in the middle of one, the connection is closed
# (`_end_transaction`), and the next statement takes another: a rollback could be cancelled as well, and would leave the
# transaction open.


class ConnectionOnDemand:
    """A connection that is made when the first statement needs it. It may be used by one task at a time."""

    def __init__(self, connect: Callable[[], Awaitable[PsycopgRunner]]) -> None:
        self._connect = connect
        self._runner: PsycopgRunner | None = None
        self._closed = False

    async def connect(self) -> PsycopgRunner:
        """Connect, unless it is connected, and return the runner of statements.

        Raises:
            IllegalStateException: It is closed.
            JMSException: The database cannot be reached, say.
        """
        if self._closed:
            raise IllegalStateException("The connection is closed.")
        if self._runner is not None and self._runner.was_ended:  # as the server, or a pooler, ends idle ones
            runner, self._runner = self._runner, None
            await runner.close()
        if self._runner is None:
            self._runner = await self._connect()
        return self._runner

    async def run(self, work: Query[T] | Steps[T]) -> T:
        """Run statements, as `Runner.run`."""
        runner = await self.connect()
        try:
            return await runner.run(work)
        except BaseException:
            await self._end_transaction()
            raise

    async def iterate(self, work: Items[T]) -> AsyncIterator[T]:
        """Iterate over rows, as `Runner.iterate`."""
        runner = await self.connect()
        try:
            async for each in runner.iterate(work):
                yield each
        except GeneratorExit:
            raise  # at a result, where no transaction is open, and others may use the connection
        except BaseException:
            await self._end_transaction()
            raise

    async def _end_transaction(self) -> None:
        # A task that is cancelled while it rolls back leaves a transaction open.
        if self._runner is not None and self._runner.is_unfit:
            runner, self._runner = self._runner, None
            await runner.close()

    async def close(self) -> None:
        """End the connection, if there is one, for good."""
        self._closed = True
        if self._runner is not None:
            await self._runner.close()


async def open_runner(
    database: str | Endpoint | AsyncEngine,
    schema: str,
    timings: Timings = Timings(),
    *,
    requires_schema: bool = True,
    statement_timeout: float | None = None,
    lock_timeout: float | None = None,
) -> PsycopgRunner:
    """Connect.

    Args:
        database: Where it is: a URL, or an engine, which stays the caller's.
        schema: The plain name of the schema.
        timings: Time-outs of a connection of its own.
        requires_schema: Whether the schema has to be there, in a version that this release works with.
        statement_timeout: After how many seconds PostgreSQL gives up a statement. None: it does not, and neither does
            it through a pooler, where the limit would be for others, too.
        lock_timeout: After how many seconds a statement that has such a limit stops waiting for a lock. None: with it.

    Raises:
        JMSException: The database cannot be reached, is no URL and no engine of the right kind, the engine does not use
            psycopg, or the schema is missing or of another version, or there can be none of that name.
    """
    check_name(schema)
    if isinstance(database, str):
        database = Endpoint(parse_url(database), timings)
    runner = await _directly(database, schema) if isinstance(database, Endpoint) else await _of_engine(database, schema)
    try:
        if requires_schema:
            await runner.run(check_schema(schema))
        if statement_timeout is not None and not runner.is_pooled:
            limits = statement_timeout, statement_timeout if lock_timeout is None else lock_timeout
            milliseconds, lock_milliseconds = (str(int(limit * 1000)) for limit in limits)
            await runner.run(_limit_statements.bind(milliseconds=milliseconds, lock_milliseconds=lock_milliseconds))
    except BaseException:
        await runner.close()
        raise
    return runner


async def _directly(endpoint: Endpoint, schema: str) -> PsycopgRunner:
    connection, is_pooled = await endpoint.connect_async()
    origin = Origin(connection.close, lambda: _directly(endpoint, schema), is_pooled)
    return PsycopgRunner(connection, schema, origin=origin)


async def _of_engine(engine: AsyncEngine, schema: str) -> PsycopgRunner:
    from sqlalchemy.ext.asyncio import AsyncEngine as Expected

    if not isinstance(engine, Expected):
        raise JMSException(f"Expected a URL or {_EXPECTED}, got {type(engine).__qualname__}.")
    with jms_errors(f"connecting to {engine.url.render_as_string(hide_password=True)}"):
        connection = await (await engine.connect()).execution_options(isolation_level="AUTOCOMMIT")
    lent = synchronous(connection)
    driver_connection = lent.connection.driver_connection
    if not isinstance(driver_connection, psycopg.AsyncConnection):
        await connection.close()
        raise JMSException(
            f"jmsql needs an engine that uses psycopg (postgresql+psycopg://…), not {lent.dialect.driver}."
        )
    found = driver_connection

    async def close() -> None:
        if found.broken:
            await connection.invalidate()
        await connection.close()

    is_pooled = bool(lent.info.get(POOLED))
    return PsycopgRunner(found, schema, origin=Origin(close, lambda: _of_engine(engine, schema), is_pooled))


def default_url(schema: str) -> str:
    """Return the URL of the database to use where none is named.

    The environment variable ``JMSQL_URL``, else the embedded server, which is started if it does not run. As it has no
    administrator, its schema is made and migrated.

    Raises:
        JMSException: The environment variable is empty.
        ResourceAllocationException: There is no embedded server, it does not start, or ``JMSQL_EMBEDDED`` forbids it.
    """
    url = url_in_environment("JMSQL_URL")
    if url is not None:
        return url
    from jmsql.embedded import start_server  # an extra, imported where it is used
    from jmsql.store.schema.migration import migrate  # loads SQLAlchemy

    url = start_server().url
    migrate(url, schema)
    return url
