"""Codecs made from a class that describes itself: dataclasses, enumerations, pydantic models and msgspec structs."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import sys
import uuid
from collections.abc import Callable
from typing import Any, TypeAlias

Functions: TypeAlias = tuple[Callable[[Any], object], Callable[[Any], Any]]
"""The `encode` and `decode` of a codec."""


def codec_functions(cls: type) -> Functions:
    """Make the functions of a codec for `cls`.

    Raises:
        TypeError: The class does not describe itself.
    """
    if issubclass(cls, enum.Enum):
        return _of_enumeration(cls)
    if dataclasses.is_dataclass(cls):
        return _of_dataclass(cls)
    if _descends_from(cls, "pydantic", "BaseModel"):
        return _of_pydantic_model(cls)
    if _descends_from(cls, "msgspec", "Struct"):
        return _of_msgspec_struct(cls)
    raise TypeError(
        f"{cls.__module__}.{cls.__qualname__} is not a dataclass, enumeration, pydantic model or msgspec struct; "
        "say with register_codec how its objects are encoded."
    )


def _descends_from(cls: type, module: str, base: str) -> bool:
    """Tell whether `cls` is a subclass, without importing a module for that alone."""
    return module in sys.modules and issubclass(cls, getattr(sys.modules[module], base))


def _of_enumeration(cls: type[enum.Enum]) -> Functions:
    return (lambda member: member.value), cls


def _of_dataclass(cls: type) -> Functions:
    fields = dataclasses.fields(cls)
    names = tuple(field.name for field in fields)
    set_later = frozenset(field.name for field in fields if not field.init)

    def encode(value: Any) -> dict[str, Any]:
        return {name: getattr(value, name) for name in names}

    def decode(data: dict[str, Any]) -> Any:
        value = cls(**{name: member for name, member in data.items() if name not in set_later})
        for name in set_later & data.keys():
            object.__setattr__(value, name, data[name])  # a frozen dataclass refuses the plain assignment
        return value

    return encode, decode


def _of_pydantic_model(cls: Any) -> Functions:
    def encode(value: Any) -> object:
        return value.model_dump(by_alias=False, round_trip=True)

    def decode(data: object) -> Any:
        return cls.model_validate(data, by_alias=False, by_name=True)

    return encode, decode


def _of_msgspec_struct(cls: Any) -> Functions:
    import msgspec

    left_as_they_are = (
        bytes,
        bytearray,
        dt.datetime,
        dt.date,
        dt.time,
        dt.timedelta,
        decimal.Decimal,
        uuid.UUID,
    )

    def encode(value: Any) -> object:
        return msgspec.to_builtins(value, builtin_types=left_as_they_are)

    def decode(data: object) -> Any:
        return msgspec.convert(data, cls, builtin_types=left_as_they_are)

    return encode, decode
