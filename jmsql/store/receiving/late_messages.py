"""Late messages: below a consumer's scan bounds, sent by transactions that were running when the scan passed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jmsql.store.statement import array_literal

# A message takes its sequence when it is inserted, and can be received when its transaction commits. A scan passes the
# place of a message whose transaction is running. If that transaction then sends another message, and commits, a scan
# from the bound on would find the second and not the first, and break the order of a session's messages.
#
# A transaction has its number before its first message takes a sequence. So messages that may still appear below the
# bounds belong to transactions that had a number, and had not ended, in the scan's snapshot. The consumer remembers for
# each of them the lowest sequence that its messages can have: the end of the passed range when that number was not yet
# assigned. The next scan begins at the lowest sequence of the transactions that have ended in its own snapshot. So one
# statement sees all their messages, or none. A transaction that goes on costs nothing.
#
# Things that do not work:
# - To begin each scan at the lowest of these sequences: one transaction that writes for an hour would undo the bounds.
# - To go back only for a message of such a transaction: the session may send the next message in another transaction.
# - To take the end of the snapshot (`pg_snapshot_xmax`) for the next number: it is one more than the last that has
#   ended, and transactions with higher numbers may run. The number that the scan itself gets, when it locks its first
#   row, is above all that were given before. An open transaction got its number before: the consumer then keeps what
#   it knew, and goes back as soon as any transaction has ended.

_MOST_RUNNING = 1000
"""The most transactions that are remembered one by one. There are more numbers if one has many savepoints."""


class ScanStart(NamedTuple):
    """The places where a scan begins.

    Args:
        lowest: The lowest sequence to read, for each inverse priority.
        running: Transactions that may have messages below, as a PostgreSQL array; None without any.
        starts: The lowest sequences of their messages, and one more for all transactions from `later` on.
        later: The lowest number of a transaction that has not ended and is not in `running`.
    """

    lowest: Sequence[int]
    running: str | None = None
    starts: str | None = None
    later: str | None = None


class Snapshot(NamedTuple):
    """The running transactions in the snapshot of a scan.

    Args:
        running: Their numbers, as far as these are below `next`.
        next: The number of the next transaction; if `is_exact` is false, the first one that had not ended.
        is_exact: True if each transaction that had a number by then is below `next`.
        own: The number of the scan's own transaction; None: it had none.
    """

    running: frozenset[int]
    next: int
    is_exact: bool = True
    own: int | None = None

    @classmethod
    def parse(cls, text: str) -> Snapshot:
        """Read what a scan returns: PostgreSQL's text of the snapshot, and a number.

        Behind ``+`` stands the number that the scan's own transaction got after the snapshot was taken. Behind ``-``
        stands the number that it had before, if it had one.
        """
        is_exact = "+" in text
        snapshot, _, number = text.partition("+" if is_exact else "-")
        _, end, listed = snapshot.split(":")
        running = set(map(int, listed.split(","))) if listed else set()
        first = int(end)
        own = int(number) if number else None
        if own is not None and is_exact and own - first <= _MOST_RUNNING:
            running.update(range(first, own))
            return cls(frozenset(running), own, own=own)
        if own is not None and not is_exact:
            running.add(own)
        return cls(frozenset(running), first, is_exact=False, own=own)


class LateMessages:
    """Remembers which transactions may still have messages below the bounds of a consumer, and from where on.

    Args:
        end: One more than the highest sequence that the consumer had passed when no transaction was running.
    """

    __slots__ = ("_known_from", "_later", "_starts")

    def __init__(self, end: int) -> None:
        self._starts: dict[int, int] = {}
        """For each running transaction the lowest sequence that its messages can have."""
        self._known_from = end
        """The lowest sequence of a message whose transaction has begun since the last snapshot that was exact."""
        self._later: int | None = None
        """From which number on transactions may have begun before the last snapshot; None: it was exact."""

    def start(self, lowest: Sequence[int]) -> ScanStart:
        """Return where a scan begins whose bounds are given."""
        if self._later is None:
            return ScanStart(lowest, array_literal(self._starts), array_literal(self._starts.values()))
        starts = [*self._starts.values(), self._known_from]
        return ScanStart(lowest, array_literal(self._starts), array_literal(starts), str(self._later))

    @property
    def is_any(self) -> bool:
        """True if a transaction may have messages below the bounds."""
        return bool(self._starts) or self._later is not None

    def ended(self, number: int) -> None:
        """Note that a transaction has no messages."""
        self._starts.pop(number, None)

    def lowest(self, snapshot: Snapshot | None) -> int | None:
        """Return from which sequence on a scan has looked for late messages; None: it has looked for none.

        Args:
            snapshot: The snapshot of the scan; None: no transaction was running.
        """
        starts = [start for number, start in self._starts.items() if _has_ended(number, snapshot)]
        if self._later is not None and (snapshot is None or snapshot.next > self._later):
            starts.append(self._known_from)
        return min(starts, default=None)

    def passed(self, snapshot: Snapshot, end: int) -> None:
        """Note that a scan has come to where it has come.

        Args:
            snapshot: The snapshot of the scan.
            end: One more than the highest sequence that the consumer has ever passed.
        """
        known = self._known_from
        starts = {number: start for number, start in self._starts.items() if not _has_ended(number, snapshot)}
        for number in snapshot.running:
            starts.setdefault(number, known)
        # Messages above all that was passed are scanned anyway.
        self._starts = {number: start for number, start in starts.items() if start < end}
        self._later = None
        if snapshot.is_exact:
            self._known_from = end
        elif known < end:
            self._later = snapshot.next


def _has_ended(number: int, snapshot: Snapshot | None) -> bool:
    return snapshot is None or (number < snapshot.next and number not in snapshot.running)
