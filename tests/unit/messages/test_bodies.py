from __future__ import annotations

import pytest

from jmsql.exceptions import (
    MessageFormatException,
    MessageNotReadableException,
    MessageNotWriteableException,
    NullValueError,
)
from jmsql.messages import BytesMessage, Char, MapMessage, StreamMessage, TextMessage
from tests.unit.messages.rows import received


class TestText:
    @pytest.mark.parametrize("text", [None, "", "text", "\0", "\ud800\udc00", "\ufffe0", "😀" * 1000])
    def test_travels(self, text: str | None) -> None:
        assert received(TextMessage(text)).text == text

    def test_is_text(self) -> None:
        with pytest.raises(MessageFormatException, match="from a str"):
            TextMessage(b"bytes")  # type: ignore[arg-type]

    def test_is_read_only_after_receive_until_cleared(self) -> None:
        message = received(TextMessage("old"))
        with pytest.raises(MessageNotWriteableException, match="clear_body"):
            message.text = "new"
        assert message.text == "old"
        message.clear_body()
        assert message.get_body(str) is None
        message.text = "new"
        assert received(message).text == "new"

    def test_of_100_megabytes_travels(self) -> None:
        text = "x" * 100_000_000
        assert received(TextMessage(text)).text == text


class TestMap:
    def test_is_a_mapping(self) -> None:
        message = MapMessage()
        message.update(a=1, b="x")
        assert dict(message) == {"a": 1, "b": "x"}
        assert len(message) == 2
        assert message.pop("a") == 1
        assert "a" not in message
        with pytest.raises(KeyError):
            _ = message["a"]

    def test_is_read_only_after_receive_until_cleared(self) -> None:
        message = MapMessage()
        message["a"] = 1
        message = received(message)
        with pytest.raises(MessageNotWriteableException):
            message["b"] = 2
        with pytest.raises(MessageNotWriteableException):
            del message["a"]
        message.clear_body()
        message["b"] = 2
        assert dict(received(message)) == {"b": 2}

    @pytest.mark.parametrize("name", ["", None])
    def test_name_is_not_empty(self, name: str) -> None:
        with pytest.raises(ValueError, match="needs a name"):
            MapMessage().set_int(name, 1)

    @pytest.mark.parametrize("name", ["a b", "1", "\0", "\ud800", "NULL", "\ufffe"])
    def test_name_is_otherwise_any_string(self, name: str) -> None:
        message = MapMessage()
        message.set_object(name, name)
        assert dict(received(message)) == {name: name}

    def test_messages_are_equal_to_themselves_only(self) -> None:
        message = MapMessage()
        assert message == message  # noqa: PLR0124
        assert message != MapMessage()
        assert len({message, MapMessage()}) == 2

    def test_refused_set_leaves_the_entry(self) -> None:
        message = MapMessage()
        message.set_byte("a", 1)
        with pytest.raises(MessageFormatException):
            message.set_byte("a", 128)
        assert message.get_byte("a") == 1


class TestStream:
    def test_is_read_from_the_start_after_receive_and_again_after_reset(self) -> None:
        message = StreamMessage()
        message.write_int(1)
        message.write_string("x")
        message = received(message)
        assert (message.read_int(), message.read_string()) == (1, "x")
        message.reset()
        assert message.read_int() == 1
        with pytest.raises(MessageNotWriteableException):
            message.write_int(2)

    def test_failed_write_writes_nothing(self) -> None:
        message = StreamMessage()
        with pytest.raises(MessageFormatException):
            message.write_byte(128)
        message.write_byte(127)
        message.reset()
        assert message.read_byte() == 127

    def test_reading_into_a_read_only_buffer_reads_nothing(self) -> None:
        message = StreamMessage()
        message.write_bytes(b"abc")
        message.reset()
        with pytest.raises(TypeError, match="read-only"):
            message.read_bytes(b"   ")  # type: ignore[arg-type]
        with pytest.raises(IndexError):
            message.read_bytes(bytearray(1), 2)
        assert message.read_object() == b"abc"

    def test_field_of_another_type_is_no_byte_array(self) -> None:
        message = StreamMessage()
        message.write_string("text")
        message.reset()
        with pytest.raises(MessageFormatException, match="Field 0 is a String"):
            message.read_bytes(bytearray(1))
        assert message.read_string() == "text"


class TestBytes:
    def test_numbers_are_written_as_java_does_and_travel(self) -> None:
        message = BytesMessage()
        message.write_boolean(True)
        message.write_byte(-1)
        message.write_short(-2)
        message.write_char("é")
        message.write_int(-3)
        message.write_long(-4)
        message.write_float(0.5)
        message.write_double(-0.0)
        message.write_utf("é\0")
        message.write_bytes(b"abc", 1)
        message = received(message)
        assert message.get_body(bytes) == (
            b"\x01\xff\xff\xfe\x00\xe9\xff\xff\xff\xfd"
            + b"\xff" * 7
            + b"\xfc\x3f\0\0\0\x80"
            + b"\0" * 7
            + b"\0\4\xc3\xa9\xc0\x80bc"
        )
        assert message.read_boolean() is True
        assert (message.read_unsigned_byte(), message.read_unsigned_short()) == (255, 65534)
        assert (message.read_char(), message.read_int(), message.read_long()) == ("é", -3, -4)
        assert (message.read_float(), str(message.read_double()), message.read_utf()) == (0.5, "-0.0", "é\0")
        buffer = bytearray(3)
        assert message.read_bytes(buffer) == 2
        assert buffer == b"bc\0"

    def test_length_is_that_of_the_whole_body(self) -> None:
        message = BytesMessage()
        message.write_bytes(b"abc")
        message = received(message)
        message.read_byte()
        assert message.body_length == 3

    def test_read_of_no_bytes_before_the_end_is_no_end(self) -> None:
        message = BytesMessage()
        message.write_byte(1)
        message.reset()
        assert message.read_bytes(bytearray()) == 0
        message.read_byte()
        assert message.read_bytes(bytearray()) == -1

    def test_null_is_refused(self) -> None:
        message = BytesMessage()
        with pytest.raises(NullValueError):
            message.write_utf(None)  # type: ignore[arg-type]
        with pytest.raises(NullValueError):
            message.write_bytes(None)  # type: ignore[arg-type]

    def test_message_is_written_again_after_clear_body(self) -> None:
        message = BytesMessage()
        message.write_byte(1)
        message = received(message)
        with pytest.raises(MessageNotWriteableException):
            message.write_byte(2)
        message.clear_body()
        with pytest.raises(MessageNotReadableException):
            message.read_byte()
        message.write_byte(2)
        assert received(message).read_byte() == 2

    def test_100_megabytes_travel(self) -> None:
        message = BytesMessage()
        message.write_bytes(bytes(100_000_000))
        message = received(message)
        assert message.body_length == 100_000_000
        buffer = bytearray(100_000_001)
        assert message.read_bytes(buffer) == 100_000_000

    def test_char_is_written_in_two_bytes(self) -> None:
        message = BytesMessage()
        message.write_object(Char("\ud800"))
        assert message.encode().bytes_body == b"\xd8\x00"


@pytest.mark.parametrize(
    ("body_type", "expected"),
    [(int, "is a String, not an int"), (type("OrderPlaced", (), {}), "not an OrderPlaced"), (dict, "not a dict")],
)
def test_types_are_named_with_the_article_that_fits(body_type: type, expected: str) -> None:
    with pytest.raises(MessageFormatException, match=expected):
        TextMessage("x").get_body(body_type)
