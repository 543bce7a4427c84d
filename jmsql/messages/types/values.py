"""The values that properties, maps and streams hold, and how each JMS type is told apart.

Python's own types stand for most JMS types: `bool` is boolean, `int` is int, `float` is double, `str` is String and
`bytes` is a byte array. The others are subclasses of these, so that a value read as an object and written to another
message keeps its JMS type, while it still is a number or a string to everything else: `Byte`, `Short`, `Long`,
`Float` and `Char`. An `int` that needs 64 bits becomes a `Long` by itself.

Source: JMS 1.1 chapters 3.5.2 and 3.11.3.
"""

from __future__ import annotations

import operator
import struct
from numbers import Integral, Real
from types import NoneType
from typing import Self, TypeAlias

from jmsql.exceptions import MessageFormatException, NullValueError
from jmsql.public_names import set_module

PropertyValue: TypeAlias = bool | int | float | str | None
"""A property's value: its exact class is bool, Byte, Short, int, Long, Float, float, str or NoneType."""

Value: TypeAlias = bool | int | float | str | bytes | None
"""A value of a map or stream: the classes of a property, Char and bytes."""

_INT_MINIMUM, _INT_MAXIMUM = -(2**31), 2**31 - 1


def _checked_integer(value: object, name: str, minimum: int, maximum: int) -> int:
    if type(value) is not int:
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise MessageFormatException(f"A JMS {name} is written from an int, not from {type_name(value)}.")
        value = operator.index(value)
    if not minimum <= value <= maximum:
        shown = str(value) if abs(value) < 10**30 else "An integer of that size"
        raise MessageFormatException(f"{shown} does not fit the JMS type {name} ({minimum} to {maximum}).")
    return value


@set_module("jmsql.types")
class Byte(int):
    """A JMS byte: -128 to 127.

    Raises:
        MessageFormatException: The value is no integer or out of range.
    """

    __slots__ = ()

    def __new__(cls, value: int) -> Self:
        return int.__new__(cls, _checked_integer(value, "byte", -128, 127))


@set_module("jmsql.types")
class Short(int):
    """A JMS short: 16 bits.

    Raises:
        MessageFormatException: The value is no integer or out of range.
    """

    __slots__ = ()

    def __new__(cls, value: int) -> Self:
        return int.__new__(cls, _checked_integer(value, "short", -(2**15), 2**15 - 1))


@set_module("jmsql.types")
class Long(int):
    """A JMS long: 64 bits.

    Raises:
        MessageFormatException: The value is no integer or out of range.
    """

    __slots__ = ()

    def __new__(cls, value: int) -> Self:
        return int.__new__(cls, _checked_integer(value, "long", -(2**63), 2**63 - 1))


@set_module("jmsql.types")
class Float(float):
    """A JMS float: the nearest number of 32 bits to the value given.

    Raises:
        MessageFormatException: The value is no number, or finite and beyond the range of 32 bits.
    """

    __slots__ = ()

    def __new__(cls, value: float) -> Self:
        try:
            (rounded,) = struct.unpack("<f", struct.pack("<f", double(value)))
        except OverflowError:
            raise MessageFormatException(f"{value!r} is too large for the JMS type float; use a double.") from None
        return float.__new__(cls, rounded)


@set_module("jmsql.types")
class Char(str):
    """A JMS char: one character of 16 bits, U+0000 to U+FFFF.

    Raises:
        MessageFormatException: The value is no such character.
    """

    __slots__ = ()

    def __new__(cls, value: object) -> Self:
        if not isinstance(value, str) or len(value) != 1 or value > "\uffff":
            raise MessageFormatException(
                "A JMS char is a str of one character up to U+FFFF; write anything longer as a String."
            )
        return str.__new__(cls, value)


def boolean(value: object) -> bool:
    """Check a value to be set as a boolean.

    Raises:
        MessageFormatException: It is no `bool`.
    """
    if value is True or value is False:
        return value
    raise MessageFormatException(f"A JMS boolean is written from a bool, not from {type_name(value)}.")


def integer(value: object) -> int:
    """Check a value to be set as an int of 32 bits.

    Raises:
        MessageFormatException: It is no integer or out of range.
    """
    return _checked_integer(value, "int", _INT_MINIMUM, _INT_MAXIMUM)


