"""What all sessions have in common: they make messages, producers, consumers and browsers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from jmsql.client.browser import QueueBrowser
from jmsql.client.consumer import MessageConsumer, MessageListener
from jmsql.client.inbox import Inbox
from jmsql.client.producer import MessageProducer
from jmsql.destinations import Destination, Queue, Topic, require_queue
from jmsql.exceptions import IllegalStateException
from jmsql.messages import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from jmsql.selectors import Selector

if TYPE_CHECKING:
    from jmsql.store.reader import Fetch
    from jmsql.store.rows import MessageRow, OutgoingMessage

__all__ = ["AbstractSession"]


class AbstractSession(ABC):
    """Makes messages and the objects that send and receive them."""

    _closed: bool = False

    # Destinations and messages

    def create_queue(self, name: str) -> Queue:
        """Return the queue of that name (it is made in the database when it is first used).

        Raises:
            InvalidDestinationException: The name is empty or too long.
        """
        self._check_open()
        return Queue(name)

    def create_topic(self, name: str) -> Topic:
        """Return the topic of that name.

        Raises:
            InvalidDestinationException: The name is empty or too long.
        """
        self._check_open()
        return Topic(name)

    def create_message(self) -> Message:
        """Make a message without a body."""
        self._check_open()
        return Message()

    def create_text_message(self, text: str | None = None) -> TextMessage:
        """Make a message with a text."""
        self._check_open()
        return TextMessage(text)

    def create_bytes_message(self) -> BytesMessage:
        """Make a message with bytes, to be written."""
        self._check_open()
        return BytesMessage()

    def create_map_message(self) -> MapMessage:
        """Make a message with named values."""
        self._check_open()
        return MapMessage()

    def create_stream_message(self) -> StreamMessage:
        """Make a message with a sequence of values, to be written."""
        self._check_open()
        return StreamMessage()

    def create_object_message(self, object: Any = None) -> ObjectMessage:  # noqa: A002 - JMS's name
        """Make a message with a copy of an object.

        Raises:
            MessageFormatException: The object cannot be stored.
        """
        self._check_open()
        return ObjectMessage(object)

    # What sends and receives

    def create_producer(self, destination: Destination | None = None) -> MessageProducer:
        """Make a producer.

        Args:
            destination: Where it sends to; None: each send names its own destination.

        Raises:
            InvalidDestinationException: It is no queue.
        """
        self._check_open()
        return MessageProducer(self, destination)

    def create_consumer(
        self,
        destination: Destination,
        selector: str | None = None,
        *,
        no_local: bool = False,  # noqa: ARG002 - JMS gives it a meaning for topics alone
    ) -> MessageConsumer:
        """Make a consumer.

        Args:
            destination: The queue to receive from.
            selector: Which of its messages are wanted; None or "": all.
            no_local: Means nothing for a queue.

        Raises:
            InvalidDestinationException: It is no queue.
            InvalidSelectorException: The selector has an error; the message shows where.
        """
        self._check_open()
        queue, parsed = require_queue(destination), Selector.parse(selector)
        consumer = MessageConsumer(self, queue, parsed, self._open_inbox(queue, parsed))
        self._consumer_opened(consumer)
        return consumer

    def create_browser(self, queue: Queue, selector: str | None = None) -> QueueBrowser:
        """Make a browser, which looks at the messages of a queue and leaves them there.

        Args:
            queue: The queue.
            selector: Which of its messages are wanted; None or "": all.

        Raises:
            InvalidDestinationException: It is no queue.
            InvalidSelectorException: The selector has an error; the message shows where.
        """
        self._check_open()
        found = require_queue(queue)
        return QueueBrowser(self, found, Selector.parse(selector), self._queue_id(found))

    @abstractmethod
    def close(self) -> None:
        """Close the session and all that it made. Closing again does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # For what the session has made

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateException("The session is closed.")

    def _open_inbox(self, queue: Queue, selector: Selector | None) -> Inbox:
        """Make what a consumer fetches messages into."""
        return Inbox(self._queue_id(queue), selector, self._fetch_operation(), self._wake)

    @abstractmethod
    def _queue_id(self, queue: Queue) -> int:
        """Return the queue's id, making the queue if need be."""

    def _will_send_to(self, queue: Queue) -> None:
        """Make the queue if need be, as messages are going to be sent to it."""
        self._queue_id(queue)

    @abstractmethod
    def _send(self, message: OutgoingMessage) -> None:
        """Send a message, now or with the commit."""

    @abstractmethod
    def _fetch_operation(self) -> Fetch:
        """Return how consumers without a listener take messages from the store."""

    @abstractmethod
    def _receive(self, consumer: MessageConsumer, timeout: float | None) -> Message | None:
        """Return the consumer's next message, or None after `timeout` seconds."""

    @abstractmethod
    def _browse(self, queue_id: int, selector: Selector | None, after: tuple[int, int], limit: int) -> list[MessageRow]:
        """Read messages of a queue after a key."""

    @abstractmethod
    def _set_listener(self, consumer: MessageConsumer, listener: MessageListener | None) -> None:
        """Give the consumer's messages to a listener from now on."""

    @abstractmethod
    def _consumer_opened(self, consumer: MessageConsumer) -> None:
        """Note that there is a new consumer."""

    @abstractmethod
    def _consumer_closed(self, consumer: MessageConsumer) -> None:
        """Note that the consumer is closed."""

    @abstractmethod
    def _wake(self) -> None:
        """Look again, in whatever thread waits: something has happened."""
