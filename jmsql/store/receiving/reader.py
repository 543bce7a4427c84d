"""A consumer's scan position in its queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from jmsql.selectors import Selector
from jmsql.store.receiving.candidates import first_of_groups
from jmsql.store.receiving.late_messages import LateMessages, ScanStart, Snapshot
from jmsql.store.receiving.receive import (
    PRIORITIES,
    Fetch,
    GroupScan,
    has_groups,
    has_messages,
    highest_sequences,
    running,
)
from jmsql.store.rows.message_rows import MessageRow
from jmsql.store.statement import Steps
from jmsql.values.clock import monotonic

# Rows that were deleted stay in the index until vacuum removes them, which it cannot while any transaction in the
# database is older. A consumer that starts every scan at the front of its queue reads all of them again each time. So
# each remembers, for each priority, the lowest sequence that is worth reading. The next scan goes back for messages of
# transactions that took their sequences early and committed late (`LateMessages`). Other messages that become available
# below that bound (released by another consumer) are found by a sweep, a scan from the front, which is rare enough to
# cost little.

_SWEEP_SHARE = 20.0


class ScanBounds:
    """The lowest sequence worth looking at, for each inverse priority.

    Args:
        sweep_interval: Seconds between two sweeps, at the least.
        clock: A monotonic clock, in seconds.
    """

    __slots__ = ("_clock", "_lowest", "_next_idle_sweep", "_next_sweep", "_sweep_interval", "end")

    def __init__(self, sweep_interval: float, clock: Callable[[], float] = monotonic) -> None:
        self._sweep_interval = sweep_interval
        self._clock = clock
        self._lowest = [0] * PRIORITIES
        self._next_sweep = 0.0
        """When a sweep is due that takes the place of a scan, by the clock."""
        self._next_idle_sweep = 0.0
        """When a sweep is due after a scan that has found nothing, by the clock."""
        self.end = 0
        """One more than the highest sequence that was ever passed, of any priority."""

    @property
    def lowest(self) -> list[int]:
        """The bounds, by inverse priority."""
        return list(self._lowest)

    def passed(self, keys: Iterable[tuple[int, int]]) -> None:
        """Move each bound past the messages found, given as (inverse priority, sequence)."""
        for inverse_priority, sequence in keys:
            if sequence >= self._lowest[inverse_priority]:
                self._lowest[inverse_priority] = sequence + 1
                self.end = max(self.end, sequence + 1)

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


_FRONT = ScanStart([0] * PRIORITIES)

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
        """Return the groups for a scan for up to `limit` messages."""
        count = min(limit, len(self._places), _PLACES_AT_ONCE)
        places = [self._places.popleft() for _ in range(count)]
        return GroupScan(places, max(1, limit // (2 * count)) if places else 1, own_claims)

    def looked(self, places: Iterable[tuple[int, int]], found: Collection[tuple[int, int]], *, full: bool) -> None:
        """Note the places that a scan has found, and keep the others if it was full."""
        if full:
            self._places.extend(place for place in places if place not in found)


class _Groups(Enum):
    """A client's knowledge of groups in a queue: it has, or had, messages of groups, or not."""

    NONE = auto()
    UNKNOWN = auto()
    SOME = auto()


class _End(NamedTuple):
    """The end of the queue before a scan, and the transactions that were running then."""

    highest: Sequence[int]
    snapshot: Snapshot


