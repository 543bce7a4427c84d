"""The thread on which a session calls its message listeners."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from jmsql.client.polling import PollInterval
from jmsql.exceptions import JMSException

if TYPE_CHECKING:
    from jmsql.client.consumer_state import ConsumerState
    from jmsql.client.session import Session

__all__ = ["ListenerThread"]


class ListenerThread:
    """Delivers a session's messages to its listeners, one at a time, while its connection is started. Begun by `start`.

    Args:
        session: The session; its lock is held while a listener runs.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._at_end: Callable[[], None] = lambda: None
        self.thread = threading.Thread(target=self._run, name="jmsql-listener", daemon=True)

    def start(self) -> None:
        """Begin to deliver."""
        self.thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread: in a listener."""
        return threading.current_thread() is self.thread

    def join(self) -> None:
        """Wait until the thread has ended, which it does once the session is closed."""
        self.thread.join()

    def finally_call(self, at_end: Callable[[], None]) -> None:
        """Call `at_end` when the listener that runs now has returned and the thread ends."""
        self._at_end = at_end

    def _run(self) -> None:
        session = self._session
        poll = PollInterval(session._connection.timings)
        while not session._closed:
            news = session._wake_ups.count
            try:
                delivered = self._deliver_round()
            except JMSException as error:
                session._receiving.failed(error)
                delivered = False
            if delivered:
                poll.reset()
            else:
                session._wake_ups.wait(news, poll.next() if session._connection._started else self._remind())
        self._at_end()

    def _remind(self) -> float | None:
        """Say that nobody has started the connection, if that has taken long; return how long to wait before a look."""
        for consumer in self._session._receiving.listening_consumers:
            return self._session._connection._start_reminder.look(consumer)
        return None

    def _deliver_round(self) -> bool:
        """Deliver one message to each listener that has one, and return whether there was any."""
        delivered = False
        for consumer in self._session._receiving.listening_consumers:
            # The flags are looked at under the lock: who stops or closes sets them first, then waits for the lock.
            with self._session._lock:
                if self._session._closed or not self._session._connection._started or consumer.closed:
                    continue
                delivered |= self._deliver(consumer)
        return delivered

    def _deliver(self, consumer: ConsumerState) -> bool:
        listener = consumer.listener
        message = self._session._receiving.next(consumer)
        if message is None or listener is None:
            return False
        self._session._receiving.call_listener(listener, message)
        return True
