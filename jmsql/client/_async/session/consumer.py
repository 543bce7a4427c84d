"""Consumers as applications have them: of a session, of one destination; `receiving.py` finds the messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, cast

from jmsql.client import instrumentation
from jmsql.client.consumer_state import ConsumerState
from jmsql.client.listeners import MessageCheck, MessageListener, function_of
from jmsql.concurrency import settable
from jmsql.concurrency.tasks import check_function, run_detached
from jmsql.exceptions import IllegalStateException, MessageFormatException
from jmsql.messages import Message
from jmsql.public_names import set_module
from jmsql.values.destinations import Queue, Topic
from jmsql.values.duration import seconds
from jmsql.values.policies import claim_duration

if TYPE_CHECKING:
    from jmsql.client._async.session.receiving import Receiving
    from jmsql.store.receiving.redelivery import Rules
    from jmsql.values.destinations import Destination
    from jmsql.values.policies import RedeliveryPolicy


# The shortest way of a message is in `receive`: if a message was fetched before and no instrumentation is installed,
# `pop_buffered` returns it without a wait or a statement. All else goes by `Receiving.receive`.
# tests/integration/client/test_walk.py counts the functions of both ways.


T = TypeVar("T")


@set_module("jmsql.asyncio")
class MessageConsumer:
    """Receives the messages of a queue or of a subscription to a topic (JMS 1.1, chapter 4.5).

    Made by [`Session.create_consumer`][jmsql.Session.create_consumer] and its relatives, as a
    [`QueueReceiver`][jmsql.domains.QueueReceiver] or a [`TopicSubscriber`][jmsql.domains.TopicSubscriber]. It is an
    iterable of the messages, which waits for each and ends when the consumer is closed.
    """

    def __init__(self, receiving: Receiving, state: ConsumerState) -> None:
        self._receiving = receiving
        self._state = state

    @property
    def destination(self) -> Destination:
        """The queue or topic that messages come from."""
        self._check_open()
        return self._state.destination

    @property
    def message_selector(self) -> str | None:
        """The selector's text, or None if every message is received.

        Raises:
            IllegalStateException: The consumer is closed.
        """
        self._check_open()
        selector = self._state.selector
        return None if selector is None else selector.text

    @property
    @settable
    def message_listener(self) -> MessageListener | None:
        """The listener that is called with each message, on a thread of its session; None while `receive` is used.

        A session calls its listeners one at a time. When a listener raises, the message is delivered again in AUTO and
        DUPS_OK sessions: at once, then after ever longer pauses, until it moves to the dead-letter queue. In the other
        sessions the next message comes, and the session decides by `commit`, `rollback`, `recover` or `acknowledge`.

        Setting it is the same as `set_message_listener`.

        Raises:
            IllegalStateException: The consumer is closed.
        """
        self._check_open()
        return self._state.listener

    async def set_message_listener(self, listener: MessageListener | None) -> None:
        """Have a listener called with the messages from now on (JMS 1.1, chapter 4.5.2).

        Messages that were fetched ahead for `receive` are released first.

        Args:
            listener: A callable, or an object with `on_message`; None: `receive` is used from now on.

        Raises:
            IllegalStateException: The consumer is closed, or the session has a listener for connection consumers.
            TypeError: The listener is no callable and has no `on_message`, or is a generator function, whose calls run
                nothing; with threads, also a coroutine function.
            JMSException: The server could not be asked.
        """
        self._check_open()
        if listener is not None:
            check_function(function_of(listener))
        await self._receiving.set_listener(self._state, listener)

    @property
    @settable
    def redelivery_policy(self) -> RedeliveryPolicy | None:
        """The redelivery policy of this consumer, in place of that of the destination.

        None: that of the destination, or else `default_redelivery_policy`. Setting it is the same as
        `set_redelivery_policy`.

        Raises:
            IllegalStateException: The consumer is closed, or of a session in the caller's transaction.
        """
        self._check_open()
        rules = self._state.buffer.policy.rules
        return None if rules is None else rules.policy

    async def set_redelivery_policy(self, policy: RedeliveryPolicy | None) -> None:
        """Set the redelivery policy of this consumer.

        Args:
            policy: The policy, in place of the destination's; None: the destination's.

        Raises:
            IllegalStateException: The consumer is closed, or of a session in the caller's transaction.
            JMSSecurityException: The role may not send to the policy's dead-letter queue, nor is it the destination's.
            JMSException: The server could not be asked.
        """
        self._check_open()
        rules = None if policy is None else await self._rules_of(policy)
        buffer = self._state.buffer
        buffer.use(buffer.policy._replace(rules=rules))

    @property
    @settable
    def default_redelivery_policy(self) -> RedeliveryPolicy | None:
        """The redelivery policy where neither consumer nor destination has one.

        Setting it is the same as `set_default_redelivery_policy`.

        Raises:
            IllegalStateException: The consumer is closed, or of a session in the caller's transaction.
        """
        self._check_open()
        rules = self._state.buffer.policy.default
        return None if rules is None else rules.policy

    async def set_default_redelivery_policy(self, policy: RedeliveryPolicy | None) -> None:
        """Set the redelivery policy for the case that neither consumer nor destination has one.

        Args:
            policy: The policy, or None for no policy.

        Raises:
            IllegalStateException: The consumer is closed, or of a session in the caller's transaction.
            JMSSecurityException: The role may not send to the policy's dead-letter queue, nor is it the destination's.
            JMSException: The server could not be asked.
        """
        self._check_open()
        default = None if policy is None else await self._rules_of(policy)
        buffer = self._state.buffer
        buffer.use(buffer.policy._replace(default=default))

    async def _rules_of(self, policy: RedeliveryPolicy) -> Rules:
        return await self._receiving.redelivery_rules(policy, self._state.buffer.source.queue_id)

    @property
    def visibility_timeout(self) -> float | None:
        """For how many seconds (or a `timedelta`) messages are claimed in sessions that are not transacted.

        A message that is not acknowledged in time is delivered again, to the first consumer that asks, and its
        acknowledgement then fails. While a listener runs, its claim is extended. None: that of the
        destination, or else no limit: messages are claimed for as long as the client lives.

        Raises:
            IllegalStateException: The consumer is closed.
            ValueError: It is less than a second.
        """
        self._check_open()
        return self._state.buffer.policy.visibility_timeout

    @visibility_timeout.setter
    def visibility_timeout(self, limit: float | timedelta | None) -> None:
        self._check_open()
        visibility_timeout = None if limit is None else claim_duration(limit)
        buffer = self._state.buffer
        buffer.use(buffer.policy._replace(visibility_timeout=visibility_timeout))

    async def receive(self, timeout: float | timedelta | None = None) -> Message | None:
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
        state = self._state
        if state.closed or state.listener is not None:
            self._check_no_listener()
        wait = None if timeout is None else seconds(timeout, "timeout")
        if instrumentation.active is not None:
            return await self._receive(wait)
        if state.buffer.held.rows:  # as it mostly is in a transaction
            message = self._receiving.pop_buffered(state)
            if message is not None:
                return message
        return await self._receiving.receive(state, wait, None)

    async def receive_no_wait(self) -> Message | None:
        """Return the next message if one is there now, else None."""
        return await self.receive(0)

    async def receive_body(self, body_type: type[T], timeout: float | timedelta | None = None) -> T | None:
        """Return the next message's body, or None if none came in time, or the consumer was closed meanwhile.

        Args:
            body_type: The type that the body is expected to have, as in [`Message.get_body`][jmsql.Message.get_body].
            timeout: At most how long to wait: seconds, or a `timedelta`. None waits for ever, 0 does not wait.

        Raises:
            MessageFormatException: The message has no body, or one of another type, or one that cannot be decoded, or
                is a StreamMessage. In AUTO and DUPS_OK sessions it is then as if the call had not been made: the same
                message comes next, as one that was not delivered before. In CLIENT sessions and in transactions it
                counts as received, and comes again after `recover` or `rollback`.
            IllegalStateException: The consumer is closed, or has a listener.
            JMSException: The server could not be asked.
        """
        bodies: list[T] = []
        self._check_no_listener()
        await self._receive(
            None if timeout is None else seconds(timeout, "timeout"),
            lambda message: bodies.append(_body_of(message, body_type)),
        )
        return bodies[0] if bodies else None

    async def __aiter__(self) -> AsyncIterator[Message]:
        message = await self.receive()
        while message is not None:
            yield message
            try:
                message = await self._receive(None)
            except IllegalStateException:
                if not self._receiving.closed:
                    raise
                return  # closed while the application had the message, which ends the iteration as well

    def _check_no_listener(self) -> None:
        self._check_open()
        if self._state.listener is not None:
            raise IllegalStateException("The consumer has a message listener; remove it before calling receive.")

    async def _receive(self, timeout: float | None, check: MessageCheck | None = None) -> Message | None:
        receiving, state = self._receiving, self._state
        follower, followed = instrumentation.active, receiving.followed
        if follower is None or followed is None:
            message = receiving.pop_buffered(state) if check is None and state.buffer.held.rows else None
            return await receiving.receive(state, timeout, check) if message is None else message
        subscription = None if state.subscription is None else state.subscription.name
        with follower.receiving(followed, state.destination, subscription) as received:
            message = await receiving.receive(state, timeout, check)
            received(message)
            return message

    async def close(self) -> None:
        """Stop receiving. A `receive` that waits ends with None, one that is fetching a message returns it.

        Closing again does nothing.

        Messages that were received stay with the session: they can still be acknowledged, committed or rolled back.
        """
        if not self._state.closed:
            self._state.close()
            await run_detached(self._receiving.consumer_closed(self._state))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self._state)

    def _check_open(self) -> None:
        self._receiving.check_open()
        if self._state.closed:
            raise IllegalStateException("The consumer is closed.")


@set_module("jmsql.asyncio.domains")
class QueueReceiver(MessageConsumer):
    """Receives the messages of a queue (JMS 1.1, chapter 5.8)."""

    @property
    def queue(self) -> Queue:
        """The queue that messages come from.

        Raises:
            IllegalStateException: The receiver is closed.
        """
        self._check_open()
        return cast("Queue", self._state.destination)


@set_module("jmsql.asyncio.domains")
class TopicSubscriber(MessageConsumer):
    """Receives the messages of a subscription to a topic (JMS 1.1, chapter 6.11)."""

    @property
    def topic(self) -> Topic:
        """The topic that messages come from.

        Raises:
            IllegalStateException: The subscriber is closed.
        """
        self._check_open()
        return cast("Topic", self._state.destination)

    @property
    def no_local(self) -> bool:
        """True if messages that its own connection has published, or its own client if it is durable, are left out.

        Raises:
            IllegalStateException: The subscriber is closed.
        """
        self._check_open()
        subscription = self._state.subscription
        return subscription is not None and subscription.no_local


def _body_of(message: Message, body_type: type[T]) -> T:
    body = message.get_body(body_type)
    if body is None:
        raise MessageFormatException(f"The {type(message).__name__} {message.jms_message_id} has no body to return.")
    return body
