"""What closing does to messages that a CLIENT_ACKNOWLEDGE session has not acknowledged: JMS 1.1 chapter 4.4.1."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jmsql import AcknowledgeMode, Connection, ConnectionFactory, Queue, Session
from tests.texts import messages_left, receive, receive_texts, send_texts, texts_of

TEXTS = ["a", "b", "c", "d"]

CLOSE = pytest.mark.parametrize(
    "close",
    [
        pytest.param(
            lambda connection, session: connection.close(),
            marks=[
                pytest.mark.requirement("connection.close.session.CLIENT_ACKNOWLEDGE"),
                pytest.mark.case("session-client-acknowledge-close-01"),
            ],
            id="connection",
        ),
        pytest.param(
            lambda connection, session: session.close(),
            marks=[
                pytest.mark.requirement("session.close.CLIENT_ACKNOWLEDGE"),
                pytest.mark.case("session-client-acknowledge-close-02"),
            ],
            id="session",
        ),
    ],
)


@CLOSE
@pytest.mark.parametrize("acknowledged", [0, 2])
def test_close_acknowledges_nothing(
    jmsql_factory: ConnectionFactory,
    connection: Connection,
    queue: Queue,
    close: Callable[[Connection, Session], None],
    acknowledged: int,
) -> None:
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    send_texts(session, queue, *TEXTS)
    consumer = session.create_consumer(queue)
    for position in range(acknowledged):
        message = receive(consumer)
        if position == acknowledged - 1:
            message.acknowledge()
    assert receive_texts(consumer, 1) == [TEXTS[acknowledged]]
    close(connection, session)
    again = messages_left(jmsql_factory, queue)
    assert texts_of(again) == TEXTS[acknowledged:]
    assert [message.jms_redelivered for message in again] == [True] + [False] * (len(again) - 1)
