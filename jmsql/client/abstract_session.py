"""What all sessions have in common: they make messages, producers, consumers and browsers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from jmsql.client import observation
from jmsql.client.browser import QueueBrowser
from jmsql.client.consumer import MessageConsumer, QueueReceiver, ReceiveOperations, TopicSubscriber
from jmsql.client.consumer_state import ConsumerState
from jmsql.client.inbox import Inbox
from jmsql.client.message_listener import MessageCheck, MessageListener
from jmsql.client.observation import SessionFacts
from jmsql.client.producer import MessageProducer, SendOperations
from jmsql.destinations import (
    Destination,
    Queue,
    TemporaryQueue,
    TemporaryTopic,
    Topic,
    require_destination,
    require_queue,
    require_topic,
)
from jmsql.exceptions import IllegalStateException
from jmsql.messages import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from jmsql.selectors import Selector
from jmsql.store.server_clock import ServerClock
from jmsql.store.subscriptions import SubscriptionChange, SubscriptionDefinition
from jmsql.timings import Timings

if TYPE_CHECKING:
    from jmsql.client.completion import AsynchronousSend
    from jmsql.policies import RedeliveryPolicy
    from jmsql.store.access import Action
    from jmsql.store.receive import Fetch
    from jmsql.store.redelivery import Rules
    from jmsql.store.rows import MessageRow, OutgoingMessage
    from jmsql.store.traffic import Traffic

__all__ = ["AbstractSession"]


class AbstractSession(ABC):
    """Makes messages and the objects that send and receive them."""

    # What an observer is told of it.
    _facts = SessionFacts()
    # Where it is counted what becomes of the messages that it receives, if anywhere.
    _traffic: Traffic | None = None
    # By which messages expire.
    _clock: ServerClock
    _timings: Timings
    # What destinations it has to do with: for each other object, this raises InvalidDestinationException.
    _require_destination: Callable[[object], Destination] = staticmethod(require_destination)

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
            InvalidDestinationException: It is no destination.
        """
        self._check_open()
        return MessageProducer(self._send_operations(), destination)

    def create_consumer(
        self,
        destination: Destination,
        selector: str | None = None,
        *,
        no_local: bool = False,
    ) -> MessageConsumer:
        """Make a consumer of a queue, or of a topic from now until it is closed.

        Args:
            destination: The queue or topic to receive from.
            selector: Which of its messages are wanted; None or "": all.
            no_local: Whether to leave out what this connection publishes. Means nothing for a queue.

        Raises:
            InvalidDestinationException: It is no destination.
            InvalidSelectorException: The selector has an error; the message shows where.
        """
        self._check_open()
        target = self._require_destination(destination)
        if isinstance(target, Topic):
            return self._subscribe_once(target, selector, no_local=no_local)
        return self._receive_from(require_queue(target), selector)

    def _receive_from(self, queue: Queue, selector: str | None) -> QueueReceiver:
        parsed = Selector.parse(selector)
        state = ConsumerState("QueueReceiver", queue, parsed, self._open_inbox(queue, parsed))
        self._consumer_opened(state)
        return QueueReceiver(self._receive_operations(), state)

    def _subscribe_once(self, topic: Topic, selector: str | None, *, no_local: bool) -> TopicSubscriber:
        """Subscribe until the subscriber is closed."""
        return self._subscribe(topic, SubscriptionDefinition(topic.name, Selector.parse(selector), no_local=no_local))

    def create_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, *, no_local: bool = False
    ) -> MessageConsumer:
        """Do what `create_durable_subscriber` does: the newer name."""
        return self.create_durable_subscriber(topic, name, selector, no_local=no_local)

    def create_durable_subscriber(
        self, topic: Topic, name: str, selector: str | None = None, *, no_local: bool = False
    ) -> TopicSubscriber:
        """Make the consumer of a durable subscription, which collects messages while it has no consumer, too.

        The subscription is made if it is not there. With another topic, selector or `no_local` than before it is made
        again: what it had collected is gone, and the log says how many messages that were.

        Args:
            topic: The topic.
            name: The subscription's name, for this client identifier.
            selector: Which of the topic's messages are wanted; None or "": all.
            no_local: Whether to leave out what this client publishes.

        Raises:
            IllegalStateException: The connection has no client identifier; or the subscription has a consumer, or is
                shared.
            InvalidDestinationException: It is not a topic.
            InvalidSelectorException: The selector has an error; the message shows where.
            ValueError: The name is empty.
        """
        definition = SubscriptionDefinition(
            require_topic(topic).name,
            name=_name(name),
            durable=True,
            no_local=no_local,
            client_id=self._own_client_id(),
        )
        return self._subscribe(topic, definition._replace(selector=Selector.parse(selector)))

    def create_shared_consumer(self, topic: Topic, name: str, selector: str | None = None) -> MessageConsumer:
        """Make a consumer that shares a subscription with others: each message goes to one of them.

        The subscription lasts as long as it has consumers.

        Args:
            topic: The topic.
            name: The subscription's name, for this client identifier, if the connection has one.
            selector: Which of the topic's messages are wanted; None or "": all.

        Raises:
            IllegalStateException: The subscription has consumers that want another topic or selector.
            InvalidDestinationException: It is not a topic.
            InvalidSelectorException: The selector has an error; the message shows where.
            ValueError: The name is empty.
        """
        return self._share(topic, name, selector, durable=False)

    def create_shared_durable_consumer(
        self,
        topic: Topic,
        name: str,
        selector: str | None = None,
        *,
        if_changed: SubscriptionChange = SubscriptionChange.DROP,
    ) -> MessageConsumer:
        """Make a consumer that shares a durable subscription with others: each message goes to one of them.

        Args:
            topic: The topic.
            name: The subscription's name, for this client identifier, if the connection has one.
            selector: Which of the topic's messages are wanted; None or "": all.
            if_changed: What happens if the subscription has another topic or selector, and no consumer.

        Raises:
            IllegalStateException: The subscription has consumers that want another topic or selector, or is not
                shared; or it has another topic or selector, and is not to be changed.
            InvalidDestinationException: It is not a topic.
            InvalidSelectorException: The selector has an error; the message shows where.
            ValueError: The name is empty.
        """
        return self._share(topic, name, selector, durable=True, if_changed=if_changed)

    def _share(
        self,
        topic: Topic,
        name: str,
        selector: str | None,
        *,
        durable: bool,
        if_changed: SubscriptionChange = SubscriptionChange.DROP,
    ) -> MessageConsumer:
        definition = SubscriptionDefinition(
            require_topic(topic).name,
            Selector.parse(selector),
            _name(name),
            self._client_id(),
            durable,
            shared=True,
            if_changed=if_changed,
        )
        return self._subscribe(topic, definition)

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
        return QueueBrowser(
            found, Selector.parse(selector), self._queue_id(found, "browse"), self._browse, self._check_open
        )

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether the session is closed. A listener that runs keeps the use of it until it returns."""

    @abstractmethod
    def acknowledge(self) -> None:
        """Acknowledge all that was received, if the session's mode is CLIENT; else do nothing.

        Raises:
            IllegalStateException: The session is closed.
            JMSException: Some of it was taken away meanwhile, and is delivered again; or the server could not be asked.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the session and all that it made. Closing again does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def create_temporary_queue(self) -> TemporaryQueue:
        """Make a queue that lives as long as the connection, for its own consumers: for replies, say."""

    @abstractmethod
    def create_temporary_topic(self) -> TemporaryTopic:
        """Make a topic that lives as long as the connection, for its own consumers."""

    @abstractmethod
    def unsubscribe(self, name: str) -> None:
        """End a durable subscription, with the messages that it has collected.

        Args:
            name: The subscription's name, for the connection's client identifier if it has one.

        Raises:
            InvalidDestinationException: There is no such subscription.
            IllegalStateException: It has a consumer, or messages of it are not acknowledged or committed.
        """

    # For what the session has made

    def _send_operations(self) -> SendOperations:
        return SendOperations(
            self._facts,
            self._clock,
            self._check_open,
            self._require_destination,
            self._will_send_to,
            self._send,
            self._send_asynchronously,
            self._complete_sends,
        )

    def _receive_operations(self) -> ReceiveOperations:
        return ReceiveOperations(
            self._check_open,
            self._follow_receive,
            self._set_listener,
            self._redelivery_rules,
            self._consumer_closed,
        )

    def _check_open(self) -> None:
        if self.closed:
            raise IllegalStateException("The session is closed.")

    def _open_inbox(self, queue: Queue, selector: Selector | None) -> Inbox:
        """Make what a consumer fetches messages into."""
        return Inbox(
            self._queue_id(queue, "receive"),
            selector,
            self._fetch_operation(),
            self._wake,
            queue,
            traffic=self._traffic,
            clock=self._clock,
            timings=self._timings,
        )

    @abstractmethod
    def _queue_id(self, queue: Queue, action: Action) -> int:
        """Return the queue's id, making the queue if need be."""

    @abstractmethod
    def _subscribe(self, topic: Topic, subscription: SubscriptionDefinition) -> TopicSubscriber:
        """Make a consumer of a subscription, and the subscription if need be."""

    @abstractmethod
    def _client_id(self) -> str | None:
        """Return the client identifier."""

    def _own_client_id(self) -> str:
        client_id = self._client_id()
        if client_id is None:
            raise IllegalStateException(
                "A durable subscription belongs to a client identifier. Set the connection's client_id first, or use "
                "create_shared_durable_consumer."
            )
        return client_id

    @abstractmethod
    def _will_send_to(self, destination: Destination) -> None:
        """Make the destination if need be, as messages are going to be sent to it."""

    @abstractmethod
    def _send(self, destination: Destination, message: OutgoingMessage) -> None:
        """Send a message, now or with the commit."""

    @abstractmethod
    def _send_asynchronously(self, send: AsynchronousSend) -> None:
        """Have a message sent, and its listener told, without waiting for it."""

    @abstractmethod
    def _complete_sends(self, method: str) -> None:
        """Wait until all listeners of asynchronous sends have returned.

        Args:
            method: What is called that waits, and that such a listener itself may not call.

        Raises:
            IllegalStateException: The caller is such a listener.
        """

    @abstractmethod
    def _fetch_operation(self) -> Fetch:
        """Return how consumers without a listener take messages from the store."""

    @abstractmethod
    def _receive(
        self, consumer: ConsumerState, timeout: float | None, check: MessageCheck | None = None
    ) -> Message | None:
        """Return the consumer's next message, or None after `timeout` seconds.

        Args:
            consumer: The consumer.
            timeout: How many seconds to wait; None: for ever.
            check: Called with the message. If it raises an exception in a session that acknowledges by itself, the
                message is not received; in the others, it is.
        """

    def _follow_receive(
        self, consumer: ConsumerState, timeout: float | None, check: MessageCheck | None
    ) -> Message | None:
        """Do what `_receive` does, and let the observer, if there is one, follow it."""
        follower = observation.observer
        if follower is None:
            return self._receive(consumer, timeout, check)
        subscription = None if consumer.subscription is None else consumer.subscription.name
        return follower.receive(
            self._facts, consumer.destination, subscription, lambda: self._receive(consumer, timeout, check)
        )

    @abstractmethod
    def _browse(self, queue_id: int, selector: Selector | None, after: tuple[int, int], limit: int) -> list[MessageRow]:
        """Read messages of a queue after a key."""

    @abstractmethod
    def _set_listener(self, consumer: ConsumerState, listener: MessageListener | None) -> None:
        """Give the consumer's messages to a listener from now on."""

    @abstractmethod
    def _redelivery_rules(self, policy: RedeliveryPolicy) -> Rules:
        """Return what a consumer's policy means, making its dead-letter queue if need be."""

    @abstractmethod
    def _consumer_opened(self, consumer: ConsumerState) -> None:
        """Note that there is a new consumer."""

    @abstractmethod
    def _consumer_closed(self, consumer: ConsumerState) -> None:
        """Note that the consumer is closed."""

    @abstractmethod
    def _wake(self) -> None:
        """Look again, in whatever thread waits: something has happened."""


def _name(name: str) -> str:
    if not name:
        raise ValueError("A subscription's name has at least one character.")
    return name
