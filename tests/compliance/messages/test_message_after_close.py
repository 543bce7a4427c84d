"""Messages of closed sessions and connections: JMS 1.1 chapters 4.3.5 and 4.4.1."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jmsql import AcknowledgeMode, Connection, IllegalStateException, Message, Queue, Session
from tests.compliance.contents import body_of, properties_of
from tests.compliance.filled_messages import BODIES, CLASSES, FILL, filled
from tests.exchange import exchange


def close_connection(connection: Connection, session: Session) -> None:
    connection.close()


def close_session(connection: Connection, session: Session) -> None:
    session.close()


CLOSES = pytest.mark.parametrize(
    "close",
    [
        pytest.param(
            close_connection,
            marks=(pytest.mark.requirement("connection.close.message"), pytest.mark.case("message-after-close-01")),
        ),
        pytest.param(
            close_session,
            marks=(pytest.mark.requirement("session.close.message"), pytest.mark.case("message-after-close-02")),
        ),
    ],
)
Close = Callable[[Connection, Session], None]


@CLOSES
@pytest.mark.parametrize("kind", CLASSES)
def test_received_message_stays_usable(connection: Connection, queue: Queue, kind: type[Message], close: Close) -> None:
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    message = filled(kind)
    message.jms_correlation_id = "link"
    message.jms_reply_to = Queue("answers")
    received = exchange(session, queue, message)
    close(connection, session)
    assert body_of(received) == BODIES[kind]
    assert properties_of(received) == {"name": "value"}
    assert (received.jms_correlation_id, received.jms_reply_to) == ("link", Queue("answers"))
    assert (received.jms_destination, received.jms_message_id) == (queue, message.jms_message_id)
    received.clear_body()
    received.clear_properties()
    FILL[kind](received)
    received.set_int_property("number", 1)
    assert body_of(received) == BODIES[kind]
    assert properties_of(received) == {"number": 1}


@CLOSES
@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_received_message_is_acknowledged_no_more(
    connection: Connection, queue: Queue, mode: AcknowledgeMode, close: Close
) -> None:
    session = connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
    received = exchange(session, queue, session.create_text_message("text"))
    close(connection, session)
    with pytest.raises(IllegalStateException, match="closed"):
        received.acknowledge()


@CLOSES
@pytest.mark.parametrize("kind", CLASSES)
def test_message_that_was_not_received_stays_usable(
    connection: Connection, session: Session, queue: Queue, kind: type[Message], close: Close
) -> None:
    message = filled(kind)
    session.create_producer(queue).send(message)
    close(connection, session)
    message.acknowledge()
    message.set_int_property("number", 1)
    assert properties_of(message) == {"name": "value", "number": 1}
    assert body_of(message) == BODIES[kind]