class QueueReader:
    """Reads a queue in the order of delivery, without reading passed messages again.

    Args:
        queue_id: The queue.
        selector: Selects the messages; None: all.
        fetch: Locks, dequeues or claims them.
        sweep_interval: The minimum of seconds between two scans from the front.
    """

    def __init__(self, queue_id: int, selector: Selector | None, fetch: Fetch, sweep_interval: float) -> None:
        self.queue_id = queue_id
        self._selector = selector
        self.fetch = fetch
        self._bounds = ScanBounds(sweep_interval)
        self._late: LateMessages | None = None
        """The transactions that may have messages below the bounds; None: there are none."""
        self._freed = FreedGroups()
        self._groups = _Groups.UNKNOWN
        """If the queue has groups. Not known after a scan that has found nothing."""
        self._was_full = False
        """True if the last scan has found as many messages as it asked for."""

    def read(
        self,
        limit: int,
        own_claims: Collection[int] = (),
        *,
        look_everywhere: bool = True,
        may_have_changed: bool = True,
        fetch: Fetch | None = None,
    ) -> Steps[list[MessageRow]]:
        """Return up to `limit` messages.

        Args:
            limit: The most messages to return.
            own_claims: The reader's claims on messages of groups: it gets more of the same groups.
            look_everywhere: When nothing is found, sweep the whole queue before the answer is "none", if sweeps are
                cheap enough just now.
            may_have_changed: False if the queue cannot have got groups since the last read, if that found messages.
            fetch: The operation that takes the messages this time; None: the usual one.
        """
        # The operation is handed down and not kept: a cancelled read would leave it behind, and the next read would
        # claim messages in place of locking them.
        if fetch is None:
            fetch = self.fetch
        if may_have_changed and self._groups is _Groups.NONE:
            self._groups = _Groups.UNKNOWN
        rows = yield from self._read(fetch, limit, own_claims, look_everywhere=look_everywhere)
        # The scan for queues without groups returns nothing from a queue with groups, so a message that it finds proves
        # that there were none. After an empty scan the next one asks.
        if self._groups is not _Groups.SOME:
            self._groups = _Groups.UNKNOWN if not rows else _Groups.NONE
        return rows

    def _read(
        self, fetch: Fetch, limit: int, own_claims: Collection[int], *, look_everywhere: bool
    ) -> Steps[list[MessageRow]]:
        if self._bounds.sweep_due(idle=False):
            return (yield from self._sweep(fetch, limit, own_claims))
        # Read before the scan, so that messages committed in between lie above the end. A full scan needs no end, and
        # after a full scan the next one is most likely full, too.
        end = None if self._was_full and self._selector is None else (yield from self._end())
        lowest = self._bounds.lowest
        groups: GroupScan | None = None
        if self._groups is _Groups.SOME:
            groups = yield from self._group_scan(lowest, limit, own_claims)
        start = ScanStart(lowest) if self._late is None else self._late.start(lowest)
        rows = yield from fetch(self.queue_id, self._selector, start, limit, groups)
        # One statement answers both questions of an empty scan, groups and messages further back, and takes a third of
        # a sweep's time.
        if not rows and look_everywhere and self._is_answered_by_one_look:
            return (yield from self._sweep(fetch, limit, own_claims)) if (yield from self.may_find()) else []
        if not rows and (yield from self._has_got_groups()):
            return (yield from self._sweep(fetch, limit, own_claims))
        wanted = limit
        if groups is not None:
            wanted = groups.candidates(limit)
            found = {(row.inverse_priority, row.sequence) for row in rows}
            # A scan that was full has not tried every place; the places that it has not reached are kept.
            self._freed.looked(groups.places, found, full=len(rows) >= wanted)
        self._passed(rows, end, wanted, groups)
        if not rows and look_everywhere and self._bounds.sweep_due(idle=True):
            rows = yield from self._sweep(fetch, limit, own_claims)
        return rows

    @property
    def _is_answered_by_one_look(self) -> bool:
        """True if `may_find` answers both questions after an empty scan: for groups, and for messages further back.

        Only a sweep learns which late transactions have ended.
        """
        may_ask = self._selector is None and self._groups is _Groups.UNKNOWN
        return may_ask and self._late is None and self._bounds.sweep_due(idle=True)

    def may_find(self) -> Steps[bool]:
        """Return whether `read` may find something, which takes less time than a read that finds nothing."""
        if self._selector is not None or self._groups is _Groups.SOME:
            return True
        sweeps = self._bounds.sweep_due(idle=True)
        started = monotonic()
        start = _FRONT
        if not sweeps:
            lowest = self._bounds.lowest
            start = ScanStart(lowest) if self._late is None else self._late.start(lowest)
        has_found, may_have_groups = yield from has_messages(self.queue_id, start)
        self._groups = _Groups.UNKNOWN if may_have_groups else _Groups.NONE
        if has_found or may_have_groups:
            return True
        if sweeps:
            self._bounds.swept(monotonic() - started)
        return False

    @property
    def has_passed(self) -> bool:
        """True if it has passed a message, or the place of one, and does not look at the front of the queue."""
        # The end of an empty queue has the sequence 0, which no message has. A bound behind it passes nothing: with a
        # selector, `_passed` moves the bounds to the end of the queue even if the scan has found nothing.
        return self._bounds.end > 1

    @property
    def has_groups(self) -> bool:
        """True if the queue has, or had, messages of groups, as far as is known."""
        return self._groups is _Groups.SOME

    def returned(self, inverse_priority: int, sequence: int) -> None:
        """Look again from a message that was released."""
        self._bounds.returned(inverse_priority, sequence)

    def freed(self, group: int) -> None:
        """Read a group again, which is free again."""
        self._groups = _Groups.SOME
        self._freed.add(group)

    def _sweep(self, fetch: Fetch, limit: int, own_claims: Collection[int]) -> Steps[list[MessageRow]]:
        end = yield from self._end()
        if end is None and self._late is not None:
            end = _End((), (yield from running()))
        started = monotonic()
        groups = GroupScan(own_claims=own_claims) if self._groups is _Groups.SOME else None
        rows = yield from fetch(self.queue_id, self._selector, _FRONT, limit, groups)
        if not rows and (yield from self._has_got_groups()):
            return (yield from self._sweep(fetch, limit, own_claims))
        self._bounds.swept(monotonic() - started)
        self._passed(rows, end, limit)
        return rows

    def _has_got_groups(self) -> Steps[bool]:
        """Tell whether the queue has got groups, since when the fetch for queues without them finds nothing at all."""
        if self._groups is not _Groups.UNKNOWN:
            return False
        found = yield from has_groups(self.queue_id)
        self._groups = _Groups.SOME if found else _Groups.NONE
        return found

    def _group_scan(self, lowest: Sequence[int], limit: int, own_claims: Collection[int]) -> Steps[GroupScan]:
        """Return the places of groups that are free again."""
        unknown = self._freed.unknown()
        if unknown:
            first = yield from first_of_groups(self.queue_id, self._selector, unknown)
            self._freed.found(place for place in first if place[1] < lowest[place[0]])
        return self._freed.next(limit, own_claims)

    def _end(self) -> Steps[_End | None]:
        # Without a selector and groups, a scan stops at the last message that it returns, and has skipped none.
        if self._selector is None and self._groups is not _Groups.SOME:
            return None
        return _End(*(yield from highest_sequences(self.queue_id, self._bounds.lowest)))

    def _passed(
        self, rows: Sequence[MessageRow], end: _End | None, limit: int, groups: GroupScan | None = None
    ) -> None:
        """Move the bounds.

        Args:
            rows: The messages that a scan has found.
            end: The end of the queue, if it was read before the scan.
            limit: The most messages that it might find.
            groups: The places where it has looked besides.
        """
        reached = rows if self._groups is not _Groups.SOME else self._reached_of_groups(rows, groups)
        self._was_full = len(rows) >= limit
        if end is not None and (end.highest or not rows):
            snapshot: Snapshot | None = end.snapshot
        else:
            found: str | None = None
            for row in rows:
                found = row[-1]
                if found is not None:
                    break
            if found is None:
                return  # an empty scan, or others won every row: without a snapshot, no bound may move
            snapshot = Snapshot.parse(found) if found else None
        last = {row[0]: row[1] for row in reached}  # the last of each priority: they are in order
        if end is not None and end.highest:
            # The end's snapshot says nothing of newer messages: they are passed by a later scan.
            highest = max(end.highest)
            last = {inverse_priority: min(sequence, highest) for inverse_priority, sequence in last.items()}
        passed = self._bounds.end
        self._bounds.passed(last.items())
        # A full scan has stopped early: late messages of transactions that have ended by its snapshot may lie below its
        # end, in this priority or a later one, and the bounds go back for them.
        late = None if self._late is None else self._late.lowest(snapshot)
        if late is not None and self._was_full:
            self._return_to_late(late, max(row[:2] for row in reached))
        if end is not None and not self._was_full:
            self._bounds.passed(enumerate(end.highest))
        if snapshot is None:  # no transaction was running: no message can appear below the bounds
            self._late = None
        else:
            self._expect_late(snapshot, passed)

    def _expect_late(self, snapshot: Snapshot, passed: int) -> None:
        """Note the transactions that were running during a scan: their messages may appear below the bounds.

        Args:
            snapshot: The running transactions.
            passed: The bounds' end before the scan.
        """
        late = LateMessages(passed) if self._late is None else self._late
        late.passed(snapshot, self._bounds.end)
        self._late = late if late.is_any else None

    def _reached_of_groups(self, rows: Sequence[MessageRow], groups: GroupScan | None) -> Sequence[MessageRow]:
        """Note the groups to read again; return the messages up to which a scan has passed all."""
        lowest = self._bounds.lowest
        for row in rows:
            if row.group_hash is not None and row.sequence < lowest[row.inverse_priority]:
                self._freed.add(row.group_hash)  # the scan does not reach the rest of the group
        if groups is None or groups.limit <= 1:
            return rows
        # Later messages of these groups may lie beyond the end of the scan, which must not count as passed.
        first = {row.group_hash: row for row in reversed(rows)}
        return [row for row in rows if row.group_hash is None or first[row.group_hash] is row]

    def _return_to_late(self, late: int, last: tuple[int, int]) -> None:
        """Read late messages again that a full scan has not come to.

        Args:
            late: The lowest sequence of a late message.
            last: The last message of the scan, as (inverse priority, sequence).
        """
        inverse_priority, sequence = last
        self._bounds.returned(inverse_priority, max(late, sequence + 1))
        for following in range(inverse_priority + 1, PRIORITIES):
            self._bounds.returned(following, late)
