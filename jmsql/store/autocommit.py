"""Runners with a connection of their own, for those who look at the store and look after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import psycopg

from jmsql.exceptions import IllegalStateException, JMSException
from jmsql.store._sync.runner import PsycopgRunner, Runner
from jmsql.store.database_url import parse_url
from jmsql.store.engine import POOLED, Endpoint
from jmsql.store.errors import jms_errors
from jmsql.store.schema_version import check_schema
from jmsql.store.statement import Result, SqlFile, nothing
from jmsql.timings import Timings

if TYPE_CHECKING:  # with a URL, all is done without SQLAlchemy
    import sqlalchemy
    from sqlalchemy import Engine

__all__ = ["AutocommitRunner", "LazyRunner", "open_runner"]

_limit_statements = SqlFile("administration").statement("limit_statements", "connecting", nothing)


class AutocommitRunner(PsycopgRunner):
    """Runs statements each of which commits by itself. A context manager; made by `open_runner`.

    Args:
        connection: The connection.
        schema: The plain name of the schema.
        close: Ends the connection, or gives it back.
        is_pooled: Whether it leads through a pooler.
        prepares: Whether statements are prepared.
        another: Connects once more to the same place.
    """

    __slots__ = ("_another", "_close", "is_pooled")

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        schema: str,
        close: Callable[[], None],
        *,
        is_pooled: bool,
        another: Callable[[], AutocommitRunner],
        prepares: bool = True,
    ) -> None:
        super().__init__(connection, schema, prepares=prepares)
        self._close = close
        self._another = another
        self.is_pooled = is_pooled
        """Whether the connection leads through a pooler."""

    def open_another(self) -> AutocommitRunner:
        """Connect once more to the same place.

        Raises:
            JMSException: The database cannot be reached.
        """
        return self._another()

    def wait_for_notification(self, timeout: float) -> bool:
        """Tell whether a notification comes within so many seconds."""
        with jms_errors("listening for a notification"):
            return any(True for _ in self.connection.notifies(timeout=timeout, stop_after=1))

    def close(self) -> None:
        """End the connection, also if the server has ended it."""
        self._close()

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
    database: str | Endpoint | Engine,
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
    if isinstance(database, str):
        database = Endpoint(parse_url(database), timings)
    runner = _directly(database, schema) if isinstance(database, Endpoint) else _of_engine(database, schema)
    try:
        if requires_schema:
            runner.run(check_schema(schema))
        if statement_timeout is not None and not runner.is_pooled:
            runner.run(_limit_statements.bind(milliseconds=str(int(statement_timeout * 1000))))
    except BaseException:
        runner.close()
        raise
    return runner


def _directly(endpoint: Endpoint, schema: str) -> AutocommitRunner:
    connection, is_pooled = endpoint.connect()
    return AutocommitRunner(
        connection, schema, connection.close, is_pooled=is_pooled, another=lambda: _directly(endpoint, schema)
    )


def _of_engine(engine: Engine, schema: str) -> AutocommitRunner:
    with jms_errors(f"connecting to {engine.url.render_as_string(hide_password=True)}"):
        connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    return _of_sqlalchemy(connection, schema, another=lambda: _of_engine(engine, schema))


def _of_sqlalchemy(
    connection: sqlalchemy.Connection, schema: str, *, another: Callable[[], AutocommitRunner]
) -> AutocommitRunner:
    driver_connection = connection.connection.driver_connection
    if not isinstance(driver_connection, psycopg.Connection):
        connection.close()
        raise JMSException(
            f"jmsql needs an engine that uses psycopg (postgresql+psycopg://…), not {connection.dialect.driver}."
        )
    found = driver_connection

    def close() -> None:
        if found.broken:
            connection.invalidate()
        connection.close()

    is_pooled = bool(connection.info.get(POOLED))
    return AutocommitRunner(found, schema, close, is_pooled=is_pooled, another=another)
