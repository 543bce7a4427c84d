"""A warning that consumers wait for messages of a connection that was never started."""

from __future__ import annotations

from collections.abc import Callable

from jmsql.logs import contained_logger
from jmsql.values.clock import monotonic

logger = contained_logger("jmsql")


class StartReminder:
    """Warns, once, of consumers that receive nothing since their connection was never started.

    It has no thread: those that wait ask it. Its methods may be called from any thread.
    """

    def __init__(self, delay: float, clock: Callable[[], float] = monotonic) -> None:
        self._delay = delay
        self._clock = clock
        self._due: float | None = None
        self._is_settled = False

    def settle(self) -> None:
        """Warn no more: the connection was started."""
        self._is_settled = True

    def remind(self, waiting: object) -> float | None:
        """Warn if it is time; return for how many seconds at most to wait before the next look, None: for ever."""
        if self._is_settled:
            return None
        now = self._clock()
        if self._due is None:
            self._due = now + self._delay
        if now < self._due:
            return self._due - now
        self._is_settled = True
        logger.warning(
            "%r receives nothing: its connection was never started. Call start() of the connection, or of the context.",
            waiting,
        )
        return None
