"""Runners with a connection of their own, for those who look at the store and look after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import psycopg
import sqlalchemy
from sqlalchemy import URL, Engine

from jmsql.exceptions import IllegalStateException, JMSException
from jmsql.store._sync.pool import ConnectionPool
from jmsql.store._sync.runner import PsycopgRunner, Runner
from jmsql.store.engine import POOLED, open_engine
from jmsql.store.errors import jms_errors
from jmsql.store.migration import check_schema, current_version
from jmsql.store.statement import Result, SqlFile, nothing
from jmsql.timings import Timings

__all__ = ["AutocommitRunner", "LazyRunner", "open_runner", "pooled_runner"]

_limit_statements = SqlFile("administration").statement("limit_statements", "connecting", nothing)


class AutocommitRunner(PsycopgRunner):
    """Runs statements each of which commits by itself. A context manager; made by `open_runner` and `pooled_runner`.

    Args:
        database: The connection.
        schema: The plain name of the schema.
        resources: What ends with it.
        prepares: Whether statements are prepared.
    """

    __slots__ = ("_database", "_resources", "engine")

    def __init__(
        self,
        database: sqlalchemy.Connection,
        schema: str,
        resources: ExitStack,
        *,
        prepares: bool = True,
    ) -> None:
        super().__init__(_of_psycopg(database), schema, prepares=prepares)
        self._database = database
        self._resources = resources
        self.engine = database.engine
        """Where the connection is from."""

    @property
    def is_pooled(self) -> bool:
        """Whether the connection leads through a pooler."""
        return bool(self._database.info.get(POOLED))

    def schema_version(self) -> str | None:
        """Return the version of the schema in the database, or None if the schema is not there."""
        with jms_errors("looking at the schema"):
            return current_version(self._database, self.schema)

    def wait_for_notification(self, timeout: float) -> bool:
        """Tell whether a notification comes within so many seconds."""
        with jms_errors("listening for a notification"):
            return any(True for _ in self.connection.notifies(timeout=timeout, stop_after=1))

    def close(self) -> None:
        """End the connection, also if the server has ended it."""
        if self.connection.broken:
            self._database.invalidate()
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class LazyRunner(Runner):
    """Runs statements on a connection that is made when it is first needed. It may be used by one thread at a time.

    Args:
        connect: Connects.
        schema: The plain name of the schema.
    """

    __slots__ = ("_closed", "_connect", "_connected")

    def __init__(self, connect: Callable[[], AutocommitRunner], schema: str) -> None:
        super().__init__(schema)
        self._connect = connect
        self._connected: AutocommitRunner | None = None
        self._closed = False

    def connect(self) -> AutocommitRunner:
        """Connect, unless it is connected.

        Raises:
            IllegalStateException: It is closed.
            JMSException: The database cannot be reached, say.
        """
        if self._closed:
            raise IllegalStateException("The connection is closed.")
        if self._connected is None:
            self._connected = self._connect()
        return self._connected

    @property
    def is_idle(self) -> bool:
        return self._connected is None or self._connected.is_idle

    def execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        return self.connect().execute(statement, parameters)

    def sleep(self, seconds: float) -> None:
        self.connect().sleep(seconds)

    def close(self) -> None:
        """End the connection, if there is one, for good."""
        self._closed = True
        if self._connected is not None:
            self._connected.close()


def open_runner(
    database: str | URL | Engine,
    schema: str,
    timings: Timings = Timings(),
    *,
    requires_schema: bool = True,
    statement_timeout: float | None = None,
) -> AutocommitRunner:
    """Connect.

    Args:
        database: Where it is: a URL, or an engine, which stays the caller's.
        schema: The plain name of the schema.
        timings: Time-outs of a connection of its own.
        requires_schema: Whether the schema has to be there, in a version that this release works with.
        statement_timeout: After how many seconds PostgreSQL gives up a statement. None: it does not, and neither does
            it through a pooler, where the limit would be for others, too.

    Raises:
        JMSException: The database cannot be reached, the engine does not use psycopg, or the schema is missing or of
            another version.
    """
    resources = ExitStack()
    try:
        if isinstance(database, Engine):
            engine = database
        else:
            engine = open_engine(database, timings=timings)
            resources.callback(engine.dispose)
        with jms_errors(f"connecting to {engine.url.render_as_string(hide_password=True)}"):
            connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        resources.callback(connection.close)
        runner = AutocommitRunner(connection, schema, resources)
        if requires_schema:
            with jms_errors("looking at the schema"):
                check_schema(connection, schema)
        if statement_timeout is not None and not runner.is_pooled:
            runner.run(_limit_statements.bind(milliseconds=str(int(statement_timeout * 1000))))
    except BaseException:
        resources.close()
        raise
    return runner


def pooled_runner(pool: ConnectionPool, schema: str, *, prepares: bool = True) -> AutocommitRunner:
    """Take a connection from a pool, until the runner is closed.

    Args:
        pool: Where the connection is from; it is tested when it is taken.
        schema: The plain name of the schema.
        prepares: Whether statements are prepared; not those that differ each time.

    Raises:
        JMSException: The database cannot be reached.
    """
    connection = pool.connect().execution_options(isolation_level="AUTOCOMMIT")
    resources = ExitStack()
    resources.callback(connection.close)
    return AutocommitRunner(connection, schema, resources, prepares=prepares)


def _of_psycopg(connection: sqlalchemy.Connection) -> psycopg.Connection[Any]:
    found = connection.connection.driver_connection
    if not isinstance(found, psycopg.Connection):
        raise JMSException(
            f"jmsql needs an engine that uses psycopg (postgresql+psycopg://…), not {connection.dialect.driver}."
        )
    return found
