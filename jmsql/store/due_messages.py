"""Moving delayed messages to where consumers find them, once they are due."""

from __future__ import annotations

import time

from jmsql.store.delay_statements import delay_statements
from jmsql.store.driver import Driver
from jmsql.timings import Timings

__all__ = ["DueMessages"]

_LIMIT = 500
_SHARE = 20.0


class DueMessages:
    """Moves messages when they are due, in small steps, for the one connection that does the upkeep.

    It looks when the next known message is due, when it is told of another, and now and then, since nobody tells of a
    message if the notification is lost. Looking takes up at most a twentieth of the time.

    Args:
        schema: The name of the schema.
        timings: How often it looks, when nobody tells of a message.
    """

    def __init__(self, schema: str, timings: Timings) -> None:
        self._timings = timings
        self._statements = delay_statements(schema)
        self._earliest_look = 0.0
        self._next_look = 0.0

    def look_soon(self) -> None:
        """Note that there is a new delayed message, which may be due before those that are known."""
        self._next_look = self._earliest_look

    def postpone(self, seconds: float) -> None:
        """Do not look for a while."""
        self._next_look = self._earliest_look = time.monotonic() + seconds

    def seconds_to_next(self) -> float:
        """Return how many seconds there are to the next look."""
        return max(0.0, self._next_look - time.monotonic())

    def run(self, driver: Driver) -> list[int]:
        """Move some messages, if it is time to, and return the numbers of their queues.

        Args:
            driver: The control connection, in autocommit mode.
        """
        started = time.monotonic()
        if started < self._next_look:
            return []
        moved: dict[int, int] = {}
        rows = driver.execute(self._statements.milliseconds_to_next).rows
        pause = self._timings.delayed_message_interval
        if rows:
            pause = min((rows[0][0] + 1) / 1000, pause)
        if pause <= 0:
            moved = dict(driver.execute(self._statements.move_due, {"limit": _LIMIT}).rows)
            # None, though some are due: somebody else has locked them, who purges the queue.
            pause = 0.0 if moved else self._timings.locked_message_interval
        now = time.monotonic()
        self._earliest_look = now if moved else now + _SHARE * (now - started)
        self._next_look = max(now + pause, self._earliest_look)
        return list(moved)
