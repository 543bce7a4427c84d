"""What becomes of a message that is changed after its send: JMS 1.1 chapter 3.9."""

from __future__ import annotations

import pytest

from jmsql import (
    AcknowledgeMode,
    BytesMessage,
    Connection,
    MapMessage,
    Message,
    MessageProducer,
    ObjectMessage,
    Queue,
    StreamMessage,
    TextMessage,
)
from jmsql.testing import receive_all
from tests.compliance.contents import body_of, properties_of
from tests.compliance.filled_messages import BODIES, CLASSES, filled

pytestmark = pytest.mark.usefixtures("shared_connection")


def change(message: Message) -> None:
    match message:
        case TextMessage():
            message.text = "changed"
        case BytesMessage():
            message.write_bytes(b" changed")
        case MapMessage():
            message.set_string("name", "changed")
        case StreamMessage():
            message.write_string("changed")
        case ObjectMessage():
            message.object = "changed"
    message.set_string_property("name", "changed")
    message.set_string_property("other", "added")
    message.jms_correlation_id = "changed"
    message.jms_type = "changed"
    message.jms_reply_to = Queue("changed")


@pytest.mark.requirement("message.send")
@pytest.mark.case("message-copy-on-send-01")
@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_later_changes_do_not_reach_the_receiver(
    connection: Connection, queue: Queue, kind: type[Message], mode: AcknowledgeMode
) -> None:
    session = connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
    producer = session.create_producer(queue)
    message = filled(kind)
    message.jms_correlation_id = message.jms_type = "original"
    producer.send(message)
    change(message)
    if session.transacted:
        session.commit()
    (received,) = receive_all(session.create_consumer(queue))
    assert body_of(received) == BODIES[kind]
    assert properties_of(received) == {"name": "value"}
    assert (received.jms_correlation_id, received.jms_type, received.jms_reply_to) == ("original", "original", None)


@pytest.mark.requirement("message.send", "message.copy")
@pytest.mark.case("message-copy-on-send-01")
def test_objects_and_arrays_that_were_given_to_the_message_may_change(connection: Connection, queue: Queue) -> None:
    session = connection.create_session()
    producer = session.create_producer(queue)
    array, numbers = bytearray(b"bytes"), [1]

    def send_all(producer: MessageProducer) -> None:
        as_bytes, as_map, as_stream = BytesMessage(), MapMessage(), StreamMessage()
        as_bytes.write_bytes(array)
        as_map.set_bytes("array", array)
        as_stream.write_bytes(array)
        for message in (as_bytes, as_map, as_stream, ObjectMessage(numbers)):
            producer.send(message)

    send_all(producer)
    array[:] = b"other"
    numbers.append(2)
    bodies = [body_of(message) for message in receive_all(session.create_consumer(queue))]
    assert bodies == [b"bytes", {"array": b"bytes"}, [b"bytes"], [1]]
