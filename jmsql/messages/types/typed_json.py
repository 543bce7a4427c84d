"""Values of messages as JSON that reads well in SQL and loses nothing.

The JSON says the JMS type where it can: a number without fraction digits is an int, or a long if it needs 64 bits; a
number with fraction digits is a double. Where it cannot, a second JSON object beside it maps the name (or the index
in a stream) to the type: byte, short, a long that fits 32 bits, float, char, and bytes (as base64 text). Numbers that
JSON does not have stand as arrays of one string: ["NaN"], ["Infinity"], ["-Infinity"], ["-0.0"].

PostgreSQL's jsonb keeps numbers as decimals with their fraction digits, in positional notation; so they are written
in that form.
"""

from __future__ import annotations

import binascii
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from json.encoder import encode_basestring
from types import NoneType
from typing import Any, NoReturn

from jmsql.exceptions import MessageFormatException
from jmsql.messages.types.values import Byte, Char, Float, Long, Short, Value
from jmsql.values.postgresql_text import from_postgresql, to_postgresql


def json_string(value: str) -> str:
    """Write a string with any characters as JSON that jsonb accepts."""
    return encode_basestring(to_postgresql(value))


_json_name = lru_cache(maxsize=4096)(json_string)


def json_double(value: float) -> str:
    """Write a finite number other than -0.0 with all its digits, at least one of them a fraction digit."""
    text = float.__repr__(value)
    if "e" in text:
        text = format(Decimal(text), "f")
        if "." not in text:
            text += ".0"
    return text


_NOT_IN_JSON = {"nan": '["NaN"]', "inf": '["Infinity"]', "-inf": '["-Infinity"]', "-0.0": '["-0.0"]'}


def _write_double(value: float) -> str:
    return _NOT_IN_JSON.get(float.__repr__(value)) or json_double(value)


def _write_boolean(value: bool) -> str:
    return "true" if value else "false"


def _write_null(_: None) -> str:
    return "null"


def _write_bytes(value: bytes) -> str:
    return f'"{binascii.b2a_base64(value, newline=False).decode("ascii")}"'


_FORMATS: dict[type, tuple[Callable[[Any], str], str | None]] = {
    bool: (_write_boolean, None),
    Byte: (int.__repr__, "byte"),
    Short: (int.__repr__, "short"),
    int: (int.__repr__, None),
    Long: (int.__repr__, "long"),
    Float: (_write_double, "float"),
    float: (_write_double, None),
    Char: (json_string, "char"),
    str: (json_string, None),
    bytes: (_write_bytes, "bytes"),
    NoneType: (_write_null, None),
}


def _write(value: Value) -> tuple[str, str | None]:
    write, stated_type = _FORMATS[type(value)]
    text = write(value)
    if stated_type == "long" and not _fits_int(value):  # type: ignore[arg-type]
        stated_type = None
    return text, stated_type


def _fits_int(value: int) -> bool:
    return -(2**31) <= value < 2**31


def write_object(values: Mapping[str, Value], *, omit_nulls: bool = False) -> tuple[str, str | None]:
    """Write named values; return the JSON object and the JSON object of types, or None if nothing needs saying."""
    members = []
    types = []
    for name, value in values.items():
        if value is None and omit_nulls:
            types.append(f'{_json_name(name)}: "null"')
            continue
        text, stated_type = _write(value)
        members.append(f"{_json_name(name)}: {text}")
        if stated_type is not None:
            types.append(f'{_json_name(name)}: "{stated_type}"')
    return f"{{{', '.join(members)}}}", f"{{{', '.join(types)}}}" if types else None


def write_array(values: Sequence[Value]) -> tuple[str, str | None]:
    """Write a row of values; return the JSON array and the JSON object of types, or None if nothing needs saying."""
    elements = []
    types = []
    for index, value in enumerate(values):
        text, stated_type = _write(value)
        elements.append(text)
        if stated_type is not None:
            types.append(f'"{index}": "{stated_type}"')
    return f"[{', '.join(elements)}]", f"{{{', '.join(types)}}}" if types else None


_DECODER = json.JSONDecoder(strict=False)  # to make one takes longer than to parse most bodies


