"""What of a new message can be read and written: JMS 1.1 chapters 3.3, 3.10 and 3.11."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jmsql.exceptions import MessageEOFException, MessageNotReadableException, MessageNotWriteableException
from jmsql.messages import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from tests.compliance.filled_messages import CLASSES, FILL

STREAM_READS = ["boolean", "byte", "short", "char", "int", "long", "float", "double", "string", "object"]
BYTES_READS = [*STREAM_READS[:8], "unsigned_byte", "unsigned_short", "utf"]


@pytest.mark.requirement("message.creation", "message.bytes.creation", "message.bytes.eof")
@pytest.mark.case("message-read-write-01")
@pytest.mark.parametrize("kind", BYTES_READS)
def test_new_bytes_message_is_read_after_reset_only(kind: str) -> None:
    message = BytesMessage()
    read = getattr(message, f"read_{kind}")
    with pytest.raises(MessageNotReadableException, match="reset"):
        read()
    message.reset()
    with pytest.raises(MessageEOFException):
        read()


@pytest.mark.requirement("message.creation", "message.bytes.creation")
@pytest.mark.case("message-read-write-01")
def test_new_bytes_message_tells_length_and_bytes_after_reset_only() -> None:
    message = BytesMessage()
    with pytest.raises(MessageNotReadableException):
        message.read_bytes(bytearray(1))
    with pytest.raises(MessageNotReadableException):
        _ = message.body_length
    message.reset()
    assert message.body_length == 0
    assert message.read_bytes(bytearray(1)) == -1


@pytest.mark.requirement("message.creation", "message.stream.creation", "message.stream.eof")
@pytest.mark.case("message-read-write-03")
@pytest.mark.parametrize("kind", STREAM_READS)
def test_new_stream_message_is_read_after_reset_only(kind: str) -> None:
    message = StreamMessage()
    read = getattr(message, f"read_{kind}")
    with pytest.raises(MessageNotReadableException, match="reset"):
        read()
    message.reset()
    with pytest.raises(MessageEOFException):
        read()


@pytest.mark.requirement("message.creation", "message.stream.creation", "message.stream.eof")
@pytest.mark.case("message-read-write-03")
def test_byte_array_of_a_new_stream_message_is_read_after_reset_only() -> None:
    message = StreamMessage()
    with pytest.raises(MessageNotReadableException):
        message.read_bytes(bytearray(1))
    message.reset()
    with pytest.raises(MessageEOFException):
        message.read_bytes(bytearray(1))


@pytest.mark.requirement("message.creation")
@pytest.mark.case("message-read-write-02")
def test_new_messages_of_the_other_types_are_read_at_once() -> None:
    assert TextMessage().text is None
    assert ObjectMessage().object is None
    assert MapMessage().map_names == ()
    assert Message().property_names == ()


@pytest.mark.requirement("message.creation")
@pytest.mark.case("message-read-write-05")
@pytest.mark.parametrize("kind", CLASSES)
def test_new_message_is_writable(kind: type[Message]) -> None:
    message = kind()
    FILL[kind](message)
    message.set_int_property("name", 1)
    assert message.get_int_property("name") == 1


@pytest.mark.requirement("message.method.clearBody")
@pytest.mark.case("message-read-write-04")
@pytest.mark.parametrize("kind", CLASSES)
def test_cleared_message_is_writable(kind: type[Message]) -> None:
    message = kind()
    FILL[kind](message)
    message.clear_body()
    FILL[kind](message)
    once = kind()
    FILL[kind](once)
    assert message.encode() == once.encode()


@pytest.mark.requirement("message.method.clearBody")
@pytest.mark.case("message-read-write-04")
@pytest.mark.parametrize(
    ("message", "write", "body"),
    [
        (BytesMessage(), lambda message: message.write_bytes(b"b"), b"b"),
        (StreamMessage(), lambda message: message.write_int(1), None),
    ],
    ids=["BytesMessage", "StreamMessage"],
)
def test_message_after_reset_is_written_after_clear_body_only(
    message: Any, write: Callable[[Any], None], body: bytes | None
) -> None:
    message.reset()
    with pytest.raises(MessageNotWriteableException, match="clear_body"):
        write(message)
    message.clear_body()
    write(message)
    message.reset()
    assert message.read_object() == 1 if body is None else message.get_body(bytes) == body
