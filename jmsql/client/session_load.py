"""What connection consumers load into a session, and the run that gives it to the session's listener."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.claimed_delivery import ClaimedDelivery
from jmsql.client.inbox import Inbox
from jmsql.client.listener_thread import ListenerRun
from jmsql.client.locked_delivery import LockedDelivery
from jmsql.exceptions import IllegalStateException, JMSException

if TYPE_CHECKING:
    from jmsql.client.consumer_state import ConsumerState
    from jmsql.client.receiving import Receiving
    from jmsql.client.session_state import SessionState

__all__ = ["SessionLoad"]


class SessionLoad:
    """The messages that wait in a session for its run.

    They are locked in the session's transaction, or claimed, as those of any consumer's listener are.

    Args:
        state: The session's; its lock is held while messages are fetched and while the listener runs.
        receiving: What the session receives.
        acknowledge: What `Message.acknowledge` means in the session.
        check_open: Raises IllegalStateException if the session is closed.
    """

    def __init__(
        self,
        state: SessionState,
        receiving: Receiving,
        acknowledge: Callable[[], None],
        check_open: Callable[[], None],
    ) -> None:
        self._state = state
        self._receiving = receiving
        self._acknowledge = acknowledge
        self._check_open = check_open
        self._loaded: ConsumerState | None = None

    def inbox_like(self, inbox: Inbox) -> Inbox:
        """Make an inbox for the same messages, by which this session takes them from the store."""
        return inbox.copy(self._delivery.operation)

    def fetch(self, consumer: ConsumerState, limit: int) -> int:
        """Fetch up to `limit` messages for the next run, and return how many there were.

        Args:
            consumer: Not open to the application; says where the messages come from.
            limit: The most messages to fetch.

        Raises:
            IllegalStateException: The session is closed, has no listener, or waits to run already.
        """
        state, receiving = self._state, self._receiving
        with state.lock:
            self._check_open()
            if state.message_listener is None:
                raise IllegalStateException("The session has no message_listener; set it before the pool hands it out.")
            if self._loaded is not None:
                raise IllegalStateException("The session was handed out again before it ran what it has.")
            if not state.client.started:
                return 0
            self._loaded = consumer
            receiving.consumers.add(consumer)
            consumer.inbox.give_up()  # what an earlier run has left, which the open transaction holds
            self._delivery.fetch(consumer.inbox, limit)
            return len(consumer.inbox)

    def run(self) -> None:
        """Deliver what was fetched."""
        state, receiving = self._state, self._receiving
        if receiving.listener_thread is not None:
            raise IllegalStateException("A session with consumers that have listeners, or that runs, is not run.")
        receiving.listener_thread = run = ListenerRun()
        try:
            while self._deliver_next():
                pass
            if state.acknowledge_mode is AcknowledgeMode.DUPS_OK:
                receiving.claimed.acknowledge()
        except JMSException as error:
            receiving.failed(error)
            receiving.delivered_to_listener(f"The message could not be acknowledged: {error}")
        finally:
            receiving.listener_thread = None
            try:
                self.give_back()
            finally:
                run.end()

    def give_back(self) -> None:
        """Give back what was fetched and is not delivered."""
        state, receiving = self._state, self._receiving
        with state.lock:
            consumer, self._loaded = self._loaded, None
            if consumer is None:
                return
            receiving.consumers.discard(consumer)
            if state.transacted:
                receiving.end_unused_transaction()  # else it goes back when the transaction ends
            else:
                state.client.returned(receiving.claimed.closed(consumer.inbox))

    @property
    def _delivery(self) -> LockedDelivery | ClaimedDelivery:
        return self._receiving.locked if self._state.transacted else self._receiving.claimed

    def _deliver_next(self) -> bool:
        state, receiving = self._state, self._receiving
        # The flags are looked at under the lock: who stops or closes sets them first, then waits for the lock.
        with state.lock:
            consumer, listener = self._loaded, state.message_listener
            if consumer is None or listener is None or state.closed or not state.client.started:
                return False
            row = self._delivery.next_held(consumer.inbox)
            if row is None:
                return False
            receiving.call_listener(listener, row.message(consumer.destination, self._acknowledge))
            return True
