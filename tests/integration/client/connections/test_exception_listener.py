"""The exception listener: told of the connection's problems, one at a time (JMS 1.1 chapter 4.3.8)."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from jmsql import (
    AcknowledgeMode,
    Connection,
    IllegalStateException,
    JMSException,
    Message,
    Queue,
    Session,
    TransactionRolledBackException,
)
from jmsql.testing import wait_for
from tests.integration.client.server import CONTROL, SESSIONS, Server
from tests.texts import receive_texts, send_texts

pytestmark = pytest.mark.usefixtures("maintenance_suspended")

CLOSED_BY_SERVER = {"57P01", "08006"}


class Failures:
    """Keeps what it is told, and notices calls that overlap."""

    def __init__(self) -> None:
        self.told: list[JMSException] = []
        self.threads: set[threading.Thread] = set()
        self.overlaps = 0
        self._busy = threading.Lock()

    def on_exception(self, exception: JMSException) -> None:
        """Take note."""
        if not self._busy.acquire(blocking=False):
            self.overlaps += 1
            return
        threading.Event().wait(0.05)  # long enough to be met by another call
        self.threads.add(threading.current_thread())
        self.told.append(exception)
        self._busy.release()


def test_it_is_called_when_the_control_connection_is_lost(connection: Connection, server: Server) -> None:
    failures = Failures()
    connection.exception_listener = failures
    assert connection.exception_listener is failures
    server.terminate(CONTROL)
    wait_for(lambda: failures.told)
    (failure,) = failures.told
    assert failure.error_code in CLOSED_BY_SERVER
    assert isinstance(failure.linked_exception, psycopg.Error)
    assert threading.main_thread() not in failures.threads
    wait_for(lambda: server.connections(CONTROL) == 1)


def test_it_may_be_a_function(connection: Connection, server: Server) -> None:
    told: list[JMSException] = []
    connection.exception_listener = told.append
    server.terminate(CONTROL)
    wait_for(lambda: told)


@pytest.mark.usefixtures("used_just_now")
@pytest.mark.parametrize("kind", [RuntimeError, SystemExit])
def test_message_listeners_go_on_though_it_fails(
    connection: Connection, others: Session, server: Server, queue: Queue, kind: type[BaseException]
) -> None:
    told, heard = list[JMSException](), list[Message]()

    def failing(error: JMSException) -> None:
        told.append(error)
        raise kind(1)

    connection.exception_listener = failing
    connection.create_session().create_consumer(queue).message_listener = heard.append
    send_texts(others, queue, "a")
    wait_for(lambda: heard)
    server.terminate(SESSIONS)
    wait_for(lambda: told)
    send_texts(others, queue, "b")
    wait_for(lambda: len(heard) == 2)


@pytest.mark.usefixtures("used_just_now")
@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_it_is_told_of_failures_between_message_listeners(
    connection: Connection, mode_session: Session, others: Session, server: Server, queue: Queue, mode: AcknowledgeMode
) -> None:
    failures = Failures()
    connection.exception_listener = failures
    heard: list[Message] = []
    mode_session.create_consumer(queue).message_listener = heard.append
    send_texts(others, queue, "a")
    wait_for(lambda: heard)
    if mode in (AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK):  # not in the middle of the acknowledgement
        wait_for(lambda: server.rows("select count(*) from jmsql_internal.message") == [(0,)])
    server.terminate(SESSIONS)
    send_texts(others, queue, "b")
    wait_for(lambda: len(heard) >= 2)
    (failure,) = failures.told
    assert failure.error_code in CLOSED_BY_SERVER
    assert isinstance(failure.linked_exception, psycopg.Error | JMSException)
    assert isinstance(failure, TransactionRolledBackException) == (mode is AcknowledgeMode.TRANSACTED)


@pytest.mark.usefixtures("used_just_now")
def test_calls_do_not_overlap(connection: Connection, others: Session, server: Server) -> None:
    failures = Failures()
    connection.exception_listener = failures
    heard: list[Message] = []
    queues = [Queue(f"queue {number}") for number in range(4)]
    for queue in queues:
        connection.create_session().create_consumer(queue).message_listener = heard.append
        send_texts(others, queue, "a")
    wait_for(lambda: len(heard) == len(queues))
    server.terminate(SESSIONS)
    server.terminate(CONTROL)
    for queue in queues:
        send_texts(others, queue, "b")
    wait_for(lambda: len(failures.told) == len(queues) + 1)
    assert failures.overlaps == 0


def test_error_of_its_own_does_no_harm(
    connection: Connection, server: Server, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(exception: JMSException) -> None:
        raise ValueError("the listener's own mistake")

    connection.exception_listener = fail
    server.terminate(CONTROL)
    wait_for(lambda: "the listener's own mistake" in caplog.text)
    session = connection.create_session()
    send_texts(session, queue, "a")
    assert receive_texts(session.create_consumer(queue), 1) == ["a"]


def test_it_may_close_the_connection(connection: Connection, server: Server) -> None:
    closed = threading.Event()

    def close(exception: JMSException) -> None:
        connection.close()
        closed.set()

    connection.exception_listener = close
    server.terminate(CONTROL)
    assert closed.wait(60)
    with pytest.raises(IllegalStateException, match="closed"):
        connection.create_session()
    wait_for(lambda: server.connections(CONTROL) + server.connections(SESSIONS) == 0)


def test_it_can_be_replaced_and_removed(connection: Connection, server: Server) -> None:
    first, second = Failures(), Failures()
    connection.exception_listener = first
    connection.exception_listener = second
    server.terminate(CONTROL)
    wait_for(lambda: second.told)
    connection.exception_listener = None
    assert connection.exception_listener is None
    assert first.told == []


@pytest.mark.parametrize("listener", ["text", 42, object()])
def test_an_object_that_cannot_listen_is_refused(
    connection: Connection, session: Session, queue: Queue, listener: Any
) -> None:
    with pytest.raises(TypeError, match="exception listener"):
        connection.exception_listener = listener
    with pytest.raises(TypeError, match="message listener"):
        session.create_consumer(queue).message_listener = listener
