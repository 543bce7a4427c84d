"""The consumers of a session, and what their `receive` returns."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from jmsql.client.consumer_state import ConsumerState
from jmsql.client.receiving.fetching import PrefetchBuffer, QueueSource
from jmsql.client.receiving.notified import QueueChanges
from jmsql.concurrency import ASYNC
from jmsql.concurrency.tasks import run_to_completion, shielded, try_acquire
from jmsql.exceptions import IllegalStateException, InvalidDestinationException, JMSException
from jmsql.logs import contained_logger
from jmsql.values.clock import monotonic
from jmsql.values.destinations import TemporaryTopic

if TYPE_CHECKING:
    from jmsql.client._async.session.dispatcher import Dispatcher
    from jmsql.client._async.session.session_state import SessionState
    from jmsql.client._async.session.transactions.transaction import Transaction
    from jmsql.client._async.session.waiting import Waiting
    from jmsql.client._async.shared.client_context import ClientContext
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


logger = contained_logger("jmsql")


# One call of `receive`, from the inside:
#
# 1. The session's lock is held for each fetch, and released while the call waits. Another thread can close the session
#    or the consumer meanwhile; both are checked after each wait, under the lock.
# 2. Two counts are read before the fetch: the session's `notifications.count`, and its queue's `Look.heard`. A
#    notification that comes after that ends the next wait at once, so that no message is missed between a fetch that
#    found nothing and the wait.
# 3. Before it takes a connection, the call asks if a competing consumer of the client has just found the queue empty
#    (`is_known_empty`). It relies on that only if it would find no more itself: the session has no unsettled
#    messages, its buffer is empty, and its source is unchanged.
# 4. A fetch that found nothing is recorded for the competing consumers, unless a limit or this session's own messages
#    may hide later ones.
#
# `pop_buffered` is the way past all this: a message that was fetched before needs neither a statement nor a wait.


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
        *,
        is_told: bool = True,
    ) -> None:
        self.followed = state.facts if is_told else None
        """The session, for the instrumentation of `receive`; None: it is not told of calls."""
        self._state = state
        self._transaction = transaction
        self._own = client
        self._wake_ups = None if client is None else client.control.wake_ups
        self._longest_trust = state.client.timings.minimum_poll_interval / 2
        """For how many seconds a consumer trusts another one that has seen the end."""
        self._dispatcher = dispatcher

    @property
    def closed(self) -> bool:
        """True if the session is closed."""
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
        """Make the prefetch buffer of a consumer."""
        return self.buffer(await self.queue_id(queue, "receive"), selector, queue)

    def buffer(
        self, queue_id: int, selector: Selector | None, destination: Destination, topic: int | None = None
    ) -> PrefetchBuffer:
        client, fetch = self._state.client, self._transaction.fetch_for(None)
        interval = client.timings.sweep_interval
        on_move = None if self._own is None else self._own.subscription_registry.listen
        # A selector's bounds pass messages that others want.
        positions = self._transaction.positions if selector is None else None
        changes = QueueChanges()
        source = QueueSource(queue_id, selector, fetch, destination, topic, interval, changes, on_move, positions)
        return PrefetchBuffer(source, client.counters, client.clock, client.timings)

    async def subscribe(self, topic: Topic, subscription: SubscriptionDefinition) -> ConsumerState:
        """Make a consumer of a subscription, and the subscription if need be."""
        connection = self.connection
        connection.destinations.require_own(topic)
        if subscription.durable and isinstance(topic, TemporaryTopic):
            raise InvalidDestinationException(f"{topic} is temporary; a durable subscription would outlive it.")
        topic_number = await connection.destinations.find(topic)  # negative

        async def create_subscriber(queue_id: int) -> ConsumerState:
            buffer = self.buffer(queue_id, None, topic, topic_number)
            subscriber = ConsumerState("TopicSubscriber", topic, subscription.selector, buffer, subscription)
            await self.consumer_opened(subscriber)
            return subscriber

        async with self._state:
            with shielded():
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
            try:
                if not state.closed:
                    try:
                        await self._transaction.settle()
                    except JMSException as error:
                        logger.warning("%r could not settle its messages as it closed: %s", consumer, error)
                    await self._transaction.closed(consumer)
            finally:
                state.consumers.remove(consumer)
                state.note_listeners()
                await self._leave(consumer)

    async def _leave(self, consumer: ConsumerState) -> None:
        if self._own is not None:
            await self._own.subscription_registry.leave(consumer)

    async def close_all(self) -> None:
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
        state, client, transaction, buffer = self._state, self._state.client, self._transaction, consumer.buffer
        waits = timeout is None or timeout >= client.timings.maximum_poll_interval
        is_open = not state.closed and state.guard is None and state.message_listener is None
        if not is_open or not transaction.is_usable or buffer.looks_again is not waits:
            self._begin_receive(buffer, waits=waits)
        deadline = None if timeout is None else monotonic() + timeout
        watch: Waiting | None = None  # most find a message before they need one
        try:
            while True:
                # Counted before the look: the wait after it ends at once if there has been news in between.
                news = state.notifications.count
                look: Look | None = None
                # Where the session has listeners, `state` limits the wait: the one that runs may wait for this call.
                async with state.lock if state.listener is None else state:
                    if consumer.closed or (state.closed and not state.is_used_by_listener):
                        return None
                    is_started = client.started
                    is_delivering = is_started and transaction.is_usable
                    if is_delivering:
                        message, look = await self._look(consumer, check, deadline if timeout else None)
                        if message is not None:
                            if watch is not None:
                                watch.after_fetch(found=True)
                            return message
                pause = self._longest_pause(consumer, deadline, is_started=is_started)
                if pause == 0:
                    return None
                if watch is None:
                    watch = transaction.watch(consumer)
                watch.before_fetch(news, [buffer] if is_delivering else [], look)
                await watch.wait(pause)
        finally:
            if watch is not None:
                watch.close()

    def _begin_receive(self, buffer: PrefetchBuffer, *, waits: bool) -> None:
        """Make sure that the session can receive, and note if the call waits, unlike the last one."""
        self._state.check_open()
        self._transaction.check_usable()
        self._state.check_no_message_listener()
        buffer.begin_receive(waits=waits)

    def _longest_pause(self, consumer: ConsumerState, deadline: float | None, *, is_started: bool) -> float | None:
        """Return how many seconds to wait at most before the next look; None: without a limit, 0: there is none."""
        if self._state.closed or self._state.client.closed:
            return 0.0  # a listener gets waiting messages, and does not make close() wait for more
        throttle = consumer.buffer.policy.throttle
        pause = None if is_started else self._state.client.start_reminder.remind(consumer)
        if pause is None and throttle is not None:  # another message may pass before a notification comes
            pause = throttle.seconds_to_next
        remaining = _remaining(deadline)
        return remaining if pause is None or (remaining is not None and remaining < pause) else pause

    @property
    def _relies_on_others(self) -> bool:
        """True if a competing consumer of the client finds all that this one would.

        A session that has received messages of a group may get more of the group, which others pass over.
        """
        return self.connection.control.is_attentive and self._transaction.is_settled

    async def _look(
        self,
        consumer: ConsumerState,
        check: MessageCheck | None,
        deadline: float | None,  # noqa: ARG002 - threads wait for their connections
    ) -> tuple[Message | None, Look | None]:
        """Return the consumer's next message, if there is one now and the session has a connection by the deadline.

        Returns:
            The message; and the look that has found it or nothing, None in the application's transaction.
        """
        database, buffer, wake_ups = self._transaction.database, consumer.buffer, self._wake_ups
        if database is None or wake_ups is None:  # the connection is the application's
            return await self._transaction.next(consumer, check), None
        target = buffer.source.target
        look = wake_ups.start_fetch(target.competition, target.channels)
        if buffer.is_known_empty(wake_ups, look, self._longest_trust) and self._relies_on_others:
            return None, look  # without a connection, which others may need
        turn = database.turn if database.shares_connections else None
        async with nullcontext() if turn is None else turn:
            if ASYNC:
                is_late = not database.link.is_connected
                if not await database.acquire_within(_remaining(deadline)):
                    return None, look
                # Others may have looked meanwhile. Without another look, 300 consumers on 5 connections would fetch all
                # the time, each for the news that came while it waited.
                look = wake_ups.start_fetch(look.competition, look.channels) if is_late else look
                is_empty = is_late and buffer.is_known_empty(wake_ups, look, self._longest_trust)
                if is_empty and self._relies_on_others:
                    database.release()
                    await database.pause()
                    return None, look
            else:
                database.acquire()
            try:
                ends_seen = buffer.emptiness.ends_seen
                with shielded():
                    message = await run_to_completion(self._transaction.next(consumer, check))
                    is_end = message is None or buffer.emptiness.ends_seen != ends_seen
                    # The end of a limit is not the queue's end, and messages that this session holds hide later ones.
                    if is_end and self._transaction.is_settled and buffer.policy.throttle is None:
                        wake_ups.record_empty(look)
                    if message is not None and buffer.poll.pause > buffer.poll.shortest:
                        buffer.poll.reset()
            finally:
                database.release()
            if message is None:
                await database.pause()
            return message, look

    def pop_buffered(self, consumer: ConsumerState) -> Message | None:
        """Return the next message if it was fetched before, and nothing is in the way of receiving it at once."""
        state = self._state
        with try_acquire(state.lock) as is_free:
            if not is_free or consumer.closed or state.closed or state.message_listener is not None:
                return None
            if not (self._state.client.started and self._transaction.is_usable):
                return None
            return self._transaction.pop_buffered(consumer)

    async def set_listener(self, consumer: ConsumerState, listener: MessageListener | None) -> None:
        """Give the consumer's messages to a listener from now on."""
        state, database, dispatcher = self._state, self._transaction.database, self._dispatcher
        if database is None or dispatcher is None:
            raise IllegalStateException("A session in your transaction has no listeners; call receive() instead.")
        if listener is not None:
            state.check_no_message_listener()
        async with state.lock, database.connected(needed=bool(consumer.buffer.held.rows)):
            await run_to_completion(self._set_listener(dispatcher, consumer, listener))
        state.notifications.notify()

    async def _set_listener(
        self, dispatcher: Dispatcher, consumer: ConsumerState, listener: MessageListener | None
    ) -> None:
        await self._transaction.closed(consumer)
        if listener is not None:
            dispatcher.start()  # it may raise; the consumer then stays as it was
        consumer.listen(listener)
        self._state.note_listeners()
        consumer.buffer.source.fetch_by(self._transaction.fetch_for(consumer))

    async def redelivery_rules(self, policy: RedeliveryPolicy, queue_id: int) -> Rules:
        """Return the rules of a consumer's policy for a queue, making its dead-letter queue if need be."""
        return await self._transaction.redelivery_rules(policy, queue_id)

    async def browse(
        self, queue_id: int, selector: Selector | None, after: tuple[int, int], limit: int
    ) -> list[MessageRow]:
        """Read messages of a queue after a key."""
        return await self._transaction.browse(queue_id, selector, after, limit)
