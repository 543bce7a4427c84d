"""Anybody may notify on jmsql's channel: no payload ends a client's control thread, and nothing else does either."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from jmsql import AcknowledgeMode, Connection, JMSException, MessageConsumer, Queue, Session
from jmsql.testing import wait_for
from tests.background import Background
from tests.integration.client.delivery.test_notifications import jmsql_timings  # noqa: F401 - a fixture
from tests.integration.client.server import CONTROL, Server
from tests.texts import receive_texts, send_texts, texts_of

OWN_ROW = "select connection_id from jmsql_internal.connection order by connection_id"
PAYLOADS = [
    *("x", "", " ", "1 x", "1 2 x", "1 2 3 4", "1 2 3 4 5", "\x01\x7f\x1b", "٣", "🐇", "1_0", "NaN", "' or 1=1"),
    *("9" * 7999, "-1", "1 99 1", "1 -1 1", "1 0 -1", "99999999999", f"1 {2**64}", f"1 0 {2**64}"),
]


@pytest.fixture
def stranger(server: Server, jmsql_clean_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of a role that has no privilege at all."""
    server.rows("create role notifying_stranger")
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        connection.execute("set role notifying_stranger")
        yield connection
    server.rows("drop role notifying_stranger")


def test_malformed_payloads_are_ignored(
    connection: Connection, others: Session, server: Server, stranger: psycopg.Connection[Any], queue: Queue
) -> None:
    told: list[JMSException] = []
    connection.exception_listener = told.append
    before = server.rows(OWN_ROW)
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    send_texts(others, queue, "a")
    consumer = session.create_consumer(queue)
    held = consumer.receive(60)
    assert held is not None
    receiving = Background(lambda: texts_of([message for message in [consumer.receive(60)] if message]))
    receiving.wait_until_it_waits()
    for payload in PAYLOADS:
        stranger.execute("select pg_notify('jmsql', %s)", [payload])
    stranger.execute("select pg_notify('jmsql', 'x' || n) from generate_series(1, 10000) as n")
    send_texts(others, queue, "b")
    assert receiving.result() == ["b"]
    held.acknowledge()
    assert receive_texts(session.create_consumer(queue), 0) == []
    assert server.rows("select count(*) from jmsql_internal.message") == [(0,)], "the claims are still the client's"
    assert server.rows(OWN_ROW) == before
    assert told == []


def test_well_formed_payloads_that_no_client_sent_do_no_harm(
    connection: Connection, others: Session, server: Server, stranger: psycopg.Connection[Any], queue: Queue
) -> None:
    session = connection.create_session(transacted=True)
    send_texts(others, queue, "a", "b", "c")
    consumer = session.create_consumer(queue)
    assert receive_texts(consumer, 1) == ["a"]
    ((queue_id,),) = server.rows("select queue_id from jmsql_internal.queue where name = 'orders'")
    for key in ("", " 0 0", f" 0 {2**63 - 1}", " 9 1", f" {-(2**63)}", " 1"):
        stranger.execute("select pg_notify('jmsql', %s)", [f"{queue_id}{key}"])
    assert receive_texts(consumer, 2) == ["b", "c"]
    session.commit()
    send_texts(others, queue, "d")
    assert receive_texts(consumer, 1) == ["d"]


def wait_for_news(connection: Connection, consumer: MessageConsumer, handler: Callable[[object], None]) -> None:
    """Have a handler called when there are messages for a consumer, for as long as the connection lives."""
    for channel in consumer._state.buffer.source.channels:
        connection._control.begin_waiting(channel, handler)


def raise_type_error(*arguments: object) -> None:
    raise TypeError("a mistake within")


@pytest.mark.parametrize("fail", [raise_type_error, lambda *arguments: sys.exit()], ids=["error", "exit"])
@pytest.mark.parametrize("step", ["hearing", "maintaining", "notifying"])
def test_any_exception_of_the_thread_is_a_lost_connection(
    connection: Connection,
    server: Server,
    queue: Queue,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    fail: Callable[..., None],
) -> None:
    told: list[JMSException] = []
    connection.exception_listener = told.append
    session = connection.create_session()
    consumer = session.create_consumer(queue)
    (before,) = server.rows(OWN_ROW)
    wait_for_news(connection, consumer, lambda _: None)
    wait_for(lambda: not connection._control.wake_ups.unannounced())
    with monkeypatch.context() as patch:
        control = connection._control
        patched: tuple[object, str] = {
            "hearing": (control._service, "_heed"),
            "maintaining": (control._service, "_run_postponable"),
            "notifying": (control.notifier, "run"),
        }[step]
        patch.setattr(*patched, fail)
        send_texts(session, queue, "a")
        wait_for(lambda: told)
        assert isinstance(told[0].linked_exception, TypeError | SystemExit)
    wait_for(lambda: server.connections(CONTROL) == 1 and server.rows(OWN_ROW) not in ([], [before]))
    assert receive_texts(consumer, 1) == ["a"]
    receiving = Background(lambda: receive_texts(consumer, 1))
    receiving.wait_until_it_waits()
    send_texts(session, queue, "b")
    assert receiving.result() == ["b"], "notifications are heard again"


@pytest.mark.parametrize("error", [ValueError("its own mistake"), SystemExit(1), KeyboardInterrupt()])
def test_exception_of_a_notification_handler_or_a_listener_is_survived(
    connection: Connection, others: Session, server: Server, queue: Queue, error: BaseException
) -> None:
    told: list[JMSException] = []

    def fail(exception: JMSException) -> None:
        told.append(exception)
        raise error

    connection.exception_listener = fail
    session = connection.create_session()
    consumer = session.create_consumer(queue)
    handler_failures = [error]

    def fail_once(key: object) -> None:
        if handler_failures:
            raise handler_failures.pop()

    before = (connection._control.connection_id,)
    wait_for_news(connection, consumer, fail_once)
    send_texts(others, queue, "a")
    wait_for(lambda: len(told) == 1)
    assert told[0].linked_exception is error
    wait_for(lambda: server.connections(CONTROL) == 1 and before not in server.rows(OWN_ROW))
    server.terminate(CONTROL)
    wait_for(lambda: len(told) == 2)
    assert receive_texts(consumer, 1) == ["a"]


def test_thread_that_fails_at_once_each_time_does_so_ever_more_rarely(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []
    connection.exception_listener = lambda exception: told.append(time.monotonic())
    with monkeypatch.context() as patch:
        patch.setattr(connection._control.notifier, "run", raise_type_error)
        wait_for(lambda: len(told) >= 4)
    assert told[3] - told[0] > 0.5, "0.1 + 0.2 + 0.4 seconds, within a fifth"
