"""Messages as a handler would receive them, before they are sent."""

from __future__ import annotations

import time
import uuid

from jmsql.messages import Message, TextMessage, decode_message
from jmsql.messages.codecs.schemas import Schema
from jmsql.store.schedules.definition import Schedule
from jmsql.values.destinations import Destination

# The check before a send has no message yet, and a handler may ask for any header. So the message is encoded and
# decoded as the store would do it, with plausible values for the headers that only a send sets.


_NORMAL_PRIORITY = 4
_HIGHEST_PRIORITY = 9
_PERSISTENT = 2
_IDENTIFIER = f"ID:{uuid.UUID(int=0)}"
"""JMSMessageID of messages that are never sent."""


def json_message(schema: Schema, body: object) -> TextMessage:
    """Make the message that carries a body as JSON.

    Raises:
        MessageFormatException: The body does not fit the schema, or JSON cannot represent it; the error shows where.
    """
    return TextMessage(schema.encode(schema.convert(body)))


def as_scheduled(schedule: Schedule) -> Message:
    """Return the message of a schedule's tick as a consumer receives it."""
    now = int(time.time() * 1000)
    priority = _HIGHEST_PRIORITY - schedule.inverse_priority
    destination, redelivered = schedule.destination, False
    return decode_message(
        schedule.message, _IDENTIFIER, now, 0, priority, _PERSISTENT, destination, redelivered, 1, None, now
    )


def as_received(message: Message, destination: Destination) -> Message:
    """Return a message as a consumer of a destination receives it."""
    now = int(time.time() * 1000)
    return decode_message(
        message.encode(),
        message.jms_message_id or _IDENTIFIER,
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
