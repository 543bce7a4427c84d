"""What connection consumers load into a session, and the run that gives it to the session's listener."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.claimed_delivery import ClaimedDelivery
from jmsql.client.inbox import Inbox
from jmsql.client.locked_delivery import LockedDelivery
from jmsql.exceptions import IllegalStateException, JMSException

if TYPE_CHECKING:
    from jmsql.client.consumer_state import ConsumerState
    from jmsql.client.session import Session

__all__ = ["ListenerRun", "SessionLoad"]


class ListenerRun:
    """The thread that runs a session, for as long as it does."""

    def __init__(self) -> None:
        self.thread = threading.current_thread()
        self._at_end: Callable[[], None] = lambda: None
        self._ended = threading.Event()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread: in a listener."""
        return threading.current_thread() is self.thread

    def join(self) -> None:
        """Wait until the run has ended, which it does soon once the session is closed."""
        self._ended.wait()

    def finally_call(self, at_end: Callable[[], None]) -> None:
        """Call `at_end` when the listener that runs now has returned and the run ends."""
        self._at_end = at_end

    def end(self) -> None:
        """Note that the run is over."""
        try:
            self._at_end()
        finally:
            self._ended.set()


class SessionLoad:
    """The messages that wait in a session for its run.

    They are locked in the session's transaction, or claimed, as those of any consumer's listener are.

    Args:
        session: The session; its lock is held while messages are fetched and while the listener runs.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
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
        session = self._session
        with session._lock:
            session._check_open()
            if session._message_listener is None:
                raise IllegalStateException("The session has no message_listener; set it before the pool hands it out.")
            if self._loaded is not None:
                raise IllegalStateException("The session was handed out again before it ran what it has.")
            if not session._connection._started:
                return 0
            self._loaded = consumer
            session._receiving.consumers.add(consumer)
            consumer.inbox.give_up()  # what an earlier run has left, which the open transaction holds
            self._delivery.fetch(consumer.inbox, limit)
            return len(consumer.inbox)

    def run(self) -> None:
        """Deliver what was fetched."""
        session = self._session
        if session._receiving.listener_thread is not None:
            raise IllegalStateException("A session with consumers that have listeners, or that runs, is not run.")
        session._receiving.listener_thread = run = ListenerRun()
        try:
            while self._deliver_next():
                pass
            if session._acknowledge_mode is AcknowledgeMode.DUPS_OK:
                session._receiving.claimed.acknowledge()
        except JMSException as error:
            session._receiving.failed(error)
            session._receiving.delivered_to_listener(f"The message could not be acknowledged: {error}")
        finally:
            session._receiving.listener_thread = None
            try:
                self.give_back()
            finally:
                run.end()

    def is_of(self, consumer: ConsumerState) -> bool:
        """Whether the consumer is none of the application's, but says where the load comes from."""
        return self._loaded is consumer

    def give_back(self) -> None:
        """Give back what was fetched and is not delivered."""
        session = self._session
        with session._lock:
            consumer, self._loaded = self._loaded, None
            if consumer is None:
                return
            session._receiving.consumers.discard(consumer)
            if session._is_transacted:
                session._receiving.end_unused_transaction()  # else it goes back when the transaction ends
            else:
                session._connection._returned(session._receiving.claimed.closed(consumer.inbox))

    @property
    def _delivery(self) -> LockedDelivery | ClaimedDelivery:
        return self._session._receiving.locked if self._session._is_transacted else self._session._receiving.claimed

    def _deliver_next(self) -> bool:
        session = self._session
        # The flags are looked at under the lock: who stops or closes sets them first, then waits for the lock.
        with session._lock:
            consumer, listener = self._loaded, session._message_listener
            if consumer is None or listener is None or session._closed or not session._connection._started:
                return False
            row = self._delivery.next_held(consumer.inbox)
            if row is None:
                return False
            session._receiving.call_listener(listener, row.message(consumer.destination, session._acknowledge_received))
            return True
