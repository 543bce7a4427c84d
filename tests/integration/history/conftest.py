"""What the tests of the history share: a queue that keeps one, and the history's clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
import sqlalchemy

import jmsql
from tests.leadership import SUSPEND_MAINTENANCE

SetClock = Callable[[datetime | None], None]


@pytest.fixture
def database(jmsql_clean_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of the test's own, each statement of which commits."""
    url = sqlalchemy.make_url(jmsql_clean_url).set(drivername="postgresql")
    with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as connection:
        yield connection


@pytest.fixture
def administration(jmsql_factory: jmsql.ConnectionFactory) -> Iterator[jmsql.admin.Administration]:
    """The administration of the tests' database."""
    with jmsql.admin.Administration(jmsql_factory) as administration:
        yield administration


@pytest.fixture
def orders(administration: jmsql.admin.Administration) -> jmsql.Queue:
    """A queue that keeps history."""
    return administration.create_queue("orders", history=True)


@pytest.fixture
def set_clock(database: psycopg.Connection[Any]) -> Iterator[SetClock]:
    """Sets the clock that says on which day a message leaves; None: the server's own.

    It starts without any history, and nobody else does the maintenance.
    """

    def set_clock(time: datetime | None) -> None:
        moment = "clock_timestamp()" if time is None else f"timestamptz '{time.astimezone(UTC).isoformat()}'"
        database.execute(
            f"create or replace function jmsql_internal.history_clock() returns timestamptz language sql volatile "
            f"return {moment}".encode()
        )

    database.execute(SUSPEND_MAINTENANCE)
    _drop_days(database)
    yield set_clock
    set_clock(None)
    _drop_days(database)


def _drop_days(database: psycopg.Connection[Any]) -> None:
    for (partition,) in database.execute("select partition::text from jmsql.history_days").fetchall():
        database.execute(f"drop table {partition}".encode())


def send(factory: jmsql.ConnectionFactory, *bodies: str, destination: jmsql.Destination) -> None:
    """Send text messages."""
    with factory.create_connection() as connection:
        session = connection.create_session(transacted=True)
        producer = session.create_producer(destination)
        for body in bodies:
            producer.send(session.create_text_message(body))
        session.commit()


def dequeue(factory: jmsql.ConnectionFactory, queue: jmsql.Queue, number: int = 1) -> None:
    """Receive and acknowledge messages."""
    with factory.create_connection() as connection:
        session = connection.create_session(transacted=True)
        connection.start()
        consumer = session.create_consumer(queue)
        for _ in range(number):
            assert consumer.receive(timeout=60) is not None
        session.commit()
