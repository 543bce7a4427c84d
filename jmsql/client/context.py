"""The simplified interface: a connection and a session in one (Jakarta Messaging 3.1, chapter 2.8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from jmsql.destinations import Destination
from jmsql.messages import (
    BytesMessage,
    DeliveryMode,
    MapMessage,
    Message,
    ObjectMessage,
    StreamMessage,
    TextMessage,
)

if TYPE_CHECKING:
    from jmsql.client.acknowledge_mode import AcknowledgeMode
    from jmsql.client.browser import QueueBrowser
    from jmsql.client.completion import CompletionListener
    from jmsql.client.connection import Connection
    from jmsql.client.consumer import MessageConsumer, MessageListener
    from jmsql.client.enlisted_session import EnlistedSession
    from jmsql.client.producer import MessageProducer
    from jmsql.client.session import Session
    from jmsql.destinations import Queue, TemporaryQueue, TemporaryTopic, Topic

__all__ = ["JMSConsumer", "JMSContext", "JMSProducer", "message_of"]

T = TypeVar("T")


def message_of(body: object) -> Message:
    """Make the message that carries `body`.

    A `str` becomes a TextMessage, bytes a BytesMessage, a mapping a MapMessage, None a Message without a body, and any
    other object an ObjectMessage.

    Raises:
        MessageFormatException: The body cannot be stored; a mapping, for one, that holds other than simple values.
    """
    if body is None:
        return Message()
    if isinstance(body, str):
        return TextMessage(body)
    if isinstance(body, bytes | bytearray | memoryview):
        message = BytesMessage()
        message.write_bytes(body)
        return message
    if isinstance(body, Mapping):
        fields = MapMessage()
        for name, value in body.items():
            fields.set_object(name, value)
        return fields
    return ObjectMessage(body)


class JMSContext:
    """A connection and a session in one.

    Made by [`ConnectionFactory.create_context`][jmsql.ConnectionFactory.create_context], or, for the caller's own
    transaction, by [`jmsql.enlist`][jmsql.enlist]. Its connection starts with the first consumer, unless `auto_start`
    is set to False.
    """

    def __init__(self, session: Session | EnlistedSession, connection: Connection | None = None) -> None:
        self._session = session
        self._connection = connection
        self.auto_start = True
        """Whether making a consumer starts the connection."""

    @property
    def session_mode(self) -> AcknowledgeMode:
        """How the session acknowledges what it receives."""
        return self._session.acknowledge_mode

    @property
    def transacted(self) -> bool:
        """Whether the session works in transactions."""
        return self._session.transacted

    # Destinations and messages

    def create_queue(self, name: str) -> Queue:
        """Return the queue of that name."""
        return self._session.create_queue(name)

    def create_topic(self, name: str) -> Topic:
        """Return the topic of that name."""
        return self._session.create_topic(name)

    def create_temporary_queue(self) -> TemporaryQueue:
        """Make a queue that lives as long as the connection, for its own consumers: for replies, say."""
        return self._session.create_temporary_queue()

    def create_temporary_topic(self) -> TemporaryTopic:
        """Make a topic that lives as long as the connection, for its own consumers."""
        return self._session.create_temporary_topic()

    def create_message(self) -> Message:
        """Make a message without a body."""
        return self._session.create_message()

    def create_text_message(self, text: str | None = None) -> TextMessage:
        """Make a message with a text."""
        return self._session.create_text_message(text)

    def create_bytes_message(self) -> BytesMessage:
        """Make a message with bytes, to be written."""
        return self._session.create_bytes_message()

    def create_map_message(self) -> MapMessage:
        """Make a message with named values."""
        return self._session.create_map_message()

    def create_stream_message(self) -> StreamMessage:
        """Make a message with a sequence of values, to be written."""
        return self._session.create_stream_message()

    def create_object_message(self, object: Any = None) -> ObjectMessage:  # noqa: A002 - JMS's name
        """Make a message with a copy of an object."""
        return self._session.create_object_message(object)

    # Sending and receiving

    def create_producer(
        self,
        *,
        delivery_mode: int = DeliveryMode.PERSISTENT,
        priority: int = 4,
        time_to_live: float | timedelta = 0.0,
        delivery_delay: float | timedelta = 0.0,
        properties: Mapping[str, Any] | None = None,
        jms_correlation_id: str | None = None,
        jms_type: str | None = None,
        jms_reply_to: Destination | None = None,
        completion_listener: CompletionListener | None = None,
    ) -> JMSProducer:
        """Make a producer, with what its messages have in common.

        Args:
            delivery_mode: PERSISTENT or NON_PERSISTENT.
            priority: 0 (lowest) to 9.
            time_to_live: After how many seconds (or a `timedelta`) messages expire; 0: never.
            delivery_delay: After how many seconds (or a `timedelta`) they may be delivered, at the soonest.
            properties: Properties that each message gets.
            jms_correlation_id: The JMSCorrelationID that each message gets; None: its own.
            jms_type: The JMSType that each message gets; None: its own.
            jms_reply_to: The JMSReplyTo that each message gets; None: its own.
            completion_listener: What is told what became of each message, which is then sent asynchronously, as by
                [`MessageProducer.send`][jmsql.MessageProducer.send]; None: sends wait.
        """
        producer = self._session.create_producer()
        producer.delivery_mode = delivery_mode
        producer.priority = priority
        producer.time_to_live = time_to_live
        producer.delivery_delay = delivery_delay
        headers = {"jms_correlation_id": jms_correlation_id, "jms_type": jms_type, "jms_reply_to": jms_reply_to}
        set_headers = {name: value for name, value in headers.items() if value is not None}
        return JMSProducer(producer, dict(properties or {}), set_headers, completion_listener)

    def create_consumer(
        self, destination: Destination, selector: str | None = None, *, no_local: bool = False
    ) -> JMSConsumer:
        """Make a consumer, and start the connection if `auto_start` is set.

        Args:
            destination: The queue or topic to receive from.
            selector: Which of its messages are wanted; None or "": all.
            no_local: Whether to leave out what this connection publishes. Means nothing for a queue.

        Raises:
            InvalidDestinationException: It is no destination.
            InvalidSelectorException: The selector has an error; the message shows where.
        """
        return self._started(self._session.create_consumer(destination, selector, no_local=no_local))

    def create_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, *, no_local: bool = False
    ) -> JMSConsumer:
        """Make the consumer of a durable subscription, as `Session.create_durable_consumer` does."""
        return self._started(self._session.create_durable_consumer(topic, name, selector, no_local=no_local))

    def create_shared_consumer(self, topic: Topic, name: str, selector: str | None = None) -> JMSConsumer:
        """Make a consumer that shares a subscription, as `Session.create_shared_consumer` does."""
        return self._started(self._session.create_shared_consumer(topic, name, selector))

    def create_shared_durable_consumer(self, topic: Topic, name: str, selector: str | None = None) -> JMSConsumer:
        """Make a consumer that shares a durable subscription, as `Session.create_shared_durable_consumer` does."""
        return self._started(self._session.create_shared_durable_consumer(topic, name, selector))

    def unsubscribe(self, name: str) -> None:
        """End a durable subscription, with the messages that it has collected.

        Raises:
            InvalidDestinationException: There is no such subscription.
            IllegalStateException: It has a consumer, or messages of it are not acknowledged or committed.
        """
        self._session.unsubscribe(name)

    def _started(self, consumer: MessageConsumer) -> JMSConsumer:
        if self.auto_start:
            self.start()
        return JMSConsumer(consumer)

    def create_browser(self, queue: Queue, selector: str | None = None) -> QueueBrowser:
        """Make a browser, which looks at the messages of a queue and leaves them there."""
        return self._session.create_browser(queue, selector)

    def start(self) -> None:
        """Deliver messages from now on."""
        if self._connection is not None:
            self._connection.start()

    def stop(self) -> None:
        """Pause the delivery of messages."""
        if self._connection is not None:
            self._connection.stop()

    def commit(self) -> None:
        """Commit the transaction.

        Raises:
            IllegalStateException: The session is not transacted.
            TransactionInProgressException: The transaction is the caller's.
            TransactionRolledBackException: It was rolled back instead.
        """
        self._session.commit()

    def rollback(self) -> None:
        """Roll the transaction back.

        Raises:
            IllegalStateException: The session is not transacted.
            TransactionInProgressException: The transaction is the caller's.
        """
        self._session.rollback()

    def recover(self) -> None:
        """Deliver what was received and not acknowledged again.

        Raises:
            IllegalStateException: The session is transacted.
        """
        self._session.recover()

    def acknowledge(self) -> None:
        """Acknowledge all that was received, if the session mode is CLIENT."""
        self._session._acknowledge_received()

    def close(self) -> None:
        """Close the session, and the connection if the context made it. Closing again does nothing."""
        self._session.close()
        if self._connection is not None:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._session!r}>"


class JMSProducer:
    """Sends messages, each to the destination that is named with it.

    Made by [`JMSContext.create_producer`][jmsql.JMSContext.create_producer].
    """

    def __init__(
        self,
        producer: MessageProducer,
        properties: Mapping[str, Any],
        headers: Mapping[str, Any],
        completion_listener: CompletionListener | None,
    ) -> None:
        self._producer = producer
        self._properties = properties
        self._headers = headers
        self._completion_listener = completion_listener

    def send(self, destination: Destination, body: object) -> Self:
        """Send a message, or a body that a message is made for, and return the producer.

        Args:
            destination: Where to.
            body: A message; or a `str`, bytes, a mapping of names to simple values, None, or another object, for a
                TextMessage, a BytesMessage, a MapMessage, a Message without a body, or an ObjectMessage.

        Raises:
            InvalidDestinationException: It is no destination, or does not exist.
            MessageFormatException: The body cannot be stored.
            JMSException: It was not sent; the message says why.
        """
        is_message = isinstance(body, Message) or hasattr(body, "get_object_property")
        message: Any = body if is_message else message_of(body)
        for name, value in self._properties.items():
            message.set_object_property(name, value)
        for name, value in self._headers.items():
            setattr(message, name, value)
        self._producer.send(message, destination, completion_listener=self._completion_listener)
        return self


class JMSConsumer:
    """Receives messages.

    Made by [`JMSContext.create_consumer`][jmsql.JMSContext.create_consumer].
    """

    def __init__(self, consumer: MessageConsumer) -> None:
        self._consumer = consumer

    @property
    def message_selector(self) -> str | None:
        """The selector's text, or None if every message is wanted."""
        return self._consumer.message_selector

    @property
    def message_listener(self) -> MessageListener | None:
        """What messages are given to as they come; None while `receive` is used."""
        return self._consumer.message_listener

    @message_listener.setter
    def message_listener(self, listener: MessageListener | None) -> None:
        self._consumer.message_listener = listener

    def receive(self, timeout: float | timedelta | None = None) -> Message | None:
        """Return the next message, waiting for it if need be.

        Args:
            timeout: At most how long to wait: seconds, or a `timedelta`. None waits for ever, 0 does not wait.
        """
        return self._consumer.receive(timeout)

    def receive_no_wait(self) -> Message | None:
        """Return the next message if one is there now, else None."""
        return self._consumer.receive_no_wait()

    def receive_body(self, body_type: type[T], timeout: float | timedelta | None = None) -> T | None:
        """Return the next message's body, or None if none came in time.

        Args:
            body_type: What the body is expected to be, as in [`Message.get_body`][jmsql.Message.get_body].
            timeout: At most how long to wait: seconds, or a `timedelta`. None waits for ever, 0 does not wait.

        Raises:
            MessageFormatException: The body is of another type; the message counts as received.
        """
        message = self._consumer.receive(timeout)
        return None if message is None else message.get_body(body_type)

    def close(self) -> None:
        """Stop receiving. Closing again does nothing."""
        self._consumer.close()

    def __iter__(self) -> Iterator[Message]:
        return iter(self._consumer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._consumer!r}>"
