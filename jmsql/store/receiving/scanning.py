"""Where a consumer looks for its next message, and how many it fetches at once: decisions only, no I/O.

Rows that were deleted stay in the index until vacuum removes them, which it cannot while any transaction in the
database is older. A consumer that starts every scan at the front of its queue reads all of them again each time. So
each remembers, for each priority, the lowest sequence that is worth looking at. What becomes available below that
bound (a transaction that took its sequence early and committed late, a message released by another consumer) is
found by a sweep, a scan from the front, made so seldom that it costs little.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

PRIORITIES = 10
"""The number of JMS priorities."""

_SWEEP_SHARE = 20.0


class GroupScan(NamedTuple):
    """The message groups that a scan has to know.

    Args:
        places: Where to look besides: the first messages of groups, as (inverse priority, sequence).
        limit: The most messages to dequeue of the group of each place.
        own_claims: What the consumer has claimed before: it gets more of those groups.
    """

    places: Sequence[tuple[int, int]] = ()
    limit: int = 1
    own_claims: Collection[int] = ()

    def candidates(self, limit: int) -> int:
        """Return how many candidates the scan looks for, if it is to bring up to `limit` messages.

        Those in the places stand for as many messages of their groups as there may be.
        """
        return limit - len(self.places) * (self.limit - 1)


class ScanBounds:
    """The lowest sequence worth looking at, for each inverse priority.

    Args:
        sweep_interval: Seconds between two sweeps, at the least.
        clock: A monotonic clock, in seconds.
    """

    __slots__ = ("_clock", "_lowest", "_next_idle_sweep", "_next_sweep", "_sweep_interval")

    def __init__(self, sweep_interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._sweep_interval = sweep_interval
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
        """Look again from a message that was released."""
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
        self._next_sweep = now + max(self._sweep_interval, _SWEEP_SHARE * duration)


_MOST_GROUPS = 1000
_GROUPS_AT_ONCE = 100
_PLACES_AT_ONCE = 20


class FreedGroups:
    """The groups that are free again, whose messages may lie below the bounds of the scan.

    It forgets groups when there are too many. They are then found by sweeps.
    """

    __slots__ = ("_groups", "_places")

    def __init__(self) -> None:
        self._groups: dict[int, None] = {}
        self._places: deque[tuple[int, int]] = deque(maxlen=_MOST_GROUPS)

    def add(self, group: int) -> None:
        """Look at a group."""
        if len(self._groups) < _MOST_GROUPS:
            self._groups[group] = None

    def unknown(self) -> list[int]:
        """Return some of the groups, whose first messages are now to be found."""
        groups = list(self._groups)[:_GROUPS_AT_ONCE]
        for group in groups:
            del self._groups[group]
        return groups

    def found(self, places: Iterable[tuple[int, int]]) -> None:
        """Note where the first messages of groups are that the scan will not come to."""
        self._places.extend(place for place in places if place not in self._places)

    def next(self, limit: int, own_claims: Collection[int]) -> GroupScan:
        """Return what a scan for up to `limit` messages is to know."""
        count = min(limit, len(self._places), _PLACES_AT_ONCE)
        places = [self._places.popleft() for _ in range(count)]
        return GroupScan(places, max(1, limit // (2 * count)) if places else 1, own_claims)

    def looked(self, places: Iterable[tuple[int, int]], found: Collection[tuple[int, int]], *, full: bool) -> None:
        """Note what was found."""
        if full:
            self._places.extend(place for place in places if place not in found)


_MOST_MESSAGES = 100
_MOST_BYTES = 16 * 1024 * 1024


class Prefetch:
    """How many messages a consumer takes at once.

    It starts with one and doubles, or takes what is left of as many as the last transaction used. A transaction that
    found no more would have used more: it lowers no expectations, so that consumers that compete take whole batches. It
    never takes more than the consumer handles in a certain time, so that a slow consumer leaves messages to others, nor
    more than 16 MiB by the size of those seen lately.

    Args:
        duration: That time, in seconds.
        clock: A monotonic clock, in seconds.
    """

    __slots__ = (
        "_clock",
        "_duration",
        "_expected",
        "_fetched_at",
        "_message_bytes",
        "_previous",
        "_ran_out",
        "_seconds",
        "used",
    )

    def __init__(self, duration: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._duration = duration
        self._clock = clock
        self._previous = 0
        self._fetched_at = 0.0
        self._message_bytes = 0.0
        self._expected = 0
        self._ran_out = False
        self._seconds = 1e-6
        self.used = 0
        """How many messages the transaction was given so far; who gives one to it counts it here."""

    def size(self) -> int:
        """Return how many messages to dequeue now that the last batch is used up."""
        limit = _MOST_MESSAGES
        if self._message_bytes:
            limit = min(limit, int(_MOST_BYTES / self._message_bytes))
        if self._previous:
            if not self._ran_out:  # else the consumer has waited, not worked
                self._seconds = max(self._clock() - self._fetched_at, 1e-6)
            limit = min(limit, int(self._duration * self._previous / self._seconds))
        remaining = self._expected - self.used
        return max(1, min(limit, remaining if remaining > 0 else 2 * self._previous))

    def fetched(self, messages: int, size: int) -> None:
        """Note that a fetch brought so many messages, of `size` bytes together. Without any the consumer is idle."""
        self._fetched_at = self._clock()
        self._ran_out = not messages
        if messages:
            self._previous = messages
            self._message_bytes = size / messages

    def gave_up(self, messages: int) -> None:
        """Note that so many of the last fetch were not used, since the consumer has become slow."""
        self._previous = max(self._previous - messages, 1)

    def transaction_ended(self) -> None:
        """Expect the next transaction to use as many messages as this one, or more if it has found no more."""
        if self.used:
            self._expected = max(self.used, self._expected) if self._ran_out else self.used
        self.used = 0
