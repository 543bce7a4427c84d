"""What of a message can be written after it was sent or received: JMS 1.1 chapters 3.9 to 3.11."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from jmsql import (
    BytesMessage,
    Connection,
    MapMessage,
    Message,
    MessageNotReadableException,
    MessageNotWriteableException,
    ObjectMessage,
    Queue,
    Session,
    StreamMessage,
    TextMessage,
)
from jmsql.testing import receive_all
from tests.compliance.contents import body_of, properties_of
from tests.compliance.filled_messages import BODIES, CLASSES, FILL, filled
from tests.exchange import exchange

pytestmark = pytest.mark.usefixtures("shared_connection")

VALUES: dict[str, Any] = {
    "boolean": True,
    "byte": 1,
    "short": 1,
    "char": "c",
    "int": 1,
    "long": 1,
    "float": 1.0,
    "double": 1.0,
    "string": "s",
    "utf": "s",
    "bytes": b"b",
    "object": 1,
}
PROPERTY_KINDS = ("boolean", "byte", "short", "int", "long", "float", "double", "string", "object")


def write(message: Any, kind: str) -> None:
    getattr(message, f"write_{kind}")(VALUES[kind])


def set_value(message: Any, kind: str) -> None:
    getattr(message, f"set_{kind}")("name", VALUES[kind])


def set_property(message: Message, kind: str) -> None:
    getattr(message, f"set_{kind}_property")(kind, VALUES[kind])


WRITES: dict[type[Message], list[Callable[[Any], object]]] = {
    Message: [],
    TextMessage: [lambda message: setattr(message, "text", "new"), lambda message: setattr(message, "text", None)],
    BytesMessage: [partial(write, kind=kind) for kind in VALUES if kind != "string"],
    MapMessage: [
        *(partial(set_value, kind=kind) for kind in VALUES if kind != "utf"),
        lambda message: message.update(name=1),
        lambda message: message.pop("name"),
        lambda message: message.clear(),
    ],
    StreamMessage: [partial(write, kind=kind) for kind in VALUES if kind != "utf"],
    ObjectMessage: [lambda message: message.set_object(2), lambda message: setattr(message, "object", None)],
}
"""Every way to write to a body."""


@pytest.mark.requirement("message.receive")
@pytest.mark.case("message-read-write-send-receive-01")
@pytest.mark.parametrize("kind", CLASSES)
def test_body_of_a_received_message_is_read_only_until_it_is_cleared(
    session: Session, queue: Queue, kind: type[Message]
) -> None:
    received = exchange(session, queue, filled(kind))
    for change in WRITES[kind]:
        with pytest.raises(MessageNotWriteableException, match="clear_body"):
            change(received)
    assert body_of(received) == BODIES[kind]
    received.clear_body()
    for change in WRITES[kind]:
        change(received)
    received.clear_body()
    FILL[kind](received)
    assert body_of(received) == BODIES[kind]


@pytest.mark.requirement("message.receive")
@pytest.mark.case("message-read-write-send-receive-01")
@pytest.mark.parametrize("kind", CLASSES)
def test_properties_of_a_received_message_are_read_only_until_they_are_cleared(
    session: Session, queue: Queue, kind: type[Message]
) -> None:
    received = exchange(session, queue, filled(kind))
    changes: list[Callable[[Message], object]] = [
        *(partial(set_property, kind=name) for name in PROPERTY_KINDS),
        lambda message: message.properties.update(name="other"),
        lambda message: message.properties.pop("name"),
        lambda message: message.properties.clear(),
    ]
    for change in changes:
        with pytest.raises(MessageNotWriteableException, match="clear_properties"):
            change(received)
    received.clear_body()
    with pytest.raises(MessageNotWriteableException, match="clear_properties"):
        received.set_int_property("new", 1)
    assert properties_of(received) == {"name": "value"}
    received.clear_properties()
    for name in PROPERTY_KINDS:
        set_property(received, name)
    assert dict(received.properties) == {name: VALUES[name] for name in PROPERTY_KINDS}


@pytest.mark.requirement("message.receive")
@pytest.mark.case("message-read-write-send-receive-01")
@pytest.mark.parametrize("kind", [BytesMessage, StreamMessage])
def test_cleared_bytes_and_streams_are_write_only_like_new_ones(
    session: Session, queue: Queue, kind: type[BytesMessage | StreamMessage]
) -> None:
    received: BytesMessage | StreamMessage = exchange(session, queue, filled(kind))
    received.clear_body()
    with pytest.raises(MessageNotReadableException):
        received.read_byte()


@pytest.mark.requirement("message.receive")
@pytest.mark.case("message-read-write-send-receive-01")
@pytest.mark.parametrize("kind", CLASSES)
def test_headers_of_a_received_message_may_be_set(session: Session, queue: Queue, kind: type[Message]) -> None:
    received = exchange(session, queue, filled(kind))
    received.jms_correlation_id = received.jms_type = "new"
    received.jms_reply_to = Queue("new")
    onward = exchange(session, queue, received)
    assert (onward.jms_correlation_id, onward.jms_type, onward.jms_reply_to) == ("new", "new", Queue("new"))
    assert body_of(onward) == BODIES[kind]
    assert properties_of(onward) == {"name": "value"}


@pytest.mark.requirement("message.send")
@pytest.mark.case("message-read-write-send-receive-02")
@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("transacted", [False, True])
def test_message_can_be_filled_and_sent_several_times(
    connection: Connection, queue: Queue, kind: type[Message], transacted: bool
) -> None:
    session = connection.create_session(transacted)
    producer = session.create_producer(queue)
    message = filled(kind)
    for number in range(3):
        message.set_int_property("number", number)
        producer.send(message)
        message.clear_body()
        FILL[kind](message)
    message.clear_properties()
    producer.send(message)
    if transacted:
        session.commit()
    received = receive_all(session.create_consumer(queue))
    assert [properties_of(message) for message in received] == [
        *({"name": "value", "number": number} for number in range(3)),
        {},
    ]
    assert [body_of(message) for message in received] == [BODIES[kind]] * 4
