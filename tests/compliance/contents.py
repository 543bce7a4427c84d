"""What a message holds, read through its own methods."""

from __future__ import annotations

from collections.abc import Iterator

from jmsql import BytesMessage, MapMessage, Message, MessageEOFException, ObjectMessage, StreamMessage, TextMessage


def body_of(message: Message) -> object:
    """The body of a message that can be read; that of a stream from its first value on."""
    if isinstance(message, TextMessage):
        return message.text
    if isinstance(message, BytesMessage):
        return message.get_body(bytes) or b""
    if isinstance(message, MapMessage):
        return dict(message)
    if isinstance(message, StreamMessage):
        message.reset()
        return list(_values(message))
    if isinstance(message, ObjectMessage):
        return message.object
    return None


def properties_of(message: Message) -> dict[str, object]:
    """The application's properties."""
    return {name: value for name, value in message.properties.items() if not name.startswith("JMSX")}


def _values(message: StreamMessage) -> Iterator[object]:
    while True:
        try:
            yield message.read_object()
        except MessageEOFException:
            return
