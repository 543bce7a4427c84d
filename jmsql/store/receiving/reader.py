"""A consumer's scan position in its queue."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple
from weakref import WeakSet, WeakValueDictionary

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


_NONE = frozenset[int]()
_new = tuple.__new__
_FRONT = ScanStart([0] * PRIORITIES)

_MOST_ENDED = 1000
"""The most transactions that are remembered as over without messages. A scan that is older would take longer."""


class ScanMark(NamedTuple):
    """The state of a position when a scan began.

    Args:
        releases: How often a message was released before, which a scan may have passed.
        inexact: How many scans had ended before whose snapshots were not exact.
    """

    releases: int = 0
    inexact: int = 0


# Readers that share a position begin where the last one ended, and do not pass the rows that the others have locked or
# deleted. Their scans overlap, and end in any order. `test_order.py` tries random ones. The invariants:
#
# - A scan moves nothing if a message was released meanwhile: it may have passed its place.
# - A transaction that runs in the snapshot of an older scan may have ended in that of a newer one, which has begun
#   below its messages. It is noted with the end of all that was passed, and the next scan finds it ended.
# - Between the begin and the end of a scan, another scan may note a transaction that has ended for the first one. It
#   may have messages beyond the first one's end: the bounds go back to this end, as they do for a scan that was full.
# - A scan whose snapshot is not exact leaves transactions unknown. Only one that began later knows them.


class ScanPosition:
    """The place that one reader has come to in a queue, or several readers of one client together.

    Args:
        sweep_interval: Seconds between two sweeps, at the least.
    """

    __slots__ = (
        "__weakref__",
        "_ended",
        "_lock",
        "bounds",
        "late",
        "mark",
        "readers",
        "sweep_interval",
    )

    def __init__(self, sweep_interval: float) -> None:
        self.sweep_interval = sweep_interval
        self._lock = threading.Lock()
        """Held where a scan begins or ends, and for releases. Sweep times, `readers`, and looks that may be out of date
        do without it: a lost sweep time or an old look costs a scan, and finds no fewer messages."""
        self.mark = ScanMark()
        """The state for a scan that begins now. If it is old, as it may be without the lock, the scan moves nothing, or
        counts its snapshot as not exact."""
        self.readers = WeakSet["QueueReader"]()
        """The readers that share it."""
        self.bounds = ScanBounds(sweep_interval)
        """The lowest sequences worth looking at. `restart` replaces them, with the lock."""
        self.late: LateMessages | None = None
        """The transactions that may have messages below the bounds; None: there are none."""
        self._ended: dict[int, None] = {}
        """Transactions that had received, and have ended, or are about to, without having sent anything."""

    def start(self) -> tuple[ScanMark, ScanStart]:
        """Return the state, and where a scan begins."""
        with self._lock:
            lowest = self.bounds.lowest
            # Measured: the constructor of a named tuple takes twice as long.
            start = _new(ScanStart, (lowest, None, None, None)) if self.late is None else self.late.start(lowest)
            return self.mark, start

    def passed_alone(self, mark: ScanMark, last: dict[int, int]) -> None:
        """Move the bounds as `passed` does for a scan without other transactions, running or late.

        Args:
            mark: The state when the scan began.
            last: The last sequence that it has reached, by inverse priority.
        """
        with self._lock:
            if mark is self.mark and self.late is None:
                self.bounds.passed(last.items())

    def passed(
        self, mark: ScanMark, last: dict[int, int], snapshot: Snapshot, highest: Sequence[int], *, was_full: bool
    ) -> None:
        """Move the bounds past what a scan has reached, and note the transactions that may have messages below.

        Args:
            mark: The state when the scan began.
            last: The last sequence that it has reached, by inverse priority.
            snapshot: The running transactions.
            highest: The highest sequence for each inverse priority, if the scan has read the whole queue.
            was_full: True if it has stopped early.
        """
        with self._lock:
            releases, inexact = self.mark
            if mark.releases != releases:
                return
            if not snapshot.is_exact:
                self.mark = ScanMark(releases, inexact + 1)
            elif mark.inexact != inexact:
                snapshot = snapshot._replace(is_exact=False)
            bounds = self.bounds
            passed = bounds.end
            bounds.passed(last.items())
            late = None if self.late is None else self.late.lowest(snapshot)
            # A full scan has stopped early: late messages of transactions that have ended by its snapshot may lie below
            # its end, in this priority or a later one, and the bounds go back for them.
            if late is not None and was_full:
                self._return_to(late, max(last.items()))
            if highest:
                bounds.passed(enumerate(highest))
            if self.late is None:
                if snapshot.is_exact and not snapshot.running:
                    return
                self.late = LateMessages(passed)
            self.late.passed(snapshot._replace(running=snapshot.running.difference(self._ended)), bounds.end)
            if not self.late.is_any:
                self.late = None

    def _return_to(self, late: int, last: tuple[int, int]) -> None:
        """Read late messages again that a full scan has not come to.

        Args:
            late: The lowest sequence of a late message.
            last: The last message of the scan, as (inverse priority, sequence).
        """
        inverse_priority, sequence = last
        self.bounds.returned(inverse_priority, max(late, sequence + 1))
        for following in range(inverse_priority + 1, PRIORITIES):
            self.bounds.returned(following, late)

    def stopped(self, lowest: Sequence[int], last: tuple[int, int]) -> None:
        """Look again from where a full scan from the front has stopped, if that lies below the bounds.

        Args:
            lowest: The bounds when the scan began. Later ones were moved by scans that have looked since.
            last: The last message of the scan, as (inverse priority, sequence).
        """
        inverse_priority, sequence = last
        if sequence + 1 < lowest[inverse_priority] or any(lowest[inverse_priority + 1 :]):
            with self._lock:
                self._note_release()
                self._return_to(0, last)

    def _note_release(self) -> None:
        """Have the scans that go on move nothing."""
        self.mark = self.mark._replace(releases=self.mark.releases + 1)

    def returned(self, inverse_priority: int, sequence: int) -> None:
        """Look again from a message that was released."""
        with self._lock:
            self._note_release()
            self.bounds.returned(inverse_priority, sequence)

    def restart(self) -> None:
        """Look again from the front of the queue, in all readers that share the position."""
        with self._lock:
            self._note_release()
            self.bounds = ScanBounds(self.sweep_interval)
            self.late = None

    def sent_nothing(self, transaction_id: int) -> None:
        """Note that a transaction ends, and has no messages."""
        with self._lock:
            if len(self._ended) >= _MOST_ENDED:
                del self._ended[next(iter(self._ended))]
            self._ended[transaction_id] = None
            if self.late is not None:
                self.late.ended(transaction_id)


class ScanPositions:
    """The positions that several readers share, by queue, as long as there are such readers.

    Args:
        sweep_interval: Seconds between two sweeps, at the least.
    """

    def __init__(self, sweep_interval: float) -> None:
        self._sweep_interval = sweep_interval
        self._lock = threading.Lock()
        self.positions = WeakValueDictionary[int, ScanPosition]()

    def of(self, queue_id: int) -> ScanPosition:
        """Return the position of a queue; a new one begins at its front."""
        with self._lock:
            position = self.positions.get(queue_id)
            if position is None:
                position = self.positions[queue_id] = ScanPosition(self._sweep_interval)
            return position


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

    def looked(self, places: Collection[tuple[int, int]], rows: Sequence[MessageRow]) -> None:
        """Keep the places that a full scan has not come to.

        Args:
            places: The places that it was to read.
            rows: The messages that it has found, in their order.
        """
        # A scan reads the places of a priority first, and then the queue from its bound on. So a message that is at no
        # place tells that all places up to its priority were read. A place without a message would otherwise stay for
        # as long as scans are full, and each of them would find fewer messages.
        if not places:
            return
        keys = [(row.group_hash, (row.inverse_priority, row.sequence)) for row in rows]
        first = {*dict(reversed([each for each in keys if each[0] is not None])).values()}
        first.update(key for group, key in keys if group is None)
        reached = max((inverse_priority for inverse_priority, _ in first.difference(places)), default=-1)
        self._places.extend(place for place in places if place[0] > reached and place not in first)


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
        position: The position from which it reads. Other readers of the queue may share it, without a selector.
    """

    def __init__(self, queue_id: int, selector: Selector | None, fetch: Fetch, position: ScanPosition) -> None:
        self.queue_id = queue_id
        self._selector = selector
        self.fetch = fetch
        self.position = position
        """Shared by others until it meets groups: a reader of groups has to know what it has passed itself."""
        position.readers.add(self)
        self._transaction_id: int | None = None
        """The transaction of the last scan that has found a message."""
        self._freed = FreedGroups()
        self._groups = _Groups.UNKNOWN
        """If the queue has groups. Not known after a scan that has found nothing."""
        self._was_full: bool | None = None
        """True if the last scan has found as many messages as it asked for. None before the first one, which begins at
        the front: others may have passed a message that is free since."""

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
        if self._was_full is None or self.position.bounds.sweep_due(idle=False):
            return (yield from self._sweep(fetch, limit, own_claims))
        mark, start = self.position.start()
        # Read before the scan, so that messages committed in between lie above the end. Without a selector a full scan
        # needs none, and after a full scan the next one is most likely full, too.
        end = None if self._was_full and self._selector is None else (yield from self._end(start.lowest))
        groups: GroupScan | None = None
        if self._groups is _Groups.SOME:
            groups = yield from self._group_scan(start.lowest, limit, own_claims)
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
            if len(rows) >= wanted:
                self._freed.looked(groups.places, rows)
        self._passed(mark, rows, end, wanted, groups)
        if not rows and look_everywhere and self.position.bounds.sweep_due(idle=True):
            rows = yield from self._sweep(fetch, limit, own_claims)
        return rows

    @property
    def _is_answered_by_one_look(self) -> bool:
        """True if `may_find` answers both questions after an empty scan: for groups, and for messages further back.

        Only a sweep learns which late transactions have ended.
        """
        may_ask = self._selector is None and self._groups is _Groups.UNKNOWN
        return may_ask and self.position.late is None and self.position.bounds.sweep_due(idle=True)

    def may_find(self) -> Steps[bool]:
        """Return whether `read` may find something, which takes less time than a read that finds nothing."""
        if self._selector is not None or self._groups is _Groups.SOME:
            return True
        sweeps = self._was_full is None or self.position.bounds.sweep_due(idle=True)
        started = monotonic()
        start = _FRONT if sweeps else self.position.start()[1]
        has_found, may_have_groups = yield from has_messages(self.queue_id, start)
        self._groups = _Groups.UNKNOWN if may_have_groups else _Groups.NONE
        if has_found or may_have_groups:
            return True
        if sweeps:
            self.position.bounds.swept(monotonic() - started)
        return False

    @property
    def has_passed(self) -> bool:
        """True if it has passed a message, or the place of one, and does not look at the front of the queue."""
        # The end of an empty queue has the sequence 0, which no message has. A bound behind it passes nothing: with a
        # selector, `_passed` moves the bounds to the end of the queue even if the scan has found nothing.
        return self._was_full is not None and self.position.bounds.end > 1

    @property
    def has_groups(self) -> bool:
        """True if the queue has, or had, messages of groups, as far as is known."""
        return self._groups is _Groups.SOME

    def returned(self, inverse_priority: int, sequence: int) -> None:
        """Look again from a message that was released."""
        self.position.returned(inverse_priority, sequence)

    def restart(self) -> None:
        """Look again from the front of the queue, with all readers that share the position."""
        self.position.restart()

    def sent_nothing(self) -> None:
        """Note that the transaction in which it has read ends, and has sent nothing."""
        if self._transaction_id is not None:
            self.position.sent_nothing(self._transaction_id)
            self._transaction_id = None

    def freed(self, group: int) -> None:
        """Read a group again, which is free again."""
        self._has_groups()
        self._freed.add(group)

    def _sweep(self, fetch: Fetch, limit: int, own_claims: Collection[int]) -> Steps[list[MessageRow]]:
        position = self.position
        mark, lowest = position.mark, position.bounds.lowest
        end = yield from self._end(lowest)
        if end is None and self.position.late is not None:
            end = _End((), (yield from running()))
        started = monotonic()
        if len(position.readers) > 1:
            position.bounds.swept(0.0)  # the others need not sweep beside it
        groups = GroupScan(own_claims=own_claims) if self._groups is _Groups.SOME else None
        rows = yield from fetch(self.queue_id, self._selector, _FRONT, limit, groups)
        if not rows and (yield from self._has_got_groups()):
            return (yield from self._sweep(fetch, limit, own_claims))
        position.bounds.swept(monotonic() - started)
        self._passed(mark, rows, end, limit)
        if self._was_full:
            position.stopped(lowest, rows[-1][:2])
        return rows

    def _has_got_groups(self) -> Steps[bool]:
        """Tell whether the queue has got groups, since when the fetch for queues without them finds nothing at all."""
        if self._groups is not _Groups.UNKNOWN:
            return False
        found = yield from has_groups(self.queue_id)
        self._groups = _Groups.NONE
        if found:
            self._has_groups()
        return found

    def _has_groups(self) -> None:
        """Note that the queue has groups."""
        self._groups = _Groups.SOME
        if len(self.position.readers) > 1:
            self.position.readers.discard(self)
            self.position = ScanPosition(self.position.sweep_interval)
            self.position.readers.add(self)

    def _group_scan(self, lowest: Sequence[int], limit: int, own_claims: Collection[int]) -> Steps[GroupScan]:
        """Return the places of groups that are free again."""
        unknown = self._freed.unknown()
        if unknown:
            first = yield from first_of_groups(self.queue_id, self._selector, unknown)
            self._freed.found(place for place in first if place[1] < lowest[place[0]])
        return self._freed.next(limit, own_claims)

    def _end(self, lowest: Sequence[int]) -> Steps[_End | None]:
        # Without a selector and groups, a scan stops at the last message that it returns, and has skipped none.
        if self._selector is None and self._groups is not _Groups.SOME:
            return None
        return _End(*(yield from highest_sequences(self.queue_id, lowest)))

    def _passed(
        self, mark: ScanMark, rows: Sequence[MessageRow], end: _End | None, limit: int, groups: GroupScan | None = None
    ) -> None:
        """Move the position.

        Args:
            mark: The state of the position when the scan began.
            rows: The messages that a scan has found.
            end: The end of the queue, if it was read before the scan.
            limit: The most messages that it might find.
            groups: The places where it has looked besides.
        """
        reached = rows if self._groups is not _Groups.SOME else self._reached_of_groups(rows, groups)
        self._was_full = len(rows) >= limit
        found: str | None = None
        for row in rows:
            found = row[-1]
            if found is not None:
                break
        snapshot: Snapshot | None = None
        if found is not None:
            if not found.isdecimal():
                snapshot = Snapshot.parse(found)
                self._transaction_id = snapshot.own
            else:  # the number stands alone if no transaction was running
                self._transaction_id = number = int(found)
                if end is None and self.position.late is None:
                    self.position.passed_alone(mark, {row[0]: row[1] for row in reached})
                    return
                snapshot = Snapshot(_NONE, number, own=number)
        if end is not None and (end.highest or not rows):
            snapshot = end.snapshot
        if snapshot is None:
            return  # an empty scan, or others won every row: without a snapshot, no bound may move
        last = {row[0]: row[1] for row in reached}  # the last of each priority: they are in order
        highest: Sequence[int] = ()
        if end is not None and end.highest:
            # The end's snapshot says nothing of newer messages: they are passed by a later scan.
            top = max(end.highest)
            last = {inverse_priority: min(sequence, top) for inverse_priority, sequence in last.items()}
            highest = () if self._was_full else end.highest
        self.position.passed(mark, last, snapshot, highest, was_full=self._was_full)

    def _reached_of_groups(self, rows: Sequence[MessageRow], groups: GroupScan | None) -> Sequence[MessageRow]:
        """Note the groups to read again; return the messages up to which a scan has passed all."""
        lowest = self.position.bounds.lowest
        for row in rows:
            if row.group_hash is not None and row.sequence < lowest[row.inverse_priority]:
                self._freed.add(row.group_hash)  # the scan does not reach the rest of the group
        if groups is None or groups.limit <= 1:
            return rows
        # Later messages of these groups may lie beyond the end of the scan, which must not count as passed.
        first = {row.group_hash: row for row in reversed(rows)}
        return [row for row in rows if row.group_hash is None or first[row.group_hash] is row]
