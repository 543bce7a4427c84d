"""Where the demo works: its database, and the tables of its application."""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy
from sqlalchemy import BigInteger, Column, DateTime, Engine, Integer, MetaData, Table, Text, func
from sqlalchemy.exc import ArgumentError

import jmsql

APPLICATION_SCHEMA = "jmsql_demo"

metadata = MetaData(schema=APPLICATION_SCHEMA)

flight = Table(
    "flight",
    metadata,
    Column("flight_id", BigInteger, primary_key=True, autoincrement=False),
    Column("carrier", Text, nullable=False),
    Column("flight_number", Integer, nullable=False),
    Column("tail_number", Text),
    Column("origin", Text, nullable=False),
    Column("destination", Text, nullable=False),
    Column("scheduled_departure", DateTime(timezone=True), nullable=False),
    Column("departure_delay", Integer),
    Column("arrival_delay", Integer),
    Column("distance", Integer, nullable=False),
    Column("stored_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
)

# These have no primary key, on purpose: a message that is handled twice shall leave two rows, not an error.
handled = Table(
    "handled",
    metadata,
    Column("flight_id", BigInteger, nullable=False),
    Column("departure_delay", Integer),
    Column("worker", Text, nullable=False),
    Column("delivery_count", Integer, nullable=False),
    Column("handled_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
)

received = Table(
    "received",
    metadata,
    Column("subscription", Text, nullable=False),
    Column("flight_id", BigInteger, nullable=False),
    Column("worker", Text, nullable=False),
    Column("received_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
)


class DemoDatabase(NamedTuple):
    """The database of the demo: its own tables are there, and its messages."""

    url: str
    schema: str

    def open_engine(self) -> Engine:
        """Return what makes connections for the application's own SQL; nothing is connected yet.

        Raises:
            JMSException: The URL cannot be read. The message shows nothing of it, as it may hold a password.
        """
        try:
            url = sqlalchemy.make_url(self.url).set(drivername="postgresql+psycopg")
        except (ArgumentError, ValueError):
            raise jmsql.JMSException(
                "The database URL cannot be read; write postgresql://user@host/database."
            ) from None
        return sqlalchemy.create_engine(url, hide_parameters=True, isolation_level="READ COMMITTED")

    def factory(self) -> jmsql.ConnectionFactory:
        """Return what makes JMS connections to it."""
        return jmsql.ConnectionFactory(self.url, schema=self.schema)

    def administration(self) -> jmsql.admin.Administration:
        """Connect to administer its queues and subscriptions."""
        return jmsql.admin.Administration(self.url, schema=self.schema)
