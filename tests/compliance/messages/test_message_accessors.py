"""Every accessor of the bodies and properties, in every mode of the message: the API text of Jakarta Messaging 3.1.

What one method of an interface does, its text says of all of its kind; so each is called here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jmsql import Queue, Session
from jmsql.exceptions import (
    MessageEOFException,
    MessageFormatException,
    MessageNotReadableException,
    MessageNotWriteableException,
)
from jmsql.messages import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from tests.compliance.filled_messages import BODIES, CLASSES, filled

VALUES: dict[str, Any] = {
    "boolean": True,
    "byte": -1,
    "short": 2,
    "int": 3,
    "long": 4,
    "float": 0.5,
    "double": 0.1,
    "string": "text",
    "object": 7,
}
"""A value for each type; those of a property."""

BODY_VALUES = VALUES | {"char": "c", "bytes": b"bytes"}
"""The same for maps and streams."""

FORMATS: dict[str, tuple[Any, bytes]] = {
    "boolean": (True, b"\x01"),
    "byte": (-2, b"\xfe"),
    "short": (-2, b"\xff\xfe"),
    "char": ("\u20ac", b"\x20\xac"),
    "int": (-2, b"\xff\xff\xff\xfe"),
    "long": (2**40 + 1, b"\x00\x00\x01\x00\x00\x00\x00\x01"),
    "float": (-0.15625, b"\xbe\x20\x00\x00"),
    "double": (-0.15625, b"\xbf\xc4\x00\x00\x00\x00\x00\x00"),
    "utf": ("a\0\u20ac", b"\x00\x06a\xc0\x80\xe2\x82\xac"),
}
"""How a BytesMessage writes a value of each type: the formats of Java's `DataOutput`, high byte first."""


def write(message: Message, kind: str, value: object) -> None:
    getattr(message, f"write_{kind}")(value)


def sent(session: Session, queue: Queue, message: Message) -> Any:
    """The message as it is received."""
    session.create_producer(queue).send(message)
    return session.create_consumer(queue).receive(timeout=60)


# Properties


@pytest.mark.requirement("properties.identifier")
@pytest.mark.parametrize("name", ["", None])
@pytest.mark.parametrize("kind", VALUES)
def test_every_setter_of_a_property_wants_a_name(kind: str, name: Any) -> None:
    message = Message()
    with pytest.raises(ValueError, match="needs a name"):
        getattr(message, f"set_{kind}_property")(name, VALUES[kind])
    assert message.property_names == ()


@pytest.mark.requirement("message.receive")
@pytest.mark.parametrize("kind", CLASSES)
def test_received_properties_are_read_only_for_every_setter_until_they_are_cleared(
    session: Session, queue: Queue, kind: type[Message]
) -> None:
    message = sent(session, queue, filled(kind))
    for type_name, value in VALUES.items():
        with pytest.raises(MessageNotWriteableException, match="clear_properties"):
            getattr(message, f"set_{type_name}_property")("name", value)
        with pytest.raises(MessageNotWriteableException, match="clear_properties"):
            getattr(message, f"set_{type_name}_property")("other", value)
    assert message.get_string_property("name") == "value"
    assert not message.property_exists("other")
    message.clear_properties()
    for type_name, value in VALUES.items():
        getattr(message, f"set_{type_name}_property")(type_name, value)
        assert getattr(message, f"get_{type_name}_property")(type_name) == value


@pytest.mark.requirement("properties.method.getPropertyNames")
def test_property_exists_is_true_of_set_properties_and_not_of_headers() -> None:
    message = Message()
    message.jms_type = "type"
    message.jms_correlation_id = "id"
    message.set_string_property("name", None)
    assert message.property_exists("name")
    assert not message.property_exists("NAME")
    assert not message.property_exists("JMSType")
    assert message.property_names == ("name",)
    assert message.get_object_property("JMSType") is None


# MapMessage


@pytest.mark.requirement("message.map")
@pytest.mark.parametrize("name", ["", None])
@pytest.mark.parametrize("kind", BODY_VALUES)
def test_every_setter_of_a_map_wants_a_name(kind: str, name: Any) -> None:
    message = MapMessage()
    with pytest.raises(ValueError, match="needs a name"):
        getattr(message, f"set_{kind}")(name, BODY_VALUES[kind])
    assert message.map_names == ()


@pytest.mark.requirement("message.receive", "message.map")
def test_received_map_is_read_only_for_every_setter_until_it_is_cleared(session: Session, queue: Queue) -> None:
    message = sent(session, queue, filled(MapMessage))
    for kind, value in BODY_VALUES.items():
        with pytest.raises(MessageNotWriteableException, match="clear_body"):
            getattr(message, f"set_{kind}")("name", value)
    assert message.get_body(dict) == BODIES[MapMessage]
    message.clear_body()
    for kind, value in BODY_VALUES.items():
        getattr(message, f"set_{kind}")(kind, value)
        assert getattr(message, f"get_{kind}")(kind) == value
    assert sorted(message.map_names) == sorted(BODY_VALUES)


# StreamMessage


