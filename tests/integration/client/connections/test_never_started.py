"""Consumers of a connection that nobody has started say so in the log."""

from __future__ import annotations

import threading

import pytest

from jmsql import Connection, ConnectionFactory, Queue
from jmsql.connection_consumers import ThreadServerSessionPool
from jmsql.testing import wait_for
from jmsql.timings import InternalTimings

ORDERS = Queue("orders")


@pytest.fixture
def jmsql_timings() -> InternalTimings:
    return InternalTimings(start_reminder_delay=0.05)


@pytest.fixture
def stopped(factory: ConnectionFactory) -> Connection:
    return factory.create_connection()


def reminders(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if "was never started" in message]


def test_a_receive_that_waits_says_so_once(stopped: Connection, caplog: pytest.LogCaptureFixture) -> None:
    with stopped, stopped.create_session() as session:
        consumer = session.create_consumer(ORDERS)
        assert consumer.receive(timeout=0.2) is None
        assert consumer.receive(timeout=0.2) is None
    [message] = reminders(caplog)
    assert message.startswith("<QueueReceiver queue://orders> receives nothing")


def test_receives_that_do_not_wait_say_so(stopped: Connection, caplog: pytest.LogCaptureFixture) -> None:
    with stopped, stopped.create_session() as session:
        consumer = session.create_consumer(ORDERS)

        def said() -> list[str]:
            assert consumer.receive_no_wait() is None
            return reminders(caplog)

        assert len(wait_for(said)) == 1


def test_a_listener_that_hears_nothing_says_so(stopped: Connection, caplog: pytest.LogCaptureFixture) -> None:
    with stopped, stopped.create_session() as session:
        session.create_consumer(ORDERS).message_listener = lambda _: None
        wait_for(lambda: reminders(caplog))


def test_a_connection_consumer_that_hears_nothing_says_so(
    stopped: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    with stopped, ThreadServerSessionPool(stopped, 1, lambda _: lambda _: None) as pool:
        stopped.create_connection_consumer(ORDERS, None, pool, 1)
        [message] = wait_for(lambda: reminders(caplog))
    assert message.startswith("<ConnectionConsumer queue://orders> receives nothing")


def test_a_connection_that_was_started_and_stopped_says_nothing(
    stopped: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    with stopped, stopped.create_session() as session:
        consumer = session.create_consumer(ORDERS)
        stopped.start()
        stopped.stop()
        assert consumer.receive(timeout=0.2) is None
    assert reminders(caplog) == []


def test_a_message_comes_though_the_connection_is_started_late(
    stopped: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    with stopped, stopped.create_session() as session:
        session.create_producer(ORDERS).send(session.create_text_message("late"))
        consumer = session.create_consumer(ORDERS)

        def start() -> None:
            wait_for(lambda: reminders(caplog))
            stopped.start()

        starting = threading.Thread(target=start)
        starting.start()
        message = consumer.receive(timeout=60)
        starting.join()
    assert message is not None
    assert message.get_body(str) == "late"
