"""Messages from rows of the table ``message``."""

from __future__ import annotations

from typing import Any

from jmsql.messages.bytes_message import BytesMessage
from jmsql.messages.encoded_message import EncodedColumns
from jmsql.messages.map_message import MapMessage
from jmsql.messages.message import Message
from jmsql.messages.object_message import ObjectMessage
from jmsql.messages.stream_message import StreamMessage
from jmsql.messages.text_message import TextMessage

MESSAGE_TYPES: dict[str, type[Message]] = {
    kind.__name__: kind for kind in (Message, TextMessage, BytesMessage, MapMessage, StreamMessage, ObjectMessage)
}
"""The classes of messages, by the column `message_type`."""


def decode_message(encoded: EncodedColumns, *headers: Any, **more: Any) -> Message:
    """Make a received message of its columns and the other arguments of `Message.restore`."""
    kind = MESSAGE_TYPES[encoded[0]]
    message = kind.__new__(kind)
    message.restore(encoded, *headers, **more)
    return message
