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
from jmsql.client.listener_thread import ListenerThread
from jmsql.client.locked_delivery import LockedDelivery
from jmsql.client.message_listener import MessageCheck, MessageListener, call_listener
from jmsql.client.observation import processing, settling
from jmsql.client.polling import PollInterval
from jmsql.exceptions import IllegalStateException, JMSException, TransactionRolledBackException
from jmsql.messages import Message
from jmsql.store.consumers import Consumption

if TYPE_CHECKING:
    from jmsql.client.session import Session
    from jmsql.client.session_load import ListenerRun
    from jmsql.store.message_key import MessageKey
    from jmsql.store.rows import MessageRow

__all__ = ["Receiving"]

logger = logging.getLogger("jmsql")


class Receiving:
    """The consumers of one session, and the way of their messages.

    Args:
        session: The session; its lock is held while messages are fetched, and while a listener runs.
        locked: How messages come to it in a transaction.
    """

    def __init__(self, session: Session, locked: LockedDelivery) -> None:
        connection = session._connection
        self._session = session
        self._connection = connection
        self._mode = session._acknowledge_mode
        self.locked = locked
        self.claimed = ClaimedDelivery(
            session._database,
            lambda: connection._control,
            connection._redelivery,
            connection._returned,
        )
        self._immediate = ImmediateDelivery(session._database, connection._returned)
        self.consumers: set[ConsumerState] = set()
        self.listener_thread: ListenerThread | ListenerRun | None = None
        self._closed_by_listener = False

    def delivery(self, consumer: ConsumerState | None) -> Delivery:
        """Return how a consumer's messages come; None: those of one without a listener."""
        if self._mode is AcknowledgeMode.TRANSACTED:
            return self.locked
        if self._mode is AcknowledgeMode.AUTO and (consumer is None or consumer.listener is None):
            return self._immediate
        return self.claimed

    def opened(self, consumer: ConsumerState) -> None:
        """Note that there is a new consumer."""
        with self._session._lock:
            self.consumers.add(consumer)
        self._connection._memberships.listen(consumer.inbox)

    def closed(self, consumer: ConsumerState) -> None:
        """Note that a consumer is closed."""
        with self._session._lock:
            if consumer not in self.consumers:
                return  # the session has closed, and parted with it
            self.consumers.remove(consumer)
            if not self._session._closed:
                self._connection._returned(self.delivery(consumer).closed(consumer.inbox))
            self._connection._memberships.leave(consumer)

    @property
    def consumption(self) -> list[Consumption]:
        """What the session's consumers receive; may be asked from any thread."""
        return [
            Consumption(consumer.inbox.source, None if consumer.selector is None else consumer.selector.text)
            for consumer in list(self.consumers)
            if not self._session._load.is_of(consumer)
        ]

    def part_with_all(self) -> None:
        """Close all consumers, as the session does."""
        while self.consumers:
            self._connection._memberships.leave(self.consumers.pop())

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
        if self._mode is AcknowledgeMode.DUPS_OK:
            self.claimed.acknowledge()
        self._connection._returned(self.give_back())

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
        session = self._session
        deadline = None if timeout is None else time.monotonic() + timeout
        poll = PollInterval(self._connection.timings)
        while True:
            news = session._wake_ups.count
            with session._lock:
                if consumer.closed or (session._closed and not self.is_used_by_listener):
                    return None
                started = self._connection._started
                message = self.next(consumer, check) if started else None
            if message is not None:
                return message
            if session._closed or self._connection._closed:
                return None  # a listener gets what is there, and does not make close() wait for what may come
            pause = poll.next() if started else self._connection._start_reminder.look(consumer)
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                return None
            session._wake_ups.wait(
                news, remaining if pause is None or (remaining is not None and remaining < pause) else pause
            )

    def next(self, consumer: ConsumerState, check: MessageCheck | None = None) -> Message | None:
        """Return the consumer's next message as delivered, if there is one now."""
        if not self._session._is_usable:
            return None
        try:
            return self._deliver_next(consumer, check)
        finally:
            if self._mode is AcknowledgeMode.TRANSACTED:
                self.end_unused_transaction()

    def end_unused_transaction(self) -> None:
        """Keep no transaction open, while the session waits, in which nothing has happened."""
        session = self._session
        database = session._database
        if database.is_lent and not database.is_ours:
            return  # the application may have done something in it
        if not (self.locked.has_delivered or session._sending.has_part_in_transaction):
            database.end_unused()
            self._connection._returned(self.locked.committed())

    def _deliver_next(self, consumer: ConsumerState, check: MessageCheck | None) -> Message | None:
        is_lazy = self._mode is AcknowledgeMode.DUPS_OK
        if is_lazy and self.claimed.acknowledgement_due:
            self.claimed.acknowledge()
        is_received_anyway = self._mode in {AcknowledgeMode.CLIENT, AcknowledgeMode.TRANSACTED}
        if check is None or is_received_anyway:
            row = self.delivery(consumer).next(consumer.inbox)
        else:
            row = self._next_accepted(consumer, check)
        if row is None:
            if is_lazy:
                self.claimed.acknowledge()
            return None
        message = row.message(consumer.destination, self._session._acknowledge_received)
        if check is not None and is_received_anyway:
            check(message)
        return message

    def _next_accepted(self, consumer: ConsumerState, check: MessageCheck) -> MessageRow | None:
        """Return the next message of a consumer without a listener; one that fails the check stays where it is."""
        delivery = self._immediate if self._mode is AcknowledgeMode.AUTO else self.claimed
        return delivery.next(consumer.inbox, lambda row: check(row.message(consumer.destination)))

    # By listeners

    def set_listener(self, consumer: ConsumerState, listener: MessageListener | None) -> None:
        """Give the consumer's messages to a listener from now on."""
        if listener is not None:
            self._check_no_message_listener()
        with self._session._lock:
            self._connection._returned(self.delivery(consumer).closed(consumer.inbox))
            consumer.listener = listener
            consumer.inbox.fetch_by(self.delivery(consumer).operation)
            if listener is not None and self.listener_thread is None:
                self.listener_thread = thread = ListenerThread(self._session)
                thread.start()
        self._session._wake()

    def _check_no_message_listener(self) -> None:
        if self._session._message_listener is not None:
            raise IllegalStateException(
                "The session has a message_listener, for connection consumers, and receives in no other way."
            )

    @property
    def listening_consumers(self) -> list[ConsumerState]:
        """The consumers with listeners."""
        with self._session._lock:
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
            with processing(self._session._facts, message):
                call_listener(listener, message)
        except Exception as error:
            logger.exception("The listener %r failed with %r.", listener, message)
            return failure_text(error)
        return None

    def keeping_claims(self) -> AbstractContextManager[None]:
        """Extend the claims on what was delivered and not acknowledged for as long as a `with` block runs."""
        return self._connection._control.keeping(self.claimed.limited_claims)

    def delivered_to_listener(self, error: str | None) -> None:
        """Acknowledge what a listener has handled, or give it back if it failed.

        Args:
            error: What went wrong, if something did.
        """
        if self._mode not in {AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK}:
            return
        if error is not None:
            with settling(self._session._facts, "release"):
                self._connection._returned(self.claimed.give_back(error))
        elif self._mode is AcknowledgeMode.AUTO:
            with settling(self._session._facts, "acknowledge"):
                self.claimed.acknowledge()

    def failed(self, error: JMSException) -> None:
        """Tell of an error between listeners, and begin anew if it has cost the session its transaction."""
        session = self._session
        if self._mode is AcknowledgeMode.TRANSACTED and session._database.is_lost:
            with session._lock:
                session._roll_back()
            lost = TransactionRolledBackException(
                "The connection to PostgreSQL was lost, and with it the transaction; its messages are delivered again.",
                error.error_code,
            )
            lost.__cause__ = error
            error = lost
        elif isinstance(error, TransactionRolledBackException):
            with session._lock:
                session._roll_back()
        logger.warning("The listeners of %r wait: %s", session, error)
        self._connection._failed(error)

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
