"""StreamMessage: JMS 1.1 chapter 3.11, table 3-7, and its reference."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from jmsql.exceptions import MessageEOFException, MessageFormatException, NumberFormatException
from jmsql.messages import Byte, Char, Float, Long, Short, StreamMessage
from tests.compliance.conversion_tables import (
    CONVERSIONS,
    FORBIDDEN,
    NOT_NUMBERS,
    NULL_READ_AS,
    NUMBERS,
    OUT_OF_RANGE,
    PRIMITIVES,
    TEXTS,
    VALUES,
    check_null,
)

ARRAY = bytes(range(256))


def stream_of(*fields: tuple[str, object]) -> StreamMessage:
    message = StreamMessage()
    for kind, value in fields:
        getattr(message, f"write_{kind}")(value)
    message.reset()
    return message


def read(message: StreamMessage, kind: str) -> Any:
    if kind == "bytes":
        buffer = bytearray(1000)
        return bytes(buffer[: message.read_bytes(buffer)])
    return getattr(message, f"read_{kind}")()


@pytest.mark.requirement("message.stream.conversion")
@pytest.mark.case("stream-message-01")
@pytest.mark.parametrize(("written", "value", "as_type"), CONVERSIONS)
def test_field_reads_as_each_type_that_holds_it(written: str, value: object, as_type: str) -> None:
    assert read(stream_of((written, value)), as_type) == value


@pytest.mark.requirement("message.stream.conversion")
@pytest.mark.case("stream-message-01", "stream-message-14")
@pytest.mark.parametrize(("kind", "value", "text"), TEXTS)
def test_field_becomes_a_string_as_in_java_and_back(kind: str, value: object, text: str) -> None:
    assert read(stream_of((kind, value)), "string") == text
    assert read(stream_of(("string", text)), kind) == value


@pytest.mark.requirement("message.stream.conversion")
@pytest.mark.case("stream-message-14")
@pytest.mark.parametrize(("text", "value"), [("TRUE", True), ("true", True), ("yes", False), ("", False)])
def test_only_true_in_any_case_is_a_true_string(text: str, value: bool) -> None:
    assert stream_of(("string", text)).read_boolean() is value


@pytest.mark.requirement("message.stream.method.readBytes")
@pytest.mark.case("stream-message-02")
def test_read_bytes_reads_a_field_that_just_fits_and_then_tells_its_end() -> None:
    message = stream_of(("bytes", ARRAY), ("int", 1))
    buffer = bytearray(len(ARRAY))
    assert message.read_bytes(buffer) == len(ARRAY)
    assert buffer == ARRAY
    assert message.read_bytes(buffer) == -1
    assert message.read_int() == 1


@pytest.mark.requirement("message.stream.method.readBytes")
@pytest.mark.case("stream-message-02")
def test_read_bytes_that_returns_less_than_asked_ends_the_field() -> None:
    message = stream_of(("bytes", ARRAY), ("int", 1))
    assert message.read_bytes(bytearray(len(ARRAY) + 1)) == len(ARRAY)
    assert message.read_int() == 1


@pytest.mark.requirement("message.stream.method.readBytes", "message.stream.eof")
@pytest.mark.case("stream-message-03")
def test_read_bytes_reads_a_field_in_pieces() -> None:
    message = stream_of(("bytes", ARRAY))
    pieces = []
    buffer = bytearray(60)
    while (count := message.read_bytes(buffer)) == len(buffer):
        pieces.append(bytes(buffer))
    pieces.append(bytes(buffer[:count]))
    assert [len(piece) for piece in pieces] == [60, 60, 60, 60, 16]
    assert b"".join(pieces) == ARRAY
    with pytest.raises(MessageEOFException):
        message.read_bytes(buffer)


@pytest.mark.requirement("message.stream.method.readBytes")
@pytest.mark.case("stream-message-03")
def test_read_bytes_takes_a_part_of_the_buffer() -> None:
    message = stream_of(("bytes", b"abc"))
    buffer = bytearray(b"......")
    assert message.read_bytes(memoryview(buffer)[1:], 2) == 2
    assert buffer == b".ab..."


@pytest.mark.requirement("message.stream.method.readBytes")
@pytest.mark.case("stream-message-03")
def test_empty_array_is_not_a_null() -> None:
    message = stream_of(("bytes", b""), ("bytes", None), ("bytes", b""))
    buffer = bytearray(1)
    assert message.read_bytes(buffer) == 0
    assert message.read_bytes(buffer) == -1
    assert message.read_bytes(buffer, 0) == 0
    assert message.read_bytes(buffer) == -1


@pytest.mark.requirement("message.stream.conversion")
@pytest.mark.case("stream-message-04")
@pytest.mark.parametrize("kind", NUMBERS)
def test_string_that_is_no_such_number_is_refused_and_can_be_read_again(kind: str) -> None:
    for text in (*NOT_NUMBERS, OUT_OF_RANGE.get(kind, "")):
        message = stream_of(("string", text))
        with pytest.raises(NumberFormatException):
            read(message, kind)
        assert message.read_string() == text


@pytest.mark.requirement("message.stream.method.writeObject")
@pytest.mark.case("stream-message-05")
@pytest.mark.parametrize("value", [Decimal(1), object(), [], {}, 1j, 2**63])
def test_write_object_refuses_other_classes(value: object) -> None:
    message = StreamMessage()
    with pytest.raises(MessageFormatException):
        message.write_object(value)  # type: ignore[arg-type]
    message.reset()
    with pytest.raises(MessageEOFException):
        message.read_object()


@pytest.mark.requirement("message.stream.null")
@pytest.mark.case("stream-message-06")
class TestNull:
    @pytest.mark.parametrize("kind", [kind for kind in NULL_READ_AS if kind != "bytes"])
    def test_is_read_as_in_java_and_stays_where_that_fails(self, kind: str) -> None:
        message = stream_of(("object", None), ("string", "next"))
        check_null(lambda as_type: read(message, as_type), kind)
        if isinstance(NULL_READ_AS[kind], type):
            assert message.read_object() is None
        assert message.read_string() == "next"

    @pytest.mark.parametrize("kind", ["string", "bytes", "object"])
    def test_is_none_as_an_object(self, kind: str) -> None:
        message = stream_of((kind, None), (kind, None))
        assert message.read_object() is None
        assert message.read_string() is None

    def test_is_the_end_of_a_byte_array(self) -> None:
        assert stream_of(("object", None)).read_bytes(bytearray(1)) == -1


@pytest.mark.requirement("message.stream.method.readBytes")
@pytest.mark.case("stream-message-07")
@pytest.mark.parametrize("kind", [*PRIMITIVES, "string", "object"])
@pytest.mark.parametrize("count", [1, len(ARRAY)])
def test_other_reads_wait_for_the_end_of_a_byte_array(kind: str, count: int) -> None:
    message = stream_of(("bytes", ARRAY), ("string", "next"))
    message.read_bytes(bytearray(count))
    with pytest.raises(MessageFormatException, match="read_bytes"):
        read(message, kind)
    rest = bytearray(len(ARRAY) + 1)
    assert message.read_bytes(rest) == (len(ARRAY) - count or -1)
    assert message.read_string() == "next"


@pytest.mark.requirement("message.stream.method.readBytes", "message.stream.method.clearBody")
@pytest.mark.case("stream-message-08", "stream-message-09")
@pytest.mark.parametrize("kind", ["bytes", "object"])
def test_half_read_array_is_forgotten_by_clear_body(kind: str) -> None:
    message = stream_of(("bytes", ARRAY))
    message.read_bytes(bytearray(3))
    message.clear_body()
    message.write_bytes(b"new")
    message.reset()
    assert read(message, kind) == b"new"


@pytest.mark.requirement("message.stream.method.readBytes")
@pytest.mark.case("stream-message-10", "stream-message-11")
@pytest.mark.parametrize("kind", ["bytes", "object"])
def test_half_read_array_is_read_from_its_start_after_reset(kind: str) -> None:
    message = stream_of(("bytes", ARRAY))
    message.read_bytes(bytearray(3))
    message.reset()
    assert read(message, kind) == ARRAY


@pytest.mark.requirement("message.stream.read", "message.stream.conversion")
@pytest.mark.case("stream-message-12")
@pytest.mark.parametrize(("written", "as_type"), FORBIDDEN)
def test_refused_read_leaves_the_position(written: str, as_type: str) -> None:
    value = VALUES[written][-1]
    message = stream_of((written, value))
    with pytest.raises(MessageFormatException):
        read(message, as_type)
    assert read(message, written) == value


@pytest.mark.requirement("message.stream.method.writeBytes(1)", "message.stream.method.writeBytes(2)")
@pytest.mark.case("stream-message-13")
def test_each_write_bytes_makes_a_field_of_its_own() -> None:
    message = StreamMessage()
    message.write_bytes(ARRAY)
    message.write_bytes(ARRAY, 1, 3)
    message.write_bytes(ARRAY, 254)
    message.reset()
    assert [read(message, "bytes") for _ in range(3)] == [ARRAY, b"\1\2\3", b"\xfe\xff"]


@pytest.mark.requirement("message.stream.method.writeBytes(2)")
@pytest.mark.case("stream-message-13")
@pytest.mark.parametrize(("offset", "length"), [(-1, 1), (0, 257), (256, 1), (257, 0), (0, -1)])
def test_write_bytes_takes_a_part_within_the_array(offset: int, length: int) -> None:
    with pytest.raises(IndexError):
        StreamMessage().write_bytes(ARRAY, offset, length)


@pytest.mark.requirement("message.stream.method.writeBytes(1)", "message.stream.method.writeBytes(2)")
@pytest.mark.case("stream-message-15")
def test_write_bytes_leaves_the_array_as_it_was() -> None:
    array = bytearray(ARRAY)
    message = StreamMessage()
    message.write_bytes(array)
    message.write_bytes(array, 2, 5)
    message.reset()
    read(message, "bytes")
    assert array == ARRAY


@pytest.mark.requirement("message.stream.method.writeObject")
@pytest.mark.case("stream-message-16")
def test_write_object_keeps_value_and_type() -> None:
    values = [True, Byte(1), Short(2), Char("c"), 3, Long(4), Float(0.5), 0.1, "text", b"bytes", None]
    message = stream_of(*(("object", value) for value in values))
    results = [message.read_object() for _ in values]
    assert results == values
    assert [type(result) for result in results] == [type(value) for value in values]
