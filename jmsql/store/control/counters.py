"""What a connection counts of the messages that go through it, and writes down.

Messages are counted when their transaction, or their acknowledgement, is over: a batch at a time, and never one that is
still under way. Each control connection writes down, once a second, what its client has counted.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from jmsql.store.control.counts import Counts, measure, meters
from jmsql.store.rows.arrays import array_literal
from jmsql.store.statement import Query, SqlFile, nothing
from jmsql.values.destinations import Destination

__all__ = ["DestinationCounters", "add_counters"]


class DestinationCounters:
    """What one connection counts, until it is written down. Any thread may count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Lists, so that they are added to in place.
        self._counts: dict[int, list[int]] = {}

    def count(self, number: int, destination: Destination, counts: Counts) -> None:
        """Count messages.

        Args:
            number: The number of the queue, or of the topic (negative).
            destination: Its name, for who else counts.
            counts: How many there were.
        """
        if meters:
            measure(destination, counts)
        with self._lock:
            self._add(number, counts)

    def drain(self) -> dict[int, Counts]:
        """Return what was counted since the last time."""
        if not self._counts:
            return {}
        with self._lock:
            counted, self._counts = self._counts, {}
        return {number: Counts._make(counts) for number, counts in counted.items()}

    def put_back(self, counted: Mapping[int, Counts]) -> None:
        """Keep what could not be written down."""
        with self._lock:
            for number, counts in counted.items():
                self._add(number, counts)

    def _add(self, number: int, counts: Counts) -> None:
        known = self._counts.get(number)
        if known is None:
            self._counts[number] = list(counts)
            return
        known[0] += counts[0]
        known[1] += counts[1]
        known[2] += counts[2]
        known[3] += counts[3]


_add = SqlFile("control").statement("add_counters", "counting what goes through", nothing)


def add_counters(counted: Mapping[int, Counts]) -> Query[None]:
    """Add to what is written down; the statement is to commit by itself.

    Args:
        counted: What was counted, by the number of the queue, or of the topic (negative).
    """
    return _add.bind(
        destination_ids=array_literal(counted),
        sent=array_literal(counts.sent for counts in counted.values()),
        acknowledged=array_literal(counts.acknowledged for counts in counted.values()),
        rolled_back=array_literal(counts.rolled_back for counts in counted.values()),
        redelivered=array_literal(counts.redelivered for counts in counted.values()),
    )
