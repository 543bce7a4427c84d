"""Messages with named values. Source: JMS 1.1 chapters 3.11 and 11.2.10."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping

from jmsql.exceptions import MessageFormatException
from jmsql.messages.encoded_message import BodyColumns
from jmsql.messages.message import Message
from jmsql.messages.types import conversions
from jmsql.messages.types.typed_json import read_object, write_object
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
)
from jmsql.public_names import set_module


@set_module("jmsql")
class MapMessage(Message, MutableMapping[str, Value]):
    """A message whose body is a set of names, each with a value; letter case counts in names.

    Reading converts by table 3-7 of JMS. A pair that the table does not have raises MessageFormatException; a string
    that is no number raises NumberFormatException. A null raises NumberFormatException when it is read as an integer,
    and NullValueError as a float, a double or a char; as a boolean it is False. A name that was never set
    reads as null.

    Writing raises MessageNotWriteableException on a received message until `clear_body`, ValueError if the name is
    empty or None, and MessageFormatException if the value does not fit the type.

    The message is a mapping too, whose values are typed as in `get_object` and `set_object`, and where a name that
    was never set raises KeyError.
    """

    __slots__ = ("_map_values", "_received_map")

    _MESSAGE_TYPE = "MapMessage"

    def __init__(self) -> None:
        super().__init__()
        self._map_values: dict[str, Value] | None = {}
        self._received_map: tuple[str | None, str | None] | None = None

    def _values_to_read(self) -> dict[str, Value]:
        values = self._map_values
        if values is None:
            assert self._received_map is not None
            values = self._map_values = read_object(*self._received_map)
        return values

    def _values_to_write(self) -> dict[str, Value]:
        self._check_body_writable()
        return self._values_to_read()

    def _set(self, name: str, value: Value) -> None:
        values = self._values_to_write()
        _check_name(name)
        values[name] = value

    @property
    def map_names(self) -> tuple[str, ...]:
        """The names of all entries, in no fixed order."""
        return tuple(self._values_to_read())

    def item_exists(self, name: str) -> bool:
        """Tell whether an entry of this name was set, be it to null."""
        return name in self._values_to_read()

    def get_boolean(self, name: str) -> bool:
        """Read a boolean, or a String: "true" in any case is True, all else False."""
        return conversions.to_boolean(self._values_to_read().get(name), name)

    def get_byte(self, name: str) -> int:
        """Read a byte, or a String."""
        return conversions.to_byte(self._values_to_read().get(name), name)

    def get_short(self, name: str) -> int:
        """Read a byte, a short, or a String."""
        return conversions.to_short(self._values_to_read().get(name), name)

    def get_char(self, name: str) -> str:
        """Read a char."""
        return conversions.to_char(self._values_to_read().get(name), name)

    def get_int(self, name: str) -> int:
        """Read a byte, a short, an int, or a String."""
        return conversions.to_int(self._values_to_read().get(name), name)

    def get_long(self, name: str) -> int:
        """Read a byte, a short, an int, a long, or a String."""
        return conversions.to_long(self._values_to_read().get(name), name)

    def get_float(self, name: str) -> float:
        """Read a float, or a String."""
        return conversions.to_float(self._values_to_read().get(name), name)

    def get_double(self, name: str) -> float:
        """Read a float, a double, or a String."""
        return conversions.to_double(self._values_to_read().get(name), name)

    def get_string(self, name: str) -> str | None:
        """Read any value but a byte array, numbers written as Java does."""
        return conversions.to_string(self._values_to_read().get(name), name)

    def get_bytes(self, name: str) -> bytes | None:
        """Read a byte array."""
        return conversions.to_bytes(self._values_to_read().get(name), name)

    def get_object(self, name: str) -> Value:
        """Read a value as it was set, its class telling the JMS type."""
        return self._values_to_read().get(name)

    def set_boolean(self, name: str, value: bool) -> None:
        """Set a boolean."""
        self._set(name, boolean(value))

    def set_byte(self, name: str, value: int) -> None:
        """Set a byte: -128 to 127."""
        self._set(name, Byte(value))

    def set_short(self, name: str, value: int) -> None:
        """Set a short: 16 bits."""
        self._set(name, Short(value))

    def set_char(self, name: str, value: str) -> None:
        """Set a char: one character up to U+FFFF."""
        self._set(name, Char(value))

    def set_int(self, name: str, value: int) -> None:
        """Set an int: 32 bits."""
        self._set(name, integer(value))

    def set_long(self, name: str, value: int) -> None:
        """Set a long: 64 bits."""
        self._set(name, Long(value))

    def set_float(self, name: str, value: float) -> None:
        """Set a float: the nearest number of 32 bits."""
        self._set(name, Float(value))

    def set_double(self, name: str, value: float) -> None:
        """Set a double."""
        self._set(name, double(value))

    def set_string(self, name: str, value: str | None) -> None:
        """Set a String."""
        self._set(name, string(value))

    def set_bytes(
        self, name: str, value: bytes | bytearray | memoryview | None, offset: int = 0, length: int | None = None
    ) -> None:
        """Set a copy of `length` bytes (None: all that follow) from `offset` of the array.

        Raises:
            IndexError: The part does not lie within the array.
        """
        self._set(name, None if value is None else array_part(value, offset, length))

    def set_object(self, name: str, value: Value | bytearray | memoryview) -> None:
        """Set a value of the type that its class tells.

        `bool` is boolean, `int` is int (long if it needs 64 bits), `float` is double, `str` is String, bytes-like
        is a byte array, None is null; Byte, Short, Long, Float and Char are themselves.
        """
        try:
            typed = value_of(value)
        except MessageFormatException as error:
            raise MessageFormatException(f"The entry {name!r}: {error}") from error
        self._set(name, typed)

    def __getitem__(self, name: str) -> Value:
        return self._values_to_read()[name]

    def __setitem__(self, name: str, value: Value) -> None:
        self.set_object(name, value)

    def __delitem__(self, name: str) -> None:
        del self._values_to_write()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values_to_read())

    def __len__(self) -> int:
        return len(self._values_to_read())

    def __contains__(self, name: object) -> bool:
        return name in self._values_to_read()

    def __bool__(self) -> bool:
        """True, so that an empty map is not taken for the None of a receive that found nothing."""
        return True

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def clear_body(self) -> None:
        super().clear_body()
        self._map_values = {}
        self._received_map = None

    def _body(self) -> dict[str, Value] | None:
        return dict(self._values_to_read()) or None

    def _body_summary(self) -> str:
        return "a map" if self._map_values is None else f"{len(self._map_values)} map entries"

    def _encode_body(self) -> BodyColumns:
        text, types = self._received_map or write_object(self._values_to_read())
        return None, text, types, None

    def _restore_body(self, columns: BodyColumns) -> None:
        self._map_values = None
        self._received_map = columns[1:3]


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise ValueError(f"An entry of a map needs a name, not {name!r}.")
