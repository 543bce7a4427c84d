"""Messages: their headers, properties and bodies, and how they travel as rows."""

from jmsql.messages.bytes_message import BytesMessage
from jmsql.messages.codecs.registry import register_codec, register_type
from jmsql.messages.encoded_message import EncodedMessage
from jmsql.messages.encoding import MESSAGE_TYPES, decode_message
from jmsql.messages.foreign import (
    ForeignBytesMessage,
    ForeignMapMessage,
    ForeignMessage,
    ForeignObjectMessage,
    ForeignStreamMessage,
    ForeignTextMessage,
    as_jms_message,
)
from jmsql.messages.map_message import MapMessage
from jmsql.messages.message import DeliveryMode, Message
from jmsql.messages.object_message import ObjectMessage
from jmsql.messages.properties import DELIVERY_COUNT, MessageProperties
from jmsql.messages.stream_message import StreamMessage
from jmsql.messages.text_message import TextMessage
from jmsql.messages.types.values import Byte, Char, Float, Long, PropertyValue, Short, Value

__all__ = [
    "DELIVERY_COUNT",
    "MESSAGE_TYPES",
    "Byte",
    "BytesMessage",
    "Char",
    "DeliveryMode",
    "EncodedMessage",
    "Float",
    "ForeignBytesMessage",
    "ForeignMapMessage",
    "ForeignMessage",
    "ForeignObjectMessage",
    "ForeignStreamMessage",
    "ForeignTextMessage",
    "Long",
    "MapMessage",
    "Message",
    "MessageProperties",
    "ObjectMessage",
    "PropertyValue",
    "Short",
    "StreamMessage",
    "TextMessage",
    "Value",
    "as_jms_message",
    "decode_message",
    "register_codec",
    "register_type",
]
