"""Running statements: the one place that turns statements into I/O, and the errors of the driver into JMS's."""

from __future__ import annotations

from typing import Any, TypeVar

import psycopg

from jmsql.store.driver import Driver, PsycopgDriver
from jmsql.store.errors import translate
from jmsql.store.statement import Query, Steps

__all__ = ["Runner", "runner"]

T = TypeVar("T")


class Runner:
    """Runs statements, and decisions that take several, in whatever transaction the driver is in.

    Args:
        driver: How a statement runs on the connection.
        schema: The plain name of the schema.
    """

    __slots__ = ("driver", "schema")

    def __init__(self, driver: Driver, schema: str) -> None:
        self.driver = driver
        self.schema = schema

    def run(self, work: Query[T] | Steps[T]) -> T:
        """Run a statement, or all those of a decision, and return what comes out.

        Raises:
            JMSException: PostgreSQL refused, or the connection is lost. The cause is the driver's own error.
        """
        return self._query(work) if isinstance(work, Query) else self._follow(work)

    def _query(self, query: Query[T]) -> T:
        statement = query.statement
        try:
            result = self.driver.execute(statement.encoded(self.schema), query.parameters)
        except psycopg.Error as error:
            raise translate(error, query.doing) from error
        return statement.decode(result)

    def _follow(self, steps: Steps[T]) -> T:
        try:
            query: Query[Any] = next(steps)
            while True:
                try:
                    result = self._query(query)
                except BaseException as error:  # noqa: BLE001 - for the decision to handle, or to pass on
                    query = steps.throw(error)
                else:
                    query = steps.send(result)
        except StopIteration as end:
            outcome: T = end.value
            return outcome


def runner(connection: psycopg.Connection[Any], schema: str, *, prepares: bool = True) -> Runner:
    """Return a runner on a psycopg connection.

    Args:
        connection: The connection; its row factory, cursor factory and adapters are left alone.
        schema: The plain name of the schema.
        prepares: Whether statements are prepared; not those that run once.
    """
    return Runner(PsycopgDriver(connection, prepares=prepares), schema)
