"""Connection consumers when listeners fail, pools are of no use, connections are cut, and processes killed."""

from __future__ import annotations

import json
import sys
import threading

import pytest

import jmsql
from jmsql import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    IllegalStateException,
    JMSException,
    Message,
    Queue,
    Session,
)
from jmsql.testing import receive_all, wait_for
from tests.compliance.held_listener import HeldListener
from tests.forked import ForkedProcess
from tests.integration.asynchronous_send.completions import Completions
from tests.integration.client.connections.server_session_pools import LISTENING, MODES, Heard, OneSession, listening
from tests.integration.client.server import SESSIONS, Server
from tests.texts import receive, receive_texts, send_texts, texts_of


@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK])
def test_message_whose_listener_fails_comes_again(
    connection: Connection, others: Session, queue: Queue, mode: AcknowledgeMode
) -> None:
    failures: list[Message] = []

    def fail_once(message: Message) -> None:
        if message.get_body(str) == "bad" and not failures:
            failures.append(message)
            raise ValueError("the listener's own mistake")

    heard = Heard(fail_once)
    send_texts(others, queue, "a", "bad", "b")
    with listening(connection, queue, heard, mode=mode):
        wait_for(lambda: {"a", "bad", "b"} <= set(heard.texts))
    (again,) = [message for message in heard.messages if message.get_body(str) == "bad"]
    assert again.jms_redelivered
    assert again.get_int_property("JMSXDeliveryCount") == 2


@pytest.mark.parametrize("mode", [AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT])
def test_failing_listener_undoes_its_sessions_unsettled_messages(
    connection: Connection, others: Session, server: Server, queue: Queue, mode: AcknowledgeMode
) -> None:
    connection.stop()
    calls: list[tuple[str, int]] = []

    def fail_on_the_second(message: Message) -> None:
        count = message.get_int_property("JMSXDeliveryCount")
        calls.append((str(message.get_body(str)), count))
        if calls[-1] == ("b", 1):
            raise ValueError("the listener's own mistake")
        if calls[-1][0] == "c":
            message.acknowledge()

    send_texts(others, queue, *"abc")
    with listening(connection, queue, lambda session: fail_on_the_second, mode=mode):
        connection.start()
        wait_for(lambda: server.rows("select count(*) from jmsql_internal.message") == [(0,)])
    assert calls == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("c", 1)]


@MODES
def test_load_of_a_thread_that_died_before_its_run_goes_back_with_the_session(
    mode_session: Session, connection: Connection, others: Session, queue: Queue
) -> None:
    heard: list[Message] = []
    mode_session.message_listener = heard.append
    pool = OneSession(mode_session)
    send_texts(others, queue, "a", "b")
    with connection.create_connection_consumer(queue, None, pool, 2):
        assert pool.started.acquire(timeout=60)
        assert receive_all(others.create_consumer(queue)) == []
        mode_session.close()
        consumer = others.create_consumer(queue)
        messages = [receive(consumer), receive(consumer)]
    assert texts_of(messages) == ["a", "b"]
    assert not any(message.jms_redelivered for message in messages), "nobody has seen them"
    assert heard == []


@MODES
def test_load_goes_back_when_the_pool_does_not_start_it(
    mode_session: Session, connection: Connection, others: Session, queue: Queue
) -> None:
    mode_session.message_listener = lambda message: None
    problems: list[JMSException] = []
    connection.exception_listener = problems.append
    send_texts(others, queue, "a", "b")
    with connection.create_connection_consumer(queue, None, OneSession(mode_session, fails=True), 2):
        wait_for(lambda: problems)
        # In any order: the connection consumer, which goes on looking, may lock one of them for a moment.
        assert sorted(receive_texts(others.create_consumer(queue), 2)) == ["a", "b"]
    assert "no thread is left" in str(problems[0])


def test_pool_with_an_unusable_session_is_told_of(
    connection: Connection, other_connection: Connection, others: Session, queue: Queue
) -> None:
    problems: list[JMSException] = []
    connection.exception_listener = problems.append
    send_texts(others, queue, "a")
    for session, problem in (
        (other_connection.create_session(), "own connection"),
        (connection.create_session(), "no message_listener"),
    ):
        problems.clear()
        with connection.create_connection_consumer(queue, None, OneSession(session), 1):
            wait_for(lambda: problems)
        assert isinstance(problems[0], IllegalStateException)
        assert problem in str(problems[0])
    assert receive_texts(others.create_consumer(queue), 1) == ["a"]


