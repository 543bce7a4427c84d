"""Closing a session while a receive waits: JMS 1.1 chapter 4.4.1."""

from __future__ import annotations

import pytest

from jmsql import AcknowledgeMode, Connection, Queue, Session
from jmsql.testing import wait_for
from tests.background import Background
from tests.texts import receive_texts, send_texts

MODES = pytest.mark.parametrize("mode", list(AcknowledgeMode))


@pytest.mark.requirement("session.close.receivers")
@pytest.mark.case("session-receiver-close-01")
@MODES
@pytest.mark.parametrize("timeout", [None, 30.0])
def test_close_ends_a_receive_that_waits(
    connection: Connection, session: Session, queue: Queue, mode: AcknowledgeMode, timeout: float | None
) -> None:
    waiting = connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
    consumer = waiting.create_consumer(queue)
    receiving = Background(lambda: consumer.receive(timeout=timeout))
    receiving.wait_until_it_waits()
    waiting.close()
    assert receiving.result() is None
    send_texts(session, queue, "a")
    assert receive_texts(session.create_consumer(queue), 1) == ["a"]


@pytest.mark.requirement("session.close.receivers")
@pytest.mark.case("session-receiver-close-01")
@MODES
def test_close_ends_a_receive_on_a_stopped_connection(
    connection: Connection, queue: Queue, mode: AcknowledgeMode
) -> None:
    connection.stop()
    waiting = connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
    receiving = Background(waiting.create_consumer(queue).receive)
    receiving.wait_until_it_waits()
    waiting.close()
    assert receiving.result() is None


@pytest.mark.requirement("session.close.receivers")
@MODES
def test_closing_the_consumer_ends_its_receive_too(connection: Connection, queue: Queue, mode: AcknowledgeMode) -> None:
    waiting = connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
    consumer = waiting.create_consumer(queue)
    receiving = Background(consumer.receive)
    receiving.wait_until_it_waits()
    consumer.close()
    assert receiving.result() is None
    assert not waiting._state.closed


@pytest.mark.requirement("session.close.receivers")
def test_iteration_ends_when_the_session_closes(connection: Connection, session: Session, queue: Queue) -> None:
    waiting = connection.create_session()
    consumer = waiting.create_consumer(queue)
    send_texts(session, queue, "a", "b")
    received: list[object] = []
    iterating = Background(lambda: received.extend(message.get_body(str) for message in consumer))
    wait_for(lambda: len(received) == 2)
    iterating.wait_until_it_waits()
    waiting.close()
    iterating.result()
    assert received == ["a", "b"]


@pytest.mark.requirement("session.close.receivers")
def test_iteration_ends_when_the_session_closes_between_two_messages(
    connection: Connection, session: Session, queue: Queue
) -> None:
    closing = connection.create_session()
    messages = iter(closing.create_consumer(queue))
    send_texts(session, queue, "a", "b")
    assert next(messages).get_body(str) == "a"
    closing.close()
    assert list(messages) == []
