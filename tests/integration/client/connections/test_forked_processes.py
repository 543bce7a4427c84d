"""Processes that are forked while a connection is open: the server goes on with the parent, the child makes its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import connection as pipes

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import orm

import jmsql
from jmsql import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    IllegalStateException,
    JMSException,
    Queue,
    Session,
    TextMessage,
)
from jmsql.testing import wait_for
from tests.background import Background
from tests.forked import ForkedProcess
from tests.integration.client.locked_tables import lock
from tests.integration.client.server import Server
from tests.texts import receive, receive_texts, send_texts

_FORKS = multiprocessing.get_context("fork")


def in_child(call: Callable[[], object]) -> object:
    """Call in a forked process; return what it returns, or the exception that it raises."""
    own, other = _FORKS.Pipe(duplex=False)
    child = _FORKS.Process(target=_tell, args=(other, call))
    child.start()
    result = own.recv()
    child.join()
    return result


def _tell(parent: pipes.Connection, call: Callable[[], object]) -> None:
    try:
        parent.send(call())
    except JMSException as error:
        parent.send(error)


def assert_refused(result: object) -> None:
    assert isinstance(result, IllegalStateException)
    assert "make a connection in each process" in str(result)


def test_child_does_not_use_the_parents_objects(connection: Connection, session: Session, queue: Queue) -> None:
    consumer, producer = session.create_consumer(queue), session.create_producer(queue)
    assert_refused(in_child(connection.create_session))
    assert_refused(in_child(lambda: producer.send(session.create_text_message("child's"))))
    assert_refused(in_child(lambda: consumer.receive(timeout=0.1)))
    assert_refused(in_child(session.create_temporary_queue))
    assert_refused(in_child(lambda: connection.requestor(queue)))
    send_texts(session, queue, "parent's")
    assert receive_texts(consumer, 1) == ["parent's"]


def test_child_does_not_wait_for_a_request_of_the_parent(
    connection: Connection, queue: Queue, server: Server, blocker: psycopg.Connection
) -> None:
    connection.start()
    requestor = connection.requestor(queue)
    with pytest.raises(TimeoutError):
        requestor.request("without a reply", timeout=0.1)
    lock(blocker, "message")

    def ask() -> None:
        with pytest.raises(TimeoutError):
            requestor.request("the parent's", timeout=0.1)

    asking = Background(ask)
    server.wait_until_someone_waits()
    assert_refused(in_child(lambda: requestor.request("the child's", timeout=0.1)))
    blocker.rollback()
    asking.result()


def test_a_requestor_of_a_closed_connection_says_so(connection: Connection, queue: Queue) -> None:
    connection.start()
    requestor = connection.requestor(queue)
    connection.close()
    with pytest.raises(IllegalStateException, match="The connection is closed"):
        requestor.request("too late", timeout=0.1)


def test_child_is_refused_although_a_thread_has_the_lock_of_the_sessions(connection: Connection) -> None:
    held = connection._sessions._lock
    with ThreadPoolExecutor(1) as executor:
        executor.submit(held.acquire).result()
        try:
            assert_refused(in_child(connection.create_session))
            assert in_child(connection.close) is None
        finally:
            executor.submit(held.release).result()


def test_parent_goes_on_when_the_child_closes_its_copy(connection: Connection, session: Session, queue: Queue) -> None:
    transacted = connection.create_session(transacted=True)
    send_texts(transacted, queue, "not yet committed")

    def close() -> None:
        session.close()
        connection.close()

    assert in_child(close) is None
    transacted.commit()
    assert receive_texts(session.create_consumer(queue), 1) == ["not yet committed"]


def test_child_connects_by_the_same_factory(connection: Connection, factory: ConnectionFactory, queue: Queue) -> None:
    def send() -> None:
        with factory.create_context() as context:
            context.create_producer().send(queue, "child's")

    assert in_child(send) is None
    assert receive_texts(connection.create_session().create_consumer(queue), 1) == ["child's"]


def _receive_and_fork(url: str) -> None:
    with ConnectionFactory(f"{url}&application_name=forks").create_connection() as connection:
        connection.start()
        session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        assert session.create_consumer(Queue("orders")).receive(timeout=60)
        helper = os.fork()
        if helper:
            print(helper, flush=True)  # noqa: T201 - for the test
        time.sleep(600)


def test_a_child_that_outlives_its_parent_keeps_no_connection(
    session: Session, queue: Queue, server: Server, jmsql_clean_url: str, connection: Connection
) -> None:
    send_texts(session, queue, "held")
    parent = ForkedProcess(_receive_and_fork, jmsql_clean_url)
    helper = int(parent.read_line())
    try:
        clients = "select from pg_stat_activity where application_name = 'forks'"
        assert server.rows(clients)
        parent.send_signal(signal.SIGKILL)
        wait_for(lambda: not server.rows(clients), 60)
        connection.start()
        assert receive_texts(session.create_consumer(queue), 1) == ["held"]
        os.kill(helper, 0)
    finally:
        os.kill(helper, signal.SIGKILL)
        parent.kill()


def test_children_do_not_repeat_the_ids_of_a_context_in_the_applications_transactions(
    connection: Connection, session: Session, queue: Queue, jmsql_clean_url: str
) -> None:
    connection.start()
    url = jmsql_clean_url.replace("postgresql://", "postgresql+psycopg://", 1)
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    applications = orm.Session(engine)
    producer = jmsql.enlist(applications).create_producer()

    def send() -> str:
        message = TextMessage("in a process")
        producer.send(queue, message)
        applications.commit()
        assert message.jms_message_id is not None
        return message.jms_message_id

    sent = [send(), in_child(send), in_child(send), send()]
    consumer = session.create_consumer(queue)
    assert {receive(consumer).jms_message_id for _ in sent} == set(sent)
    assert len(set(sent)) == 4
