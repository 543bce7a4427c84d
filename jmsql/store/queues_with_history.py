"""What a client knows of which queues keep history, so that it acknowledges messages of others at no cost."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

from jmsql.store._sync.runner import Runner
from jmsql.store.statement import SqlFile, column

__all__ = ["QueuesWithHistory"]

_find = SqlFile("control").statement("queues_with_history", "looking for queues with history", column)


class QueuesWithHistory:
    """Keeps up with the queues that keep history, a moment behind. May be asked from any thread.

    Args:
        interval: Seconds between two looks.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._lock = threading.Lock()
        self._known: frozenset[int] = frozenset()
        self._not_looked_at: set[int] = set()
        self._next_look = 0.0

    def may_include(self, queue_ids: Collection[int]) -> bool:
        """Tell whether one of the queues keeps history, as far as is known: one that is new may."""
        return not (self._known.isdisjoint(queue_ids) and self._not_looked_at.isdisjoint(queue_ids))

    def add(self, queue_id: int) -> None:
        """Note that messages of a queue are going to be acknowledged, which may have been made since the last look."""
        with self._lock:
            self._not_looked_at.add(queue_id)

    def run(self, runner: Runner) -> None:
        """Look again, if it is time to."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + self._interval
        with self._lock:
            looked_at = set(self._not_looked_at)
        found = runner.run(_find.bind())
        self._known = frozenset(found)
        with self._lock:
            self._not_looked_at -= looked_at
