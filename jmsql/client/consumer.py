"""Receiving messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from jmsql.client import observation
from jmsql.destinations import Queue, Topic
from jmsql.duration import seconds
from jmsql.exceptions import IllegalStateException
from jmsql.messages import Message
from jmsql.policies import claim_duration

if TYPE_CHECKING:
    from jmsql.client.abstract_session import AbstractSession
    from jmsql.client.inbox import Inbox
    from jmsql.destinations import Destination
    from jmsql.policies import RedeliveryPolicy
    from jmsql.selectors import Selector
    from jmsql.store.subscriptions import SubscriptionDefinition

__all__ = [
    "MessageCheck",
    "MessageConsumer",
    "MessageListener",
    "OnMessage",
    "QueueReceiver",
    "TopicSubscriber",
    "call_listener",
    "require_listener",
]


class OnMessage(Protocol):
    """An object that messages can be given to."""

    def on_message(self, message: Message, /) -> object:
        """Handle a message."""


MessageListener = Callable[[Message], object] | OnMessage
"""What messages are given to: a callable, or an object with `on_message`."""


MessageCheck = Callable[[Message], object]
"""Raises an exception if a message is not what its receiver wants."""


def require_listener(listener: object) -> None:
    """Make sure that messages can be given to `listener`.

    Raises:
        TypeError: It is no callable and has no `on_message`.
    """
    if not callable(listener) and not callable(getattr(listener, "on_message", None)):
        raise TypeError(f"A message listener is a callable or has on_message(message), unlike {listener!r}.")


def call_listener(listener: MessageListener, message: Message) -> None:
    """Give a message to a listener."""
    if callable(listener):
        listener(message)
    else:
        listener.on_message(message)


class MessageConsumer:
    """Receives the messages of a queue or of a subscription to a topic (JMS 1.1, chapter 4.5).

    Made by [`Session.create_consumer`][jmsql.Session.create_consumer] and its relatives, as a
    [`QueueReceiver`][jmsql.domains.QueueReceiver] or a [`TopicSubscriber`][jmsql.domains.TopicSubscriber]. It is an
    iterable of the messages, which waits for each and ends when the consumer is closed.
    """

    def __init__(
        self,
        session: AbstractSession,
        destination: Destination,
        selector: Selector | None,
        inbox: Inbox,
    ) -> None:
        self._session = session
        self._destination = destination
        self._selector = selector
        self._inbox = inbox
        self._listener: MessageListener | None = None
        self._closed = False

    @property
    def destination(self) -> Destination:
        """The queue or topic that messages come from."""
        self._check_open()
        return self._destination

    @property
    def message_selector(self) -> str | None:
        """The selector's text, or None if every message is wanted.

        Raises:
            IllegalStateException: The consumer is closed.
        """
        self._check_open()
        return None if self._selector is None else self._selector.text

    @property
    def message_listener(self) -> MessageListener | None:
        """What messages are given to as they come, on a thread of the session's; None while `receive` is used.

        A session calls its listeners one at a time. When a listener raises, the message is delivered again in AUTO and
        DUPS_OK sessions: at once, then after ever longer pauses, until it moves to the dead-letter queue. In the other
        sessions the next message comes, and the session decides by `commit`, `rollback`, `recover` or `acknowledge`.

        Raises:
            IllegalStateException: The consumer is closed.
            TypeError: The listener is no callable and has no `on_message`.
        """
        self._check_open()
        return self._listener

    @message_listener.setter
    def message_listener(self, listener: MessageListener | None) -> None:
        self._check_open()
        if listener is not None:
            require_listener(listener)
        self._session._set_listener(self, listener)

    @property
    def redelivery_policy(self) -> RedeliveryPolicy | None:
        """What holds for messages of this consumer whose deliveries fail, instead of what is set for the destination.

        None: what is set for the destination, or else `default_redelivery_policy`.

        Raises:
            IllegalStateException: The consumer is closed, or of a session in the caller's transaction.
        """
        self._check_open()
        rules = self._inbox.policy.rules
        return None if rules is None else rules.policy

    @redelivery_policy.setter
    def redelivery_policy(self, policy: RedeliveryPolicy | None) -> None:
        self._check_open()
        self._inbox.policy.rules = None if policy is None else self._session._redelivery_rules(policy)

    @property
    def default_redelivery_policy(self) -> RedeliveryPolicy | None:
        """What holds for messages whose deliveries fail where neither consumer nor destination has a policy.

        Raises:
            IllegalStateException: The consumer is closed, or of a session in the caller's transaction.
        """
        self._check_open()
        rules = self._inbox.policy.default
        return None if rules is None else rules.policy

    @default_redelivery_policy.setter
    def default_redelivery_policy(self, policy: RedeliveryPolicy | None) -> None:
        self._check_open()
        self._inbox.policy.default = None if policy is None else self._session._redelivery_rules(policy)

    @property
    def claim_time_limit(self) -> float | None:
        """For how many seconds (or a `timedelta`) messages are claimed in sessions that are not transacted.

        A message that is not acknowledged in time is delivered again, to whoever comes first, and its acknowledgement
        then fails. While a listener runs, its claim is extended. None: what is set for the destination, or else no
        limit: messages are claimed for as long as the client lives.

        Raises:
            IllegalStateException: The consumer is closed.
            ValueError: It is less than a second.
        """
        self._check_open()
        return self._inbox.policy.claim_time_limit

    @claim_time_limit.setter
    def claim_time_limit(self, limit: float | timedelta | None) -> None:
        self._check_open()
        self._inbox.policy.claim_time_limit = None if limit is None else claim_duration(limit)

    def receive(self, timeout: float | timedelta | None = None) -> Message | None:
        """Return the next message, waiting for it if need be.

        Args:
            timeout: At most how long to wait: seconds, or a `timedelta`. None waits for ever, 0 does not wait. (In
                Java 0 waits for ever.) The time runs on while the connection is stopped.

        Returns:
            The message; None if none came in time, or the consumer was closed meanwhile.

        Raises:
            IllegalStateException: The consumer is closed, or has a listener.
            JMSException: The server could not be asked.
        """
        return self._receive_checked(timeout, None)

    def _receive_checked(self, timeout: float | timedelta | None, check: MessageCheck | None) -> Message | None:
        """Do what `receive` does with a message that may turn out not to be wanted; see `AbstractSession._receive`."""
        self._check_open()
        if self._listener is not None:
            raise IllegalStateException("The consumer has a message listener; remove it before calling receive.")
        return self._receive(None if timeout is None else seconds(timeout, "timeout"), check)

    def receive_no_wait(self) -> Message | None:
        """Return the next message if one is there now, else None."""
        return self.receive(0)

    def __iter__(self) -> Iterator[Message]:
        message = self.receive()
        while message is not None:
            yield message
            message = self._receive(None)

    def _receive(self, timeout: float | None, check: MessageCheck | None = None) -> Message | None:
        follower = observation.observer
        if follower is None:
            return self._session._receive(self, timeout, check)
        return follower.receive(self, lambda: self._session._receive(self, timeout, check))

    def _take(self, timeout: float | None) -> Message | None:
        """Do what `receive` does, whoever follows messages."""
        return self._session._receive(self, timeout)

    def close(self) -> None:
        """Stop receiving. A `receive` that waits ends with None; closing again does nothing.

        Messages that were received stay with the session: they can still be acknowledged, committed or rolled back.
        """
        if not self._closed:
            self._closed = True
            self._session._consumer_closed(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        selector = "" if self._selector is None else f" selector={self._selector.text!r}"
        return f"<{type(self).__name__} {self._destination}{selector}{' closed' if self._closed else ''}>"

    def _check_open(self) -> None:
        self._session._check_open()
        if self._closed:
            raise IllegalStateException("The consumer is closed.")


class QueueReceiver(MessageConsumer):
    """Receives the messages of a queue (JMS 1.1, chapter 5.8)."""

    _destination: Queue

    @property
    def queue(self) -> Queue:
        """The queue that messages come from.

        Raises:
            IllegalStateException: The receiver is closed.
        """
        self._check_open()
        return self._destination


class TopicSubscriber(MessageConsumer):
    """Receives the messages of a subscription to a topic (JMS 1.1, chapter 6.11)."""

    _destination: Topic

    def __init__(
        self, session: AbstractSession, topic: Topic, inbox: Inbox, subscription: SubscriptionDefinition
    ) -> None:
        super().__init__(session, topic, subscription.selector, inbox)
        self._subscription = subscription

    @property
    def topic(self) -> Topic:
        """The topic that messages come from.

        Raises:
            IllegalStateException: The subscriber is closed.
        """
        self._check_open()
        return self._destination

    @property
    def no_local(self) -> bool:
        """Whether messages that its own connection has published, or its own client if it is durable, are left out.

        Raises:
            IllegalStateException: The subscriber is closed.
        """
        self._check_open()
        return self._subscription.no_local