@pytest.mark.parametrize("mode", LISTENING)
def test_work_goes_on_after_the_server_has_cut_all_connections(
    connection: Connection, others: Session, server: Server, queue: Queue, mode: AcknowledgeMode
) -> None:
    heard = Heard()
    with listening(connection, queue, heard, mode=mode, size=2, max_messages=2):
        send_texts(others, queue, "a")
        heard.wait_for(1)
        assert server.terminate(SESSIONS)
        send_texts(others, queue, "b", "c", "d")
        wait_for(lambda: {"a", "b", "c", "d"} <= set(heard.texts), timeout=60)


@MODES
def test_cut_in_the_middle_of_a_load_loses_nothing(
    connection: Connection, others: Session, server: Server, queue: Queue, mode: AcknowledgeMode
) -> None:
    connection.stop()
    first = HeldListener()
    send_texts(others, queue, *"abc")
    heard = Heard(lambda message: None if first.has_returned else first.on_message(message))
    with listening(connection, queue, heard, mode=mode, max_messages=3):
        connection.start()
        first.wait_until_called()
        assert server.terminate(SESSIONS)
        first.release()
        wait_for(lambda: set(heard.texts) == {"a", "b", "c"}, timeout=60)
        wait_for(lambda: server.rows("select count(*) from jmsql_internal.message") == [(0,)], timeout=60)


def _work(url: str, mode_name: str) -> None:
    """What the process does that is going to be killed: it holds the second message of a load."""
    mode = AcknowledgeMode[mode_name]
    calls: list[Message] = []

    def hear(message: Message) -> None:
        calls.append(message)
        sys.stdout.write(json.dumps(message.get_body(str)) + "\n")
        sys.stdout.flush()
        if len(calls) == 2:
            sys.stdin.read()
        message.acknowledge()

    with (
        ConnectionFactory(url).create_connection() as connection,
        listening(connection, Queue("orders"), lambda session: hear, mode=mode, max_messages=3),
    ):
        connection.start()
        threading.Event().wait()


@pytest.mark.parametrize("mode", [AcknowledgeMode.TRANSACTED, AcknowledgeMode.AUTO])
def test_messages_of_a_killed_process_come_back(
    jmsql_clean_url: str, others: Session, queue: Queue, mode: AcknowledgeMode
) -> None:
    send_texts(others, queue, *"abcd")
    process = ForkedProcess(_work, jmsql_clean_url, mode.name)
    try:
        heard = [json.loads(process.read_line()) for _ in range(2)]
        assert heard == ["a", "b"]
    finally:
        process.kill()
    left = list("bcd" if mode is AcknowledgeMode.AUTO else "abcd")
    assert sorted(receive_texts(others.create_consumer(queue), len(left))) == left
    assert receive_all(others.create_consumer(queue)) == []


def test_session_is_loaded_when_the_asynchronous_sends_of_its_last_run_are_inserted(
    connection: Connection, other_connection: Connection, others: Session, server: Server, queue: Queue
) -> None:
    heard: list[Message] = []
    told = Completions()
    session, blocking = connection.create_session(transacted=True), other_connection.create_session(transacted=True)
    payment = session.create_text_message("paid")
    payment.set_string_property("JMS_jmsql_DeduplicationID", "17")
    producer = session.create_producer(Queue("payments"))

    def pay_once(message: Message) -> None:
        heard.append(message)
        if len(heard) == 1:
            producer.send(payment, completion_listener=told)

    session.message_listener = pay_once
    pool = OneSession(session)
    jmsql.send(blocking, "payments", "paid by another", deduplication_id="17")  # for which the asynchronous send waits
    with connection.create_connection_consumer(queue, None, pool, 1):
        send_texts(others, queue, "a")
        assert pool.started.acquire(timeout=60)
        session.run()
        server.wait_until_someone_waits()  # the sender, which has the connection
        send_texts(others, queue, "b")
        pool.free.release()
        assert not pool.started.acquire(timeout=0.5), "the connection is the sender's"
        blocking.rollback()
        assert pool.started.acquire(timeout=60)
        session.run()
        session.commit()
    assert texts_of(heard) == ["a", "b"]
    assert [error for _, error in told.told] == [None]
    assert receive_texts(others.create_consumer(Queue("payments")), 1) == ["paid"]
    assert receive_all(others.create_consumer(queue)) == []
