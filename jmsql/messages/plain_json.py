"""Values as plain JSON, which any program reads: nothing in it says of which classes they were."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from jmsql.exceptions import MessageFormatException
from jmsql.messages.codecs.type_check import simple
from jmsql.messages.map_message import MapMessage
from jmsql.messages.message import Message
from jmsql.messages.object_message import ObjectMessage
from jmsql.messages.text_message import TextMessage
from jmsql.messages.types.values import type_name

LARGEST = 64 * 2**20
"""Characters of JSON."""


def plain_json(value: object) -> str:
    """Write a value as JSON: JSON's types, dataclasses, pydantic models, msgspec structs, dates, `Decimal`, `UUID`.

    A message stands for its body.

    Raises:
        MessageFormatException: JSON has no such value, or the text is longer than 64 MiB.
    """
    try:
        text = _encoder.encode(_body(value))
    except (TypeError, ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise MessageFormatException(
            f"JSON has no way to say it: {reason}. Return dicts, lists, texts, numbers, bools and None, or a dataclass "
            "or model of these."
        ) from error
    if len(text) > LARGEST:
        raise MessageFormatException(
            f"Its JSON has {len(text):,} characters; at most {LARGEST:,} are allowed. Store it elsewhere, and return a "
            "reference."
        )
    return text


def _body(value: object) -> object:
    match value:
        case TextMessage():
            return value.text
        case ObjectMessage():
            return value.object
        case MapMessage():
            return value.get_body(dict)
        case _:
            return value


def _simplified(value: Any) -> object:
    """Return the value that JSON writes in its place."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(type(value), "__struct_fields__"):  # of msgspec, which need not be there
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if hasattr(type(value), "model_dump"):  # of pydantic
        return value.model_dump(mode="json")
    if isinstance(value, Message | bytes | bytearray | memoryview):
        raise TypeError(f"it holds {type_name(value)}")
    return simple(value)


_encoder = json.JSONEncoder(default=_simplified, allow_nan=False, separators=(",", ":"))
"""Kept, since `json.dumps` would make one for each value."""
