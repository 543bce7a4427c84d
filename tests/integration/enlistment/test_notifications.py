"""Which transactions of the caller's notify other clients: their commits wait for each other."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest

import jmsql
from jmsql import Queue, Timings

ORDERS = Queue("orders in turn")
PROMPT = Timings(notification_interval=0.001, enlisted_notification_interval=60.0)
PATIENCE = 10.0


@pytest.fixture
def listening(jmsql_clean_url: str, jmsql_schema: str) -> Iterator[psycopg.Connection]:
    """A connection that hears all notifications of the schema."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        connection.execute(f'listen "{jmsql_schema}"')
        yield connection


@pytest.fixture
def other_connection(jmsql_clean_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(jmsql_clean_url) as connection:
        yield connection


@pytest.fixture
def orders(jmsql_factory: jmsql.ConnectionFactory) -> None:
    """Make the queue: else the first transaction would."""
    with jmsql_factory.create_context() as context:
        context.create_producer().send(ORDERS, "an order")


def send(caller: psycopg.Connection) -> None:
    time.sleep(PROMPT.notification_interval)
    jmsql.enlist(caller, timings=PROMPT).create_producer().send(ORDERS, "an order")


def notifications(listening: psycopg.Connection) -> int:
    """How many there have been since the last call; they come in the order of the commits."""
    listening.execute("listen ended; notify ended")
    for heard, notification in enumerate(listening.notifies(timeout=PATIENCE)):
        if notification.channel == "ended":
            return heard
    raise AssertionError("The server has stopped to notify.")


@pytest.mark.usefixtures("orders")
def test_each_transaction_notifies_if_none_is_open_that_does(
    psycopg_connection: psycopg.Connection, other_connection: psycopg.Connection, listening: psycopg.Connection
) -> None:
    for caller in (psycopg_connection, psycopg_connection, other_connection, psycopg_connection):
        send(caller)
        caller.commit()
        assert notifications(listening) == 1


@pytest.mark.usefixtures("orders")
def test_a_transaction_does_not_notify_beside_an_open_one_that_does(
    psycopg_connection: psycopg.Connection, other_connection: psycopg.Connection, listening: psycopg.Connection
) -> None:
    send(psycopg_connection)
    send(other_connection)
    other_connection.commit()
    assert notifications(listening) == 0
    psycopg_connection.commit()
    send(other_connection)
    other_connection.commit()
    assert notifications(listening) == 2
