"""Messages as a handler would receive them, before they are sent."""

from __future__ import annotations

import time
import uuid
from typing import Any

from jmsql.client._sync.connection.simplified import message_of
from jmsql.exceptions import MessageFormatException
from jmsql.messages import Message, TextMessage, as_jms_message, decode_message
from jmsql.values.destinations import Destination
from jmsql.worker.handlers.bodies import body_schema

_NORMAL_PRIORITY = 4
_PERSISTENT = 2


def message_for(annotation: Any, body: object) -> Message:
    """Make the message that carries a body: that of `jmsql.send`, or else JSON, as the annotation has it.

    Args:
        annotation: The annotation that describes the body; None: it is not known.
        body: The body, or a message.

    Raises:
        MessageFormatException: The body cannot be encoded; the message shows where in it.
    """
    try:
        message = as_jms_message(message_of(body))
        message.encode()
    except MessageFormatException:
        schema = None if annotation is None else body_schema(annotation)
        if schema is None:
            raise
        return TextMessage(schema.encode(schema.convert(body)))
    return message


def as_received(message: Message, destination: Destination) -> Message:
    """Return a message as a consumer of a destination receives it."""
    now = int(time.time() * 1000)
    return decode_message(
        message.encode(),
        message.jms_message_id or f"ID:{uuid.uuid4()}",
        message.jms_timestamp or now,
        message.jms_expiration,
        _NORMAL_PRIORITY if message.jms_priority is None else message.jms_priority,
        message.jms_delivery_mode or _PERSISTENT,
        destination,
        bool(message.jms_redelivered),
        message.delivery_count or 1,
        None,
        message.jms_delivery_time or now,
    )
