"""Keeping history: which queues do, and the part of a deletion that copies messages there."""

from __future__ import annotations

import math
import threading
from collections.abc import Collection

from jmsql.store.statement import SqlFile, column
from jmsql.store.wire._sync.runner import Runner
from jmsql.values.clock import monotonic

_find = SqlFile("control").statement("queues_with_history", "looking for queues with history", column)


class QueuesWithHistory:
    """Keeps up with the queues that keep history, a moment behind. May be asked from any thread.

    Args:
        interval: Seconds between two looks.
        is_told: Whether the client is told of changes, so that it looks only then, and for queues that are new to it.
    """

    def __init__(self, interval: float, *, is_told: bool) -> None:
        self._interval = interval
        self._is_told = is_told
        self._has_changed = True
        self._lock = threading.Lock()
        self._known: frozenset[int] = frozenset()
        self._not_looked_at: set[int] = set()
        self.possible: frozenset[int] = frozenset()
        """The queues that may keep history, as far as is known: a new one may."""
        self._next_look = 0.0

    def add(self, queue_id: int) -> None:
        """Note that messages of a queue are going to be acknowledged, which may have been made since the last look."""
        with self._lock:
            self._not_looked_at.add(queue_id)
            self.possible = self._known | self._not_looked_at

    def changed(self) -> None:
        """Note that one of them has changed, or may have."""
        self._has_changed = True
        self._next_look = 0.0

    def run(self, runner: Runner) -> None:
        """Look again, if it is time to."""
        is_due = not self._is_told or self._has_changed or self._not_looked_at
        if is_due and monotonic() >= self._next_look:
            new = self.new
            self._next_look = monotonic() + self._interval  # also if it fails
            self.found(runner.run(_find.bind()), new)

    def seconds_to_next(self) -> float:
        """Return infinity: the thread wakes often enough without it, each `maintenance_interval`."""
        return math.inf

    @property
    def new(self) -> Collection[int]:
        """The queues that no look has been for."""
        with self._lock:
            return set(self._not_looked_at)

    def found(self, queue_ids: Collection[int], new: Collection[int]) -> None:
        """Record the answer of a query."""
        self._next_look = monotonic() + self._interval
        self._has_changed = False
        with self._lock:
            self._known = frozenset(queue_ids)
            self._not_looked_at.difference_update(new)
            self.possible = self._known | self._not_looked_at


RECORDED = "(select true from history)"
"""The condition of a deletion that comes after the part `history`."""


def history(
    *,
    queues: str,
    addresses: str,
    deliveries: str,
    outcome: str = "acknowledged",
    consumer: str = "null",
) -> str:
    """Return the common table expression `history`, which the deletion waits for by its condition `RECORDED`.

    The copying function sees the statement's earlier deletions as done. So it comes first, and gets the rows that it
    could no longer read.

    Args:
        queues: The numbers of the messages' queues, an integer array.
        addresses: Where the messages are, a tid array. Their rows are locked.
        deliveries: How often each was delivered before, an integer array or null.
        outcome: How they end.
        consumer: The number of the connection that ends them, or null.
    """
    return f"""history as materialized (
                select case when exists (select from jmsql_internal.queue q
                where q.history and q.queue_id = any({queues}))
                       then jmsql_internal.keep_history({addresses}, {deliveries}, '{outcome}', {consumer}) end)"""
