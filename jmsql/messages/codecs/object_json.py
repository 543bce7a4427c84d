"""Objects as JSON: an envelope ``{"type", "version", "data"}`` that SQL can look into.

None, booleans, strings, numbers, lists, and dicts whose keys are strings stand in the data as JSON's own. Anything
else stands as ``{"$type": name, "$value": encoded}``, with a ``"$version"`` if that is not 1. The keys of a dict come
back in the order in which jsonb keeps them. JMS's own types, such as `Long`, become the numbers and strings that they
are.
"""

from __future__ import annotations

import math
from types import NoneType
from typing import Any

from jmsql.exceptions import MessageFormatException
from jmsql.messages.codecs.registry import codec_named, codec_of
from jmsql.messages.codecs.standard_codecs import LONGEST_JSON_INTEGER
from jmsql.messages.types.typed_json import json_double, json_string, parse_json
from jmsql.messages.types.values import Byte, Char, Float, Long, Short, type_name

_DEEPEST = 200
"""Levels of JSON: one for each list or dict, two for a tuple, and so on."""

_TAG = "$type"

_JMS_TYPES: dict[type, type] = {Byte: int, Short: int, Long: int, Float: float, Char: str}
"""Python's types for the JMS types of maps, streams and properties."""

_LONGEST_PATH = 8
"""How many steps of the way to an object an error shows."""


def encode_object(value: object) -> str:
    """Write an object with its envelope.

    Raises:
        MessageFormatException: The object, or one within it, is of a class that is not registered; it contains itself,
            or its JSON would be nested more than 200 levels deep. The error shows the path to the value: its keys and
            indexes.
    """
    kind = type(value)
    if kind in _JMS_TYPES:
        value = _JMS_TYPES[kind](value)
    codec = codec_of(type(value))
    writer = _Writer()
    writer.append(f'{{"type": {json_string(codec.name)}, "version": {codec.version}, "data": ')
    try:
        if _is_json(value):
            writer.write(value)
        else:
            writer.write_encoded(value)
    except MessageFormatException as error:
        if not writer.path:
            raise
        raise MessageFormatException(f"{_place(writer.path)}: {error}") from error
    except RecursionError as error:
        raise MessageFormatException("The object is nested too deeply for the depth of this call.") from error
    writer.append("}")
    return "".join(writer.parts)


def decode_object(text: str) -> Any:
    """Make the object that `encode_object` wrote, as PostgreSQL prints it.

    Raises:
        MessageFormatException: A class is not registered, or the text is no such envelope.
    """
    envelope = parse_json(text, object_hook=_read_tagged)
    try:
        name, version, data = envelope["type"], envelope["version"], envelope["data"]
    except (KeyError, TypeError) as error:
        raise MessageFormatException("The body of the message is not the envelope of an object.") from error
    return codec_named(name).rebuild(data, version)


def _read_tagged(members: dict[str, Any]) -> Any:
    if _TAG not in members:
        return members
    if "$value" not in members:
        raise MessageFormatException(f"The object of type {members[_TAG]!r} in the message has no value.")
    return codec_named(members[_TAG]).rebuild(members["$value"], members.get("$version", 1))


def _is_json(value: Any) -> bool:
    """Tell whether JSON itself says the value, its elements aside."""
    kind = type(value)
    if kind is dict:
        return _TAG not in value and all(type(key) is str for key in value)
    if kind is float:
        return math.isfinite(value) and repr(value) != "-0.0"
    if kind is int:
        return bool(value.bit_length() <= LONGEST_JSON_INTEGER)
    return kind in (NoneType, bool, str, list)


def _place(path: list[object]) -> str:
    steps = [f"[{step!r}]" for step in reversed(path)]
    if len(steps) > _LONGEST_PATH:
        steps[_LONGEST_PATH:] = ["…"]
    return "At " + "".join(step if len(step) <= 100 else f"{step[:99]}…" for step in steps)


class _Writer:
    """Writes one object, and knows which objects it is inside of."""

    __slots__ = ("_outer", "append", "parts", "path")

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.append = self.parts.append
        self.path: list[object] = []
        """The keys and indexes that lead to the value that cannot be written, the innermost first."""
        self._outer: dict[int, object] = {}

    def write(self, value: Any) -> None:
        kind = type(value)
        if kind is str:
            self.append(json_string(value))
        elif value is None:
            self.append("null")
        elif kind is bool:
            self.append("true" if value else "false")
        elif kind in _JMS_TYPES:
            self.write(_JMS_TYPES[kind](value))
        elif not _is_json(value):
            codec = codec_of(kind)
            version = f', "$version": {codec.version}' if codec.version != 1 else ""
            self.append(f'{{"{_TAG}": {json_string(codec.name)}{version}, "$value": ')
            self.write_encoded(value)
            self.append("}")
        elif kind is int:
            self.append(int.__repr__(value))
        elif kind is float:
            self.append(json_double(value))
        else:
            self._enter(value)
            if kind is list:
                self._write_list(value)
            else:
                self._write_dict(value)
            self._leave(value)

    def write_encoded(self, value: object) -> None:
        self._enter(value)
        try:
            self.write(codec_of(type(value)).simplify(value))
        except MessageFormatException:
            if type(value) is dict and len(self.path) > 1:  # which is written as a list of pairs
                index = self.path.pop()
                self.path[-1] = list(value)[index]  # type: ignore[call-overload]
            raise
        self._leave(value)

    def _write_list(self, value: list[object]) -> None:
        separator = "["
        index = 0
        try:
            for element in value:
                self.append(separator)
                self.write(element)
                separator = ", "
                index += 1
        except MessageFormatException:
            self.path.append(index)
            raise
        self.append("]" if value else "[]")

    def _write_dict(self, value: dict[str, object]) -> None:
        separator = "{"
        key = None
        try:
            for key, member in value.items():
                self.append(f"{separator}{json_string(key)}: ")
                self.write(member)
                separator = ", "
        except MessageFormatException:
            self.path.append(key)
            raise
        self.append("}" if value else "{}")

    def _enter(self, value: object) -> None:
        if id(value) in self._outer:
            raise MessageFormatException(f"The object contains itself ({type_name(value)}).")
        if len(self._outer) >= _DEEPEST:
            raise MessageFormatException(
                f"The object is nested too deeply: its JSON would have more than {_DEEPEST} levels."
            )
        self._outer[id(value)] = value

    def _leave(self, value: object) -> None:
        del self._outer[id(value)]
