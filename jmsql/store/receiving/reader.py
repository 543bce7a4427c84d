"""A consumer's way through its queue: where it looks for its next message."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum, auto

from jmsql.selectors import Selector
from jmsql.store.receiving.candidates import first_of_groups
from jmsql.store.receiving.receive import PRIORITIES, Fetch, GroupScan, has_groups, has_messages, highest_sequences
from jmsql.store.rows.message_rows import MessageRow
from jmsql.store.statement import Steps

# Rows that were deleted stay in the index until vacuum removes them, which it cannot while any transaction in the
# database is older. A consumer that starts every scan at the front of its queue reads all of them again each time. So
# each remembers, for each priority, the lowest sequence that is worth looking at. What becomes available below that
# bound (a transaction that took its sequence early and committed late, a message released by another consumer) is
# found by a sweep, a scan from the front, made so seldom that it costs little.

_SWEEP_SHARE = 20.0


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


class _Groups(Enum):
    """Whether a queue has, or had, messages of groups."""

    NONE = auto()
    UNKNOWN = auto()
    SOME = auto()


class QueueReader:
    """Reads a queue in the order of delivery, without rescanning what it has seen.

    Args:
        queue_id: The queue.
        selector: Which messages of the queue are wanted; None: all.
        fetch: How they are taken.
        sweep_interval: Seconds between two scans from the front, at the least.
    """

    def __init__(self, queue_id: int, selector: Selector | None, fetch: Fetch, sweep_interval: float) -> None:
        self.queue_id = queue_id
        self._selector = selector
        self.fetch = fetch
        self._bounds = ScanBounds(sweep_interval)
        self._freed = FreedGroups()
        self._groups = _Groups.UNKNOWN
        self._was_full = False

    def read(
        self,
        limit: int,
        own_claims: Collection[int] = (),
        *,
        look_everywhere: bool = True,
        may_have_changed: bool = True,
    ) -> Steps[list[MessageRow]]:
        """Return up to `limit` messages.

        Args:
            limit: The most messages to return.
            own_claims: The reader's claims on messages of groups: it gets more of the same groups.
            look_everywhere: When nothing is found, sweep the whole queue before the answer is "none", if sweeps are
                cheap enough just now.
            may_have_changed: Whether the queue may have got groups since the last read, if that has found something.
        """
        if may_have_changed and self._groups is _Groups.NONE:
            self._groups = _Groups.UNKNOWN
        rows = yield from self._read(limit, own_claims, look_everywhere=look_everywhere)
        # What a scan for queues without groups finds proves that there were none. Who finds nothing asks next time.
        if self._groups is not _Groups.SOME:
            self._groups = _Groups.UNKNOWN if not rows else _Groups.NONE
        return rows

    def _read(self, limit: int, own_claims: Collection[int], *, look_everywhere: bool) -> Steps[list[MessageRow]]:
        if self._bounds.sweep_due(idle=False):
            return (yield from self._sweep(limit, own_claims))
        # Read before the scan, so that what is committed in between is above it. Not where the last scan has found all
        # that was wanted, which this one will most likely do, too.
        highest = [] if self._was_full and self._selector is None else (yield from self._highest())
        lowest = self._bounds.lowest
        groups: GroupScan | None = None
        if self._groups is _Groups.SOME:
            groups = yield from self._group_scan(lowest, limit, own_claims)
        rows = yield from self.fetch(self.queue_id, self._selector, lowest, limit, groups)
        if not rows and (yield from self._has_got_groups()):
            return (yield from self._sweep(limit, own_claims))
        wanted = limit
        if groups is not None:
            wanted = groups.candidates(limit)
            found = {(row.inverse_priority, row.sequence) for row in rows}
            self._freed.looked(groups.places, found, full=len(rows) >= wanted)
        self._passed(rows, highest, wanted, groups)
        if not rows and look_everywhere and self._bounds.sweep_due(idle=True):
            rows = yield from self._sweep(limit, own_claims)
        return rows

    def may_find(self) -> Steps[bool]:
        """Return whether `read` may find something, which takes less time than a read that finds nothing."""
        if self._selector is not None or self._groups is _Groups.SOME:
            return True
        sweeps = self._bounds.sweep_due(idle=True)
        started = time.monotonic()
        lowest = [0] * PRIORITIES if sweeps else self._bounds.lowest
        has_found, may_have_groups = yield from has_messages(self.queue_id, lowest)
        self._groups = _Groups.UNKNOWN if may_have_groups else _Groups.NONE
        if has_found or may_have_groups:
            return True
        if sweeps:
            self._bounds.swept(time.monotonic() - started)
        return False

    @property
    def has_groups(self) -> bool:
        """Whether the queue has, or had, messages of groups, as far as is known."""
        return self._groups is _Groups.SOME

    def returned(self, inverse_priority: int, sequence: int) -> None:
        """Look again from a message that was released."""
        self._bounds.returned(inverse_priority, sequence)

    def freed(self, group: int) -> None:
        """Read a group again, which is free again."""
        self._groups = _Groups.SOME
        self._freed.add(group)

    def _sweep(self, limit: int, own_claims: Collection[int]) -> Steps[list[MessageRow]]:
        highest = yield from self._highest()
        started = time.monotonic()
        groups = GroupScan(own_claims=own_claims) if self._groups is _Groups.SOME else None
        rows = yield from self.fetch(self.queue_id, self._selector, [0] * PRIORITIES, limit, groups)
        if not rows and (yield from self._has_got_groups()):
            return (yield from self._sweep(limit, own_claims))
        self._bounds.swept(time.monotonic() - started)
        self._passed(rows, highest, limit)
        return rows

    def _has_got_groups(self) -> Steps[bool]:
        """Tell whether the queue has got groups, since when the fetch for queues without them finds nothing at all."""
        if self._groups is not _Groups.UNKNOWN:
            return False
        found = yield from has_groups(self.queue_id)
        self._groups = _Groups.SOME if found else _Groups.NONE
        return found

    def _group_scan(self, lowest: Sequence[int], limit: int, own_claims: Collection[int]) -> Steps[GroupScan]:
        """Find out where there are groups that are free again."""
        unknown = self._freed.unknown()
        if unknown:
            first = yield from first_of_groups(self.queue_id, self._selector, unknown)
            self._freed.found(place for place in first if place[1] < lowest[place[0]])
        return self._freed.next(limit, own_claims)

    def _highest(self) -> Steps[list[int]]:
        # Without a selector and groups a scan stops at what it returns, and there is nothing to pass over.
        if self._selector is None and self._groups is not _Groups.SOME:
            return []
        return (yield from highest_sequences(self.queue_id))

    def _passed(
        self, rows: Sequence[MessageRow], highest: Sequence[int], limit: int, groups: GroupScan | None = None
    ) -> None:
        if self._groups is _Groups.SOME:
            lowest = self._bounds.lowest
            for row in rows:
                if row.group_hash is not None and row.sequence < lowest[row.inverse_priority]:
                    self._freed.add(row.group_hash)  # the scan will not come to what follows
        reached = rows
        if groups is not None and groups.limit > 1:
            # What follows in the groups of places may lie beyond the end of the scan.
            first = {row.group_hash: row for row in reversed(rows)}
            reached = [row for row in rows if row.group_hash is None or first[row.group_hash] is row]
        self._bounds.passed({row[0]: row[1] for row in reached}.items())  # the last of each priority: they are in order
        self._was_full = len(rows) >= limit
        if not self._was_full:
            self._bounds.passed(enumerate(highest))
