"""The backend of the demo: it stores flights, and announces each with a message in the same transaction."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import jmsql
from jmsql.cli.demo.flights import Flight
from jmsql.cli.demo.routing import FLIGHTS
from jmsql.cli.demo.tables import flight as flight_table

__all__ = ["publish"]

_FLIGHTS_IN_A_TRANSACTION = 50


def publish(factory: jmsql.ConnectionFactory, flights: Iterator[Flight]) -> Iterator[int]:
    """Store flights and send their messages.

    Yields:
        After each commit, how many flights it was for.
    """
    with factory.create_connection() as connection, connection.create_session(transacted=True) as session:
        producer = session.create_producer(FLIGHTS)
        while batch := list(islice(flights, _FLIGHTS_IN_A_TRANSACTION)):
            session.database.execute(flight_table.insert(), [flight._asdict() for flight in batch])
            for flight in batch:
                producer.send(_announcement(session, flight))
            session.commit()
            yield len(batch)


def _announcement(session: jmsql.Session, flight: Flight) -> jmsql.Message:
    message = session.create_map_message()
    message.set_long("flight_id", flight.flight_id)
    message.set_string("flight", f"{flight.carrier}{flight.flight_number}")
    message.set_string("origin", flight.origin)
    message.set_string("destination", flight.destination)
    message.set_object("departure_delay", flight.departure_delay)
    message.set_string_property("carrier", flight.carrier)
    if flight.departure_delay is not None:
        message.set_int_property("departure_delay", flight.departure_delay)
    return message
