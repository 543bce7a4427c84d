"""A worker of the demo, a process of its own: ``python -m jmsql.cli.demo.worker NAME SCHEMA SELECTOR``.

It receives flights and writes a row for each in the same transaction, so that both happen or neither. It reports each
step as a line of JSON on its standard output, and ends when its standard input does and no message is left.
"""

from __future__ import annotations

import json
import os
import sys
import threading

import jmsql
from jmsql.cli.demo.routing import FLIGHTS
from jmsql.cli.demo.tables import handled
from jmsql.store.engine import parse_url
from jmsql.store.errors import jms_errors

__all__ = ["APPLICATION_NAME"]

APPLICATION_NAME = "jmsql demo: "
"""How the names of the workers' connections begin, for ``pg_stat_activity``."""

_FLIGHTS_IN_A_TRANSACTION = 50
_PATIENCE = 0.2
_CARRIER_OF_FAILURES = "HA"


class FirstAttemptFailed(Exception):
    """What goes wrong in the demo, so that messages are rolled back and delivered again."""


def work(factory: jmsql.ConnectionFactory, name: str, selector: str, stopping: threading.Event) -> None:
    """Handle flights until it is time to stop and none is left."""
    with factory.create_connection() as connection, connection.create_session(transacted=True) as session:
        consumer = session.create_consumer(FLIGHTS, selector)
        connection.start()
        _report(ready=True)
        while True:
            last_look = stopping.is_set()
            messages = _receive(consumer)
            if messages:
                _handle(session, messages, name)
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


def _handle(session: jmsql.Session, messages: list[jmsql.Message], name: str) -> None:
    try:
        rows = [_row(message, name) for message in messages]
    except FirstAttemptFailed:
        session.rollback()
        return
    _report(received=[row["flight_id"] for row in rows])
    session.database.execute(handled.insert(), rows)
    session.commit()
    _report(handled=len(rows))


def _row(message: jmsql.Message, name: str) -> dict[str, object]:
    """Return what is to be stored for a message.

    Raises:
        FirstAttemptFailed: It is an announcement from Hawaiian Airlines, delivered for the first time.
    """
    attempt = message.get_int_property("JMSXDeliveryCount")
    if attempt == 1 and message.get_string_property("carrier") == _CARRIER_OF_FAILURES:
        raise FirstAttemptFailed
    body = message.get_body(dict) or {}
    return {
        "flight_id": body["flight_id"],
        "departure_delay": body["departure_delay"],
        "worker": name,
        "delivery_count": attempt,
    }


def _report(**step: object) -> None:
    os.write(sys.stdout.fileno(), json.dumps(step).encode() + b"\n")


def _set_at_end_of_input(event: threading.Event) -> None:
    os.read(sys.stdin.fileno(), 1)
    event.set()


def main() -> None:
    """Run the worker that the arguments describe, on the database that JMSQL_URL names."""
    name, schema, selector = sys.argv[1:]
    url = parse_url(os.environ["JMSQL_URL"]).update_query_dict({"application_name": APPLICATION_NAME + name})
    factory = jmsql.ConnectionFactory(url.render_as_string(hide_password=False), schema=schema)
    stopping = threading.Event()
    threading.Thread(target=_set_at_end_of_input, args=[stopping], daemon=True).start()
    try:
        with jms_errors("handling flights"):
            work(factory, name, selector, stopping)
    except jmsql.JMSException as error:
        sys.exit(f"jmsql: {name}: {error}")
    except BrokenPipeError:
        sys.exit(f"jmsql: {name}: The demo has gone.")


if __name__ == "__main__":
    main()
