"""How a session acknowledges what it receives: one strategy for each mode without transactions."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from jmsql.client._async.delivery.claimed_delivery import ClaimedDelivery
from jmsql.client._async.delivery.delivery import Accept, AcceptingDelivery, Delivery, HeldDelivery, ImmediateDelivery
from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.instrumentation import settling
from jmsql.concurrency.tasks import BackgroundTask, Notifications, finished
from jmsql.exceptions import JMSException

if TYPE_CHECKING:
    from jmsql.client._async.session.session_state import SessionState
    from jmsql.client._async.shared.redelivery import Failure
    from jmsql.client.consumer_state import ConsumerState
    from jmsql.client.listeners import MessageCheck
    from jmsql.client.prefetch_buffer import PrefetchBuffer
    from jmsql.messages import Message
    from jmsql.store.rows.message_rows import MessageKey, MessageRow


logger = logging.getLogger("jmsql")


class Acknowledgement(ABC):
    """What a session does with the messages that it receives.

    Args:
        state: The session's.
        delivery: How messages come to its listeners.
    """

    def __init__(self, state: SessionState, delivery: HeldDelivery) -> None:
        self._state = state
        self._client = state.client
        self.to_listeners = delivery

    def delivery(self, consumer: ConsumerState | None) -> Delivery:  # noqa: ARG002 - most modes have one way
        """Return how a consumer's messages come; None: those of one without a listener."""
        return self.to_listeners

    def take_held(self, consumer: ConsumerState) -> Message | None:
        """Do what `next` does if the message was fetched before and nobody has to be asked about it, else nothing."""
        row = self.to_listeners.take_held(consumer.buffer)
        return None if row is None else row.message(consumer.destination, self.acknowledge)

    async def next(self, consumer: ConsumerState, check: MessageCheck | None = None) -> Message | None:
        """Return the consumer's next message as delivered, if there is one now.

        Args:
            consumer: The consumer.
            check: Called with the message; raises an exception if it is not wanted. What becomes of it then depends on
                the mode (Jakarta Messaging 3.1, chapter 8.6): where the session acknowledges by itself, it is as if
                nobody had asked for the message; else the message counts as received.
        """
        row = await self.delivery(consumer).next(consumer.buffer)
        if row is None:
            return None
        message = self.message(consumer, row)
        if check is not None:
            check(message)
        return message

    def message(self, consumer: ConsumerState, row: MessageRow) -> Message:
        """Make the message that a consumer's row means."""
        return row.message(consumer.destination, self.acknowledge)

    async def acknowledge(self) -> None:
        """Do what `Message.acknowledge` means in the session."""
        self._state.check_open()

    async def handled(self, failure: Failure | None) -> None:  # noqa: B027 - elsewhere the application does
        """Settle what a listener was given.

        Args:
            failure: What went wrong, if something did.
        """

    async def paused(self) -> None:  # noqa: B027 - for DUPS_OK
        """Settle what waits for company, since no message comes next."""

    async def settle(self) -> None:  # noqa: B027 - for DUPS_OK
        """Acknowledge now what the session would acknowledge by itself later; not what a running listener has."""

    async def end(self) -> None:  # noqa: B027 - for DUPS_OK
        """End what runs beside the session, as that closes."""

    async def flush(self) -> None:  # noqa: B027 - for transactions
        """Bring the store to where the session is, for a look at it."""

    @property
    @abstractmethod
    def is_settled(self) -> bool:
        """Whether nothing that was received is still to be acknowledged or committed."""

    @abstractmethod
    async def unloaded(self, buffer: PrefetchBuffer) -> None:
        """Release what a prefetch buffer holds that a connection consumer has filled."""

    async def failed(self, error: JMSException) -> JMSException:
        """Begin again after an error between listeners, and return what their connection is told."""
        return error

    def extend_claims(self) -> AbstractContextManager[None]:
        """Extend the claims on what was delivered and not acknowledged for as long as a `with` block runs."""
        return nullcontext()


class ClaimedAcknowledgement(Acknowledgement):
    """Messages are claimed, and deleted when they are acknowledged."""

    def __init__(self, state: SessionState) -> None:
        client = state.client
        self._claimed = ClaimedDelivery(state.database, lambda: client.control, client.redelivery, client.returned)
        super().__init__(state, self._claimed)

    @property
    def has_delivered(self) -> bool:
        """Whether something was delivered that is not acknowledged."""
        return self._claimed.has_delivered

    @property
    def is_settled(self) -> bool:
        return not self._claimed.has_delivered

    async def unloaded(self, buffer: PrefetchBuffer) -> None:
        self._client.returned(await self._claimed.closed(buffer))

    def extend_claims(self) -> AbstractContextManager[None]:
        return self._client.control.extending(self._claimed.extended_claims)

    async def release(self, failure: Failure | None = None) -> list[MessageKey]:
        """Release what was claimed and not acknowledged, and return it.

        Args:
            failure: Why, if something went wrong.
        """
        released = await self._claimed.release(failure)
        for consumer in self._state.consumers:
            released += await self._claimed.closed(consumer.buffer)
        return released

    async def close(self) -> None:
        """Settle what was claimed, as the session closes."""
        await self.paused()
        self._client.returned(await self.release())


class ClientAcknowledgement(ClaimedAcknowledgement):
    """CLIENT: the application acknowledges all that the session has received so far."""

    async def acknowledge(self) -> None:
        await super().acknowledge()
        async with self._state.lock, self._state.database.connected(needed=self._claimed.has_delivered):
            await finished(self._acknowledge())

    async def _acknowledge(self) -> None:
        with settling(self._state.facts, "acknowledge"):
            await self._claimed.acknowledge()


