"""What a listener of a worker has done, in figures that can be added up."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

__all__ = ["DURATION_BOUNDS", "HandlerCounters"]

DURATION_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds at which the histogram of the handler's calls is divided."""


@dataclass
class HandlerCounters:
    """The calls of a handler, with their commits, that have ended; `calls` is how many took how long.

    `long_transactions` is how many held a transaction for longer than the worker is told to warn of.
    """

    handled: int = 0
    failed: int = 0
    long_transactions: int = 0
    seconds: float = 0.0
    calls: list[int] = field(default_factory=lambda: [0] * (len(DURATION_BOUNDS) + 1))

    def ended(self, seconds: float, *, succeeded: bool) -> None:
        """Note that a call has ended."""
        if succeeded:
            self.handled += 1
        else:
            self.failed += 1
        self.seconds += seconds
        self.calls[bisect_left(DURATION_BOUNDS, seconds)] += 1

    def add(self, other: HandlerCounters) -> None:
        """Add up."""
        self.handled += other.handled
        self.failed += other.failed
        self.long_transactions += other.long_transactions
        self.seconds += other.seconds
        self.calls = [mine + theirs for mine, theirs in zip(self.calls, other.calls, strict=True)]
