"""The server ends a session's connection: the session goes on with another, and its messages are accounted for."""

from __future__ import annotations

from collections.abc import Callable
from typing import LiteralString

import psycopg
import pytest
import sqlalchemy

from jmsql import (
    AcknowledgeMode,
    Connection,
    JMSException,
    Message,
    Queue,
    Session,
    TransactionRolledBackException,
)
from jmsql.testing import receive_all, wait_for
from tests.background import Background
from tests.integration.client.server import CONTROL, SESSIONS, Server
from tests.texts import receive, receive_texts, send_texts, texts_of

pytestmark = pytest.mark.usefixtures("used_just_now")

MODES = pytest.mark.parametrize("mode", list(AcknowledgeMode))
CLOSED_BY_SERVER = {"57P01", "08006", "08007"}


def fails_once(call: Callable[[], object]) -> None:
    """Make a call that finds its connection closed, and says so."""
    with pytest.raises(JMSException, match="connection") as failure:
        call()
    assert failure.value.error_code in CLOSED_BY_SERVER
    assert isinstance(failure.value.linked_exception, Exception)


@MODES
def test_send_fails_once(mode_session: Session, others: Session, server: Server, queue: Queue) -> None:
    send_texts(mode_session, queue, "a")
    producer = mode_session.create_producer(queue)
    assert server.terminate(SESSIONS) >= 1
    if mode_session.transacted:
        producer.send(mode_session.create_text_message("lost"))
        with pytest.raises(TransactionRolledBackException):
            mode_session.commit()
    else:
        fails_once(lambda: producer.send(mode_session.create_text_message("lost")))
    send_texts(mode_session, queue, "b")
    assert texts_of(receive_all(others.create_consumer(queue))) == ["a", "b"]


@MODES
def test_receive_fails_once_and_misses_nothing(
    mode_session: Session, others: Session, server: Server, queue: Queue
) -> None:
    consumer = mode_session.create_consumer(queue)
    assert consumer.receive(timeout=0) is None
    send_texts(others, queue, "a", "b")
    assert server.terminate(SESSIONS) >= 1
    fails_once(lambda: consumer.receive(timeout=0))
    assert receive_texts(consumer, 2) == ["a", "b"]


@MODES
def test_receive_that_waits_is_told(mode_session: Session, others: Session, server: Server, queue: Queue) -> None:
    consumer = mode_session.create_consumer(queue)
    assert consumer.receive(timeout=0) is None
    assert server.terminate(SESSIONS) >= 1
    fails_once(lambda: consumer.receive(timeout=30))
    send_texts(others, queue, "a")
    assert receive_texts(consumer, 1) == ["a"]


def test_transaction_is_rolled_back_and_its_session_begins_again(
    connection: Connection, others: Session, server: Server, queue: Queue
) -> None:
    session = connection.create_session(transacted=True)
    answers = Queue("answers")
    send_texts(session, queue, "a", "b", "c")
    consumer, producer = session.create_consumer(queue), session.create_producer(answers)
    assert receive_texts(consumer, 2) == ["a", "b"]
    producer.send(session.create_text_message("lost"))
    assert server.terminate(SESSIONS) >= 1
    with pytest.raises(TransactionRolledBackException, match=r"rolled back|lost"):
        session.commit()

    assert receive_all(others.create_consumer(answers)) == []
    again = [receive(consumer) for _ in range(3)]
    assert texts_of(again) == ["a", "b", "c"]
    assert [message.jms_redelivered for message in again] == [True, True, False]
    producer.send(session.create_text_message("kept"))
    session.commit()
    assert texts_of(receive_all(others.create_consumer(answers))) == ["kept"]
    assert receive_all(others.create_consumer(queue)) == []


def test_commit_after_a_failed_call_is_a_rollback(
    connection: Connection, others: Session, server: Server, queue: Queue
) -> None:
    session = connection.create_session(transacted=True)
    send_texts(session, queue, "a", "b")
    consumer = session.create_consumer(queue)
    assert receive_texts(consumer, 1) == ["a"]
    assert server.terminate(SESSIONS) >= 1
    fails_once(lambda: [consumer.receive(timeout=0) for _ in range(3)])
    with pytest.raises(TransactionRolledBackException):
        session.commit()
    assert receive_texts(consumer, 2) == ["a", "b"]
    session.commit()
    assert receive_all(others.create_consumer(queue)) == []