@pytest.mark.requirement("message.stream.creation", "message.stream.method.clearBody")
@pytest.mark.parametrize("kind", BODY_VALUES)
def test_stream_is_written_or_read_by_every_method(kind: str) -> None:
    message = StreamMessage()
    write(message, kind, BODY_VALUES[kind])
    with pytest.raises(MessageNotReadableException, match="reset"):
        read_field(message, kind)
    message.reset()
    with pytest.raises(MessageNotWriteableException, match="clear_body"):
        write(message, kind, BODY_VALUES[kind])
    assert read_field(message, kind) == BODY_VALUES[kind]
    with pytest.raises(MessageEOFException):
        read_field(message, kind)
    message.reset()
    assert read_field(message, kind) == BODY_VALUES[kind]
    message.clear_body()
    with pytest.raises(MessageNotReadableException, match="reset"):
        read_field(message, kind)
    write(message, kind, BODY_VALUES[kind])


@pytest.mark.requirement("message.receive", "message.stream.read")
def test_received_stream_is_read_from_its_first_field(session: Session, queue: Queue) -> None:
    message = StreamMessage()
    for kind, value in BODY_VALUES.items():
        write(message, kind, value)
    received = sent(session, queue, message)
    for kind, value in BODY_VALUES.items():
        with pytest.raises(MessageNotWriteableException, match="clear_body"):
            write(received, kind, value)
        assert read_field(received, kind) == value
    with pytest.raises(MessageEOFException):
        received.read_object()


def read_field(message: StreamMessage, kind: str) -> object:
    if kind != "bytes":
        return getattr(message, f"read_{kind}")()
    buffer = bytearray(len(BODY_VALUES["bytes"]) + 1)
    return bytes(buffer[: message.read_bytes(buffer)])


# BytesMessage


@pytest.mark.requirement("message.bytes.creation", "message.bytes.method.clearBody", "message.bytes.read")
@pytest.mark.parametrize("kind", FORMATS)
def test_bytes_are_written_in_java_s_format_or_read_by_every_method(kind: str) -> None:
    value, encoded = FORMATS[kind]
    message = BytesMessage()
    write(message, kind, value)
    with pytest.raises(MessageNotReadableException, match="reset"):
        getattr(message, f"read_{kind}")()
    assert message.get_body(bytes) == encoded
    with pytest.raises(MessageNotWriteableException, match="clear_body"):
        write(message, kind, value)
    assert getattr(message, f"read_{kind}")() == value
    with pytest.raises(MessageEOFException):
        getattr(message, f"read_{kind}")()
    assert message.body_length == len(encoded)
    message.clear_body()
    with pytest.raises(MessageNotReadableException, match="reset"):
        getattr(message, f"read_{kind}")()
    write(message, kind, value)


@pytest.mark.requirement("message.bytes.eof")
@pytest.mark.parametrize("kind", FORMATS)
def test_read_of_a_truncated_value_takes_nothing(kind: str) -> None:
    _, encoded = FORMATS[kind]
    message = BytesMessage()
    message.write_bytes(encoded[:-1])
    message.reset()
    with pytest.raises(MessageEOFException):
        getattr(message, f"read_{kind}")()
    buffer = bytearray(len(encoded))
    assert message.read_bytes(buffer) == (len(encoded) - 1 or -1)
    assert buffer[:-1] == encoded[:-1]


@pytest.mark.requirement("message.bytes.read")
def test_unsigned_numbers_are_read_of_the_same_bytes() -> None:
    message = BytesMessage()
    message.write_byte(-1)
    message.write_short(-2)
    message.write_boolean(False)
    message.write_byte(5)
    message.reset()
    assert message.read_unsigned_byte() == 255
    assert message.read_unsigned_short() == 65534
    assert message.read_boolean() is False
    assert message.read_boolean() is True


@pytest.mark.requirement("message.receive", "message.bytes.read")
def test_received_bytes_are_read_from_the_first_one(session: Session, queue: Queue) -> None:
    message = BytesMessage()
    for kind, (value, _) in FORMATS.items():
        write(message, kind, value)
    received = sent(session, queue, message)
    for kind, (value, _) in FORMATS.items():
        with pytest.raises(MessageNotWriteableException, match="clear_body"):
            write(received, kind, value)
        assert getattr(received, f"read_{kind}")() == value
    with pytest.raises(MessageEOFException):
        received.read_byte()


# TextMessage and ObjectMessage

SETTERS: dict[type[Message], Callable[[Any, object], None]] = {
    TextMessage: lambda message, value: setattr(message, "text", value),
    ObjectMessage: lambda message, value: message.set_object(value),
}


@pytest.mark.requirement("message.receive")
@pytest.mark.parametrize("kind", SETTERS)
def test_received_body_is_read_only_until_it_is_cleared(session: Session, queue: Queue, kind: type[Message]) -> None:
    message = sent(session, queue, filled(kind))
    with pytest.raises(MessageNotWriteableException, match="clear_body"):
        SETTERS[kind](message, "new")
    with pytest.raises(MessageNotWriteableException, match="clear_body"):
        SETTERS[kind](message, None)
    assert message.get_body(object) == BODIES[kind]
    message.clear_body()
    assert message.get_body(str) is None
    SETTERS[kind](message, "new")
    assert message.get_body(str) == "new"


@pytest.mark.requirement("message.object.method.setObject")
def test_object_message_holds_the_state_of_the_object_when_it_was_set() -> None:
    message = ObjectMessage()
    assert message.object is None
    given = [1]
    message.object = given
    given.append(2)
    assert message.object == [1]
    with pytest.raises(MessageFormatException):
        message.object = object()
    assert message.object == [1]
