"""What goes through: how many messages were sent, and what became of those that were received."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jmsql.values.destinations import Destination

__all__ = ["Counts", "Meter", "measure", "meters"]


class Counts(NamedTuple):
    """So many messages were sent, and so many deliveries ended, one way or the other.

    `redelivered` is how many of those that ended were not the first of their message.
    """

    sent: int = 0
    acknowledged: int = 0
    rolled_back: int = 0
    redelivered: int = 0

    def plus(self, other: Counts) -> Counts:
        """Return the sum."""
        return Counts(
            self.sent + other.sent,
            self.acknowledged + other.acknowledged,
            self.rolled_back + other.rolled_back,
            self.redelivered + other.redelivered,
        )


Meter = Callable[[Destination, Counts], None]
"""Called with what was counted, in the thread that has done it."""

meters: set[Meter] = set()
"""Who else in this process counts: nobody, unless somebody wants to see it."""


def measure(destination: Destination, counts: Counts) -> None:
    """Tell the other counters."""
    for meter in tuple(meters):
        meter(destination, counts)
