"""The producer and the consumer of the simplified interface (Jakarta Messaging 3.1, chapter 2.8)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from jmsql.client.destination_of import body_for
from jmsql.client.listeners import CompletionListener, completion_functions
from jmsql.concurrency import settable
from jmsql.concurrency.tasks import check_function
from jmsql.exceptions import InvalidDestinationException, MessageFormatException
from jmsql.messages import BytesMessage, DeliveryMode, MapMessage, Message, ObjectMessage, PropertyValue, TextMessage
from jmsql.messages.codecs.registry import is_registered
from jmsql.messages.codecs.schemas import describes_itself, schema_of_class
from jmsql.messages.properties import PropertyAccess
from jmsql.public_names import set_module
from jmsql.values.destinations import AnyDestination, Destination

if TYPE_CHECKING:
    from jmsql.client._async.session.consumer import MessageConsumer
    from jmsql.client._async.session.producer import MessageProducer
    from jmsql.client.listeners import MessageListener


T = TypeVar("T")


def message_of(body: object) -> Message:
    """Make the message that carries `body`; a message, also another provider's, is returned as it is.

    A `str` becomes a TextMessage, bytes a BytesMessage, a mapping of names to simple values a MapMessage, None a
    Message without a body, and any other object an ObjectMessage, which holds a mapping of other values as a `dict`.
    But a pydantic model, a msgspec struct or a dataclass that is not registered becomes JSON in a TextMessage, with the
    name of its class as the JMSType.

    Raises:
        MessageFormatException: The body cannot be encoded; the message shows where in it.
    """
    if body is None:
        return Message()
    if isinstance(body, str):
        return TextMessage(body)
    if isinstance(body, Message) or hasattr(body, "get_object_property"):
        return cast("Message", body)
    if isinstance(body, bytes | bytearray | memoryview):
        message = BytesMessage()
        message.write_bytes(body)
        return message
    if isinstance(body, Mapping):
        fields = _map_message(body)
        return ObjectMessage(dict(body)) if fields is None else fields
    cls: Any = type(body)
    if describes_itself(cls) and not is_registered(cls):
        text = TextMessage(schema_of_class(cls).encode(body))
        text.jms_type = cls.__name__
        return text
    return ObjectMessage(body)


def _map_message(body: Mapping[Any, Any]) -> MapMessage | None:
    fields = MapMessage()
    try:
        for name, value in body.items():
            fields.set_object(name, value)
    except (MessageFormatException, ValueError):
        return None
    return fields


@set_module("jmsql.asyncio")
class JMSProducer(PropertyAccess):
    """Sends messages, each to the destination that is named with it.

    Made by [`JMSContext.create_producer`][jmsql.JMSContext.create_producer]. Defaults for its messages are given
    there by keywords, or set here: as attributes, or by methods that return the producer, so that calls chain:
    `producer.set_priority(7).set_property("colour", "blue").send(queue, "text")`.

    The properties replace a sent message's properties of the same names, and so do the correlation id, the type and the
    reply-to destination, unless they are None.
    """

    def __init__(self, producer: MessageProducer) -> None:
        self._producer = producer
        self._headers = Message()
        self._completion_listener: CompletionListener | None = None
        self._property_values = {}
        self._received_properties = None

    async def send(self, destination: AnyDestination, body: object) -> Self:
        """Send a message, or a body that a message is made for, and return the producer, as JMS has it.

        [`jmsql.asyncio.send`][jmsql.asyncio.send] returns the message's identifier instead. A message of yours has it
        in its `jms_message_id` afterwards.

        Args:
            destination: Where to: a queue, a topic, or the handler of its messages, which checks the body; a string is
                a queue's name, ``queue://NAME`` or ``topic://NAME``.
            body: A message; or a `str`, bytes, a mapping of names to simple values, None, or another object, for a
                TextMessage, a BytesMessage, a MapMessage, a Message without a body, or an ObjectMessage. A `dict` with
                lists, dicts, dates, `Decimal`, `UUID` and other registered types goes as an ObjectMessage too. A
                pydantic model, a msgspec struct or a dataclass that is not registered goes as JSON in a TextMessage,
                with the name of its class as the JMSType.

        Raises:
            InvalidDestinationException: It is no destination, or does not exist.
            MessageFormatException: The body cannot be encoded, or the handler would refuse it; the message shows where.
            MessageNotWriteableException: It is a received message, and the producer has properties to set.
            JMSException: It was not sent; the message says why.
        """
        if destination is None:
            raise InvalidDestinationException("None is not a destination; send to a Queue or a Topic.")
        message: Any = message_of(body if isinstance(destination, Destination | str) else body_for(destination, body))
        for name, value in self.properties.items():
            message.set_object_property(name, value)
        for name in ("jms_correlation_id", "jms_type", "jms_reply_to"):
            header = getattr(self._headers, name)
            if header is not None:
                setattr(message, name, header)
        await self._producer.send(message, destination, completion_listener=self._completion_listener)
        return self

    def in_batches(self) -> AbstractAsyncContextManager[None]:
        """Send the messages of an ``async with`` block up to a hundred at a time, each batch in one exchange.

        Without a transaction each batch takes effect by itself. If the block raises, messages that are still collected
        are not sent.
        """
        return self._producer.in_batches()

    def settle_sends(self) -> None:
        """Have each send under conditions return when it is known whether the message was sent."""
        self._producer.settles_sends = True

    # How messages are sent

    @property
    def delivery_mode(self) -> DeliveryMode:
        """PERSISTENT unless set; JMSException on setting another number than 1 or 2."""
        return self._producer.delivery_mode

    @delivery_mode.setter
    def delivery_mode(self, delivery_mode: int) -> None:
        self._producer.delivery_mode = delivery_mode

    def set_delivery_mode(self, delivery_mode: int) -> Self:
        """Set `delivery_mode`, and return the producer."""
        self.delivery_mode = delivery_mode
        return self

    @property
    def priority(self) -> int:
        """0 (lowest) to 9, 4 unless set; JMSException on setting another number."""
        return self._producer.priority

    @priority.setter
    def priority(self, priority: int) -> None:
        self._producer.priority = priority

    def set_priority(self, priority: int) -> Self:
        """Set `priority`, and return the producer."""
        self.priority = priority
        return self

    @property
    def time_to_live(self) -> float:
        """After how many seconds messages expire; 0, and all above a hundred years: never. May be a `timedelta`."""
        return self._producer.time_to_live

    @time_to_live.setter
    def time_to_live(self, time_to_live: float | timedelta) -> None:
        self._producer.time_to_live = time_to_live

    def set_time_to_live(self, time_to_live: float | timedelta) -> Self:
        """Set `time_to_live`, and return the producer."""
        self.time_to_live = time_to_live
        return self

    @property
    def delivery_delay(self) -> float:
        """Default delivery delay in seconds. May be set to a `timedelta`."""
        return self._producer.delivery_delay

    @delivery_delay.setter
    def delivery_delay(self, delivery_delay: float | timedelta) -> None:
        self._producer.delivery_delay = delivery_delay

    def set_delivery_delay(self, delivery_delay: float | timedelta) -> Self:
        """Set `delivery_delay`, and return the producer."""
        self.delivery_delay = delivery_delay
        return self

    @property
    def disable_message_id(self) -> bool:
        """True if messages get no id."""
        return self._producer.disable_message_id

    @disable_message_id.setter
    def disable_message_id(self, disable: bool) -> None:
        self._producer.disable_message_id = disable

    def set_disable_message_id(self, disable: bool) -> Self:
        """Set `disable_message_id`, and return the producer."""
        self.disable_message_id = disable
        return self

    @property
    def disable_message_timestamp(self) -> bool:
        """True if messages get no timestamp."""
        return self._producer.disable_message_timestamp

    @disable_message_timestamp.setter
    def disable_message_timestamp(self, disable: bool) -> None:
        self._producer.disable_message_timestamp = disable

    def set_disable_message_timestamp(self, disable: bool) -> Self:
        """Set `disable_message_timestamp`, and return the producer."""
        self.disable_message_timestamp = disable
        return self

    @property
    def completion_listener(self) -> CompletionListener | None:
        """The listener that is called with the outcome of each message, sent asynchronously then; None: sends wait.

        Raises:
            TypeError: On setting, it is no completion listener, or a generator function, whose calls run nothing; with
                threads, also a coroutine function.
        """
        return self._completion_listener

    @completion_listener.setter
    def completion_listener(self, listener: CompletionListener | None) -> None:
        if listener is not None:
            for function in completion_functions(listener):
                check_function(function)
        self._completion_listener = listener

    def set_async(self, listener: CompletionListener | None) -> Self:
        """Set `completion_listener`, and return the producer."""
        self.completion_listener = listener
        return self

    # Headers and properties of all messages

    def set_property(self, name: str, value: PropertyValue) -> Self:
        """Set a property of the type that the value's class tells, and return the producer.

        Args:
            name: An identifier.
            value: As in [`Message.set_object_property`][jmsql.Message.set_object_property].

        Raises:
            MessageFormatException: The name cannot be set, or a property cannot have the value.
            ValueError: The name is empty.
        """
        self.set_object_property(name, value)
        return self

    def clear_properties(self) -> Self:  # type: ignore[override]
        """Remove all properties, and return the producer."""
        super().clear_properties()
        return self

    @property
    def jms_correlation_id(self) -> str | None:
        """The JMSCorrelationID that each message gets; None: its own."""
        return self._headers.jms_correlation_id

    @jms_correlation_id.setter
    def jms_correlation_id(self, correlation_id: str | None) -> None:
        self._headers.jms_correlation_id = correlation_id

    def set_jms_correlation_id(self, correlation_id: str | None) -> Self:
        """Set `jms_correlation_id`, and return the producer."""
        self.jms_correlation_id = correlation_id
        return self

    @property
    def jms_correlation_id_as_bytes(self) -> bytes | None:
        """The same as bytes."""
        return self._headers.jms_correlation_id_as_bytes

    @jms_correlation_id_as_bytes.setter
    def jms_correlation_id_as_bytes(self, correlation_id: bytes | None) -> None:
        self._headers.jms_correlation_id_as_bytes = correlation_id

    def set_jms_correlation_id_as_bytes(self, correlation_id: bytes | None) -> Self:
        """Set `jms_correlation_id_as_bytes`, and return the producer."""
        self.jms_correlation_id_as_bytes = correlation_id
        return self

    @property
    def jms_type(self) -> str | None:
        """The JMSType that each message gets; None: its own."""
        return self._headers.jms_type

    @jms_type.setter
    def jms_type(self, jms_type: str | None) -> None:
        self._headers.jms_type = jms_type

    def set_jms_type(self, jms_type: str | None) -> Self:
        """Set `jms_type`, and return the producer."""
        self.jms_type = jms_type
        return self

    @property
    def jms_reply_to(self) -> Destination | None:
        """The JMSReplyTo that each message gets; None: its own."""
        return self._headers.jms_reply_to

    @jms_reply_to.setter
    def jms_reply_to(self, destination: Destination | None) -> None:
        self._headers.jms_reply_to = destination

    def set_jms_reply_to(self, destination: Destination | None) -> Self:
        """Set `jms_reply_to`, and return the producer."""
        self.jms_reply_to = destination
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._producer!r}>"


@set_module("jmsql.asyncio")
class JMSConsumer:
    """Receives messages.

    Made by [`JMSContext.create_consumer`][jmsql.JMSContext.create_consumer].
    """

    def __init__(self, consumer: MessageConsumer) -> None:
        self._consumer = consumer

    @property
    def message_selector(self) -> str | None:
        """The selector's text, or None if every message is received."""
        return self._consumer.message_selector

    @property
    @settable
    def message_listener(self) -> MessageListener | None:
        """The listener that is called with each message; None while `receive` is used."""
        return self._consumer.message_listener

    async def set_message_listener(self, listener: MessageListener | None) -> None:
        """Have a listener called; see [`MessageConsumer`][jmsql.MessageConsumer.set_message_listener]."""
        await self._consumer.set_message_listener(listener)

    async def receive(self, timeout: float | timedelta | None = None) -> Message | None:
        """Return the next message, waiting for it if need be.

        Args:
            timeout: At most how long to wait: seconds, or a `timedelta`. None waits for ever, 0 does not wait.
        """
        return await self._consumer.receive(timeout)

    async def receive_no_wait(self) -> Message | None:
        """Return the next message if one is there now, else None."""
        return await self._consumer.receive_no_wait()

    async def receive_body(self, body_type: type[T], timeout: float | timedelta | None = None) -> T | None:
        """Return the next message's body; see [`MessageConsumer`][jmsql.MessageConsumer.receive_body]."""
        return await self._consumer.receive_body(body_type, timeout)

    async def receive_body_no_wait(self, body_type: type[T]) -> T | None:
        """Return the next message's body if a message is there now, else None; see `receive_body`."""
        return await self.receive_body(body_type, 0)

    async def close(self) -> None:
        """Stop receiving. Closing again does nothing."""
        await self._consumer.close()

    def __aiter__(self) -> AsyncIterator[Message]:
        return aiter(self._consumer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._consumer!r}>"
