"""Messages that another provider implements, which a send accepts too (JMS 1.1 chapter 3.12).

A foreign message is any object with the getters of the protocols below. It is copied: the body, the properties, and
those headers that a send does not overwrite. A reply-to destination that is not jmsql's, and properties that only a
provider may set, are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, cast

from jmsql.exceptions import MessageEOFException, MessageFormatException
from jmsql.messages.bytes_message import BytesMessage
from jmsql.messages.map_message import MapMessage
from jmsql.messages.message import Message
from jmsql.messages.object_message import ObjectMessage
from jmsql.messages.properties import CONDITIONS, is_settable
from jmsql.messages.stream_message import StreamMessage
from jmsql.messages.text_message import TextMessage
from jmsql.public_names import set_module
from jmsql.values.destinations import Destination

_PIECE = 64 * 1024


@set_module("jmsql.types")
class ForeignMessage(Protocol):
    """The members of every foreign message; alone, they make a message without a body."""

    @property
    def jms_correlation_id(self) -> str | None: ...
    @property
    def jms_type(self) -> str | None: ...
    @property
    def jms_reply_to(self) -> object: ...
    @property
    def property_names(self) -> Iterable[str]: ...
    def get_object_property(self, name: str, /) -> Any: ...


class ForeignCorrelationMessage(ForeignMessage, Protocol):
    """A foreign message whose correlation identifier may be bytes, which need not be text."""

    @property
    def jms_correlation_id_as_bytes(self) -> bytes | None: ...


class ForeignTextMessage(ForeignMessage, Protocol):
    """A foreign message with text."""

    @property
    def text(self) -> str | None: ...


class ForeignBytesMessage(ForeignMessage, Protocol):
    """A foreign message with bytes."""

    @property
    def body_length(self) -> int: ...
    def reset(self) -> None: ...
    def read_bytes(self, buffer: bytearray, /) -> int: ...


class ForeignMapMessage(ForeignMessage, Protocol):
    """A foreign message with named values."""

    @property
    def map_names(self) -> Iterable[str]: ...
    def get_object(self, name: str, /) -> Any: ...


class ForeignStreamMessage(ForeignMessage, Protocol):
    """A foreign message with a row of fields, which raises MessageEOFException behind the last one."""

    def reset(self) -> None: ...
    def read_object(self) -> Any: ...


class ForeignObjectMessage(ForeignMessage, Protocol):
    """A foreign message with an object."""

    @property
    def object(self) -> Any: ...


def as_jms_message(message: Message | ForeignMessage) -> Message:
    """Give the message itself if it is jmsql's, else a copy of the foreign message.

    Raises:
        MessageFormatException: The object is not a message, or has a value that its kind of message cannot hold.
    """
    if isinstance(message, Message):
        return message
    attributes = frozenset(dir(message))  # names alone: looking at an attribute such as `object` may fail
    if not {"property_names", "get_object_property"} <= attributes:
        raise MessageFormatException(f"{type(message).__qualname__} is not a message; create one from the session.")
    copy = _copy_body(message, attributes)
    copy.jms_correlation_id = message.jms_correlation_id
    if copy.jms_correlation_id is None and "jms_correlation_id_as_bytes" in attributes:
        copy.jms_correlation_id_as_bytes = cast(ForeignCorrelationMessage, message).jms_correlation_id_as_bytes
    copy.jms_type = message.jms_type
    if isinstance(message.jms_reply_to, Destination):
        copy.jms_reply_to = message.jms_reply_to
    for name in message.property_names:
        if is_settable(name) or name in CONDITIONS or not name.startswith("JMS"):
            copy.set_object_property(name, message.get_object_property(name))
    return copy


def _copy_body(message: ForeignMessage, attributes: frozenset[str]) -> Message:
    if {"body_length", "read_bytes", "reset"} <= attributes:
        return _copy_bytes(cast(ForeignBytesMessage, message))
    if {"read_object", "reset"} <= attributes:
        return _copy_stream(cast(ForeignStreamMessage, message))
    if {"map_names", "get_object"} <= attributes:
        return _copy_map(cast(ForeignMapMessage, message))
    if "text" in attributes:
        return TextMessage(cast(ForeignTextMessage, message).text)
    if "object" in attributes:
        return ObjectMessage(cast(ForeignObjectMessage, message).object)
    return Message()


def _copy_bytes(message: ForeignBytesMessage) -> BytesMessage:
    copy = BytesMessage()
    message.reset()
    buffer = bytearray(min(message.body_length, _PIECE))
    while buffer and (count := message.read_bytes(buffer)) > 0:
        copy.write_bytes(buffer, 0, count)
    return copy


def _copy_stream(message: ForeignStreamMessage) -> StreamMessage:
    copy = StreamMessage()
    message.reset()
    while True:
        try:
            value = message.read_object()
        except MessageEOFException:
            return copy
        copy.write_object(value)


def _copy_map(message: ForeignMapMessage) -> MapMessage:
    copy = MapMessage()
    for name in message.map_names:
        copy.set_object(name, message.get_object(name))
    return copy
