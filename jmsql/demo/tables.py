"""The tables of the application in the demo: the flights that its backend stores, and what its workers did."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, DateTime, Integer, MetaData, Table, Text, func

__all__ = ["APPLICATION_SCHEMA", "flight", "handled", "metadata", "received"]

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