def double(value: object) -> float:
    """Check a value to be set as a double; an integer is widened as Java does.

    Raises:
        MessageFormatException: It is no real number, or an integer beyond the range of a double.
    """
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        raise MessageFormatException(f"A JMS float or double is written from a number, not from {type_name(value)}.")
    try:
        return float(value)
    except OverflowError:
        raise MessageFormatException("The number is too large for the JMS type double.") from None


def string(value: object) -> str | None:
    """Check a value to be set as a String.

    Raises:
        MessageFormatException: It is neither a `str` nor None.
    """
    if value is None or type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    raise MessageFormatException(f"A JMS String is written from a str, not from {type_name(value)}.")


def array_part(value: object, offset: int, length: int | None) -> bytes:
    """Copy `length` bytes (None: all that follow) from `offset` of a bytes-like object.

    Raises:
        NullValueError: The value is None.
        MessageFormatException: The value is not bytes-like.
        IndexError: The part does not lie within the array.
    """
    if value is None:
        raise NullValueError("None was given where a byte array is needed.")
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise MessageFormatException(f"A JMS byte array is written from bytes, not from {type_name(value)}.")
    if isinstance(value, memoryview) and not value.c_contiguous:
        value = value.tobytes()
    array = value if isinstance(value, bytes) else memoryview(value).cast("B")
    end = len(array) if length is None else offset + length
    if not 0 <= offset <= end <= len(array):
        raise IndexError(f"Offset {offset} and length {length} do not lie within an array of {len(array)} bytes.")
    return bytes(array[offset:end])


def writable_part(buffer: bytearray | memoryview, length: int | None) -> memoryview:
    """Give the first `length` bytes (None: all) of a buffer, to be written to.

    Raises:
        TypeError: The buffer is not bytes-like, or read-only.
        IndexError: The length is below 0 or above the buffer's.
    """
    view = memoryview(buffer).cast("B")
    if view.readonly:
        raise TypeError("The buffer is read-only; give a bytearray or another writable one.")
    if length is not None and not 0 <= length <= len(view):
        raise IndexError(f"The length {length} does not lie within a buffer of {len(view)} bytes.")
    return view[:length]


def value_of(value: object) -> Value:
    """Take any value that a map or a stream holds, as `set_object` and `write_object` do.

    Raises:
        MessageFormatException: The value's class has no JMS type, or the integer needs more than 64 bits.
    """
    kind = type(value)
    if kind is int:
        return value if _INT_MINIMUM <= value <= _INT_MAXIMUM else Long(value)  # type: ignore[operator, return-value, arg-type]
    if kind in _TYPE_NAMES:
        return value  # type: ignore[return-value]
    if isinstance(value, (bytearray, memoryview, bytes)):
        return bytes(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Integral):
        return value_of(operator.index(value))
    if isinstance(value, float):
        return float(value)
    raise MessageFormatException(
        f"A message does not hold {type_name(value)}; it holds bool, int, float, str, bytes, None, Byte, Short, "
        "Long, Float and Char. An ObjectMessage holds other objects."
    )


def property_value(value: object) -> PropertyValue:
    """Take any value that a property holds, as `set_object_property` does.

    Raises:
        MessageFormatException: The value's class has no JMS property type, or the integer needs more than 64 bits.
    """
    result = value_of(value)
    if type(result) is bytes or type(result) is Char:
        raise MessageFormatException(f"A property does not hold {type_name(value)}; the body of a message does.")
    return result  # type: ignore[return-value]


_TYPE_NAMES: dict[type, str] = {
    bool: "boolean",
    Byte: "byte",
    Short: "short",
    Char: "char",
    int: "int",
    Long: "long",
    Float: "float",
    float: "double",
    str: "String",
    bytes: "byte array",
    NoneType: "null",
}


def type_name(value: object) -> str:
    """Name the JMS type of a value, or its class if it has none, with an article, for messages of errors."""
    name = _TYPE_NAMES.get(type(value), type(value).__qualname__)
    return name if name == "null" else with_article(name)


def with_article(name: str) -> str:
    """Return the name of a type with the article that fits it: ``a TextMessage``, ``an ObjectMessage``."""
    return f"{'an' if name[0] in 'aeiouAEIOU' and name != 'UUID' else 'a'} {name}"
