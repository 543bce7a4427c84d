"""Codecs of those standard classes whose objects any ObjectMessage may hold."""

from __future__ import annotations

import binascii
import datetime as dt
import decimal
import uuid
from types import NoneType
from typing import Any, Final

from jmsql.messages.codecs.codec import Codec

LONGEST_JSON_INTEGER: Final = 10_000
"""Integers of more bits are written as hexadecimal text, since Python refuses to read very long decimal ones."""


def iso_text(value: dt.date | dt.time) -> str:
    """Return a date, a time, or both as text, from which `fromisoformat` makes an equal one.

    Raises:
        TypeError: It is a time whose zone has an offset only on a date.
    """
    if isinstance(value, dt.time) and value.tzinfo is not None and value.utcoffset() is None:
        raise TypeError(f"a time in {value.tzinfo} has no offset without a date; use a datetime")
    return value.isoformat()


def _same(value: Any) -> Any:
    return value


def _encode_bytes(value: bytes | bytearray) -> str:
    return binascii.b2a_base64(value, newline=False).decode("ascii")


def _decode_bytes(data: str) -> bytes:
    return binascii.a2b_base64(data, strict_mode=True)


def _decode_bytearray(data: str) -> bytearray:
    return bytearray(_decode_bytes(data))


def _encode_float(value: float) -> str:
    """Name one of the numbers that JSON does not have."""
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), repr(value))


def _decode_integer(data: int | str) -> int:
    return int(data, 16) if isinstance(data, str) else data


def _encode_dict(value: dict[Any, Any]) -> list[list[Any]]:
    return [[key, member] for key, member in value.items()]


def _encode_timedelta(value: dt.timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _decode_timedelta(data: list[int]) -> dt.timedelta:
    return dt.timedelta(*data)


STANDARD_CODECS: tuple[Codec[Any], ...] = (
    # JSON's own types; numbers and dicts that JSON cannot represent are encoded.
    Codec(NoneType, "null", _same, _same),
    Codec(bool, "bool", _same, _same),
    Codec(str, "str", _same, _same),
    Codec(list, "list", _same, _same),
    Codec(int, "int", hex, _decode_integer),
    Codec(float, "float", _encode_float, float),
    Codec(dict, "dict", _encode_dict, dict),
    # Types that stand in JSON under their names.
    Codec(bytes, "bytes", _encode_bytes, _decode_bytes),
    Codec(bytearray, "bytearray", _encode_bytes, _decode_bytearray),
    Codec(tuple, "tuple", list, tuple),
    Codec(set, "set", list, set),
    Codec(frozenset, "frozenset", list, frozenset),
    Codec(dt.datetime, "datetime", iso_text, dt.datetime.fromisoformat),
    Codec(dt.date, "date", iso_text, dt.date.fromisoformat),
    Codec(dt.time, "time", iso_text, dt.time.fromisoformat),
    Codec(dt.timedelta, "timedelta", _encode_timedelta, _decode_timedelta),
    Codec(decimal.Decimal, "decimal", str, decimal.Decimal),
    Codec(uuid.UUID, "uuid", str, uuid.UUID),
)
