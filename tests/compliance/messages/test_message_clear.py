"""Clearing a message: JMS 1.1 chapters 3.5.7 and 3.11.1."""

from __future__ import annotations

import pytest

from jmsql.exceptions import MessageEOFException
from jmsql.messages import BytesMessage, Message, StreamMessage
from tests.compliance.filled_messages import CLASSES, FILL, filled


def body(message: Message) -> tuple[object, ...]:
    return message.encode()[-4:]


@pytest.mark.requirement("message.method.clearBody")
@pytest.mark.case("message-clear-03")
@pytest.mark.parametrize("kind", CLASSES)
def test_clear_body_empties_the_body_and_keeps_the_properties(kind: type[Message]) -> None:
    message = filled(kind)
    message.clear_body()
    assert body(message) == body(kind())
    assert dict(message.properties) == {"name": "value"}


@pytest.mark.requirement("message.method.clearBody")
@pytest.mark.case("message-clear-04")
@pytest.mark.parametrize("kind", CLASSES)
def test_new_message_may_be_cleared(kind: type[Message]) -> None:
    message = kind()
    message.clear_body()
    FILL[kind](message)
    assert body(message) == body(filled(kind))


@pytest.mark.requirement("message.method.clearProperties")
@pytest.mark.case("message-clear-05")
@pytest.mark.parametrize("kind", CLASSES)
def test_clear_properties_removes_the_properties_and_keeps_the_body(kind: type[Message]) -> None:
    message = filled(kind)
    message.clear_properties()
    assert message.property_names == ()
    assert body(message) == body(filled(kind))


@pytest.mark.requirement("message.method.clearProperties")
@pytest.mark.case("message-clear-06")
@pytest.mark.parametrize("kind", CLASSES)
def test_properties_of_a_new_message_may_be_cleared(kind: type[Message]) -> None:
    message = kind()
    message.clear_properties()
    message.set_int_property("name", 1)
    assert dict(message.properties) == {"name": 1}


@pytest.mark.requirement("message.method.clearBody", "message.bytes.method.clearBody")
@pytest.mark.case("message-clear-01", "message-clear-02")
@pytest.mark.parametrize("message", [BytesMessage(), filled(BytesMessage)], ids=["new", "filled"])
def test_cleared_bytes_message_is_written_again(message: BytesMessage) -> None:
    message.clear_body()
    message.reset()
    assert message.body_length == 0
    message.clear_body()
    message.write_int(1)
    message.reset()
    assert message.get_body(bytes) == b"\0\0\0\1"


@pytest.mark.requirement("message.method.clearBody", "message.stream.method.clearBody")
@pytest.mark.case("message-clear-07", "message-clear-08")
@pytest.mark.parametrize("message", [StreamMessage(), filled(StreamMessage)], ids=["new", "filled"])
def test_cleared_stream_message_is_written_again(message: StreamMessage) -> None:
    message.clear_body()
    message.reset()
    with pytest.raises(MessageEOFException):
        message.read_object()
    message.clear_body()
    message.write_int(2)
    message.reset()
    assert message.read_int() == 2
