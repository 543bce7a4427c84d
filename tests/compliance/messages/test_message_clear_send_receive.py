"""Clearing a message that was sent or received: JMS 1.1 chapters 3.5.7 and 3.11.1."""

from __future__ import annotations

import pytest

from jmsql import BytesMessage, Connection, Message, MessageEOFException, Queue, Session, StreamMessage
from tests.compliance.contents import body_of, properties_of
from tests.compliance.filled_messages import BODIES, CLASSES, FILL, NEW_BODIES, filled
from tests.exchange import exchange
from tests.texts import receive

pytestmark = pytest.mark.usefixtures("shared_connection")


@pytest.mark.requirement("message.method.clearBody", "message.bytes.method.clearBody")
@pytest.mark.case("message-clear-send-receive-01")
def test_body_of_a_received_bytes_message_is_written_again(session: Session, queue: Queue) -> None:
    received = exchange(session, queue, filled(BytesMessage))
    received.clear_body()
    received.write_int(1)
    received.reset()
    assert received.get_body(bytes) == b"\0\0\0\1"
    assert properties_of(received) == {"name": "value"}


@pytest.mark.requirement("message.method.clearBody")
@pytest.mark.case("message-clear-send-receive-02")
@pytest.mark.parametrize("kind", CLASSES)
def test_clear_body_of_a_received_message_keeps_the_properties(
    session: Session, queue: Queue, kind: type[Message]
) -> None:
    received = exchange(session, queue, filled(kind))
    received.clear_body()
    assert body_of(received) == NEW_BODIES[kind]
    assert properties_of(received) == {"name": "value"}
    received.clear_body()
    FILL[kind](received)
    assert body_of(received) == BODIES[kind]


@pytest.mark.requirement("message.method.clearBody", "message.method.clearProperties")
@pytest.mark.case("message-clear-send-receive-03")
@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("transacted", [False, True])
def test_clearing_after_the_send_does_not_reach_the_receiver(
    connection: Connection, queue: Queue, kind: type[Message], transacted: bool
) -> None:
    session = connection.create_session(transacted)
    message = filled(kind)
    session.create_producer(queue).send(message)
    message.clear_body()
    message.clear_properties()
    if transacted:
        session.commit()
    received = receive(session.create_consumer(queue))
    assert body_of(received) == BODIES[kind]
    assert properties_of(received) == {"name": "value"}


@pytest.mark.requirement("message.method.clearProperties")
@pytest.mark.case("message-clear-send-receive-04")
@pytest.mark.parametrize("kind", CLASSES)
def test_clear_properties_of_a_received_message_keeps_the_body(
    session: Session, queue: Queue, kind: type[Message]
) -> None:
    received = exchange(session, queue, filled(kind))
    received.clear_properties()
    assert received.property_names == ()
    received.set_int_property("other", 1)
    assert dict(received.properties) == {"other": 1}
    assert body_of(received) == BODIES[kind]


@pytest.mark.requirement("message.method.clearBody", "message.stream.method.clearBody")
@pytest.mark.case("message-clear-send-receive-05")
def test_body_of_a_received_stream_message_is_written_again(session: Session, queue: Queue) -> None:
    received = exchange(session, queue, filled(StreamMessage))
    received.clear_body()
    received.write_string("a")
    received.reset()
    assert received.read_string() == "a"
    with pytest.raises(MessageEOFException):
        received.read_object()
    assert properties_of(received) == {"name": "value"}
