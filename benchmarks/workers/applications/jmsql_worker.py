"""jmsql's worker, whose handler is a plain function."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy

import jmsql
from benchmarks.database import BODY
from benchmarks.workers.applications import Send
from benchmarks.workers.effects import SQLALCHEMY_INSERT, database_url
from jmsql.worker import Application

_QUEUE = "effects"
_insert = sqlalchemy.text(SQLALCHEMY_INSERT)

app = Application()


@app.listener(_QUEUE)
def record(body: dict[str, object], database: sqlalchemy.Connection) -> None:
    """Handle a message."""
    began = time.monotonic()
    database.execute(_insert, {"number": body["number"], "began": began})


@contextmanager
def sending(queue: str = _QUEUE) -> Iterator[Send]:
    """Send to the queue."""
    with (
        jmsql.ConnectionFactory(database_url()).create_connection() as connection,
        connection.create_session() as session,
        connection.create_session(transacted=True) as transacted,
    ):
        producer = session.create_producer(jmsql.Queue(queue))
        transacted_producer = transacted.create_producer(jmsql.Queue(queue))

        def send(first: int, count: int) -> None:
            if count == 1:
                producer.send(_message(session, first))
                return
            for number in range(first, first + count):
                transacted_producer.send(_message(transacted, number))
            transacted.commit()

        yield send


def _message(session: jmsql.Session, number: int) -> jmsql.MapMessage:
    message = session.create_map_message()
    message.set_int("number", number)
    message.set_string("body", BODY)
    return message
