"""Reading a value as another type than the one it was written with.

One table serves properties, maps and streams: properties hold no char and no byte array, which leaves table 3-2 for
them; the whole is table 3-7. Source: JMS 1.1 chapters 3.5.4 and 3.11.3.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import NoneType
from typing import Any, Generic, NoReturn, TypeVar

from jmsql.exceptions import MessageFormatException, NullValueError, NumberFormatException
from jmsql.messages.types.java_numbers import format_double, format_float, parse_double, parse_float, parse_integer
from jmsql.messages.types.values import Byte, Char, Float, Long, Short, Value, type_name

T = TypeVar("T")


class Conversion(Generic[T]):
    """How values of each type are read as one type: a column of the table."""

    __slots__ = ("_readers", "_target")

    def __init__(self, target: str, readers: dict[type, Callable[[Any], T]]) -> None:
        self._target = target
        self._readers = readers

    def __call__(self, value: Value, place: str | int) -> T:
        """Read `value`, which stands under the name, or at the index, `place`.

        Raises:
            MessageFormatException: The table has no such conversion.
            NumberFormatException: A string that is no number is read as a number, or a null as an integer.
            NullValueError: A null is read as a float, a double or a char.
        """
        reader = self._readers.get(type(value))
        if reader is None:
            where = f"Field {place}" if isinstance(place, int) else repr(place)
            raise MessageFormatException(
                f"{where} is {type_name(value)}, which cannot be read as {self._target}; "
                "read it as an object to get it as it is."
            )
        return reader(value)


def _string_to_boolean(value: str) -> bool:
    return value.lower() == "true"


# A null is read as Java's valueOf(String) of the type reads it: Integer and its like take it for a wrong number; Float
# and Double raise a NullPointerException. A char has no valueOf(String), and JMS demands that exception for it too.


def _null_to_integer(_: None) -> NoReturn:
    raise NumberFormatException("The value is null or was never set, so that it cannot be read as an integer.")


def _null_to_value(_: None) -> NoReturn:
    raise NullValueError("The value is null or was never set, so that it cannot be read as a float, double or char.")


def _boolean_to_string(value: bool) -> str:
    return "true" if value else "false"


def _same(value: T) -> T:
    return value


def _null_to_false(_: None) -> bool:
    return False


def _integer(target: str, bits: int, *types: type[int]) -> Conversion[int]:
    """A column for integers: those types that fit it, and strings."""
    readers: dict[type, Callable[[Any], int]] = dict.fromkeys(types, int)
    return Conversion(target, readers | {str: partial(parse_integer, bits=bits), NoneType: _null_to_integer})


to_boolean: Conversion[bool] = Conversion("boolean", {bool: _same, str: _string_to_boolean, NoneType: _null_to_false})
to_byte = _integer("byte", 8, Byte)
to_short = _integer("short", 16, Byte, Short)
to_int = _integer("int", 32, Byte, Short, int)
to_long = _integer("long", 64, Byte, Short, int, Long)
to_float: Conversion[float] = Conversion("float", {Float: float, str: parse_float, NoneType: _null_to_value})
to_double: Conversion[float] = Conversion(
    "double", {Float: float, float: float, str: parse_double, NoneType: _null_to_value}
)
to_char: Conversion[str] = Conversion("char", {Char: str.__str__, NoneType: _null_to_value})
to_string: Conversion[str | None] = Conversion(
    "String",
    {
        str: _same,
        NoneType: _same,
        Char: str.__str__,
        bool: _boolean_to_string,
        **dict.fromkeys((Byte, Short, int, Long), int.__repr__),
        Float: format_float,
        float: format_double,
    },
)
to_bytes: Conversion[bytes | None] = Conversion("byte array", {bytes: _same, NoneType: _same})
