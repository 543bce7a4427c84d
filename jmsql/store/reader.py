"""A consumer's way through its queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from jmsql.selectors import Selector
from jmsql.store.dequeue import PRIORITIES, ScanBounds
from jmsql.store.message_store import MessageStore
from jmsql.store.rows import MessageRow

__all__ = ["Fetch", "QueueReader"]

Fetch = Callable[[MessageStore, int, Selector | None, Sequence[int], int], list[MessageRow]]
"""One of the store's operations that hand out messages: lock, take or claim."""


class QueueReader:
    """Reads a queue in the order of delivery, without rescanning what it has seen.

    Args:
        queue_id: The queue.
        selector: Which messages of the queue are wanted; None: all.
        fetch: How they are taken.
    """

    def __init__(self, queue_id: int, selector: Selector | None, fetch: Fetch) -> None:
        self.queue_id = queue_id
        self._selector = selector
        self.fetch = fetch
        self._bounds = ScanBounds()

    def read(self, store: MessageStore, limit: int, *, look_everywhere: bool = True) -> list[MessageRow]:
        """Return up to `limit` messages.

        Args:
            store: The store, through the connection to read with.
            limit: The most messages to return.
            look_everywhere: When nothing is found, sweep the whole queue before the answer is "none", if sweeps are
                cheap enough just now.
        """
        if self._bounds.sweep_due(idle=False):
            return self._sweep(store, limit)
        # Read before the scan, so that what is committed in between is above it.
        highest = self._highest(store)
        rows = self.fetch(store, self.queue_id, self._selector, self._bounds.lowest, limit)
        self._passed(rows, highest, limit)
        if not rows and look_everywhere and self._bounds.sweep_due(idle=True):
            rows = self._sweep(store, limit)
        return rows

    def returned(self, inverse_priority: int, sequence: int) -> None:
        """Look again from a message that was given back."""
        self._bounds.returned(inverse_priority, sequence)

    def _sweep(self, store: MessageStore, limit: int) -> list[MessageRow]:
        highest = self._highest(store)
        started = time.monotonic()
        rows = self.fetch(store, self.queue_id, self._selector, [0] * PRIORITIES, limit)
        self._bounds.swept(time.monotonic() - started)
        self._passed(rows, highest, limit)
        return rows

    def _highest(self, store: MessageStore) -> list[int]:
        # Without a selector a scan stops at what it returns, and there is nothing to pass over.
        return [] if self._selector is None else store.highest_sequences(self.queue_id)

    def _passed(self, rows: Sequence[MessageRow], highest: Sequence[int], limit: int) -> None:
        self._bounds.passed((row.inverse_priority, row.sequence) for row in rows)
        if len(rows) < limit:
            self._bounds.passed(enumerate(highest))
