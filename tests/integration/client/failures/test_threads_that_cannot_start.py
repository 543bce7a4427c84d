"""Clients of a process that can start no further thread."""

from __future__ import annotations

import psycopg
import pytest

from jmsql import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    JMSException,
    Queue,
    ResourceAllocationException,
    Session,
    enlist,
)
from jmsql.testing import wait_for
from tests.integration.asynchronous_send.completions import Completions
from tests.integration.client.connections.server_session_pools import Heard, listening
from tests.refused_threads import Refusal
from tests.texts import receive_texts, send_texts


def test_a_lazy_session_keeps_a_message_until_its_thread_can_start(
    connection: Connection, others: Session, queue: Queue
) -> None:
    send_texts(others, queue, "a", "b")
    consumer = connection.create_session(acknowledge_mode=AcknowledgeMode.DUPS_OK).create_consumer(queue)
    with Refusal("jmsql-acknowledging"), pytest.raises(ResourceAllocationException, match="jmsql-acknowledging"):
        consumer.receive(0)
    assert receive_texts(consumer, 2) == ["a", "b"]


def test_a_listener_can_be_set_once_a_thread_can_start(connection: Connection, others: Session, queue: Queue) -> None:
    consumer = connection.create_session().create_consumer(queue)
    heard = Heard()
    send_texts(others, queue, "a")
    with Refusal("jmsql-listener"), pytest.raises(ResourceAllocationException, match="ulimit -u"):
        consumer.set_message_listener(heard.hear)
    assert receive_texts(consumer, 1) == ["a"]
    send_texts(others, queue, "b")
    consumer.set_message_listener(heard.hear)
    heard.wait_for(1)
    assert heard.texts == ["b"]


def test_a_session_closes_whose_listener_had_no_thread(connection: Connection, queue: Queue) -> None:
    session = connection.create_session()
    with Refusal("jmsql-listener"), pytest.raises(JMSException):
        session.create_consumer(queue).set_message_listener(Heard().hear)
    session.close()
    assert session.closed


@pytest.mark.parametrize("transacted", [False, True])
def test_messages_are_sent_asynchronously_once_a_thread_can_start(
    connection: Connection, others: Session, queue: Queue, transacted: bool
) -> None:
    completions = Completions()
    with connection.create_session(transacted) as session:
        producer = session.create_producer(queue)
        with Refusal("jmsql-sender"), pytest.raises(ResourceAllocationException):
            producer.send(session.create_text_message("a"), completion_listener=completions)
        producer.send(session.create_text_message("b"), completion_listener=completions)
        if transacted:
            session.commit()
    assert completions.sent == ["b"]
    assert receive_texts(others.create_consumer(queue), 1) == ["b"]


def test_a_session_closes_whose_sender_had_no_thread(connection: Connection, queue: Queue) -> None:
    session = connection.create_session()
    with Refusal("jmsql-sender"), pytest.raises(JMSException):
        session.create_producer(queue).send(session.create_text_message("a"), completion_listener=Completions())
    session.close()
    assert session.closed


def test_a_pool_runs_its_session_once_a_thread_can_start(connection: Connection, others: Session, queue: Queue) -> None:
    errors: list[JMSException] = []
    connection.set_exception_listener(errors.append)
    heard = Heard()
    send_texts(others, queue, "a")
    with Refusal("jmsql-server-session") as refusal, listening(connection, queue, heard):
        wait_for(lambda: len(refusal.names) > 1, timeout=60)  # the session went back to the pool after the first
        refusal.end()
        heard.wait_for(1)
    assert heard.texts == ["a"]
    assert {type(error) for error in errors} == {ResourceAllocationException}


def test_a_client_without_a_thread_for_its_control_connection_is_refused(factory: ConnectionFactory) -> None:
    with Refusal("jmsql-control"), pytest.raises(ResourceAllocationException, match="can't start new thread"):
        factory.create_connection()


def test_an_application_makes_its_queue_itself_if_no_thread_can_make_it_beside(
    connection: Connection, jmsql_clean_url: str, jmsql_schema: str, others: Session
) -> None:
    with psycopg.connect(jmsql_clean_url) as transaction:
        with Refusal("jmsql-making-a-queue") as refusal:
            context = enlist(transaction, schema=jmsql_schema)
            context.create_producer().send(Queue("new"), "a")
        assert refusal.names
    assert receive_texts(others.create_consumer(Queue("new")), 1) == ["a"]
