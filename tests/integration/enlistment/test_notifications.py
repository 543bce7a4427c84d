"""Which transactions of the caller's notify other clients: their commits wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest

import jmsql
from jmsql import Queue
from jmsql.client.pacing import NotificationPacing
from jmsql.timings import InternalTimings

ORDERS = Queue("orders in turn")
SLOW = InternalTimings(notification_interval=60.0)
PATIENCE = 60.0

Connect = Callable[[], psycopg.Connection]


@pytest.fixture
def listening(jmsql_clean_url: str, jmsql_schema: str) -> Iterator[psycopg.Connection]:
    """A connection that hears all notifications of the schema."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        connection.execute(f'listen "{jmsql_schema}"')
        yield connection


@pytest.fixture
def connect(jmsql_clean_url: str) -> Iterator[Connect]:
    with ExitStack() as open_connections:
        yield lambda: open_connections.enter_context(psycopg.connect(jmsql_clean_url))


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process have notified of nothing yet."""
    pacing = NotificationPacing()
    monkeypatch.setattr("jmsql.client._sync.session.transactions.enlisted.enlisted_notifications", pacing)


@pytest.fixture
def orders(jmsql_factory: jmsql.ConnectionFactory) -> None:
    """Make the queue: else the first transaction would."""
    with jmsql_factory.create_context() as context:
        context.create_producer().send(ORDERS, "an order")


def send(caller: psycopg.Connection, queue: Queue = ORDERS, timings: InternalTimings = SLOW) -> None:
    jmsql.enlist(caller, timings=timings).create_producer().send(queue, "an order")


def notifications(listening: psycopg.Connection) -> int:
    """How many there have been since the last call; they come in the order of the commits."""
    listening.execute("listen ended; notify ended")
    for heard, notification in enumerate(listening.notifies(timeout=PATIENCE)):
        if notification.channel == "ended":
            return heard
    raise AssertionError("The server has stopped to notify.")


@pytest.mark.usefixtures("orders")
class TestEachOfAFew:
    def test_one_after_the_other(self, connect: Connect, listening: psycopg.Connection) -> None:
        first, second = connect(), connect()
        for caller in (first, first, second, first):
            send(caller)
            caller.commit()
            assert notifications(listening) == 1

    def test_after_one_that_was_rolled_back(self, connect: Connect, listening: psycopg.Connection) -> None:
        caller = connect()
        send(caller)
        caller.rollback()
        send(caller)
        caller.commit()
        assert notifications(listening) == 1

    def test_after_a_savepoint_that_was_taken_back(self, connect: Connect, listening: psycopg.Connection) -> None:
        caller = connect()
        caller.execute("savepoint s")
        send(caller)
        caller.execute("rollback to savepoint s")
        send(caller)
        caller.commit()
        assert notifications(listening) == 1

    def test_beside_one_that_is_open(self, connect: Connect, listening: psycopg.Connection) -> None:
        first, second = connect(), connect()
        send(first)
        send(second)
        second.commit()
        assert notifications(listening) == 1
        first.commit()
        assert notifications(listening) == 1


@pytest.mark.usefixtures("orders")
def test_of_many_without_a_pause_only_the_first_notify(connect: Connect, listening: psycopg.Connection) -> None:
    caller = connect()
    for _ in range(40):
        send(caller)
        caller.commit()
    assert notifications(listening) == 20


@pytest.mark.usefixtures("orders")
def test_other_schemas_and_databases_count_apart(
    connect: Connect, listening: psycopg.Connection, jmsql_url: str, jmsql_schema: str
) -> None:
    caller = connect()
    elsewhere = "another_shop"
    jmsql.migrate(jmsql_url, elsewhere)
    try:
        for _ in range(40):
            jmsql.enlist(caller, schema=elsewhere, timings=SLOW).create_producer().send(ORDERS, "an order")
        caller.commit()
        send(caller)
        caller.commit()
        assert notifications(listening) == 1
    finally:
        caller.execute(f"drop schema {elsewhere}, {elsewhere}_internal cascade")
        caller.commit()
