"""Messages as rows of the table ``message``, and back."""

from __future__ import annotations

from collections.abc import Callable

from jmsql.destinations import Destination
from jmsql.messages.bytes_message import BytesMessage
from jmsql.messages.encoded_message import EncodedMessage
from jmsql.messages.map_message import MapMessage
from jmsql.messages.message import DeliveryMode, Message
from jmsql.messages.object_message import ObjectMessage
from jmsql.messages.properties import ReceivedProperties
from jmsql.messages.stream_message import StreamMessage
from jmsql.messages.text_message import TextMessage
from jmsql.postgresql_text import from_postgresql, to_postgresql

__all__ = ["decode_message", "encode_message"]

_CLASSES: dict[str, type[Message]] = {
    kind.__name__: kind for kind in (Message, TextMessage, BytesMessage, MapMessage, StreamMessage, ObjectMessage)
}
_DELIVERY_MODES = {int(mode): mode for mode in DeliveryMode}


def encode_message(message: Message) -> EncodedMessage:
    """Take a snapshot of what the message holds; later changes to the message do not reach it.

    The content of a received message that was not cleared is passed on as it came, without being decoded.
    """
    correlation_id = message._correlation_id
    reply_to = message.jms_reply_to
    kind = message._type
    properties, property_types = message._encode_properties()
    text_body, json_body, body_types, bytes_body = message._encode_body()
    return EncodedMessage(
        message._MESSAGE_TYPE,
        to_postgresql(correlation_id) if correlation_id is not None else None,
        to_postgresql(reply_to.uri) if reply_to is not None else None,
        to_postgresql(kind) if kind is not None else None,
        properties,
        property_types,
        text_body,
        json_body,
        body_types,
        bytes_body,
    )


def decode_message(
    encoded: EncodedMessage,
    *,
    message_id: str | None,
    timestamp: int,
    expiration: int,
    priority: int,
    delivery_mode: int,
    destination: Destination | None,
    redelivered: bool,
    delivery_count: int,
    acknowledger: Callable[[], None] | None,
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
    message_class = _CLASSES[encoded.message_type]
    message = message_class.__new__(message_class)
    message.jms_message_id = message_id
    message.jms_timestamp = timestamp
    message.jms_expiration = expiration
    message.jms_priority = priority
    message.jms_delivery_mode = _DELIVERY_MODES[delivery_mode]
    message.jms_destination = destination
    message.jms_redelivered = redelivered
    message.jms_delivery_time = delivery_time
    correlation_id = encoded.correlation_id
    message._correlation_id = from_postgresql(correlation_id) if correlation_id is not None else None
    message._reply_to = encoded.reply_to
    kind = encoded.type
    message._type = from_postgresql(kind) if kind is not None else None
    message._acknowledger = acknowledger
    message._property_values = None
    message._received_properties = ReceivedProperties(encoded.properties, encoded.property_types, delivery_count)
    message._restore_body(encoded)
    return message