def _acceptance(consumer: ConsumerState, check: MessageCheck | None) -> Accept | None:
    """Return what refuses a row whose message is not wanted."""
    return None if check is None else lambda row: check(row.message(consumer.destination))


class OwnAcknowledgement(ClaimedAcknowledgement):
    """The session acknowledges by itself."""

    def __init__(self, state: SessionState) -> None:
        super().__init__(state)
        self._failure: Failure | None = None

    async def next(self, consumer: ConsumerState, check: MessageCheck | None = None) -> Message | None:
        await self._release_failed()
        row = await self.delivery(consumer).next(consumer.buffer, _acceptance(consumer, check))
        return None if row is None else self.message(consumer, row)

    def delivery(self, consumer: ConsumerState | None) -> AcceptingDelivery:  # noqa: ARG002 - as above
        return self._claimed

    async def handled(self, failure: Failure | None) -> None:
        if failure is not None:
            self._failure = failure
            await self._release_failed()

    async def _release_failed(self) -> None:
        """Release what a listener has failed with. If that fails itself, it is tried again before the next delivery."""
        if self._failure is not None:
            with settling(self._state.facts, "release"):
                self._client.returned(await self._claimed.release(self._failure))
            self._failure = None


class AutoAcknowledgement(OwnAcknowledgement):
    """AUTO: each message is acknowledged as `receive` returns it, or when its listener has returned."""

    def __init__(self, state: SessionState) -> None:
        super().__init__(state)
        self._immediate = ImmediateDelivery(state.database, state.client.returned)

    def delivery(self, consumer: ConsumerState | None) -> AcceptingDelivery:
        return self._immediate if consumer is None or consumer.listener is None else self._claimed

    def take_held(self, consumer: ConsumerState) -> None:
        """Return None: nothing is fetched before it is wanted."""

    async def handled(self, failure: Failure | None) -> None:
        await super().handled(failure)
        if failure is None:
            with settling(self._state.facts, "acknowledge"):
                await self._claimed.acknowledge()


class DupsOkAcknowledgement(OwnAcknowledgement):
    """DUPS_OK: messages are acknowledged together: once there are many, no other comes, or the first waits for long.

    For the last of these, which may come while the application does not call the session, there is a thread.
    """

    def __init__(self, state: SessionState) -> None:
        super().__init__(state)
        self._delay = state.client.timings.acknowledgement_delay
        self._thread: BackgroundTask | None = None
        self._changed = Notifications()
        self._is_idle = False
        self._is_ended = False

    def take_held(self, consumer: ConsumerState) -> Message | None:
        if self._is_due:
            return None
        message = super().take_held(consumer)
        self._watch()
        return message

    async def next(self, consumer: ConsumerState, check: MessageCheck | None = None) -> Message | None:
        await self._release_failed()
        if self._is_due:
            await self._claimed.acknowledge()
        row = await self._claimed.next(consumer.buffer, _acceptance(consumer, check))
        if row is None:
            await self._claimed.acknowledge()
            return None
        self._watch()
        return self.message(consumer, row)

    @property
    def _is_due(self) -> bool:
        return self._claimed.acknowledgement_due(self._delay)

    async def handled(self, failure: Failure | None) -> None:
        await super().handled(failure)
        if failure is None and self._is_due:
            await self._claimed.acknowledge()

    async def paused(self) -> None:
        await self._claimed.acknowledge()

    async def settle(self) -> None:
        if not self._state.is_called_by_listener:
            async with self._state.lock:
                await self._claimed.acknowledge()

    async def end(self) -> None:
        self._is_ended = True
        self._changed.notify()
        if self._thread is not None:
            await self._thread.join()

    def _watch(self) -> None:
        """Have the thread acknowledge in time what was delivered."""
        if self._thread is None:
            self._thread = BackgroundTask(self._acknowledge_in_time, "jmsql-acknowledging")
            self._thread.start()
        elif self._is_idle:
            self._is_idle = False
            self._changed.notify()

    async def _acknowledge_in_time(self) -> None:
        while not self._is_ended:
            count = self._changed.count
            self._is_idle = True  # before the look, so that what comes after it is told
            since = self._claimed.delivered_since
            if since is None:
                await self._changed.wait(count, None)
                continue
            self._is_idle = False
            remaining = since + self._delay - time.monotonic()
            if remaining <= 0:
                async with self._state.lock:
                    remaining = await self._acknowledge_what_is_due()
            await self._changed.wait(count, remaining)

    async def _acknowledge_what_is_due(self) -> float:
        """Acknowledge what waits for too long, and return for how many seconds there is nothing to do at least."""
        try:
            if self._is_due and not self._is_ended:
                await self._claimed.acknowledge()
        except JMSException as error:
            logger.warning("Acknowledging for %r: %s", self._state, error)
            return self._delay
        return 0.0


_STRATEGIES: dict[AcknowledgeMode, type[ClaimedAcknowledgement]] = {
    AcknowledgeMode.AUTO: AutoAcknowledgement,
    AcknowledgeMode.CLIENT: ClientAcknowledgement,
    AcknowledgeMode.DUPS_OK: DupsOkAcknowledgement,
}


def acknowledgement_of(state: SessionState) -> ClaimedAcknowledgement:
    """Return the strategy of a session that is not transacted."""
    return _STRATEGIES[state.acknowledge_mode](state)
