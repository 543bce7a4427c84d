"""The server's time, by which messages expire and become due, told by the client."""

from __future__ import annotations

import time

from jmsql.store.runners._sync.runner import Runner
from jmsql.store.statement import SqlFile, value
from jmsql.timings import Timings

__all__ = ["ServerClock"]

_clock = SqlFile("control").statement("clock", "asking for the time", value(int))


class ServerClock:
    """The client's own clock while that agrees with the server's, which is asked now and then.

    A clock that was set wrong, or set while the client runs, would make messages expire as they are sent.

    Args:
        timings: How often it asks, and by how much the clocks may differ. Asking takes time, too.
    """

    def __init__(self, timings: Timings) -> None:
        self._interval = timings.clock_interval
        self._tolerance = timings.clock_tolerance * 1000
        self._set_at: tuple[int, int] | None = None
        self._next_look = 0.0

    def milliseconds(self) -> int:
        """Return the time in milliseconds since the epoch."""
        own = time.time_ns() // 1_000_000
        if self._set_at is None:
            return own
        then, monotonic = self._set_at
        servers = then + (time.monotonic_ns() - monotonic) // 1_000_000
        return own if abs(own - servers) < self._tolerance else servers

    def set(self, milliseconds: int) -> None:
        """Take note of the server's time, of now."""
        self._set_at = milliseconds, time.monotonic_ns()
        self._next_look = time.monotonic() + self._interval

    def look(self, runner: Runner) -> None:
        """Ask for the server's time, if it was not asked for lately."""
        if time.monotonic() >= self._next_look:
            self.set(runner.run(_clock.bind()))
