"""The server's queue of notifications is full: messages are sent and received all the same, and no commit fails."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import jmsql
from jmsql import ConnectionFactory, Queue, ResourceAllocationException
from jmsql.admin import Administration
from jmsql.embedded import start_server
from jmsql.testing import FAST_TIMINGS
from tests.prepared_data import prepare_data

ORDERS = Queue("orders")


def fill(connection: psycopg.Connection[Any]) -> None:
    with contextlib.suppress(psycopg.errors.ProgramLimitExceeded):
        while True:
            connection.execute("select pg_notify('other', repeat('x', 7900) || clock_timestamp())")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server whose queue of notifications is full, since a session that listens stays in its transaction."""
    with tempfile.TemporaryDirectory(prefix="jmsql-notifications-") as parent:
        Path(parent).chmod(0o711)
        directory = Path(parent) / "server"
        prepare_data(directory)
        with (
            start_server(directory, durable=False) as server,
            psycopg.connect(server.url, autocommit=True) as connection,
        ):
            if connection.info.server_version < 170000:
                pytest.skip("the size of the queue of notifications is fixed before PostgreSQL 17")
            connection.execute("alter system set max_notify_queue_pages = 64")
        with start_server(directory, durable=False) as server, psycopg.connect(server.url) as listener:
            jmsql.migrate(server.url)
            listener.execute("listen other")
            listener.commit()
            listener.execute("select 1")
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute("create table orders (number integer)")
                fill(connection)
            yield server.url


def test_a_client_sends_and_receives_on(url: str) -> None:
    factory = ConnectionFactory(url, timings=FAST_TIMINGS)
    with factory.create_context() as sender, factory.create_context() as receiver:
        consumer = receiver.create_consumer(ORDERS)
        assert consumer.receive(timeout=0) is None
        for number in range(3):
            sender.create_producer().send(ORDERS, {"number": number})
            message = consumer.receive(timeout=10)
            assert message is not None
            assert message.get_body(dict) == {"number": number}
            assert not message.jms_redelivered


@pytest.mark.parametrize("delay", [0.0, 0.001], ids=["", "delayed"])
def test_the_application_keeps_its_transaction(url: str, delay: float) -> None:
    queue = Queue(f"enlisted {delay}")
    with psycopg.connect(url) as transaction:
        transaction.execute("insert into orders values (1)")
        jmsql.enlist(transaction).create_producer(delivery_delay=delay).send(queue, "text")
        transaction.commit()
        transaction.execute("select jmsql.send(%s, 'text', delivery_delay => %s)", [queue.name, f"{delay} s"])
    with ConnectionFactory(url, timings=FAST_TIMINGS).create_context() as receiver:
        consumer = receiver.create_consumer(queue)
        assert all(consumer.receive(timeout=10) is not None for _ in range(2))


def test_errors_say_what_is_full(url: str) -> None:
    with Administration(url) as administration:
        administration.create_queue("paused")
        with pytest.raises(ResourceAllocationException, match="queue of notifications is full") as refused:
            administration.pause("paused")
        assert refused.value.error_code == "54000"
