"""Destinations that live as long as a client's connection."""

from __future__ import annotations

from jmsql.destinations import Destination, Topic
from jmsql.exceptions import InvalidDestinationException
from jmsql.store.driver import Driver
from jmsql.store.errors import jms_errors
from jmsql.store.identifier import quote_identifier

__all__ = ["TemporaryDestinations"]


class TemporaryDestinations:
    """The temporary queues and topics, seen through one connection that commits each statement by itself.

    Args:
        driver: Runs the statements.
        schema: The name of the schema.
    """

    def __init__(self, driver: Driver, schema: str) -> None:
        self._driver = driver
        self._schema = quote_identifier(schema)

    def create(self, destination: Destination, connection_id: int) -> None:
        """Make a destination for a connection; if it is there, it goes with this connection from now on."""
        statement = f"""
            insert into {self._table(destination)} (name, connection_id) values (%(name)s, %(connection_id)s::bigint)
            on conflict (name) do update set connection_id = excluded.connection_id"""
        self._run(statement, f"making {destination}", name=destination.name, connection_id=connection_id)

    def delete(self, destination: Destination) -> None:
        """Delete a destination, if it is there: what goes with no connection, a trigger deletes."""
        statement = f"""
            update {self._table(destination)} set connection_id = null
            where name = %(name)s and connection_id is not null"""
        self._run(statement, f"deleting {destination}", name=destination.name)

    def require(self, destination: Destination) -> None:
        """Make sure that a destination is there.

        Raises:
            InvalidDestinationException: It is gone.
        """
        statement = f"select from {self._table(destination)} where name = %(name)s"
        if not self._run(statement, f"looking up {destination}", name=destination.name):
            raise InvalidDestinationException(f"{destination} is gone: its connection or its owner closed it.")

    def _table(self, destination: Destination) -> str:
        return f"{self._schema}.{'topic' if isinstance(destination, Topic) else 'queue'}"

    def _run(self, statement: str, doing: str, **parameters: object) -> int:
        with jms_errors(doing):
            return self._driver.execute(statement, parameters).row_count
