"""A connection on which each statement commits by itself, for those who look at the store and look after it."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import psycopg
from sqlalchemy import Engine

from jmsql.exceptions import JMSException
from jmsql.store.driver import PsycopgDriver
from jmsql.store.engine import open_engine
from jmsql.store.errors import jms_errors
from jmsql.store.runner import Runner
from jmsql.timings import Timings

__all__ = ["AutocommitConnection"]


class AutocommitConnection:
    """Connects at once. A context manager.

    Args:
        database: Where it is: a URL, or an engine, which stays the caller's.
        timings: Time-outs of a connection of its own.

    Raises:
        JMSException: The database cannot be reached, or the engine does not use psycopg.
    """

    def __init__(self, database: str | Engine, timings: Timings = Timings()) -> None:
        self._is_own = isinstance(database, str)
        self.engine = open_engine(database, timings=timings) if isinstance(database, str) else database
        try:
            with jms_errors(f"connecting to {self.engine.url.render_as_string(hide_password=True)}"):
                self.sqlalchemy = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        except BaseException:
            self._dispose()
            raise
        connection = self.sqlalchemy.connection.driver_connection
        if not isinstance(connection, psycopg.Connection):
            self.sqlalchemy.close()
            self._dispose()
            raise JMSException(
                f"jmsql needs an engine that uses psycopg (postgresql+psycopg://…), not {self.engine.dialect.driver}."
            )
        self.psycopg: psycopg.Connection[Any] = connection
        self._driver = PsycopgDriver(connection)

    def runner(self, schema: str) -> Runner:
        """Return a runner of statements for a schema."""
        return Runner(self._driver, schema)

    def rows(self, statement: str, **parameters: object) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        return self._driver.execute(statement, parameters or None).rows

    def close(self) -> None:
        """End the connection, also if the server has ended it."""
        if self.psycopg.broken:
            self.sqlalchemy.invalidate()
        self.sqlalchemy.close()
        self._dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _dispose(self) -> None:
        if self._is_own:
            self.engine.dispose()
