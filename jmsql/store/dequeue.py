"""Where a consumer looks for its next message, and how many it takes at once: decisions only, no I/O.

Rows that were deleted stay in the index until vacuum removes them, which it cannot while any transaction in the
database is older. A consumer that starts every scan at the front of its queue reads all of them again each time. So
each remembers, for each priority, the lowest sequence that is worth looking at. What becomes available below that
bound (a transaction that took its sequence early and committed late, a message given back by another consumer) is
found by a sweep, a scan from the front, made so seldom that it costs little.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

__all__ = ["PRIORITIES", "Prefetch", "ScanBounds"]

PRIORITIES = 10
"""The number of JMS priorities."""

_SWEEP_INTERVAL = 1.0
_SWEEP_SHARE = 20.0


class ScanBounds:
    """The lowest sequence worth looking at, for each inverse priority.

    Args:
        clock: A monotonic clock, in seconds.
    """

    __slots__ = ("_clock", "_lowest", "_next_idle_sweep", "_next_sweep")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lowest = [0] * PRIORITIES
        self._next_sweep = 0.0
        self._next_idle_sweep = 0.0

    @property
    def lowest(self) -> list[int]:
        """The bounds, by inverse priority."""
        return list(self._lowest)

    def passed(self, keys: Iterable[tuple[int, int]]) -> None:
        """Move each bound past the messages found, given as (inverse priority, sequence)."""
        for inverse_priority, sequence in keys:
            if sequence >= self._lowest[inverse_priority]:
                self._lowest[inverse_priority] = sequence + 1

    def returned(self, inverse_priority: int, sequence: int) -> None:
        """Look again from a message that was given back."""
        self._lowest[inverse_priority] = min(self._lowest[inverse_priority], sequence)

    def sweep_due(self, *, idle: bool) -> bool:
        """Tell whether it is time for a scan from the front.

        Args:
            idle: The consumer has found nothing and has nothing better to do: sweeps then come closer together.
        """
        return self._clock() >= (self._next_idle_sweep if idle else self._next_sweep)

    def swept(self, duration: float) -> None:
        """Note that a sweep took `duration` seconds, so that sweeps take up at most a twentieth of the time."""
        now = self._clock()
        self._next_idle_sweep = now + _SWEEP_SHARE * duration
        self._next_sweep = now + max(_SWEEP_INTERVAL, _SWEEP_SHARE * duration)


_MOST_MESSAGES = 100
_MOST_BYTES = 16 * 1024 * 1024
_MOST_SECONDS = 0.25


class Prefetch:
    """How many messages a consumer takes at once.

    It starts with one and doubles, or takes what is left of as many as the last transaction used. It never takes more
    than the consumer handles in a quarter of a second, so that a slow consumer leaves messages to others, nor more than
    16 MiB by the size of those seen lately.

    Args:
        clock: A monotonic clock, in seconds.
    """

    __slots__ = ("_clock", "_expected", "_fetched_at", "_message_bytes", "_previous", "_used")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._previous = 0
        self._fetched_at = 0.0
        self._message_bytes = 0.0
        self._used = 0
        self._expected = 0

    def size(self) -> int:
        """Return how many messages to take now that the last batch is used up."""
        limit = _MOST_MESSAGES
        if self._message_bytes:
            limit = min(limit, int(_MOST_BYTES / self._message_bytes))
        if self._previous:
            seconds = max(self._clock() - self._fetched_at, 1e-6)
            limit = min(limit, int(_MOST_SECONDS * self._previous / seconds))
        remaining = self._expected - self._used
        return max(1, min(limit, remaining if remaining > 0 else 2 * self._previous))

    def fetched(self, messages: int, size: int) -> None:
        """Note that a fetch brought so many messages, of `size` bytes together."""
        self._fetched_at = self._clock()
        if messages:
            self._previous = messages
            self._message_bytes = size / messages

    def used(self) -> None:
        """Note that the consumer was given a message."""
        self._used += 1

    def transaction_ended(self) -> None:
        """Expect the next transaction to use as many messages as this one."""
        if self._used:
            self._expected = self._used
        self._used = 0
