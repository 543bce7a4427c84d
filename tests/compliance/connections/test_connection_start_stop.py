"""Starting and stopping a connection: JMS 1.1 chapters 4.3.3 to 4.3.5."""

from __future__ import annotations

import threading

import pytest

from jmsql import AcknowledgeMode, Connection, ConnectionFactory, Message, Queue, Session
from jmsql.testing import receive_all


def send(session: Session, queue: Queue, *texts: str) -> None:
    producer = session.create_producer(queue)
    for text in texts:
        producer.send(session.create_text_message(text))


@pytest.mark.requirement("connection.stopped")
@pytest.mark.case("connection-start-stop-01")
@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_stopped_connection_does_not_deliver_earlier_messages(
    connection: Connection, session: Session, queue: Queue, mode: AcknowledgeMode
) -> None:
    consumer = connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode).create_consumer(queue)
    send(session, queue, "a", "b", "c", "d")
    assert [message.get_body(str) for _ in range(2) if (message := consumer.receive(timeout=0))] == ["a", "b"]
    connection.stop()
    assert consumer.receive(timeout=0) is None
    assert consumer.receive_no_wait() is None
    connection.start()
    assert [message.get_body(str) for message in receive_all(consumer)] == ["c", "d"]


@pytest.mark.requirement("connection.stopped")
@pytest.mark.case("connection-start-stop-01")
def test_stopped_connection_calls_no_listener(connection: Connection, session: Session, queue: Queue) -> None:
    received: list[str | None] = []
    first, last = threading.Event(), threading.Event()

    def listen(message: Message) -> None:
        received.append(message.get_body(str))
        (last if message.get_body(str) == "last" else first).set()

    connection.create_session().create_consumer(queue).message_listener = listen
    send(session, queue, "first")
    assert first.wait(60)
    connection.stop()
    send(session, queue, "second", "last")
    with connection.create_session().create_browser(queue) as browser:
        assert [message.get_body(str) for message in browser] == ["second", "last"]
    assert received == ["first"]
    connection.start()
    assert last.wait(60)
    assert received == ["first", "second", "last"]


@pytest.mark.requirement("connection.creation", "connection.stopped", "connection.stopped.send")
@pytest.mark.case("connection-start-stop-02")
def test_new_connection_sends_and_delivers_nothing(jmsql_factory: ConnectionFactory, queue: Queue) -> None:
    with jmsql_factory.create_connection() as connection:
        session = connection.create_session()
        consumer = session.create_consumer(queue)
        listened: list[object] = []
        connection.create_session().create_consumer(queue).message_listener = listened.append
        send(session, queue, "sent")
        assert consumer.receive(timeout=0) is None
        with session.create_browser(queue) as browser:
            assert [message.get_body(str) for message in browser] == ["sent"]
        assert listened == []


@pytest.mark.requirement("connection.start.started")
@pytest.mark.case("connection-start-stop-03")
def test_start_of_a_started_connection_changes_nothing(connection: Connection, session: Session, queue: Queue) -> None:
    connection.start()
    send(session, queue, "a")
    assert [message.get_body(str) for message in receive_all(session.create_consumer(queue))] == ["a"]
    connection.stop()
    send(session, queue, "b")
    assert session.create_consumer(queue).receive(timeout=0) is None


@pytest.mark.requirement("connection.stop.stopped")
@pytest.mark.case("connection-start-stop-04")
def test_stop_of_a_stopped_connection_changes_nothing(connection: Connection, session: Session, queue: Queue) -> None:
    connection.stop()
    connection.stop()
    send(session, queue, "a")
    consumer = session.create_consumer(queue)
    assert consumer.receive(timeout=0) is None
    connection.start()
    assert [message.get_body(str) for message in receive_all(consumer)] == ["a"]
