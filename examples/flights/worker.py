"""A worker of the demo, a process of its own.

``python -m examples.flights.worker NAME SCHEMA queue SELECTOR`` or ``… subscription TITLE``: it receives flights from
the queue or from a subscription, and writes a row for each in the same transaction, so that both happen or neither. It
reports each step as a line of JSON on its standard output, and ends when its standard input does and no message is
left.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from abc import ABC, abstractmethod

import sqlalchemy
from sqlalchemy import Table
from sqlalchemy.exc import DBAPIError

import jmsql
from examples.flights.database import handled, received
from examples.flights.routing import FLIGHTS, SUBSCRIPTIONS, Subscription

APPLICATION_NAME = "jmsql demo: "
"""How the names of the workers' connections begin, for ``pg_stat_activity``."""

_FLIGHTS_IN_A_TRANSACTION = 50
_PATIENCE = 0.2
_CARRIER_OF_FAILURES = "HA"


class FirstAttemptFailed(Exception):
    """An error of the demo, so that messages are rolled back and delivered again."""


class Duty(ABC):
    """What a worker receives, and what it makes of it."""

    client_id: str | None = None
    table: Table

    def __init__(self, worker: str) -> None:
        self.worker = worker

    @abstractmethod
    def consume(self, session: jmsql.Session) -> jmsql.MessageConsumer:
        """Make the consumer."""

    @abstractmethod
    def row(self, message: jmsql.Message) -> dict[str, object]:
        """Return what is to be stored for a message.

        Raises:
            FirstAttemptFailed: The message is to be rolled back this time.
        """


class HandlingFlights(Duty):
    """Receives from the queue what a selector chooses. The first attempt at each flight of Hawaiian Airlines fails."""

    table = handled

    def __init__(self, worker: str, selector: str) -> None:
        super().__init__(worker)
        self._selector = selector

    def consume(self, session: jmsql.Session) -> jmsql.MessageConsumer:
        return session.create_consumer(FLIGHTS, self._selector)

    def row(self, message: jmsql.Message) -> dict[str, object]:
        attempt = message.get_int_property("JMSXDeliveryCount")
        if attempt == 1 and message.get_string_property("carrier") == _CARRIER_OF_FAILURES:
            raise FirstAttemptFailed
        body = message.get_body(dict) or {}
        return {
            "flight_id": body["flight_id"],
            "departure_delay": body["departure_delay"],
            "worker": self.worker,
            "delivery_count": attempt,
        }


class ReceivingDepartures(Duty):
    """Receives what a subscription to the topic has collected."""

    table = received

    def __init__(self, worker: str, subscription: Subscription) -> None:
        super().__init__(worker)
        self._subscription = subscription
        self.client_id = subscription.client_id

    def consume(self, session: jmsql.Session) -> jmsql.MessageConsumer:
        return self._subscription.consume(session)

    def row(self, message: jmsql.Message) -> dict[str, object]:
        body = message.get_body(dict) or {}
        return {"subscription": self._subscription.title, "flight_id": body["flight_id"], "worker": self.worker}


def work(factory: jmsql.ConnectionFactory, duty: Duty, stopping: threading.Event) -> None:
    """Handle flights until it is time to stop and none is left."""
    with factory.create_connection() as connection:
        if duty.client_id is not None:
            connection.client_id = duty.client_id
        with connection.create_session(transacted=True) as session:
            consumer = duty.consume(session)
            connection.start()
            _report(ready=True)
            while True:
                last_look = stopping.is_set()
                messages = _receive(consumer)
                if messages:
                    _handle(session, messages, duty)
                elif last_look:
                    return


def _receive(consumer: jmsql.MessageConsumer) -> list[jmsql.Message]:
    """Wait for a message; with it, take what else is there, up to a limit."""
    messages: list[jmsql.Message] = []
    while len(messages) < _FLIGHTS_IN_A_TRANSACTION:
        message = consumer.receive(timeout=0 if messages else _PATIENCE)
        if message is None:
            break
        messages.append(message)
    return messages


def _handle(session: jmsql.Session, messages: list[jmsql.Message], duty: Duty) -> None:
    try:
        rows = [duty.row(message) for message in messages]
    except FirstAttemptFailed:
        session.rollback()
        return
    _report(received=[row["flight_id"] for row in rows])
    session.database.execute(duty.table.insert(), rows)
    session.commit()
    _report(handled=len(rows))


def _report(**step: object) -> None:
    os.write(sys.stdout.fileno(), json.dumps(step).encode() + b"\n")


def _set_at_end_of_input(event: threading.Event) -> None:
    os.read(sys.stdin.fileno(), 1)
    event.set()


def main() -> None:
    """Run the worker that the arguments describe, on the database that JMSQL_URL names."""
    name, schema, kind, source = sys.argv[1:]
    duty: Duty
    if kind == "queue":
        duty = HandlingFlights(name, source)
    else:
        duty = ReceivingDepartures(name, next(each for each in SUBSCRIPTIONS if each.title == source))
    url = sqlalchemy.make_url(os.environ["JMSQL_URL"]).update_query_dict({"application_name": APPLICATION_NAME + name})
    factory = jmsql.ConnectionFactory(url.render_as_string(hide_password=False), schema=schema)
    stopping = threading.Event()
    threading.Thread(target=_set_at_end_of_input, args=[stopping], daemon=True).start()
    try:
        work(factory, duty, stopping)
    except (jmsql.JMSException, DBAPIError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error  # without the statement and its values
        sys.exit(f"jmsql: {name}: {cause}")
    except BrokenPipeError:
        sys.exit(f"jmsql: {name}: The demo has gone.")


if __name__ == "__main__":
    main()
