"""Dataclasses and Python's own types made of JSON's values, and back, where no library does that."""

from __future__ import annotations

import binascii
import dataclasses
import datetime as dt
import enum
import json
import types
import typing
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any

from jmsql.exceptions import MessageFormatException
from jmsql.messages.codecs.standard_codecs import iso_text
from jmsql.messages.types.values import type_name

Conversion: typing.TypeAlias = Callable[[Any], object]


class TypeCheck:
    """Makes values of a type, and refuses any others.

    It knows dataclasses, enumerations, literals, unions, lists, tuples, sets and dicts of known types, numbers,
    strings, bytes (in base64), dates and times (as `isoformat` writes them), `timedelta` (in seconds), `Decimal` and
    `UUID`.

    Raises:
        TypeError: It does not know the type.
    """

    def __init__(self, annotation: Any) -> None:
        self._convert = _conversion(annotation)

    def convert(self, value: object) -> object:
        """Make a value of the type.

        Raises:
            TypeError: The value is of another type; the message says where, and does not show it.
            ValueError: It is of the right type, and not of the right form.
        """
        return self._convert(value)


def to_json(value: object) -> str:
    """Write a dataclass, or a value of a type that `TypeCheck` knows, as JSON.

    Raises:
        MessageFormatException: The value holds something else.
    """
    try:
        return json.dumps(simple(value), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise MessageFormatException(f"This {type(value).__name__} cannot be written as JSON: {error}") from error


def simple(value: Any) -> object:
    """Return the JSON value of a dataclass, or of a type that `TypeCheck` knows.

    Raises:
        TypeError: The value holds something else.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: simple(getattr(value, field.name)) for field in dataclasses.fields(value)}
    match value:
        case enum.Enum():
            return simple(value.value)
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {str(simple(key)): simple(member) for key, member in value.items()}
        case list() | tuple() | set() | frozenset():
            return [simple(member) for member in value]
        case bytes():
            return binascii.b2a_base64(value, newline=False).decode()
        case dt.datetime() | dt.date() | dt.time():
            return iso_text(value)
        case dt.timedelta():
            return value.total_seconds()
        case Decimal() | uuid.UUID():
            return str(value)
        case _:
            raise TypeError(f"it holds {type_name(value)}")


def _exactly(kind: type, *others: type) -> Conversion:
    """Return a check for values of a class, and of others that convert to it."""

    def convert(value: Any) -> object:
        if (type(value) is bool and kind is not bool) or not isinstance(value, (kind, *others)):
            raise _unexpected(kind.__name__, value)
        return value if isinstance(value, kind) else kind(value)

    return convert


def _from_text(kind: type, read: Callable[[Any], object], *others: type) -> Conversion:
    """Return a check for values of a class, or their text."""

    def convert(value: Any) -> object:
        if isinstance(value, kind):
            return value
        if isinstance(value, bool) or not isinstance(value, (str, *others)):
            raise _unexpected(kind.__name__, value)
        try:
            return read(value)
        except (ValueError, InvalidOperation):
            raise ValueError(f"this text is not {kind.__name__}") from None

    return convert


def _unexpected(expected: str, value: object) -> TypeError:
    return TypeError(f"expected {expected}, got {type_name(value)}")


def _base64(text: str) -> bytes:
    return binascii.a2b_base64(text, strict_mode=True)


_SIMPLE: dict[Any, Conversion] = {
    Any: lambda value: value,
    object: lambda value: value,
    bool: _exactly(bool),
    int: _exactly(int),
    float: _exactly(float, int, Decimal),
    str: _exactly(str),
    list: _exactly(list),
    dict: _exactly(dict),
    types.NoneType: _exactly(types.NoneType),
    bytes: _from_text(bytes, _base64),
    Decimal: _from_text(Decimal, lambda number: Decimal(str(number)), int, float),
    uuid.UUID: _from_text(uuid.UUID, uuid.UUID),
    dt.datetime: _from_text(dt.datetime, dt.datetime.fromisoformat),
    dt.date: _from_text(dt.date, dt.date.fromisoformat),
    dt.time: _from_text(dt.time, dt.time.fromisoformat),
    dt.timedelta: _from_text(dt.timedelta, lambda seconds: dt.timedelta(seconds=float(seconds)), int, float, Decimal),
}


def _conversion(annotation: Any) -> Conversion:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation in _SIMPLE:
        return _SIMPLE[annotation]
    if origin is typing.Annotated:
        return _conversion(arguments[0])
    if origin is typing.Literal:
        return _one_of(annotation, lambda value: value in arguments and value)
    if origin in {typing.Union, types.UnionType}:
        return _any_of([_conversion(each) for each in arguments], annotation)
    if origin in {list, set, frozenset}:
        return _each(origin, _conversion(arguments[0]))
    if origin is tuple:
        return _tuple(arguments)
    if origin is dict:
        return _dict(*map(_conversion, arguments))
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _one_of(annotation, annotation)
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return _dataclass(annotation)
    raise TypeError(f"{annotation} is neither a dataclass nor a type of Python's that has a form in JSON")


def _one_of(annotation: Any, find: Callable[[Any], object]) -> Conversion:
    name = getattr(annotation, "__name__", None) or str(annotation)

    def convert(value: Any) -> object:
        try:
            found = find(value)
        except (ValueError, TypeError):
            found = False
        if found is False and value is not False:
            raise ValueError(f"this is none of the values of {name}")
        return found

    return convert


def _any_of(conversions: list[Conversion], annotation: Any) -> Conversion:
    def convert(value: Any) -> object:
        for each in conversions:
            try:
                return each(value)
            except (TypeError, ValueError):
                continue
        raise _unexpected(str(annotation), value)

    return convert


def _each(kind: Any, conversion: Conversion) -> Conversion:
    def convert(value: Any) -> object:
        if not isinstance(value, (list, tuple, kind)):
            raise _unexpected(kind.__name__, value)
        return kind([_at(f"[{index}]", conversion, member) for index, member in enumerate(list(value))])

    return convert


def _tuple(arguments: tuple[Any, ...]) -> Conversion:
    if len(arguments) == 2 and arguments[1] is ...:
        return _each(tuple, _conversion(arguments[0]))
    conversions = [_conversion(each) for each in arguments]

    def convert(value: Any) -> object:
        if not isinstance(value, list | tuple) or len(value) != len(conversions):
            raise _unexpected(f"{len(conversions)} values", value)
        return tuple(_at(f"[{index}]", each, value[index]) for index, each in enumerate(conversions))

    return convert


def _dict(key: Conversion, member: Conversion) -> Conversion:
    def convert(value: Any) -> object:
        if not isinstance(value, dict):
            raise _unexpected("dict", value)
        return {_at("a key", key, name): _at(f"[{name!r}]", member, each) for name, each in value.items()}

    return convert


@cache
def _fields(cls: Any) -> dict[str, tuple[Conversion, bool]]:
    """Return how the fields of a dataclass are converted that its constructor takes, and whether each is required."""
    hints = typing.get_type_hints(cls, include_extras=True)
    missing = dataclasses.MISSING
    return {
        field.name: (_conversion(hints[field.name]), field.default is missing and field.default_factory is missing)
        for field in dataclasses.fields(cls)
        if field.init
    }


def _dataclass(cls: Any) -> Conversion:
    def convert(value: Any) -> object:
        if isinstance(value, cls):
            return value
        if not isinstance(value, dict):
            raise _unexpected(cls.__qualname__, value)
        fields = _fields(cls)  # only here, since a dataclass may have fields of its own class
        for name, (_, is_required) in fields.items():
            if is_required and name not in value:
                raise ValueError(f"{name} is missing")
        return cls(**{name: _at(f".{name}", fields[name][0], each) for name, each in value.items() if name in fields})

    return convert


def _at(place: str, conversion: Conversion, value: object) -> Any:
    try:
        return conversion(value)
    except (TypeError, ValueError) as error:
        text = str(error)
        nested = text if text.startswith((".", "[")) else f": {text}"
        raise type(error)(f"{place}{nested}") from None