def parse_json(text: str, object_hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """Parse PostgreSQL's text of a jsonb value whose strings `json_string` wrote.

    Raises:
        MessageFormatException: The text is no JSON, or nested too deeply.
    """
    try:
        # Characters that PostgreSQL cannot store become control characters or surrogates inside the JSON's strings.
        decoder = _DECODER if object_hook is None else json.JSONDecoder(strict=False, object_hook=object_hook)
        return decoder.decode(from_postgresql(text))
    except (ValueError, RecursionError) as error:
        raise MessageFormatException(f"The content of the message is not the JSON expected: {error}.") from error


def parse_strict_json(data: bytes, parse_float: Callable[[str], object] = float) -> Any:
    """Parse JSON in UTF-8, without NaN and Infinity, which only Python's writers take for JSON.

    Raises:
        ValueError: That is no JSON, or it has an integer of more than 4,300 digits.
    """
    return json.loads(data, parse_float=parse_float, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON's")


def _parse_types(text: str | None) -> dict[str, str]:
    types = parse_json(text) if text is not None else {}
    if not isinstance(types, dict):
        raise MessageFormatException("The types of the content are not a JSON object.")
    return types


_READERS: dict[str, Callable[[Any], Value]] = {
    "byte": Byte,
    "short": Short,
    "long": Long,
    "float": Float,
    "char": Char,
    "bytes": partial(binascii.a2b_base64, strict_mode=True),
    "null": lambda value: value,
}


def _read(value: Any, stated_type: str | None) -> Value:
    kind = type(value)
    if kind is list and len(value) == 1 and f'["{value[0]}"]' in _NOT_IN_JSON.values():
        value = float(value[0])
    elif kind is int and stated_type is None and not _fits_int(value):
        return Long(value)
    elif kind is dict or kind is list:
        raise ValueError("an array or object stands where a single value is expected")
    return _READERS[stated_type](value) if stated_type is not None else value


_NO_VALUE = (ValueError, KeyError, TypeError, MessageFormatException)


def _read_all(items: Iterable[tuple[str, Any]], types: Mapping[str, str]) -> Iterable[tuple[str, Value]]:
    for name, value in items:
        try:
            yield name, _read(value, types.get(name))
        except _NO_VALUE as error:
            raise MessageFormatException(f"The content under {name!r} is not a value of a message: {error}") from error


def read_object(text: str | None, types_text: str | None) -> dict[str, Value]:
    """Read back named values.

    Raises:
        MessageFormatException: Something else than `write_object` wrote the texts, and they do not make sense.
    """
    types = _parse_types(types_text)
    members = parse_json(text) if text is not None else {}
    if not isinstance(members, dict):
        raise MessageFormatException("The content is not a JSON object.")
    values = dict(_read_all(members.items(), types))
    for name, stated_type in types.items():
        if stated_type == "null":
            values[name] = None
    return values


def salvage_object(text: str, types_text: str | None) -> tuple[dict[str, Value], dict[str, str]]:
    """Read named values as far as they make sense, also from texts of another program.

    Returns:
        The values, and the rest as JSON text. Where Python cannot parse the object, all of its text stands under the
        empty name.
    """
    try:
        types = _parse_types(types_text)
    except MessageFormatException:
        types = {}
    try:
        members = parse_json(text)
    except MessageFormatException:
        members = None
    if not isinstance(members, dict):
        return {}, {"": from_postgresql(text)}
    values: dict[str, Value] = {}
    others: dict[str, str] = {}
    for name, value in members.items():
        try:
            values[name] = _read(value, types.get(name))
        except _NO_VALUE:
            others[name] = json.dumps(value, ensure_ascii=False)
    values |= dict.fromkeys(name for name, stated_type in types.items() if stated_type == "null")
    return values, others


def read_array(text: str | None, types_text: str | None) -> list[Value]:
    """Read back a row of values.

    Raises:
        MessageFormatException: Something else than `write_array` wrote the texts, and they do not make sense.
    """
    types = _parse_types(types_text)
    row = parse_json(text) if text is not None else []
    if not isinstance(row, list):
        raise MessageFormatException("The content is not a JSON array.")
    return [value for _, value in _read_all(zip(map(str, itertools.count()), row, strict=False), types)]
