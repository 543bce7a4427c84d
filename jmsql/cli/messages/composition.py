"""Messages made from the words of a command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import typer

from jmsql.exceptions import MessageFormatException
from jmsql.messages import BytesMessage, MapMessage, Message, ObjectMessage, TextMessage

__all__ = ["BodyType", "Property", "compose", "read_properties"]


class BodyType(StrEnum):
    """What becomes of the body."""

    text = "text"
    bytes = "bytes"
    map = "map"
    object = "object"


Property = Callable[[Message], None]
"""Sets a property on a message."""


def compose(body: bytes, kind: BodyType) -> Message:
    """Make a message.

    Raises:
        typer.BadParameter: The body does not fit the type.
    """
    if kind is BodyType.bytes:
        message = BytesMessage()
        message.write_bytes(body)
        return message
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"The body is no text in UTF-8 ({error}). Send it with --type bytes.") from error
    return TextMessage(text) if kind is BodyType.text else _from_json(text, kind)


def _from_json(text: str, kind: BodyType) -> Message:
    try:
        value = json.loads(text)
        if kind is BodyType.object:
            return ObjectMessage(value)
        message = MapMessage()
        if not isinstance(value, dict):
            raise typer.BadParameter('The body of a map is a JSON object, such as {"color": "blue"}.')
        message.update(value)
    except json.JSONDecodeError as error:
        raise typer.BadParameter(f"The body is no JSON: {error}.") from error
    except RecursionError as error:
        raise typer.BadParameter("The body has too many levels of brackets.") from error
    except (MessageFormatException, ValueError) as error:
        advice = " Send it with --type object." if kind is BodyType.map else ""
        raise typer.BadParameter(f"The body is no {kind.value}: {error}{advice}") from error
    return message


def _boolean(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError("A boolean is true or false.")
    return text == "true"


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ValueError("An integer has digits alone, after a sign.") from error


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError("A number is written as 2.5, 1e-3, Infinity or NaN.") from error


_PROPERTY_TYPES: dict[str, Callable[[str], Any]] = {
    "boolean": _boolean,
    "byte": _integer,
    "short": _integer,
    "int": _integer,
    "long": _integer,
    "float": _number,
    "double": _number,
    "string": str,
}


def read_properties(texts: list[str]) -> list[Property]:
    """Read properties written as ``name=value`` or ``name:type=value``.

    Raises:
        typer.BadParameter: One of them is not.
    """
    return [_read_property(text) for text in texts]


def _read_property(text: str) -> Property:
    declaration, equals, value_text = text.partition("=")
    name, _, kind = declaration.partition(":")
    kind = kind or "string"
    if not equals or kind not in _PROPERTY_TYPES:
        types = ", ".join(_PROPERTY_TYPES)
        raise typer.BadParameter(
            f"{text!r} is no property: write name=value or name:type=value, the type one of {types}."
        )

    def set_property(message: Message) -> None:
        getattr(message, f"set_{kind}_property")(name, value)

    try:
        value = _PROPERTY_TYPES[kind](value_text)
        set_property(Message())
    except (MessageFormatException, ValueError) as error:
        raise typer.BadParameter(f"{text!r} is no property: {error}") from error
    return set_property
