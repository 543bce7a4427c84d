"""Waiting until something happens that is worth another look."""

from __future__ import annotations

import threading

__all__ = ["Notifications"]


class Notifications:
    """Wakes the threads that wait for news of a session; none is missed that comes after `count` was read."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.count = 0
        """How many there have been."""

    def notify(self) -> None:
        """Have the threads that wait look again."""
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait(self, count: int, timeout: float | None) -> None:
        """Wait until there have been more than `count`, at most `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self.count != count, timeout)
