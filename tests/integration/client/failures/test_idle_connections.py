"""The server, or a pooler, ends a connection while nothing is open on it."""

from __future__ import annotations

import psycopg
import pytest

import jmsql
from jmsql import AcknowledgeMode, ConnectionFactory, Queue, Session
from jmsql.admin import Administration
from jmsql.testing import wait_for
from tests.integration.client.server import CONTROL, SESSIONS, Server, with_parameters
from tests.texts import receive, receive_texts, send_texts

MORE_THAN_A_BATCH = 501
"""Messages of a transaction of which the first are inserted before its commit."""

pytestmark = pytest.mark.usefixtures("used_long_ago")


@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_next_send_takes_another_connection(
    mode_session: Session, others: Session, queue: Queue, server: Server
) -> None:
    with mode_session.create_producer(queue) as producer:
        for text in ("a", "b"):
            producer.send(mode_session.create_text_message(text))
            if mode_session.transacted:
                mode_session.commit()
            assert server.terminate(SESSIONS)
    assert sorted(receive_texts(others.create_consumer(queue), 2)) == ["a", "b"]


@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_next_receive_takes_another_connection(
    mode_session: Session, others: Session, queue: Queue, server: Server
) -> None:
    consumer = mode_session.create_consumer(queue)
    assert consumer.receive_no_wait() is None
    if mode_session.transacted:
        mode_session.commit()
    server.terminate(SESSIONS)
    send_texts(others, queue, "a")
    assert receive_texts(consumer, 1) == ["a"]


@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_a_receive_after_another_takes_another_connection(
    mode: AcknowledgeMode, mode_session: Session, others: Session, queue: Queue, server: Server
) -> None:
    # The answer to the commit of the first one is still unread then.
    consumer = mode_session.create_consumer(queue)
    for text in ("a", "b"):
        send_texts(others, queue, text)
        assert receive_texts(consumer, 1) == [text]
        if mode_session.transacted:
            mode_session.commit()
        if mode is AcknowledgeMode.AUTO:
            wait_for(lambda: server.rows("select from jmsql.messages") == [])
        server.terminate(SESSIONS)


@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_next_browse_takes_another_connection(mode_session: Session, queue: Queue, server: Server) -> None:
    with mode_session.create_browser(queue) as browser:
        assert list(browser) == []
        if mode_session.transacted:
            mode_session.commit()
        assert server.terminate(SESSIONS)
        assert list(browser) == []


@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_next_batch_takes_another_connection(mode_session: Session, queue: Queue, server: Server) -> None:
    for name in ("first", "second"):
        with jmsql.batch(mode_session, name, on_end=queue):
            pass
        if mode_session.transacted:
            mode_session.commit()
        assert server.terminate(SESSIONS) or name == "second"


@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_next_send_under_a_condition_takes_another_connection(
    mode_session: Session, others: Session, queue: Queue, server: Server
) -> None:
    for text in ("a", "b"):
        assert jmsql.send(mode_session, queue, text, deduplication_id=text) is not None
        if mode_session.transacted:
            mode_session.commit()
        assert server.terminate(SESSIONS)
    assert sorted(receive_texts(others.create_consumer(queue), 2)) == ["a", "b"]


@pytest.mark.parametrize("mode", [AcknowledgeMode.TRANSACTED])
def test_an_insertion_before_the_commit_takes_another_connection(
    mode_session: Session, others: Session, queue: Queue, server: Server
) -> None:
    with mode_session.create_producer(queue) as producer:
        for text in ("a", "b"):
            for _ in range(MORE_THAN_A_BATCH):
                producer.send(mode_session.create_text_message(text))
            mode_session.commit()
            assert server.terminate(SESSIONS)
    assert len(receive_texts(others.create_consumer(queue), 2 * MORE_THAN_A_BATCH)) == 2 * MORE_THAN_A_BATCH


def test_an_administration_takes_another_connection(jmsql_clean_url: str, server: Server) -> None:
    name = "idle administration"
    with Administration(with_parameters(jmsql_clean_url, application_name=name)) as administration:
        assert list(administration.queues()) == []
        assert server.terminate(name) == 1
        administration.create_queue("orders")
        assert server.connections(name) == 1


def wait_until_it_ends(server: Server, pid: int) -> None:
    """Return when a server process has ended."""
    wait_for(lambda: server.rows("select from pg_stat_activity where pid = %s", pid) == [])


def test_server_that_ends_idle_connections_leaves_a_client_connected(
    jmsql_clean_url: str, jmsql_schema: str, server: Server, queue: Queue
) -> None:
    # With its control connection, a client would lose its claims.
    url = with_parameters(jmsql_clean_url, options="-cidle_session_timeout=300ms")
    control_url = with_parameters(url, application_name=CONTROL)
    factory = ConnectionFactory(jmsql_clean_url, control_url=control_url, schema=jmsql_schema)
    control_connection = "select pid from pg_stat_activity where application_name = %s"
    with factory.create_connection() as connection:
        connection.start()
        session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        send_texts(session, queue, "a")
        claimed = receive(session.create_consumer(queue))
        before = server.rows(control_connection, CONTROL)
        for _ in range(3):  # a client asks for the maintenance once a second, most of them less often
            with psycopg.connect(url) as idle:
                wait_until_it_ends(server, idle.info.backend_pid)
        assert server.rows(control_connection, CONTROL) == before
        claimed.acknowledge()
