"""The consumers of a session, and what their `receive` returns."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from jmsql.client.consumer_state import ConsumerState
from jmsql.client.prefetch_buffer import PrefetchBuffer, QueueChanges, QueueSource
from jmsql.concurrency import ASYNC
from jmsql.concurrency.tasks import at_once, finished, uninterrupted
from jmsql.exceptions import IllegalStateException, InvalidDestinationException, JMSException
from jmsql.values.clock import monotonic
from jmsql.values.destinations import TemporaryTopic

if TYPE_CHECKING:
    from jmsql.client._async.session.dispatcher import Dispatcher
    from jmsql.client._async.session.session_state import SessionState
    from jmsql.client._async.session.transactions.transaction import Transaction
    from jmsql.client._async.session.waiting import Waiting
    from jmsql.client._async.shared.client_context import ClientContext
    from jmsql.client.instrumentation import SessionFacts
    from jmsql.client.listeners import MessageCheck, MessageListener
    from jmsql.messages import Message
    from jmsql.selectors import Selector
    from jmsql.store.control.wake_ups import Look
    from jmsql.store.destinations.access import Action
    from jmsql.store.destinations.subscriptions import SubscriptionDefinition
    from jmsql.store.receiving.redelivery import Rules
    from jmsql.store.rows.message_rows import MessageRow
    from jmsql.values.destinations import Destination, Queue, Topic
    from jmsql.values.policies import RedeliveryPolicy


logger = logging.getLogger("jmsql")


def _remaining(deadline: float | None) -> float | None:
    """Return for how many seconds more to wait; None: for ever."""
    return None if deadline is None else max(deadline - monotonic(), 0.0)


class Receiving:
    """The consumers and browsers of one session, and the way of their messages.

    In the application's transaction it has neither a `client` nor a `dispatcher`, and so no listeners.
    """

    def __init__(
        self,
        state: SessionState,
        transaction: Transaction,
        client: ClientContext | None = None,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        self.followed: SessionFacts | None = state.facts
        """What the instrumentation of `receive` is told of the session; None: calls are not told."""
        self._state = state
        self._client = state.client
        self._transaction = transaction
        self._own = client
        self._wake_ups = None if client is None else client.control.wake_ups
        self._longest_trust = state.client.timings.minimum_poll_interval / 2
        """For how many seconds a consumer trusts another one that has seen the end."""
        self._dispatcher = dispatcher

    @property
    def closed(self) -> bool:
        """Whether the session is closed."""
        return self._state.closed

    def check_open(self) -> None:
        """Raise IllegalStateException if the session is closed."""
        self._state.check_open()

    @property
    def connection(self) -> ClientContext:
        """The session's connection.

        Raises:
            IllegalStateException: It works in the application's transaction.
        """
        if self._own is None:
            raise IllegalStateException(
                "Subscriptions and temporary destinations belong to a connection of jmsql's, which a session in your "
                "transaction does not have. Make one with ConnectionFactory.create_connection."
            )
        return self._own

    async def queue_id(self, queue: Queue, action: Action) -> int:
        """Return the queue's id, making the queue if need be."""
        return await self._transaction.queue_id(queue, action)

    async def open_buffer(self, queue: Queue, selector: Selector | None) -> PrefetchBuffer:
        """Make what a consumer fetches messages into."""
        return self.buffer(await self.queue_id(queue, "receive"), selector, queue)

    def buffer(
        self, queue_id: int, selector: Selector | None, destination: Destination, topic_id: int | None = None
    ) -> PrefetchBuffer:
        client, fetch = self._client, self._transaction.fetch_for(None)
        interval = client.timings.sweep_interval
        source = QueueSource(queue_id, selector, fetch, destination, topic_id, interval, QueueChanges())
        return PrefetchBuffer(source, client.counters, client.clock, client.timings)

    async def subscribe(self, topic: Topic, subscription: SubscriptionDefinition) -> ConsumerState:
        """Make a consumer of a subscription, and the subscription if need be."""
        connection = self.connection
        connection.destinations.require_own(topic)
        if subscription.durable and isinstance(topic, TemporaryTopic):
            raise InvalidDestinationException(f"{topic} is temporary; a durable subscription would outlive it.")
        topic_id = await connection.destinations.find(topic)

        async def create_subscriber(queue_id: int) -> ConsumerState:
            buffer = self.buffer(queue_id, None, topic, topic_id)
            subscriber = ConsumerState("TopicSubscriber", topic, subscription.selector, buffer, subscription)
            await self.consumer_opened(subscriber)
            return subscriber

        async with self._state:
            with uninterrupted():
                return await connection.subscription_registry.join(subscription, create_subscriber)

    async def consumer_opened(self, consumer: ConsumerState) -> None:
        """Note that there is a new consumer."""
        async with self._state:
            self._state.consumers.add(consumer)
        await self._transaction.opened(consumer)

    async def consumer_closed(self, consumer: ConsumerState) -> None:
        """Note that a consumer is closed."""
        state = self._state
        state.notifications.notify()
        async with state.lock:
            if consumer not in state.consumers:
                return  # the session has closed, and parted with it
            if not state.closed:
                try:
                    await self._transaction.settle()
                except JMSException as error:
                    logger.warning("Closing %r: %s", consumer, error)
                await self._transaction.closed(consumer)
            state.consumers.remove(consumer)
            await self._leave(consumer)

    async def _leave(self, consumer: ConsumerState) -> None:
        if self._own is not None:
            await self._own.subscription_registry.leave(consumer)

    async def part_with_all(self) -> None:
        """Close all consumers, as the session does."""
        while self._state.consumers:
            await self._leave(self._state.consumers.pop())

    async def receive(
        self, consumer: ConsumerState, timeout: float | None, check: MessageCheck | None
    ) -> Message | None:
        """Return the consumer's next message, or None after `timeout` seconds.

        Args:
            consumer: The consumer.
            timeout: How many seconds to wait; None: for ever.
            check: Called with the message. If it raises an exception in a session that acknowledges by itself, the
                message is not received; in the others, it is.

        Raises:
            IllegalStateException: The session is closed.
        """
        state, client, transaction, buffer = self._state, self._client, self._transaction, consumer.buffer
        if state.closed or state.home is not None:
            state.check_open()
        if not transaction.is_usable:
            transaction.check_usable()
        if state.message_listener is not None:
            state.check_no_message_listener()
        deadline = None if timeout is None else monotonic() + timeout
        wake_ups = self._wake_ups
        buffer.looks_again = timeout is None or timeout >= client.timings.maximum_poll_interval
        watch: Waiting | None = None  # most find a message before they need one
        try:
            while True:
                news = state.notifications.count
                look: Look | None = None
                async with state.lock if state.listener is None else state:
                    if consumer.closed or (state.closed and not state.is_used_by_listener):
                        return None
                    started = client.started
                    is_delivering = started and transaction.is_usable
                    if is_delivering:
                        if wake_ups is not None:
                            look = wake_ups.look(buffer.source.competition, buffer.source.channels)
                        if (
                            look is None
                            or wake_ups is None
                            or not wake_ups.would_find_nothing(look, self._longest_trust)
                            or not self._trusts_others(buffer)
                        ):
                            message, look = await self._look(consumer, check, look, deadline if timeout else None)
                            if message is not None:
                                if watch is not None:
                                    watch.looked(found=True)
                                return message
                if state.closed or client.closed:
                    return None  # a listener gets waiting messages, and does not make close() wait for more
                pause = None if started else client.start_reminder.remind(consumer)
                if pause is None and buffer.policy.throttle is not None:
                    pause = buffer.policy.throttle.seconds_to_next
                remaining = _remaining(deadline)
                if remaining == 0:
                    return None
                if watch is None:
                    watch = transaction.watch(consumer)
                watch.begin(news, [buffer] if is_delivering else [], look)
                await watch.wait(remaining if pause is None or (remaining is not None and remaining < pause) else pause)
        finally:
            if watch is not None:
                watch.close()

    def _trusts_others(self, buffer: PrefetchBuffer) -> bool:
        """Whether its own look can find no more than that of one that competes, which has just seen the end."""
        return (
            buffer.looks_again
            and self.connection.control.is_attentive
            and buffer.is_unchanged
            and self._transaction.is_settled
        )

    async def _look(
        self,
        consumer: ConsumerState,
        check: MessageCheck | None,
        look: Look | None,
        deadline: float | None,  # noqa: ARG002 - threads wait for their connections
    ) -> tuple[Message | None, Look | None]:
        """Return the consumer's next message, if there is one now and the session has a connection by the deadline.

        Returns:
            The message, and the look, which may have begun later than the given one.
        """
        database, buffer, wake_ups = self._transaction.database, consumer.buffer, self._wake_ups
        if database is None or wake_ups is None or look is None:  # the connection is the application's
            return await self._transaction.next(consumer, check), None
        turn = database.turn if database.shares_connections else None
        if turn is not None:
            await turn.acquire()
        try:
            would_find_nothing = False
            if ASYNC:
                is_late = not database.is_connected
                if not await database.hold_within(_remaining(deadline)):
                    return None, look
                if is_late:  # others may have looked meanwhile
                    look = wake_ups.look(look.competition, look.channels)
                    is_empty = wake_ups.would_find_nothing(look, self._longest_trust)
                    would_find_nothing = is_empty and self._trusts_others(buffer)
            else:
                database.hold()
            try:
                message = None
                buffer.expectation.has_seen_end = False
                if not would_find_nothing:
                    with uninterrupted():
                        message = await finished(self._transaction.next(consumer, check))
                        is_end = message is None or buffer.expectation.has_seen_end
                        if is_end and self._transaction.is_settled and buffer.policy.throttle is None:
                            wake_ups.found_end(look)
                        if message is not None and not buffer.poll.is_reset:
                            buffer.poll.reset()
            finally:
                database.let_go()
            if message is None:
                await database.pause()
            return message, look
        finally:
            if turn is not None:
                turn.release()

    def take_held(self, consumer: ConsumerState) -> Message | None:
        """Return the next message if it was fetched before, and nothing is in the way of receiving it at once."""
        state = self._state
        with at_once(state.lock) as is_free:
            if not is_free or consumer.closed or state.closed or state.message_listener is not None:
                return None
            if not (self._client.started and self._transaction.is_usable):
                return None
            return self._transaction.take_held(consumer)

    async def set_listener(self, consumer: ConsumerState, listener: MessageListener | None) -> None:
        """Give the consumer's messages to a listener from now on."""
        state, database, dispatcher = self._state, self._transaction.database, self._dispatcher
        if database is None or dispatcher is None:
            raise IllegalStateException("A session in your transaction has no listeners; call receive() instead.")
        if listener is not None:
            state.check_no_message_listener()
        async with state.lock, database.connected(needed=bool(consumer.buffer.rows)):
            await finished(self._set_listener(dispatcher, consumer, listener))
        state.notifications.notify()

    async def _set_listener(
        self, dispatcher: Dispatcher, consumer: ConsumerState, listener: MessageListener | None
    ) -> None:
        await self._transaction.closed(consumer)
        consumer.listener = listener
        consumer.buffer.source.fetch_by(self._transaction.fetch_for(consumer))
        if listener is not None:
            dispatcher.start()

    async def redelivery_rules(self, policy: RedeliveryPolicy, queue_id: int) -> Rules:
        """Return what the policy of a consumer of a queue means, making its dead-letter queue if need be."""
        return await self._transaction.redelivery_rules(policy, queue_id)

    async def browse(
        self, queue_id: int, selector: Selector | None, after: tuple[int, int], limit: int
    ) -> list[MessageRow]:
        """Read messages of a queue after a key."""
        return await self._transaction.browse(queue_id, selector, after, limit)