def test_rollback_of_a_lost_transaction_succeeds(
    connection: Connection, others: Session, server: Server, queue: Queue
) -> None:
    session = connection.create_session(transacted=True)
    send_texts(session, queue, "a")
    consumer = session.create_consumer(queue)
    assert receive_texts(consumer, 1) == ["a"]
    assert server.terminate(SESSIONS) >= 1
    session.rollback()
    again = receive(consumer)
    assert again.jms_redelivered
    session.commit()
    assert receive_all(others.create_consumer(queue)) == []


def test_close_of_a_lost_transaction_succeeds(
    connection: Connection, others: Session, server: Server, queue: Queue
) -> None:
    session = connection.create_session(transacted=True)
    send_texts(session, queue, "a")
    assert receive_texts(session.create_consumer(queue), 1) == ["a"]
    assert server.terminate(SESSIONS) >= 1
    session.close()
    assert receive(others.create_consumer(queue)).jms_redelivered


def test_applications_statements_are_undone_with_the_transaction(
    connection: Connection, server: Server, queue: Queue
) -> None:
    session = connection.create_session(transacted=True)
    database = session.database
    database.execute(sqlalchemy.text("create table half_done ()"))
    session.create_producer(queue).send(session.create_text_message("lost"))
    assert server.terminate(SESSIONS) >= 1
    with pytest.raises(sqlalchemy.exc.OperationalError):  # the application's own statement, the application's error
        database.execute(sqlalchemy.text("insert into half_done default values"))
    with pytest.raises(TransactionRolledBackException):
        session.commit()
    found = sqlalchemy.text("select to_regclass('half_done')")
    assert session.database.scalar(found) is None
    session.commit()
    assert receive_all(session.create_consumer(queue)) == []


def test_acknowledgement_can_be_repeated(connection: Connection, others: Session, server: Server, queue: Queue) -> None:
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    send_texts(session, queue, "a", "b", "c")
    consumer = session.create_consumer(queue)
    first, second = receive(consumer), receive(consumer)
    assert server.terminate(SESSIONS) >= 1
    fails_once(first.acknowledge)
    second.acknowledge()
    session.recover()
    assert receive_texts(consumer, 1) == ["c"]
    session.close()
    assert texts_of([receive(others.create_consumer(queue))]) == ["c"]


@MODES
def test_listeners_session_recovers_by_itself(
    mode_session: Session, others: Session, server: Server, queue: Queue, mode: AcknowledgeMode
) -> None:
    heard: list[str] = []

    def listen(message: Message) -> None:
        heard.append(str(message.get_body(str)))
        if mode is AcknowledgeMode.TRANSACTED:
            mode_session.commit()
        message.acknowledge()

    mode_session.create_consumer(queue).message_listener = listen
    for text in ["a", "b", "c"]:
        send_texts(others, queue, text)
        wait_for(lambda text=text: text in heard)  # type: ignore[misc]
        assert server.terminate(SESSIONS) >= 1
    send_texts(others, queue, "last")
    wait_for(lambda: "last" in heard)
    mode_session.close()
    left = texts_of(receive_all(others.create_consumer(queue)))
    # What was heard as the connection ended may be acknowledged or not; nothing is lost.
    assert set(heard) | set(left) == {"a", "b", "c", "last"}


def test_connections_other_sessions_are_not_disturbed(
    connection: Connection, others: Session, server: Server, queue: Queue
) -> None:
    connection.create_session().create_producer(queue)  # which looks the queue up, beside the sessions
    assert server.terminate(SESSIONS) >= 1
    send_texts(others, queue, "a")
    assert receive_texts(connection.create_session().create_consumer(queue), 1) == ["a"]
    connection.create_session().create_producer(Queue("a new queue"))


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_temporary_destination_stays_though_the_client_connects_again_while_it_is_made(
    connection: Connection, server: Server, jmsql_clean_url: str, kind: str
) -> None:
    session = connection.create_session()
    numbers: LiteralString = "select max(connection_id) from jmsql_internal.connection"
    [(former,)] = server.rows(numbers)
    with psycopg.connect(jmsql_clean_url) as other:
        other.execute(f"lock table jmsql_internal.{kind} in share mode".encode())
        making = Background(getattr(session, f"create_temporary_{kind}"))
        server.wait_until_someone_waits()
        assert server.terminate(CONTROL) == 1
        wait_for(lambda: server.rows(numbers)[0][0] > former)
    making.result()
    bound: LiteralString = f"select connection_id > %s from jmsql_internal.{kind} where connection_id is not null"
    wait_for(lambda: server.rows(bound, former) == [(True,)])
