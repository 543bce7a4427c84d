"""The subscriptions that the consumers of a connection have joined, and the channels on which all of them are woken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from jmsql.concurrency.tasks import Lock
from jmsql.exceptions import IllegalStateException, JMSException
from jmsql.logs import contained_logger
from jmsql.store.destinations.subscriptions import SubscriptionChange

if TYPE_CHECKING:
    from jmsql.client._async.shared.connection_destinations import ConnectionDestinations
    from jmsql.client.consumer_state import ConsumerState
    from jmsql.client.receiving.fetching import QueueSource
    from jmsql.store.control.control import ControlConnection
    from jmsql.store.destinations.subscriptions import SubscriptionDefinition


logger = contained_logger("jmsql")


# A subscription belongs to the client's number at the server, which changes when the control connection is lost and
# made again. `join_again` then takes the subscriptions along: first the temporary destinations, since a subscription
# may be of a temporary topic, then the subscriptions that are still there, then those that were removed meanwhile. Each
# consumer keeps its `QueueSource`, which moves to the new queue. Consumers that come and go before that join and leave
# under the former number: the lock keeps them from doing so in the middle.


class SubscriptionRegistry:
    """Joins and leaves subscriptions, one at a time; its methods may be called from any thread."""

    def __init__(
        self,
        destinations: ConnectionDestinations,
        control: ControlConnection,
        on_lost: Callable[[JMSException], Awaitable[None]],
    ) -> None:
        self._destinations = destinations
        self._control = control
        self._on_lost = on_lost
        # A thread that needs a session's lock too takes that one first.
        self._lock = Lock()

    async def join(
        self, definition: SubscriptionDefinition, create_subscriber: Callable[[int], Awaitable[ConsumerState]]
    ) -> ConsumerState:
        """Join a subscription."""
        async with self._lock:
            return await create_subscriber(await self._destinations.join(definition))

    async def leave(self, consumer: ConsumerState) -> None:
        """Wake a consumer no more, and leave its subscription if it has one."""
        async with self._lock:
            for channel in consumer.buffer.source.channels:
                self._control.unsubscribe(channel, consumer.buffer.source.notify)
            if consumer.subscription is not None:
                try:
                    await self._destinations.leave(consumer.buffer.source.next_queue_id)
                except JMSException as error:
                    logger.warning("%r could not leave its subscription: %s", consumer, error)

    async def join_again(self, former_ids: Sequence[int], subscribers: Callable[[], Iterable[ConsumerState]]) -> None:
        """Give the client's subscriptions its new number at the server; those that are gone are made again."""
        async with self._lock:
            await self._destinations.create_temporary_again()
            kept = await self._destinations.join_again(former_ids)
            for subscriber in subscribers():
                if subscriber.subscription is not None and subscriber.buffer.source.next_queue_id not in kept:
                    await self._rejoin(subscriber, subscriber.subscription)

    async def _rejoin(self, subscriber: ConsumerState, subscription: SubscriptionDefinition) -> None:
        buffer = subscriber.buffer
        # Another client may have made a subscription of that name meanwhile: it and its messages belong to that client.
        definition = subscription._replace(if_changed=SubscriptionChange.REFUSE)
        try:
            buffer.source.move(await self._destinations.join(definition))
        except IllegalStateException as error:  # somebody else has the name now, and wants something else
            logger.warning("%r receives nothing any more: %s", subscriber, error)
            await self._on_lost(error)
        self.listen(buffer.source)

    def listen(self, source: QueueSource) -> None:
        """Notify a consumer's source of new messages, on all its channels."""
        for channel in source.channels:
            self._control.subscribe(channel, source.notify)
