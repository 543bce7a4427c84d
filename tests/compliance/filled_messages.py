"""Messages of each type with something in them, for tests that treat all types alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from jmsql.messages import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage

M = TypeVar("M", bound=Message)

CLASSES = (Message, TextMessage, BytesMessage, MapMessage, StreamMessage, ObjectMessage)

FILL: dict[type[Message], Callable[..., None]] = {
    Message: lambda message: None,
    TextMessage: lambda message: setattr(message, "text", "text"),
    BytesMessage: lambda message: message.write_bytes(b"bytes"),
    MapMessage: lambda message: message.set_int("name", 1),
    StreamMessage: lambda message: message.write_int(1),
    ObjectMessage: lambda message: message.set_object([1]),
}
"""How to write something to the body of each type of message."""

BODIES: dict[type[Message], object] = {
    Message: None,
    TextMessage: "text",
    BytesMessage: b"bytes",
    MapMessage: {"name": 1},
    StreamMessage: [1],
    ObjectMessage: [1],
}
"""What then is in the body."""

NEW_BODIES: dict[type[Message], object] = {
    Message: None,
    TextMessage: None,
    BytesMessage: b"",
    MapMessage: {},
    StreamMessage: [],
    ObjectMessage: None,
}
"""What is in the body of a new message."""


def filled(kind: type[M]) -> M:
    """A message of this class with a body and a property."""
    message = kind()
    FILL[kind](message)
    message.set_string_property("name", "value")
    return message
