"""Messages with bytes. Source: JMS 1.1 chapters 3.11 and 11.2.1; the formats come from Java's `DataOutput`."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, TypeVar

from jmsql.exceptions import MessageEOFException, MessageNotReadableException, NullValueError
from jmsql.messages.encoded_message import BodyColumns
from jmsql.messages.message import Message
from jmsql.messages.types.modified_utf8 import decode_modified_utf8, encode_modified_utf8
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

_BYTE = Struct(">b")
_UNSIGNED_BYTE = Struct(">B")
_SHORT = Struct(">h")
_UNSIGNED_SHORT = Struct(">H")
_INT = Struct(">i")
_LONG = Struct(">q")
_FLOAT = Struct(">f")
_DOUBLE = Struct(">d")


@set_module("jmsql")
class BytesMessage(Message):
    """A message whose body is bytes, with methods that write and read numbers and strings in Java's binary format.

    A new message is written; `reset` turns it to reading from the start; `clear_body` turns it to writing.
    A received message is read.

    Reading beyond the end raises MessageEOFException, and before `reset` MessageNotReadableException. A read that
    fails leaves the position where it was. Writing raises MessageNotWriteableException while the message is read,
    MessageFormatException if the value does not fit the type, and NullValueError if a string, an array or an object is
    None.
    """

    __slots__ = ("_content", "_position")

    _MESSAGE_TYPE = "BytesMessage"

    def __init__(self) -> None:
        super().__init__()
        self._content: bytes | bytearray = bytearray()
        self._position = 0

    def reset(self) -> None:
        """Make the body read-only, and read from its first byte."""
        self._body_is_read_only = True
        self._position = 0

    def clear_body(self) -> None:
        super().clear_body()
        self._content = bytearray()
        self._position = 0

    def _check_readable(self) -> None:
        if not self._body_is_read_only:
            raise MessageNotReadableException("The body is being written; call reset() to read it.")

    def _check_remaining(self, position: int, size: int) -> None:
        remaining = len(self._content) - position
        if size > remaining:
            raise MessageEOFException(f"The read takes {size} bytes, and {remaining} are left.")

    def _read(self, layout: Struct) -> Any:
        self._check_readable()
        self._check_remaining(self._position, layout.size)
        (value,) = layout.unpack_from(self._content, self._position)
        self._position += layout.size
        return value

    def _write(self, encoded: bytes) -> None:
        self._check_body_writable()
        assert isinstance(self._content, bytearray)  # as long as it is writable
        self._content += encoded

    @property
    def body_length(self) -> int:
        """The number of bytes in the body.

        Raises:
            MessageNotReadableException: The body is being written.
        """
        self._check_readable()
        return len(self._content)

    def read_boolean(self) -> bool:
        """Read one byte: zero is False, all else True."""
        return bool(self._read(_UNSIGNED_BYTE))

    def read_byte(self) -> int:
        """Read one byte as a number from -128 to 127."""
        return self._read(_BYTE)  # type: ignore[no-any-return]

    def read_unsigned_byte(self) -> int:
        """Read one byte as a number from 0 to 255."""
        return self._read(_UNSIGNED_BYTE)  # type: ignore[no-any-return]

    def read_short(self) -> int:
        """Read two bytes as a signed number."""
        return self._read(_SHORT)  # type: ignore[no-any-return]

    def read_unsigned_short(self) -> int:
        """Read two bytes as a number from 0 to 65535."""
        return self._read(_UNSIGNED_SHORT)  # type: ignore[no-any-return]

    def read_char(self) -> str:
        """Read two bytes as a character."""
        return chr(self._read(_UNSIGNED_SHORT))

    def read_int(self) -> int:
        """Read four bytes as a signed number."""
        return self._read(_INT)  # type: ignore[no-any-return]

    def read_long(self) -> int:
        """Read eight bytes as a signed number."""
        return self._read(_LONG)  # type: ignore[no-any-return]

    def read_float(self) -> float:
        """Read four bytes as an IEEE 754 number."""
        return self._read(_FLOAT)  # type: ignore[no-any-return]

    def read_double(self) -> float:
        """Read eight bytes as an IEEE 754 number."""
        return self._read(_DOUBLE)  # type: ignore[no-any-return]

    def read_utf(self) -> str:
        """Read a string that `write_utf` wrote.

        Raises:
            MessageFormatException: The bytes are no such string.
        """
        self._check_readable()
        self._check_remaining(self._position, _UNSIGNED_SHORT.size)
        start = self._position + _UNSIGNED_SHORT.size
        (size,) = _UNSIGNED_SHORT.unpack_from(self._content, self._position)
        self._check_remaining(start, size)
        text = decode_modified_utf8(bytes(self._content[start : start + size]))
        self._position = start + size
        return text

    def read_bytes(self, buffer: bytearray | memoryview, length: int | None = None) -> int:
        """Read the next bytes into the start of a buffer.

        Args:
            buffer: The buffer to read into.
            length: How many bytes to read at most; None for as many as the buffer takes.

        Returns:
            How many bytes were read, or -1 at the end of the body.

        Raises:
            IndexError: The length is below 0 or above the buffer's.
            TypeError: The buffer is not bytes-like or read-only.
        """
        self._check_readable()
        target = writable_part(buffer, length)
        count = min(len(target), len(self._content) - self._position)
        if self._position == len(self._content):
            return -1
        target[:count] = memoryview(self._content)[self._position : self._position + count]
        self._position += count
        return count

    def write_boolean(self, value: bool) -> None:
        """Write one byte: 1 for True, 0 for False."""
        self._write(_UNSIGNED_BYTE.pack(boolean(value)))

    def write_byte(self, value: int) -> None:
        """Write a number from -128 to 127 as one byte."""
        self._write(_BYTE.pack(Byte(value)))

    def write_short(self, value: int) -> None:
        """Write a number of 16 bits as two bytes."""
        self._write(_SHORT.pack(Short(value)))

    def write_char(self, value: str) -> None:
        """Write a character up to U+FFFF as two bytes."""
        self._write(_UNSIGNED_SHORT.pack(ord(Char(value))))

    def write_int(self, value: int) -> None:
        """Write a number of 32 bits as four bytes."""
        self._write(_INT.pack(integer(value)))

    def write_long(self, value: int) -> None:
        """Write a number of 64 bits as eight bytes."""
        self._write(_LONG.pack(Long(value)))

    def write_float(self, value: float) -> None:
        """Write a number as IEEE 754 of four bytes."""
        self._write(_FLOAT.pack(Float(value)))

    def write_double(self, value: float) -> None:
        """Write a number as IEEE 754 of eight bytes."""
        self._write(_DOUBLE.pack(double(value)))

    def write_utf(self, value: str) -> None:
        """Write a string as modified UTF-8 with its length in front; two surrogates side by side become one character.

        Raises:
            MessageFormatException: The string takes more than 65535 bytes.
        """
        text = string(value)
        if text is None:
            raise NullValueError("A BytesMessage holds no null string.")
        self._write(encode_modified_utf8(text))

    def write_bytes(self, value: bytes | bytearray | memoryview, offset: int = 0, length: int | None = None) -> None:
        """Write `length` bytes (None: all that follow) from `offset` of the array.

        Raises:
            IndexError: The part does not lie within the array.
        """
        self._write(array_part(value, offset, length))

    def write_object(self, value: Value | bytearray | memoryview) -> None:
        """Write a value in the format of the type that its class tells.

        `bool` is boolean, `int` is int (long if it needs 64 bits), `float` is double, `str` is written as by
        `write_utf`, bytes-like is a byte array; Byte, Short, Long, Float and Char are themselves.
        """
        if value is None:
            raise NullValueError("A BytesMessage holds no null.")
        typed = value_of(value)
        _WRITERS[type(typed)](self, typed)

    def get_body(self, body_type: type[T]) -> T | None:
        """Return the bytes if they are of this type; None, for any type, if there are none.

        The message is reset: it is read from the first byte on.

        Raises:
            MessageFormatException: The body is of another type.
        """
        body = super().get_body(body_type)
        self.reset()
        return body

    def _body(self) -> bytes | None:
        return bytes(self._content) or None

    def _body_summary(self) -> str:
        return f"{len(self._content)} bytes"

    def _encode_body(self) -> BodyColumns:
        return None, None, None, bytes(self._content)

    def _restore_body(self, columns: BodyColumns) -> None:
        self._content = columns[3] or b""
        self._position = 0


_WRITERS: dict[type, Callable[[BytesMessage, Any], None]] = {
    bool: BytesMessage.write_boolean,
    Byte: BytesMessage.write_byte,
    Short: BytesMessage.write_short,
    Char: BytesMessage.write_char,
    int: BytesMessage.write_int,
    Long: BytesMessage.write_long,
    Float: BytesMessage.write_float,
    float: BytesMessage.write_double,
    str: BytesMessage.write_utf,
    bytes: BytesMessage.write_bytes,
}
