"""What closing does to an open transaction: JMS 1.1 chapters 4.3.5 and 4.4.1."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy

from jmsql import Connection, ConnectionFactory, Message, Queue, Session
from tests.compliance.held_listener import HeldListener
from tests.texts import messages_left, receive_texts, send_texts, texts_left, texts_of

TEXTS = ["a", "b", "c"]
ANSWERS = Queue("answers")

CLOSE = pytest.mark.parametrize(
    "close",
    [
        pytest.param(
            lambda connection, session: connection.close(),
            marks=[
                pytest.mark.requirement("connection.close.session.transacted"),
                pytest.mark.case("session-transacted-close-01"),
            ],
            id="connection",
        ),
        pytest.param(
            lambda connection, session: session.close(),
            marks=[
                pytest.mark.requirement("session.close.transacted"),
                pytest.mark.case("session-transacted-close-02"),
            ],
            id="session",
        ),
    ],
)
Close = Callable[[Connection, Session], None]


@CLOSE
def test_close_rolls_the_transaction_back(
    jmsql_factory: ConnectionFactory, connection: Connection, queue: Queue, close: Close
) -> None:
    transacted = connection.create_session(transacted=True)
    send_texts(transacted, queue, *TEXTS)
    assert receive_texts(transacted.create_consumer(queue), 2) == ["a", "b"]
    transacted.create_producer(ANSWERS).send(transacted.create_text_message("answer"))
    close(connection, transacted)

    assert messages_left(jmsql_factory, ANSWERS) == []
    again = messages_left(jmsql_factory, queue)
    assert texts_of(again) == TEXTS
    assert [message.jms_redelivered for message in again] == [True, True, False]


@CLOSE
def test_close_undoes_the_applications_statements(
    jmsql_factory: ConnectionFactory, connection: Connection, close: Close
) -> None:
    transacted = connection.create_session(transacted=True)
    transacted.database.execute(sqlalchemy.text("create table undone ()"))
    close(connection, transacted)
    with jmsql_factory.create_connection() as second:
        other = second.create_session(transacted=True)
        assert other.database.scalar(sqlalchemy.text("select to_regclass('undone')")) is None


@CLOSE
def test_close_keeps_committed_work(
    jmsql_factory: ConnectionFactory, connection: Connection, queue: Queue, close: Close
) -> None:
    transacted = connection.create_session(transacted=True)
    send_texts(transacted, queue, *TEXTS)
    assert receive_texts(transacted.create_consumer(queue), 1) == ["a"]
    transacted.commit()
    close(connection, transacted)
    assert texts_left(jmsql_factory, queue) == ["b", "c"]


@CLOSE
def test_close_rolls_back_the_open_transaction_of_a_listener(
    jmsql_factory: ConnectionFactory, connection: Connection, queue: Queue, close: Close
) -> None:
    transacted = connection.create_session(transacted=True)

    def answer(message: Message) -> None:
        transacted.create_producer(ANSWERS).send(transacted.create_text_message("answer"))

    listener = HeldListener(answer)
    send_texts(transacted, queue, "a")
    transacted.create_consumer(queue).message_listener = listener
    listener.wait_until_called()
    listener.release()
    close(connection, transacted)
    assert listener.errors == []
    assert messages_left(jmsql_factory, ANSWERS) == []
    (again,) = messages_left(jmsql_factory, queue)
    assert again.jms_redelivered
