"""The consumers of a session, and what their `receive` returns."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from jmsql.client._async.exchange.consumer import ReceiveOperations
from jmsql.client._async.session.watch import Watch
from jmsql.client.consumer_state import ConsumerState
from jmsql.client.prefetch_buffer import PrefetchBuffer
from jmsql.concurrency import ASYNC
from jmsql.concurrency.tasks import finished, uninterrupted
from jmsql.exceptions import InvalidDestinationException, JMSException
from jmsql.store.destinations.lookup import require_access
from jmsql.store.receiving.receive import browse
from jmsql.values.destinations import TemporaryTopic

if TYPE_CHECKING:
    from jmsql.client._async.session.dispatcher import Dispatcher
    from jmsql.client._async.session.session_state import SessionState
    from jmsql.client._async.session.transaction import Transaction
    from jmsql.client.instrumentation import SessionFacts
    from jmsql.client.listeners import MessageCheck, MessageListener
    from jmsql.messages import Message
    from jmsql.selectors import Selector
    from jmsql.store.destinations.access import Action
    from jmsql.store.destinations.subscriptions import SubscriptionDefinition
    from jmsql.store.receiving.redelivery import Rules
    from jmsql.store.rows.message_rows import MessageRow
    from jmsql.values.destinations import Destination, Queue, Topic
    from jmsql.values.policies import RedeliveryPolicy


logger = logging.getLogger("jmsql")


def _remaining(deadline: float | None) -> float | None:
    """Return for how many seconds more to wait; None: for ever."""
    return None if deadline is None else max(deadline - time.monotonic(), 0.0)


class Receiving(ReceiveOperations):
    """The consumers and browsers of one session, and the way of their messages.

    Args:
        state: The session's; its lock is held while messages are fetched.
        transaction: The session's.
        dispatcher: Calls their listeners.
    """

    def __init__(self, state: SessionState, transaction: Transaction, dispatcher: Dispatcher) -> None:
        self.followed: SessionFacts | None = state.facts
        self._state = state
        self._client = state.client
        self._transaction = transaction
        self._acknowledgement = transaction.acknowledgement
        self._dispatcher = dispatcher

    def check_open(self) -> None:
        self._state.check_open()

    @property
    def client_id(self) -> str | None:
        return self._client.client_id

    async def queue_id(self, queue: Queue, action: Action) -> int:
        destinations, side = self._client.destinations, self._client.side
        destinations.require_own(queue)
        queue_id = await destinations.look_up(queue)
        if self._client.is_restricted:  # else it would wait for what policies hide
            await side.run(require_access, queue_id, action)
        return queue_id

    async def open_buffer(self, queue: Queue, selector: Selector | None) -> PrefetchBuffer:
        return self._buffer(await self.queue_id(queue, "receive"), selector, queue)

    def _buffer(
        self, queue_id: int, selector: Selector | None, destination: Destination, topic_id: int | None = None
    ) -> PrefetchBuffer:
        client, fetch = self._client, self._acknowledgement.delivery(None).operation
        return PrefetchBuffer(
            queue_id,
            selector,
            fetch,
            destination,
            topic_id,
            client.counters,
            clock=client.clock,
            timings=client.timings,
        )

    async def subscribe(self, topic: Topic, subscription: SubscriptionDefinition) -> ConsumerState:
        destinations = self._client.destinations
        destinations.require_own(topic)
        if subscription.durable and isinstance(topic, TemporaryTopic):
            raise InvalidDestinationException(f"{topic} is temporary; a durable subscription would outlive it.")
        topic_id = await destinations.find(topic)

        async def create_subscriber(queue_id: int) -> ConsumerState:
            buffer = self._buffer(queue_id, None, topic, topic_id)
            subscriber = ConsumerState("TopicSubscriber", topic, subscription.selector, buffer, subscription)
            await self.consumer_opened(subscriber)
            return subscriber

        async with self._state.lock:
            with uninterrupted():
                return await self._client.subscription_registry.join(subscription, create_subscriber)

    async def consumer_opened(self, consumer: ConsumerState) -> None:
        async with self._state.lock:
            self._state.consumers.add(consumer)
        self._client.subscription_registry.listen(consumer.buffer)

    async def consumer_closed(self, consumer: ConsumerState) -> None:
        state = self._state
        state.notifications.notify()
        async with state.lock:
            if consumer not in state.consumers:
                return  # the session has closed, and parted with it
            if not state.closed:
                try:
                    await self._acknowledgement.settle()
                except JMSException as error:
                    logger.warning("Closing %r: %s", consumer, error)
                self._client.returned(await self._acknowledgement.delivery(consumer).closed(consumer.buffer))
            state.consumers.remove(consumer)
            await self._client.subscription_registry.leave(consumer)

    async def part_with_all(self) -> None:
        """Close all consumers, as the session does."""
        while self._state.consumers:
            await self._client.subscription_registry.leave(self._state.consumers.pop())

    async def receive(
        self, consumer: ConsumerState, timeout: float | None, check: MessageCheck | None
    ) -> Message | None:
        state, client = self._state, self._client
        if check is None and len(consumer.buffer):
            if ASYNC:
                message = self._take_held(consumer) if state.lock.is_free else None
            else:
                with state.lock:
                    message = self._take_held(consumer)
            if message is not None:
                return message
        state.check_open()
        self._transaction.check_usable()
        state.check_no_message_listener()
        deadline = None if timeout is None else time.monotonic() + timeout
        consumer.buffer.looks_again = timeout is None or timeout >= client.timings.maximum_poll_interval
        watch: Watch | None = None
        try:
            while True:
                news = state.notifications.count
                async with state.lock:
                    if consumer.closed or (state.closed and not state.is_used_by_listener):
                        return None
                    started = client.started
                    looks = started and self._transaction.is_usable
                    if watch is None:
                        watch = Watch(state, consumer.buffer.poll, self._acknowledgement)
                    watch.begin(news, [consumer.buffer] if looks else [])
                    if looks and consumer.buffer.looks_again and watch.would_find_nothing:
                        watch.spared()
                    elif looks:
                        turn = state.database.turn
                        if turn is not None:
                            await turn.acquire()
                        try:
                            if ASYNC:
                                is_late = not state.database.is_connected
                                # Without a time-out None says that there is no message, which has to be seen.
                                if not await state.database.hold_within(_remaining(deadline) if timeout else None):
                                    return None
                                if is_late:  # others may have looked meanwhile
                                    watch.begin(news, [consumer.buffer])
                            else:
                                state.database.hold()
                                is_late = False
                            try:
                                message = None
                                if is_late and consumer.buffer.looks_again and watch.would_find_nothing:
                                    watch.spared()
                                else:
                                    with uninterrupted():
                                        message = await finished(self._acknowledgement.next(consumer, check))
                                        watch.looked(found=message is not None)
                            finally:
                                state.database.let_go()
                            if message is not None:
                                return message
                            await state.database.pause()
                        finally:
                            if turn is not None:
                                turn.release()
                if state.closed or client.closed:
                    return None  # a listener gets what is there, and does not make close() wait for what may come
                pause = None if started else client.start_reminder.look(consumer)
                remaining = _remaining(deadline)
                if remaining == 0:
                    return None
                await watch.wait(remaining if pause is None or (remaining is not None and remaining < pause) else pause)
        finally:
            if watch is not None:
                watch.close()

    def _take_held(self, consumer: ConsumerState) -> Message | None:
        """Return the next message if it was fetched before, and nothing is in the way of receiving it at once."""
        state = self._state
        if consumer.closed or state.closed or state.message_listener is not None:
            return None
        if not (self._client.started and self._transaction.is_usable):
            return None
        return self._acknowledgement.take_held(consumer)

    async def set_listener(self, consumer: ConsumerState, listener: MessageListener | None) -> None:
        state = self._state
        if listener is not None:
            state.check_no_message_listener()
        async with state.lock, state.database.connected(needed=len(consumer.buffer) > 0):
            await finished(self._set_listener(consumer, listener))
        state.notifications.notify()

    async def _set_listener(self, consumer: ConsumerState, listener: MessageListener | None) -> None:
        acknowledgement = self._acknowledgement
        self._client.returned(await acknowledgement.delivery(consumer).closed(consumer.buffer))
        consumer.listener = listener
        consumer.buffer.fetch_by(acknowledgement.delivery(consumer).operation)
        if listener is not None:
            self._dispatcher.start()

    async def redelivery_rules(self, policy: RedeliveryPolicy) -> Rules:
        return await self._client.redelivery.rules_of(policy)

    async def browse(
        self, queue_id: int, selector: Selector | None, after: tuple[int, int], limit: int
    ) -> list[MessageRow]:
        self._transaction.check_usable()
        async with self._state.lock:
            with uninterrupted():
                await self._acknowledgement.flush()
                return await self._state.database.attempt(browse(queue_id, selector, after, limit))
