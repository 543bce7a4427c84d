"""A consumer's way through its queue."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from enum import Enum, auto

from jmsql.selectors import Selector
from jmsql.store.receiving.candidates import first_of_groups
from jmsql.store.receiving.receive import Fetch, has_groups, has_messages, highest_sequences
from jmsql.store.receiving.scanning import PRIORITIES, FreedGroups, GroupScan, ScanBounds
from jmsql.store.rows.message_rows import MessageRow
from jmsql.store.statement import Steps


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
