"""Counts the messages that this process's connections send and receive."""

from __future__ import annotations

import threading

from jmsql.concurrency.forks import renew_in_forked_children
from jmsql.public_names import set_module
from jmsql.store.control.counters import Counts, meters
from jmsql.values.destinations import Destination, TemporaryQueue, TemporaryTopic

# Every session of the process calls `_count` while one of these counters is open, from any thread. `_lock` guards the
# dictionary; a set of counts is a value, which a reader may keep.


_TEMPORARY = "temporary"
"""The common name of all temporary destinations: each client would add names."""


@set_module("jmsql.metrics")
class ProcessCounters:
    """Counts until it is closed."""

    def __init__(self) -> None:
        self._unlock()
        self._counts: dict[str, Counts] = {}
        renew_in_forked_children(self, ProcessCounters._unlock)
        meters.add(self._count)

    def _unlock(self) -> None:
        self._lock = threading.Lock()

    def counts(self) -> dict[str, Counts]:
        """Return the counts so far, by the destinations' URIs."""
        with self._lock:
            return dict(self._counts)

    def close(self) -> None:
        """Count no more. Closing again does nothing."""
        meters.discard(self._count)

    def _count(self, destination: Destination, counts: Counts) -> None:
        name = _TEMPORARY if isinstance(destination, TemporaryQueue | TemporaryTopic) else destination.uri
        with self._lock:
            self._counts[name] = self._counts.get(name, Counts()).plus(counts)
