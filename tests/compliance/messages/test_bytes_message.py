"""BytesMessage: JMS 1.1 chapter 3.11 and its reference."""

from __future__ import annotations

import struct
from decimal import Decimal

import pytest

from jmsql.exceptions import MessageEOFException, MessageFormatException, NullValueError
from jmsql.messages import Byte, BytesMessage, Char, Float, Long, Short

BODY = bytes(range(256))


def message_of(body: bytes) -> BytesMessage:
    message = BytesMessage()
    message.write_bytes(body)
    message.reset()
    return message


@pytest.mark.requirement("message.bytes.method.writeObject")
@pytest.mark.case("bytes-message-01")
@pytest.mark.parametrize("value", [Decimal(1), object(), [], {}, 1j, 2**63])
def test_write_object_refuses_other_classes(value: object) -> None:
    message = BytesMessage()
    with pytest.raises(MessageFormatException):
        message.write_object(value)  # type: ignore[arg-type]
    message.reset()
    assert message.body_length == 0


@pytest.mark.requirement("message.bytes.method.writeObject")
@pytest.mark.case("bytes-message-01")
def test_write_object_refuses_null() -> None:
    with pytest.raises(NullValueError):
        BytesMessage().write_object(None)


@pytest.mark.requirement("message.bytes.method.readBytes(2)")
@pytest.mark.case("bytes-message-02", "bytes-message-03")
@pytest.mark.parametrize(("size", "length"), [(60, 60), (60, 50), (1, 1), (256, 255)])
def test_repeated_read_bytes_yields_the_whole_body(size: int, length: int) -> None:
    message = message_of(BODY)
    read = b""
    buffer = bytearray(size)
    while (count := message.read_bytes(buffer, length)) != -1:
        assert count <= length
        read += buffer[:count]
    assert read == BODY


@pytest.mark.requirement("message.bytes.method.readBytes(1)")
@pytest.mark.case("bytes-message-04")
@pytest.mark.parametrize("size", [1, 256, 300])
def test_read_bytes_fills_the_buffer_as_far_as_bytes_remain(size: int) -> None:
    buffer = bytearray(size)
    count = message_of(BODY).read_bytes(buffer)
    assert count == min(size, len(BODY))
    assert buffer[:count] == BODY[:count]


@pytest.mark.requirement("message.bytes.method.readBytes(1)")
@pytest.mark.case("bytes-message-05")
def test_read_bytes_tells_the_end_of_an_empty_body() -> None:
    assert message_of(b"").read_bytes(bytearray(1)) == -1


@pytest.mark.requirement("message.bytes.method.readBytes(2)")
@pytest.mark.case("bytes-message-06")
def test_read_bytes_with_a_length_tells_the_end_of_an_empty_body() -> None:
    assert message_of(b"").read_bytes(bytearray(2), 1) == -1


@pytest.mark.requirement("message.bytes.method.readBytes(2)")
@pytest.mark.case("bytes-message-07")
@pytest.mark.parametrize("length", [-1, 11])
def test_read_bytes_refuses_a_length_that_the_buffer_does_not_have(length: int) -> None:
    message = message_of(BODY)
    with pytest.raises(IndexError, match="does not lie within"):
        message.read_bytes(bytearray(10), length)
    assert message.read_byte() == 0


@pytest.mark.requirement("message.bytes.read")
@pytest.mark.case("bytes-message-08")
@pytest.mark.parametrize("encoded", [b"\xff", b"\xc0", b"\xf0\x9f\x98\x80", b"\xed\xa0"])
def test_bytes_that_are_no_string_can_be_read_as_something_else(encoded: bytes) -> None:
    message = message_of(struct.pack(">H", len(encoded)) + encoded)
    with pytest.raises(MessageFormatException, match="modified UTF-8"):
        message.read_utf()
    assert message.read_unsigned_short() == len(encoded)


@pytest.mark.requirement("message.bytes.read", "message.bytes.eof")
@pytest.mark.case("bytes-message-08")
@pytest.mark.parametrize("kind", ["short", "unsigned_short", "char", "int", "long", "float", "double", "utf"])
def test_read_beyond_the_end_takes_no_byte(kind: str) -> None:
    message = message_of(b"\x01")
    with pytest.raises(MessageEOFException):
        getattr(message, f"read_{kind}")()
    assert message.read_byte() == 1


@pytest.mark.requirement("message.bytes.method.writeObject")
@pytest.mark.case("bytes-message-09")
@pytest.mark.parametrize(
    ("value", "kind", "encoded"),
    [
        (True, "boolean", b"\x01"),
        (Byte(-1), "byte", b"\xff"),
        (Short(-2), "short", b"\xff\xfe"),
        (Char("é"), "char", b"\x00\xe9"),
        (3, "int", b"\0\0\0\3"),
        (Long(4), "long", b"\0\0\0\0\0\0\0\4"),
        (2**40, "long", b"\0\0\1\0\0\0\0\0"),
        (Float(0.5), "float", b"\x3f\0\0\0"),
        (0.1, "double", struct.pack(">d", 0.1)),
        ("é", "utf", b"\0\2\xc3\xa9"),
    ],
)
def test_write_object_writes_in_the_format_of_the_type(value: bool | float | str, kind: str, encoded: bytes) -> None:
    message = BytesMessage()
    message.write_object(value)
    message.reset()
    assert message.get_body(bytes) == encoded
    assert getattr(message, f"read_{kind}")() == value


@pytest.mark.requirement("message.bytes.method.writeObject")
@pytest.mark.case("bytes-message-09")
@pytest.mark.parametrize("value", [BODY, bytearray(BODY), memoryview(BODY)], ids=lambda value: type(value).__name__)
def test_write_object_writes_bytes_as_they_are(value: bytes | bytearray | memoryview) -> None:
    message = BytesMessage()
    message.write_object(value)
    message.reset()
    assert message.get_body(bytes) == BODY
