"""Messages from rows of the table ``message``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jmsql.messages.bytes_message import BytesMessage
from jmsql.messages.encoded_message import EncodedColumns
from jmsql.messages.map_message import MapMessage
from jmsql.messages.message import DeliveryMode, Message
from jmsql.messages.object_message import ObjectMessage
from jmsql.messages.stream_message import StreamMessage
from jmsql.messages.text_message import TextMessage
from jmsql.values.destinations import Destination

_CLASSES: dict[str, type[Message]] = {
    kind.__name__: kind for kind in (Message, TextMessage, BytesMessage, MapMessage, StreamMessage, ObjectMessage)
}
_DELIVERY_MODES = {int(mode): mode for mode in DeliveryMode}


def decode_message(
    encoded: EncodedColumns,
    message_id: str | None,
    timestamp: int,
    expiration: int,
    priority: int,
    delivery_mode: int,
    destination: Destination | None,
    redelivered: bool,
    delivery_count: int,
    acknowledger: Callable[[], Any] | None,
    delivery_time: int = 0,
) -> Message:
    """Make a received message, whose body and properties are read-only until they are cleared.

    Properties and body are decoded when they are first read. What is broken in them therefore shows there, as a
    MessageFormatException, and not here.

    Args:
        encoded: The columns that the sender's message determined.
        message_id: JMSMessageID with its "ID:", None if the producer disabled it.
        timestamp: JMSTimestamp in milliseconds since the epoch, 0 if the producer disabled it.
        expiration: JMSExpiration in milliseconds since the epoch, 0 for never.
        priority: JMSPriority, 0 to 9.
        delivery_mode: JMSDeliveryMode, 1 or 2.
        destination: JMSDestination.
        redelivered: JMSRedelivered.
        delivery_count: JMSXDeliveryCount.
        acknowledger: What `acknowledge` calls; None if there is nothing to do.
        delivery_time: JMSDeliveryTime in milliseconds since the epoch, 0 if it is not known.
    """
    kind = _CLASSES[encoded[0]]
    message = kind.__new__(kind)
    message.restore(encoded, delivery_count, acknowledger)
    message.jms_message_id = message_id
    message.jms_timestamp = timestamp
    message.jms_expiration = expiration
    message.jms_priority = priority
    message.jms_delivery_mode = _DELIVERY_MODES[delivery_mode]
    message.jms_destination = destination
    message.jms_redelivered = redelivered
    message.jms_delivery_time = delivery_time
    return message
