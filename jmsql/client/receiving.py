"""What a session receives: by calls of its consumers' `receive`, or by their listeners."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.claimed_delivery import ClaimedDelivery
from jmsql.client.consumer_state import ConsumerState
from jmsql.client.delivery import Delivery, ImmediateDelivery
from jmsql.client.failure_text import failure_text
from jmsql.client.listener_thread import ListenerRun, ListenerThread
from jmsql.client.locked_delivery import LockedDelivery
from jmsql.client.message_listener import MessageCheck, MessageListener, call_listener
from jmsql.client.observation import processing, settling
from jmsql.client.polling import PollInterval
from jmsql.client.sending import Sending
from jmsql.client.session_state import SessionState
from jmsql.exceptions import IllegalStateException, JMSException, TransactionRolledBackException
from jmsql.messages import Message
from jmsql.store.consumers import Consumption

if TYPE_CHECKING:
    from jmsql.store.message_key import MessageKey
    from jmsql.store.rows import MessageRow

__all__ = ["Receiving"]

logger = logging.getLogger("jmsql")


class Receiving:
    """The consumers of one session, and the way of their messages.

    Args:
        state: The session's; its lock is held while messages are fetched, and while a listener runs.
        locked: How messages come to it in a transaction.
        sending: What the session sends.
        is_usable: Says whether messages can be received now.
        acknowledge: What `Message.acknowledge` means in the session.
        roll_back: Rolls the session's transaction back.
    """

    def __init__(
        self,
        state: SessionState,
        locked: LockedDelivery,
        sending: Sending,
        *,
        is_usable: Callable[[], bool],
        acknowledge: Callable[[], None],
        roll_back: Callable[[], None],
    ) -> None:
        client = state.client
        self._state = state
        self._client = client
        self._sending = sending
        self._is_usable = is_usable
        self._acknowledge = acknowledge
        self._roll_back = roll_back
        self.locked = locked
        self.claimed = ClaimedDelivery(state.database, lambda: client.control, client.redelivery, client.returned)
        self._immediate = ImmediateDelivery(state.database, client.returned)
        self.consumers: set[ConsumerState] = set()
        self.listener_thread: ListenerThread | ListenerRun | None = None
        self._closed_by_listener = False

    def delivery(self, consumer: ConsumerState | None) -> Delivery:
        """Return how a consumer's messages come; None: those of one without a listener."""
        if self._state.transacted:
            return self.locked
        if self._state.acknowledge_mode is AcknowledgeMode.AUTO and (consumer is None or consumer.listener is None):
            return self._immediate
        return self.claimed

    def opened(self, consumer: ConsumerState) -> None:
        """Note that there is a new consumer."""
        with self._state.lock:
            self.consumers.add(consumer)
        self._client.memberships.listen(consumer.inbox)

    def closed(self, consumer: ConsumerState) -> None:
        """Note that a consumer is closed."""
        with self._state.lock:
            if consumer not in self.consumers:
                return  # the session has closed, and parted with it
            self.consumers.remove(consumer)
            if not self._state.closed:
                self._client.returned(self.delivery(consumer).closed(consumer.inbox))
            self._client.memberships.leave(consumer)

    @property
    def consumption(self) -> list[Consumption]:
        """What the session's consumers receive; may be asked from any thread."""
        return [
            Consumption(consumer.inbox.source, None if consumer.selector is None else consumer.selector.text)
            for consumer in list(self.consumers)
            if not consumer.is_load
        ]

    def part_with_all(self) -> None:
        """Close all consumers, as the session does."""
        while self.consumers:
            self._client.memberships.leave(self.consumers.pop())

    def give_back(self, error: str | None = None) -> list[MessageKey]:
        """Give back what was claimed and not acknowledged, and return it.

        Args:
            error: Why, if something went wrong.
        """
        given_back = self.claimed.give_back(error)
        for consumer in self.consumers:
            given_back += self.claimed.closed(consumer.inbox)
        return given_back

    def release_claims(self) -> None:
        """Settle what was claimed, as the session closes."""
        if self._state.acknowledge_mode is AcknowledgeMode.DUPS_OK:
            self.claimed.acknowledge()
        self._client.returned(self.give_back())

    # By `receive`

    def receive(
        self, consumer: ConsumerState, timeout: float | None, check: MessageCheck | None = None
    ) -> Message | None:
        """Return the consumer's next message, or None after `timeout` seconds.

        Args:
            consumer: The consumer.
            timeout: How many seconds to wait; None: for ever.
            check: Called with the message; raises an exception if it is not wanted. What becomes of it then depends on
                the session (Jakarta Messaging 3.1, chapter 8.6): one that acknowledges by itself acts as if it had not
                been asked; in the others it counts as received.
        """
        self._check_no_message_listener()
        state = self._state
        deadline = None if timeout is None else time.monotonic() + timeout
        poll = PollInterval(self._client.timings)
        while True:
            news = state.wake_ups.count
            with state.lock:
                if consumer.closed or (state.closed and not self.is_used_by_listener):
                    return None
                started = self._client.started
                message = self.next(consumer, check) if started else None
            if message is not None:
                return message
            if state.closed or self._client.closed:
                return None  # a listener gets what is there, and does not make close() wait for what may come
            pause = poll.next() if started else self._client.start_reminder.look(consumer)
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                return None
            state.wake_ups.wait(
                news, remaining if pause is None or (remaining is not None and remaining < pause) else pause
            )

    def next(self, consumer: ConsumerState, check: MessageCheck | None = None) -> Message | None:
        """Return the consumer's next message as delivered, if there is one now."""
        if not self._is_usable():
            return None
        try:
            return self._deliver_next(consumer, check)
        finally:
            if self._state.transacted:
                self.end_unused_transaction()

    def end_unused_transaction(self) -> None:
        """Keep no transaction open, while the session waits, in which nothing has happened."""
        database = self._state.database
        if database.is_lent and not database.is_ours:
            return  # the application may have done something in it
        if not (self.locked.has_delivered or self._sending.has_part_in_transaction):
            database.end_unused()
            self._client.returned(self.locked.committed())

    def _deliver_next(self, consumer: ConsumerState, check: MessageCheck | None) -> Message | None:
        is_lazy = self._state.acknowledge_mode is AcknowledgeMode.DUPS_OK
        if is_lazy and self.claimed.acknowledgement_due:
            self.claimed.acknowledge()
        is_received_anyway = self._state.acknowledge_mode in {AcknowledgeMode.CLIENT, AcknowledgeMode.TRANSACTED}
        if check is None or is_received_anyway:
            row = self.delivery(consumer).next(consumer.inbox)
        else:
            row = self._next_accepted(consumer, check)
        if row is None:
            if is_lazy:
                self.claimed.acknowledge()
            return None
        message = row.message(consumer.destination, self._acknowledge)
        if check is not None and is_received_anyway:
            check(message)
        return message

    def _next_accepted(self, consumer: ConsumerState, check: MessageCheck) -> MessageRow | None:
        """Return the next message of a consumer without a listener; one that fails the check stays where it is."""
        delivery = self._immediate if self._state.acknowledge_mode is AcknowledgeMode.AUTO else self.claimed
        return delivery.next(consumer.inbox, lambda row: check(row.message(consumer.destination)))

    # By listeners

    def set_listener(self, consumer: ConsumerState, listener: MessageListener | None) -> None:
        """Give the consumer's messages to a listener from now on."""
        if listener is not None:
            self._check_no_message_listener()
        with self._state.lock:
            self._client.returned(self.delivery(consumer).closed(consumer.inbox))
            consumer.listener = listener
            consumer.inbox.fetch_by(self.delivery(consumer).operation)
            if listener is not None and self.listener_thread is None:
                self.listener_thread = thread = ListenerThread(
                    self._state, self._deliver_round, self._remind, self.failed
                )
                thread.start()
        self._state.wake_ups.wake()

    def _check_no_message_listener(self) -> None:
        if self._state.message_listener is not None:
            raise IllegalStateException(
                "The session has a message_listener, for connection consumers, and receives in no other way."
            )

    @property
    def listening_consumers(self) -> list[ConsumerState]:
        """The consumers with listeners."""
        with self._state.lock:
            return [consumer for consumer in self.consumers if consumer.listener is not None and not consumer.closed]

    @property
    def is_used_by_listener(self) -> bool:
        """Whether the caller is the session's running listener, for which even close() waits."""
        return self.is_called_by_listener and not self._closed_by_listener

    @property
    def is_called_by_listener(self) -> bool:
        """Whether the caller is the session's running listener."""
        thread = self.listener_thread
        return thread is not None and thread.is_current

    def call_listener(self, listener: MessageListener, message: Message) -> None:
        """Give a listener a message, and settle it."""
        error: str | None = "The listener's thread was ended."
        try:
            with self.keeping_claims():
                error = self._failure(listener, message)
        finally:
            self.delivered_to_listener(error)

    def _failure(self, listener: MessageListener, message: Message) -> str | None:
        """Call a listener; return its traceback if it fails."""
        try:
            with processing(self._state.facts, message):
                call_listener(listener, message)
        except Exception as error:
            logger.exception("The listener %r failed with %r.", listener, message)
            return failure_text(error)
        return None

    def keeping_claims(self) -> AbstractContextManager[None]:
        """Extend the claims on what was delivered and not acknowledged for as long as a `with` block runs."""
        return self._client.control.keeping(self.claimed.limited_claims)

    def delivered_to_listener(self, error: str | None) -> None:
        """Acknowledge what a listener has handled, or give it back if it failed.

        Args:
            error: What went wrong, if something did.
        """
        if self._state.acknowledge_mode not in {AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK}:
            return
        if error is not None:
            with settling(self._state.facts, "release"):
                self._client.returned(self.claimed.give_back(error))
        elif self._state.acknowledge_mode is AcknowledgeMode.AUTO:
            with settling(self._state.facts, "acknowledge"):
                self.claimed.acknowledge()

    def failed(self, error: JMSException) -> None:
        """Tell of an error between listeners, and begin again if it has cost the session its transaction."""
        state = self._state
        if state.transacted and state.database.is_lost:
            with state.lock:
                self._roll_back()
            lost = TransactionRolledBackException(
                "The connection to PostgreSQL was lost, and with it the transaction; its messages are delivered again.",
                error.error_code,
            )
            lost.__cause__ = error
            error = lost
        elif isinstance(error, TransactionRolledBackException):
            with state.lock:
                self._roll_back()
        logger.warning("The listeners of %r wait: %s", state, error)
        self._client.failed(error)

    def _deliver_round(self) -> bool:
        """Deliver one message to each listener that has one, and return whether there was any."""
        delivered = False
        for consumer in self.listening_consumers:
            # The flags are looked at under the lock: who stops or closes sets them first, then waits for the lock.
            with self._state.lock:
                if self._state.closed or not self._client.started or consumer.closed:
                    continue
                delivered |= self._deliver_to_listener(consumer)
        return delivered

    def _deliver_to_listener(self, consumer: ConsumerState) -> bool:
        listener = consumer.listener
        message = self.next(consumer)
        if message is None or listener is None:
            return False
        self.call_listener(listener, message)
        return True

    def _remind(self) -> float | None:
        """Say that nobody has started the connection, if that has taken long; return how long to wait before a look."""
        for consumer in self.listening_consumers:
            return self._client.start_reminder.look(consumer)
        return None

    def end_listeners(self, then: Callable[[], None]) -> None:
        """Have the listeners called no more, and call `then` when none runs.

        That is before this returns, unless it is called from a listener: then when that one returns.
        """
        thread = self.listener_thread
        if thread is not None and thread.is_current:
            self._closed_by_listener = True
            thread.finally_call(then)
            return
        if thread is not None:
            thread.join()
        then()
