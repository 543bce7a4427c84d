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
from jmsql.embedded import start_server
from jmsql.store.errors import translate
from jmsql.store.maintenance.maintenance import reap_expired
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.testing import FAST_TIMINGS, wait_for
from tests.prepared_data import prepare_data

ORDERS = Queue("orders")
PREPARATION = (
    "delete from jmsql_internal.queue where name in ('source', 'target', 'kept')",
    "delete from jmsql_internal.message",
    "delete from jmsql_internal.message_history",
    "select jmsql.create_queue('source'), jmsql.create_queue('target')",
    """select jmsql.create_queue('kept', '{"history": true}')""",
    "select jmsql.send('source', 'now'), jmsql.send('source', 'later', delivery_delay => interval '1 hour')",
    "select jmsql.send('DLQ', 'letter'), jmsql.send('kept', 'text')",
    "select jmsql.purge('kept')",
    """update jmsql_internal.message set properties =
       '{"JMS_jmsql_DeadLetterReason": "rejected", "JMS_jmsql_OriginalDestination": "queue://target"}'
       where text_body = 'letter'""",
)


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
            message = consumer.receive(timeout=60)
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
        assert all(consumer.receive(timeout=60) is not None for _ in range(2))


@pytest.mark.parametrize(
    ("statement", "answer"),
    [
        ("select jmsql.move('source', 'target')", 2),
        ("select jmsql.retry('DLQ')", 1),
        ("select jmsql.replay('kept', 'target', '-infinity', outcomes => '{purged}')", 1),
        ("select jmsql.cancel(message_id) from jmsql.messages where queue = 'source' and state = 'ready'", "removed"),
        ("select jmsql.deliver('source')", 1),
        ("select jmsql.purge('source', array(select sequence from jmsql.messages where queue = 'source'), 1)", 1),
        ("select jmsql.pause('source')", ""),
        ("""select jmsql.alter_destination('source', '{"history": true}')""", ""),
        ("select jmsql.delete_destination('source')", ""),
    ],
)
def test_functions_of_administrators_go_on(url: str, statement: str, answer: object) -> None:
    """A notification would fail the commit."""
    with psycopg.connect(url, autocommit=True) as database:
        for each in PREPARATION:
            database.execute(each)
        assert database.execute(statement.encode()).fetchone() == (answer,)


def test_an_expired_message_leaves_its_result(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as database:
        database.execute("select jmsql.create_queue('expiring')")
        database.execute(
            "insert into jmsql_internal.result_keeping (queue_id, seconds, keeps_message)"
            " select queue_id, 60, false from jmsql_internal.queue where name = 'expiring'"
        )
        database.execute("select jmsql.send('expiring', 'text', time_to_live => '1 ms')")
        runner = PsycopgRunner(database, "jmsql")
        wait_for(lambda: runner.run(reap_expired.bind(limit=100)) == 1)
        assert database.execute("select state from jmsql.results").fetchall() == [("expired",)]


def test_an_error_says_that_the_queue_is_full(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as application:
        with pytest.raises(psycopg.errors.ProgramLimitExceeded) as refused:
            application.execute("notify other, 'of the application'")
        error = translate(refused.value, "committing")
    assert isinstance(error, ResourceAllocationException)
    assert error.error_code == "54000"
    assert "queue of notifications is full" in str(error)
