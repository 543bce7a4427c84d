"""The threads on which a session calls its message listeners."""

from __future__ import annotations

import threading
from collections.abc import Callable

from jmsql.client.polling import PollInterval
from jmsql.client.session_state import SessionState
from jmsql.exceptions import JMSException

__all__ = ["ListenerRun", "ListenerThread"]


class ListenerThread:
    """Delivers a session's messages to its listeners, one at a time, while its connection is started. Begun by `start`.

    Args:
        state: The session's.
        deliver: Gives each listener a message, if it has one, and returns whether there was any.
        remind: Says that nobody has started the connection, if that has taken long; returns for how many seconds at
            most to wait before the next call, None: for ever.
        failed: Is told of an error between listeners.
    """

    def __init__(
        self,
        state: SessionState,
        deliver: Callable[[], bool],
        remind: Callable[[], float | None],
        failed: Callable[[JMSException], None],
    ) -> None:
        self._state = state
        self._deliver = deliver
        self._remind = remind
        self._failed = failed
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
        state = self._state
        poll = PollInterval(state.client.timings)
        while not state.closed:
            news = state.wake_ups.count
            try:
                delivered = self._deliver()
            except JMSException as error:
                self._failed(error)
                delivered = False
            if delivered:
                poll.reset()
            else:
                state.wake_ups.wait(news, poll.next() if state.client.started else self._remind())
        self._at_end()


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
