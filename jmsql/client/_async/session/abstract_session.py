"""What all sessions have in common: they make messages, producers, consumers and browsers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from jmsql.client._async.exchange.browser import QueueBrowser
from jmsql.client._async.exchange.consumer import MessageConsumer, QueueReceiver, ReceiveOperations, TopicSubscriber
from jmsql.client._async.exchange.producer import MessageProducer, SendOperations
from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.consumer_state import ConsumerState
from jmsql.concurrency.tasks import opens
from jmsql.exceptions import IllegalStateException
from jmsql.messages import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from jmsql.selectors import Selector
from jmsql.store.destinations.subscriptions import SubscriptionChange, SubscriptionDefinition
from jmsql.values.destinations import (
    Destination,
    Queue,
    TemporaryQueue,
    TemporaryTopic,
    Topic,
    require_destination,
    require_queue,
    require_topic,
)


class AbstractSession(ABC):
    """Makes messages and the objects that send and receive them."""

    _sending: SendOperations
    _receiving: ReceiveOperations
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

    @opens
    async def create_producer(self, destination: Destination | None = None) -> MessageProducer:
        """Make a producer.

        Args:
            destination: Where it sends to; None: each send names its own destination.

        Raises:
            InvalidDestinationException: It is no destination.
        """
        self._check_open()
        return await MessageProducer.open(self._sending, self._require_destination, destination)

    def unidentified_producer(self) -> MessageProducer:
        """Make a producer that has no destination of its own: each send names one."""
        self._check_open()
        return MessageProducer(self._sending, self._require_destination, None)

    @opens
    async def create_consumer(
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
            return await self._subscribe_once(target, selector, no_local=no_local)
        return await self._receive_from(require_queue(target), selector)

    async def _receive_from(self, queue: Queue, selector: str | None) -> QueueReceiver:
        parsed = Selector.parse(selector)
        state = ConsumerState("QueueReceiver", queue, parsed, await self._receiving.open_buffer(queue, parsed))
        await self._receiving.consumer_opened(state)
        return QueueReceiver(self._receiving, state)

    async def _subscribe_once(self, topic: Topic, selector: str | None, *, no_local: bool) -> TopicSubscriber:
        """Subscribe until the subscriber is closed."""
        return await self._subscribe(
            topic, SubscriptionDefinition(topic.name, Selector.parse(selector), no_local=no_local)
        )

    async def _subscribe(self, topic: Topic, subscription: SubscriptionDefinition) -> TopicSubscriber:
        self._check_open()
        return TopicSubscriber(self._receiving, await self._receiving.subscribe(topic, subscription))

    @opens
    async def create_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, *, no_local: bool = False
    ) -> MessageConsumer:
        """Do what `create_durable_subscriber` does: the newer name."""
        return await self.create_durable_subscriber(topic, name, selector, no_local=no_local)

    @opens
    async def create_durable_subscriber(
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
        self._check_open()
        target, subscription_name, client_id = require_topic(topic), _name(name), self._receiving.client_id
        if client_id is None:
            raise IllegalStateException(
                "A durable subscription belongs to a client identifier. Set the connection's client_id first, or use "
                "create_shared_durable_consumer."
            )
        definition = SubscriptionDefinition(
            target.name, Selector.parse(selector), subscription_name, client_id, durable=True, no_local=no_local
        )
        return await self._subscribe(target, definition)

    @opens
    async def create_shared_consumer(self, topic: Topic, name: str, selector: str | None = None) -> MessageConsumer:
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
        return await self._share(topic, name, selector, durable=False)

    @opens
    async def create_shared_durable_consumer(
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
        return await self._share(topic, name, selector, durable=True, if_changed=if_changed)

    async def _share(
        self,
        topic: Topic,
        name: str,
        selector: str | None,
        *,
        durable: bool,
        if_changed: SubscriptionChange = SubscriptionChange.DROP,
    ) -> MessageConsumer:
        self._check_open()
        definition = SubscriptionDefinition(
            require_topic(topic).name,
            Selector.parse(selector),
            _name(name),
            self._receiving.client_id,
            durable,
            shared=True,
            if_changed=if_changed,
        )
        return await self._subscribe(topic, definition)

    @opens
    async def create_browser(self, queue: Queue, selector: str | None = None) -> QueueBrowser:
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
            found,
            Selector.parse(selector),
            await self._receiving.queue_id(found, "browse"),
            self._receiving.browse,
            self._receiving.check_open,
        )

    @property
    @abstractmethod
    def transacted(self) -> bool:
        """Whether the session works in transactions."""

    @property
    @abstractmethod
    def acknowledge_mode(self) -> AcknowledgeMode:
        """How the session acknowledges what it has received."""

    @abstractmethod
    async def commit(self) -> None:
        """Commit the session's transaction."""

    @abstractmethod
    async def rollback(self, error: BaseException | str | None = None) -> None:
        """Roll the session's transaction back."""

    @abstractmethod
    async def recover(self, error: BaseException | str | None = None) -> None:
        """Deliver what was received and not acknowledged again."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether the session is closed. A listener that runs keeps the use of it until it returns."""

    @abstractmethod
    async def acknowledge(self) -> None:
        """Acknowledge all that was received, if the session's mode is CLIENT; else do nothing.

        Raises:
            IllegalStateException: The session is closed.
            JMSException: Some of it was taken away meanwhile, and is delivered again; or the server could not be asked.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close the session and all that it made. Closing again does nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @abstractmethod
    async def create_temporary_queue(self) -> TemporaryQueue:
        """Make a queue that lives as long as the connection, for its own consumers: for replies, say."""

    @abstractmethod
    async def create_temporary_topic(self) -> TemporaryTopic:
        """Make a topic that lives as long as the connection, for its own consumers."""

    @abstractmethod
    async def unsubscribe(self, name: str) -> None:
        """End a durable subscription, with the messages that it has collected.

        Args:
            name: The subscription's name, for the connection's client identifier if it has one.

        Raises:
            InvalidDestinationException: There is no such subscription.
            IllegalStateException: It has a consumer, or messages of it are not acknowledged or committed.
        """

    def _check_open(self) -> None:
        if self.closed:
            raise IllegalStateException("The session is closed.")


def _name(name: str) -> str:
    if not name:
        raise ValueError("A subscription's name has at least one character.")
    return name
