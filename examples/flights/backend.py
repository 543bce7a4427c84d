"""The backend of the demo: it stores flights, sends a message about each, and publishes it, in one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import jmsql
from examples.flights.database import flight as flight_table
from examples.flights.flights import Flight
from examples.flights.routing import DEPARTURES, FLIGHTS

_FLIGHTS_IN_A_TRANSACTION = 50


def publish(factory: jmsql.ConnectionFactory, flights: Iterator[Flight]) -> Iterator[int]:
    """Store flights, and send a message about each to the queue and to the topic.

    Yields:
        After each commit, how many flights it was for.
    """
    with factory.create_connection() as connection, connection.create_session(transacted=True) as session:
        producer = session.create_producer()
        while batch := list(islice(flights, _FLIGHTS_IN_A_TRANSACTION)):
            session.database.execute(flight_table.insert(), [flight._asdict() for flight in batch])
            for flight in batch:
                message = _announcement(session, flight)
                producer.send(message, FLIGHTS)
                producer.send(message, DEPARTURES)
            session.commit()
            yield len(batch)


def _announcement(session: jmsql.Session, flight: Flight) -> jmsql.Message:
    message = session.create_map_message()
    message.set_long("flight_id", flight.flight_id)
    message.set_string("flight", f"{flight.carrier}{flight.flight_number}")
    message.set_string("scheduled_departure", flight.scheduled_departure.isoformat())
    message.set_object("departure_delay", flight.departure_delay)
    message.set_string_property("carrier", flight.carrier)
    message.set_string_property("origin", flight.origin)
    message.set_string_property("destination", flight.destination)
    if flight.departure_delay is not None:
        message.set_int_property("departure_delay", flight.departure_delay)
    return message
