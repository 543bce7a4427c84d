"""Stopping and closing a connection while a receive waits: JMS 1.1 chapter 4.3.5."""

from __future__ import annotations

import time

import pytest

from jmsql import AcknowledgeMode, Connection, Queue, Session
from tests.background import Background


@pytest.mark.requirement("connection.close.receivers")
@pytest.mark.case("connection-receiver-stop-close-01")
@pytest.mark.parametrize("mode", list(AcknowledgeMode))
@pytest.mark.parametrize("timeout", [None, 30.0])
def test_close_ends_a_receive_that_waits(
    connection: Connection, queue: Queue, mode: AcknowledgeMode, timeout: float | None
) -> None:
    session = connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
    consumer = session.create_consumer(queue)
    receiving = Background(lambda: consumer.receive(timeout=timeout))
    receiving.wait_until_it_waits()
    connection.close()
    assert receiving.result() is None


@pytest.mark.requirement("connection.close.receivers")
@pytest.mark.case("connection-receiver-stop-close-01")
def test_close_ends_a_receive_on_a_stopped_connection(connection: Connection, queue: Queue) -> None:
    consumer = connection.create_session().create_consumer(queue)
    connection.stop()
    receiving = Background(consumer.receive)
    receiving.wait_until_it_waits()
    connection.close()
    assert receiving.result() is None


@pytest.mark.requirement("connection.stop.receivers")
@pytest.mark.case("connection-receiver-stop-close-02")
def test_receive_that_waits_across_a_stop_gets_its_message(
    connection: Connection, session: Session, queue: Queue
) -> None:
    consumer = connection.create_session().create_consumer(queue)
    receiving = Background(lambda: consumer.receive(timeout=30))
    receiving.wait_until_it_waits()
    connection.stop()
    session.create_producer(queue).send(session.create_text_message("sent while stopped"))
    receiving.wait_until_it_waits()
    connection.start()
    message = receiving.result()
    assert message is not None
    assert message.get_body(str) == "sent while stopped"


@pytest.mark.requirement("connection.stop.receivers")
@pytest.mark.case("connection-receiver-stop-close-03")
@pytest.mark.parametrize("stopped_before", [True, False])
def test_timeout_of_a_receive_runs_on_while_stopped(
    connection: Connection, session: Session, queue: Queue, stopped_before: bool
) -> None:
    consumer = connection.create_session().create_consumer(queue)
    started = time.monotonic()
    if stopped_before:
        connection.stop()
    receiving = Background(lambda: consumer.receive(timeout=0.2))
    connection.stop()
    session.create_producer(queue).send(session.create_text_message("sent while stopped"))
    assert receiving.result() is None
    assert time.monotonic() - started >= 0.2
    connection.start()
    assert consumer.receive(timeout=0) is not None
