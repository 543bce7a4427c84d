"""A server that stops, and one that keeps a session waiting: the session says so, and goes on when it can."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from jmsql import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    JMSException,
    Message,
    MessageConsumer,
    Queue,
    Session,
    TransactionRolledBackException,
)
from jmsql.embedded import start_server
from jmsql.testing import receive_all
from tests.background import Background
from tests.integration.client.failures.refusal import refused
from tests.integration.client.locked_tables import LIMITS, lock
from tests.integration.client.server import with_parameters
from tests.prepared_data import prepare_data
from tests.slowness import scaled
from tests.texts import receive, receive_texts, send_texts, texts_of

pytestmark = pytest.mark.usefixtures("maintenance_suspended")

QUEUE = Queue("orders")


def uses(session: Session, queue: Queue, consumer: MessageConsumer, held: Message) -> list[Callable[[], object]]:
    """What fails in a session without a server."""
    producer, browser = session.create_producer(queue), session.create_browser(queue)
    calls: list[Callable[[], object]] = [
        lambda: list(browser),
        lambda: session.create_consumer(Queue("new")),
        lambda: session.create_producer(Queue("new")),
    ]
    if session.transacted:
        producer.send(session.create_message())
        calls += [lambda: session.database, session.commit]
    else:
        calls.append(lambda: producer.send(session.create_message()))
    if session.acknowledge_mode is AcknowledgeMode.CLIENT:
        calls += [held.acknowledge, session.recover]
    return [*calls, lambda: [consumer.receive(timeout=0) for _ in range(3)]]


def test_server_that_stops_while_sessions_are_in_use(caplog: pytest.LogCaptureFixture) -> None:
    directory = Path(tempfile.mkdtemp(prefix="jmsql-errors-"))
    directory.chmod(0o711)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory)
        prepare_data(directory / "server")
        server = stack.enter_context(start_server(directory / "server", durable=False))
        connection = stack.enter_context(ConnectionFactory(server.url).create_connection())
        connection.start()
        calls: list[tuple[Session, list[Callable[[], object]]]] = []
        for mode in AcknowledgeMode:
            session, queue = connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode), Queue(mode.name)
            send_texts(session, queue, "a", "b", "c")
            consumer = session.create_consumer(queue)
            held = receive(consumer)
            calls.append((session, uses(session, queue, consumer, held)))
        server.stop()

        for session, calls_of_session in calls:
            for call in calls_of_session:
                with pytest.raises(JMSException, match=r"PostgreSQL|server|rolled back") as failure:
                    call()
                assert failure.value.error_code is not None
            if session.transacted:
                session.rollback()
        connection.close()
    assert "Traceback" not in caplog.text


@pytest.fixture
def limited(jmsql_factory: ConnectionFactory, limit: str) -> Iterator[Connection]:
    """A connection whose statements wait for others no longer than a moment."""
    url = with_parameters(str(jmsql_factory.url), options=f"-c{limit}={scaled(250):.0f}ms")
    factory = ConnectionFactory(url, schema=jmsql_factory.schema, control_url=jmsql_factory.url)
    with factory.create_connection() as connection:
        connection.start()
        yield connection


@LIMITS
@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_statement_that_takes_too_long(
    limited: Connection, blocker: psycopg.Connection, others: Session, mode: AcknowledgeMode, limit: str, code: str
) -> None:
    session = limited.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
    send_texts(others, QUEUE, "a", "b", "c", "d", "e", "f")
    producer, consumer = session.create_producer(QUEUE), session.create_consumer(QUEUE)
    browser = session.create_browser(QUEUE)
    held = receive(consumer)
    session.create_producer(Queue("another")).close()
    if session.transacted:
        session.commit()

    lock(blocker, "message", "delivery", "queue")
    calls: list[Callable[[], object]] = [
        lambda: list(browser),
        lambda: [consumer.receive(timeout=0) for _ in range(3)],
        lambda: session.create_producer(Queue("new")),
        lambda: session.create_consumer(Queue("new")),
    ]
    if not session.transacted:
        calls.append(lambda: producer.send(session.create_message()))
    if mode is AcknowledgeMode.CLIENT:
        calls += [held.acknowledge, session.recover]
    for call in calls:
        if session.transacted:
            session.rollback()
        refused(call, JMSException, code, limit)
    if session.transacted:
        session.rollback()
        producer.send(session.create_message())
        refused(session.commit, TransactionRolledBackException, code, limit)

    blocker.rollback()
    send_texts(session, Queue("another"), "x")
    assert texts_of(receive_all(others.create_consumer(Queue("another")))) == ["x"]


@LIMITS
def test_control_connection_may_have_a_limit_too(jmsql_clean_url: str, others: Session, limit: str, code: str) -> None:
    url = with_parameters(jmsql_clean_url, options=f"-c{limit}=5s")
    with ConnectionFactory(url).create_connection() as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(QUEUE)
        receiving = Background(lambda: receive_texts(consumer, 1))
        receiving.wait_until_it_waits()
        send_texts(others, QUEUE, "a")
        assert receiving.result() == ["a"]
