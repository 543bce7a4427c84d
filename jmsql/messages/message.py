"""The base of all messages: headers, properties, acknowledgement. Source: JMS 1.1 chapter 3."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, ClassVar, TypeVar

from jmsql.exceptions import InvalidDestinationException, MessageFormatException, MessageNotWriteableException
from jmsql.messages.encoded_message import BodyColumns, ConditionalEncodedMessage, EncodedColumns, EncodedMessage
from jmsql.messages.properties import CONDITIONS, DEAD_LETTER_REASON, THEN, PropertyAccess, ReceivedProperties
from jmsql.messages.types.values import PropertyValue, type_name, with_article
from jmsql.public_names import set_module
from jmsql.values.destinations import Destination, parse_destination
from jmsql.values.postgresql_text import from_postgresql, to_postgresql

T = TypeVar("T")


@set_module("jmsql")
class DeliveryMode(IntEnum):
    """The survival of messages after a server crash (JMS 1.1 chapter 4.7)."""

    NON_PERSISTENT = 1
    """A crash of the server may lose the message."""

    PERSISTENT = 2
    """Only loss of the server's storage may lose the message."""


_DELIVERY_MODES = {int(mode): mode for mode in DeliveryMode}


@set_module("jmsql")
class Message(PropertyAccess):
    """A message without a body, and the base of those with one.

    Headers are attributes. A send overwrites all but the correlation id, the reply-to destination and the type.
    """

    __slots__ = (
        "_acknowledger",
        "_body_is_read_only",
        "_correlation_id",
        "_reply_to",
        "_type",
        "jms_delivery_mode",
        "jms_delivery_time",
        "jms_destination",
        "jms_expiration",
        "jms_message_id",
        "jms_priority",
        "jms_redelivered",
        "jms_timestamp",
    )

    _MESSAGE_TYPE: ClassVar[str] = "Message"

    jms_message_id: str | None
    """The identifier of the message, beginning with "ID:"; None before a send, or if the producer disabled it."""

    jms_timestamp: int
    """When the message was sent: milliseconds since the epoch, or 0 if the producer disabled it."""

    jms_destination: Destination | None
    """Where the message was sent to."""

    jms_delivery_mode: DeliveryMode
    """PERSISTENT if the message survives a crash of the server, else NON_PERSISTENT."""

    jms_redelivered: bool
    """True if the message was probably delivered before."""

    jms_expiration: int
    """When the message expires: milliseconds since the epoch, or 0 for never."""

    jms_priority: int
    """0 (lowest) to 9."""

    jms_delivery_time: int
    """The earliest time of delivery, in milliseconds since the epoch; without a delay, the time of the send.

    0 if the message was not delayed and has no timestamp.
    """

    def __init__(self) -> None:
        self.jms_message_id = None
        self.jms_timestamp = 0
        self.jms_destination = None
        self.jms_delivery_mode = DeliveryMode.PERSISTENT
        self.jms_redelivered = False
        self.jms_expiration = 0
        self.jms_priority = 4
        self.jms_delivery_time = 0
        self._correlation_id: str | None = None
        self._reply_to: Destination | str | None = None
        self._type: str | None = None
        self._acknowledger: Callable[[], Any] | None = None
        self._property_values = {}
        self._received_properties = None
        self._body_is_read_only = False

    @property
    def jms_correlation_id(self) -> str | None:
        """A link to another message: its message id, an application's string, or bytes.

        Raises:
            MessageFormatException: On setting, the value is neither a `str` nor None.
        """
        return self._correlation_id

    @jms_correlation_id.setter
    def jms_correlation_id(self, value: str | None) -> None:
        self._correlation_id = _header_text("JMSCorrelationID", value)

    @property
    def jms_correlation_id_as_bytes(self) -> bytes | None:
        """The correlation id as bytes: any bytes come back as they were set; a string is given in UTF-8.

        Raises:
            MessageFormatException: On setting, the value is not bytes; on reading, a string with half a surrogate
                pair was set, which UTF-8 does not have.
        """
        if self._correlation_id is None:
            return None
        try:
            return self._correlation_id.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise MessageFormatException("The correlation id holds half a surrogate pair; read it as text.") from error

    @jms_correlation_id_as_bytes.setter
    def jms_correlation_id_as_bytes(self, value: bytes | None) -> None:
        if value is not None and not isinstance(value, (bytes, bytearray, memoryview)):
            raise MessageFormatException(f"The correlation id is set from bytes, not from {type_name(value)}.")
        self._correlation_id = None if value is None else bytes(value).decode("utf-8", "surrogateescape")

    @property
    def jms_type(self) -> str | None:
        """The kind of message, in the application's own terms.

        Raises:
            MessageFormatException: On setting, the value is neither a `str` nor None.
        """
        return self._type

    @jms_type.setter
    def jms_type(self, value: str | None) -> None:
        self._type = _header_text("JMSType", value)

    @property
    def jms_reply_to(self) -> Destination | None:
        """Where an answer should be sent; None if no answer is expected.

        Raises:
            InvalidDestinationException: On setting, the value is no destination of jmsql.
        """
        if isinstance(self._reply_to, str):
            self._reply_to = parse_destination(from_postgresql(self._reply_to))
        return self._reply_to

    @jms_reply_to.setter
    def jms_reply_to(self, value: Destination | None) -> None:
        if value is not None and not isinstance(value, Destination):
            raise InvalidDestinationException(f"JMSReplyTo is a Queue or a Topic, not {value!r}.")
        self._reply_to = value

    def acknowledge(self) -> Any:
        """Acknowledge all messages that the session has delivered (JMS 1.1 chapter 4.4.11).

        Does nothing unless the session's mode is CLIENT, and on a message that was not received.

        Returns:
            None, or an awaitable if a session of `jmsql.asyncio` has delivered the message.

        Raises:
            IllegalStateException: The session that delivered the message is closed.
        """
        return None if self._acknowledger is None else self._acknowledger()

    def clear_body(self) -> None:
        """Empty the body as in a new message and allow writing; the properties stay (JMS 1.1 chapter 3.11.1)."""
        self._body_is_read_only = False

    def get_body(self, body_type: type[T]) -> T | None:
        """Return the body if it is of this type; None, for any type, if there is no body.

        The body is a `str` in a TextMessage, `bytes` in a BytesMessage, a `dict` in a MapMessage, and the object in
        an ObjectMessage. By JMS's definition a BytesMessage without bytes and a MapMessage without entries have none.

        Raises:
            MessageFormatException: The body is of another type, or cannot be decoded, or this is a StreamMessage.
        """
        body = self._body()
        if body is None or isinstance(body, body_type):
            return body
        raise MessageFormatException(
            f"The body of this {type(self).__name__} is {type_name(body)}, not {with_article(body_type.__name__)}."
        )

    def is_body_assignable_to(self, body_type: type[object]) -> bool:
        """Tell whether `get_body` gives the body, or None, for this type.

        False for a body that cannot be decoded, and for a StreamMessage.
        """
        try:
            body = self._body()
        except MessageFormatException:
            return False
        return body is None or isinstance(body, body_type)

    # For the provider

    def encode(self) -> EncodedMessage:
        """Return the message's stored form; later changes to the message do not reach it.

        The content of a received message that was not cleared is passed on as it came, without being decoded.
        """
        values = self._property_values
        if values and not CONDITIONS.isdisjoint(values):
            return self._encode_conditionally(values)
        correlation_id = self._correlation_id
        reply_to = None if self._reply_to is None else self.jms_reply_to
        kind = self._type
        properties, property_types = self._encode_properties()
        text_body, json_body, body_types, bytes_body = self._encode_body()
        return EncodedMessage(
            self._MESSAGE_TYPE,
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

    def _encode_conditionally(self, values: dict[str, PropertyValue]) -> EncodedMessage:
        """Return the stored form without the properties that are conditions of the send."""
        self._property_values = {name: value for name, value in values.items() if name not in CONDITIONS}
        try:
            encoded = ConditionalEncodedMessage(*self.encode())
        finally:
            self._property_values = values
        encoded.conditions = self.send_conditions
        return encoded

    def restore(
        self,
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
    ) -> None:
        """Become a received message, whose body and properties are read-only until they are cleared.

        Properties and body are decoded when they are first read. So a broken value raises MessageFormatException there,
        and not here.

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
            acknowledger: The function that `acknowledge` calls; None if there is nothing to do.
            delivery_time: JMSDeliveryTime in milliseconds since the epoch, 0 if it is not known.
        """
        self.jms_message_id = message_id
        self.jms_timestamp = timestamp
        self.jms_expiration = expiration
        self.jms_priority = priority
        self.jms_delivery_mode = _DELIVERY_MODES[delivery_mode]
        self.jms_destination = destination
        self.jms_redelivered = redelivered
        self.jms_delivery_time = delivery_time
        _, correlation_id, self._reply_to, kind, properties, property_types, text, json, types, content = encoded
        self._correlation_id = None if correlation_id is None else from_postgresql(correlation_id)
        self._type = None if kind is None else from_postgresql(kind)
        self._acknowledger = acknowledger
        self._body_is_read_only = True
        self._property_values = None
        # Measured: the constructor of a named tuple takes twice as long.
        self._received_properties = tuple.__new__(ReceivedProperties, (properties, property_types, delivery_count))
        self._restore_body((text, json, types, content))

    @property
    def has_next_steps(self) -> bool:
        """True if the message was sent as a step of a chain, and not as the last one.

        False for a dead letter: the handler that gets it puts things right, and the steps after it follow its retry.
        """
        received = self._received_properties
        if received is not None and (received.values is None or THEN not in received.values):
            return False  # the properties need not be decoded
        values = self._properties_to_read()
        return values.get(THEN) is not None and DEAD_LETTER_REASON not in values

    def stored_parts(self) -> dict[str, str | bytes | None]:
        """Return the parts of a received message that are decoded when they are read, as they are stored."""
        text, json, _, content = self._encode_body()
        return {
            "reply_to": self._reply_to if isinstance(self._reply_to, str) else None,
            "properties": None if self._received_properties is None else self._received_properties.values,
            "body": next((part for part in (text, json, content) if part is not None), None),
        }

    # Within

    def _body(self) -> object:
        """Return the body, as `get_body` returns it for the right type.

        Raises:
            MessageFormatException: The body cannot be decoded, or not be had as a whole.
        """
        return None

    def _body_summary(self) -> str:
        return "no body"

    def _encode_body(self) -> BodyColumns:
        return None, None, None, None

    def _restore_body(self, columns: BodyColumns) -> None:
        """Take the body from its columns; decoding waits until the body is read."""

    def _check_body_writable(self) -> None:
        if self._body_is_read_only:
            raise MessageNotWriteableException("The body is read-only; call clear_body() first.")

    def __repr__(self) -> str:
        destination = f" to {self.jms_destination}" if self.jms_destination is not None else ""
        return f"<{type(self).__name__} {self.jms_message_id or 'without id'}{destination}, {self._body_summary()}>"


def _header_text(header: str, value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise MessageFormatException(f"{header} is a str or None, not {type_name(value)}.")
