"""Messages with a row of typed fields. Source: JMS 1.1 chapters 3.11 and 11.2.29."""

from __future__ import annotations

from typing import NoReturn, TypeVar

from jmsql.exceptions import MessageEOFException, MessageFormatException, MessageNotReadableException
from jmsql.messages.encoded_message import BodyColumns
from jmsql.messages.message import Message
from jmsql.messages.types import conversions
from jmsql.messages.types.conversions import Conversion
from jmsql.messages.types.typed_json import read_array, write_array
from jmsql.messages.types.values import (
    Byte,
    Char,
    Float,
    Long,
    Short,
    Value,
    array_part,
    boolean,
    double,
    integer,
    string,
    value_of,
    writable_part,
)
from jmsql.public_names import set_module

T = TypeVar("T")


@set_module("jmsql")
class StreamMessage(Message):
    """A message whose body is a row of values, written and read in order.

    A new message is written; `reset` turns it to reading from the start; `clear_body` turns it to writing.
    A received message is read.

    Reading converts by table 3-7 of JMS. A pair that the table does not have raises MessageFormatException; a string
    that is no number raises NumberFormatException. A null raises NumberFormatException when it is read as an integer,
    and NullValueError as a float, a double or a char; as a boolean it is False. Beyond the last field, reading
    raises MessageEOFException, and before `reset` MessageNotReadableException. A read that fails leaves the position
    where it was.

    Writing raises MessageNotWriteableException while the message is read, and MessageFormatException if the value
    does not fit the type.
    """

    __slots__ = ("_array_position", "_fields", "_position", "_received_fields")

    _MESSAGE_TYPE = "StreamMessage"

    def __init__(self) -> None:
        super().__init__()
        self._fields: list[Value] | None = []
        self._received_fields: tuple[str | None, str | None] | None = None
        self._position = 0
        self._array_position: int | None = None  # None unless a byte array is being read in pieces

    def reset(self) -> None:
        """Make the body read-only, and read from its first field."""
        self._body_is_read_only = True
        self._position = 0
        self._array_position = None

    def clear_body(self) -> None:
        super().clear_body()
        self._fields = []
        self._received_fields = None
        self._position = 0
        self._array_position = None

    def _fields_to_read(self) -> list[Value]:
        fields = self._fields
        if fields is None:
            assert self._received_fields is not None
            fields = self._fields = read_array(*self._received_fields)
        return fields

    def _next_field(self) -> Value:
        if not self._body_is_read_only:
            raise MessageNotReadableException("The body is being written; call reset() to read it.")
        fields = self._fields_to_read()
        if self._position >= len(fields):
            raise MessageEOFException(f"All fields of the message ({len(fields)}) have been read.")
        return fields[self._position]

    def _read(self, conversion: Conversion[T]) -> T:
        field = self._next_field()
        self._check_array_complete()
        result = conversion(field, self._position)
        self._position += 1
        return result

    def _check_array_complete(self) -> None:
        if self._array_position is not None:
            raise MessageFormatException(
                f"Field {self._position} is a byte array of which a part was read; "
                "call read_bytes() until it returns -1 or less than was asked for."
            )

    def _write(self, value: Value) -> None:
        self._check_body_writable()
        self._fields_to_read().append(value)

    def read_boolean(self) -> bool:
        """Read a boolean, or a String: "true" in any case is True, all else False."""
        return self._read(conversions.to_boolean)

    def read_byte(self) -> int:
        """Read a byte, or a String."""
        return self._read(conversions.to_byte)

    def read_short(self) -> int:
        """Read a byte, a short, or a String."""
        return self._read(conversions.to_short)

    def read_char(self) -> str:
        """Read a char."""
        return self._read(conversions.to_char)

    def read_int(self) -> int:
        """Read a byte, a short, an int, or a String."""
        return self._read(conversions.to_int)

    def read_long(self) -> int:
        """Read a byte, a short, an int, a long, or a String."""
        return self._read(conversions.to_long)

    def read_float(self) -> float:
        """Read a float, or a String."""
        return self._read(conversions.to_float)

    def read_double(self) -> float:
        """Read a float, a double, or a String."""
        return self._read(conversions.to_double)

    def read_string(self) -> str | None:
        """Read any value but a byte array, numbers written as Java does."""
        return self._read(conversions.to_string)

    def read_object(self) -> Value:
        """Read a value as it was written, its class telling the JMS type."""
        field = self._next_field()
        self._check_array_complete()
        self._position += 1
        return field

    def read_bytes(self, buffer: bytearray | memoryview, length: int | None = None) -> int:
        """Read the next bytes of a byte array into the start of a buffer.

        The field is done when less is returned than was asked for; until then no other read is allowed.

        Args:
            buffer: The buffer to read into.
            length: How many bytes to read at most; None for as many as the buffer takes.

        Returns:
            How many bytes were read, or -1 if none were left of the array, or the field is null.

        Raises:
            IndexError: The length is below 0 or above the buffer's.
            TypeError: The buffer is not bytes-like or read-only.
        """
        field = self._next_field()
        target = writable_part(buffer, length)
        array = conversions.to_bytes(field, self._position)
        position = self._array_position
        if array is None or (position is not None and position == len(array)):
            self._end_array()
            return -1
        piece = array[position or 0 : (position or 0) + len(target)]
        target[: len(piece)] = piece
        if len(piece) < len(target):
            self._end_array()
        else:
            self._array_position = (position or 0) + len(piece)
        return len(piece)

    def _end_array(self) -> None:
        self._array_position = None
        self._position += 1

    def write_boolean(self, value: bool) -> None:
        """Write a boolean."""
        self._write(boolean(value))

    def write_byte(self, value: int) -> None:
        """Write a byte: -128 to 127."""
        self._write(Byte(value))

    def write_short(self, value: int) -> None:
        """Write a short: 16 bits."""
        self._write(Short(value))

    def write_char(self, value: str) -> None:
        """Write a char: one character up to U+FFFF."""
        self._write(Char(value))

    def write_int(self, value: int) -> None:
        """Write an int: 32 bits."""
        self._write(integer(value))

    def write_long(self, value: int) -> None:
        """Write a long: 64 bits."""
        self._write(Long(value))

    def write_float(self, value: float) -> None:
        """Write a float: the nearest number of 32 bits."""
        self._write(Float(value))

    def write_double(self, value: float) -> None:
        """Write a double."""
        self._write(double(value))

    def write_string(self, value: str | None) -> None:
        """Write a String."""
        self._write(string(value))

    def write_bytes(
        self, value: bytes | bytearray | memoryview | None, offset: int = 0, length: int | None = None
    ) -> None:
        """Write a copy of `length` bytes (None: all that follow) from `offset` of the array, as one field.

        Raises:
            IndexError: The part does not lie within the array.
        """
        self._write(None if value is None else array_part(value, offset, length))

    def write_object(self, value: Value | bytearray | memoryview) -> None:
        """Write a value of the type that its class tells.

        `bool` is boolean, `int` is int (long if it needs 64 bits), `float` is double, `str` is String, bytes-like
        is a byte array, None is null; Byte, Short, Long, Float and Char are themselves.
        """
        self._write(value_of(value))

    def _body(self) -> NoReturn:
        raise MessageFormatException("A StreamMessage has no body as a whole; read its fields one by one.")

    def _body_summary(self) -> str:
        return "a stream" if self._fields is None else f"{len(self._fields)} stream fields"

    def _encode_body(self) -> BodyColumns:
        text, types = self._received_fields or write_array(self._fields_to_read())
        return None, text, types, None

    def _restore_body(self, columns: BodyColumns) -> None:
        self._fields = None
        self._received_fields = columns[1:3]
        self._position = 0
        self._array_position = None
