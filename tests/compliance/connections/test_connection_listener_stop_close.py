"""Stopping and closing a connection while a listener runs: JMS 1.1 chapter 4.3.5."""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller

import pytest

from jmsql import AcknowledgeMode, Connection, ConnectionFactory, Message, Queue
from jmsql.testing import receive_all
from tests.compliance.held_listener import HeldListener

MODES = list(AcknowledgeMode)


def listening_connection(connection: Connection, queue: Queue, mode: AcknowledgeMode) -> HeldListener:
    """Give the connection a listener that is called with a message and waits until it is released."""
    session = connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
    own = connection.create_session(transacted=True)

    def use_the_connection(message: Message) -> None:
        answer = session.create_text_message(f"answer to {message.get_body(str)}")
        answer.jms_correlation_id = message.jms_message_id
        session.create_producer(Queue("answers")).send(answer)
        assert connection.metadata.jms_provider_name == "jmsql"
        own.create_producer(Queue("answers")).send(own.create_text_message("through another session"))
        own.commit()
        with connection.create_session() as third:
            third.create_producer(Queue("answers")).send(third.create_text_message("through a new session"))
        if session.transacted:
            session.commit()
        else:
            message.acknowledge()

    listener = HeldListener(use_the_connection)
    sender = connection.create_session()
    session.create_consumer(queue).message_listener = listener
    sender.create_producer(queue).send(sender.create_text_message("question"))
    listener.wait_until_called()
    return listener


def texts(factory: ConnectionFactory, queue: Queue) -> list[str]:
    with factory.create_connection() as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(queue)
        return sorted(str(message.get_body(str)) for message in receive_all(consumer))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "pause",
    [
        pytest.param(
            methodcaller("close"),
            marks=[
                pytest.mark.requirement("connection.close.listeners"),
                pytest.mark.case("connection-listener-stop-close-01"),
            ],
        ),
        pytest.param(
            methodcaller("stop"),
            marks=[
                pytest.mark.requirement("connection.stop.listeners"),
                pytest.mark.case("connection-listener-stop-close-02"),
            ],
        ),
    ],
)
def test_it_waits_for_a_listener_which_keeps_the_use_of_the_connection(
    jmsql_factory: ConnectionFactory,
    connection: Connection,
    queue: Queue,
    mode: AcknowledgeMode,
    pause: Callable[[Connection], None],
) -> None:
    listener = listening_connection(connection, queue, mode)
    listener.must_return_before(lambda: pause(connection))
    connection.close()
    assert listener.errors == []
    assert texts(jmsql_factory, queue) == []
    assert texts(jmsql_factory, Queue("answers")) == [
        "answer to question",
        "through a new session",
        "through another session",
    ]
