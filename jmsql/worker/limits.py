"""Limits after which a process of a worker ends in order, and another takes its place."""

from __future__ import annotations

import random
import resource
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

# The limits of a worker's processes vary by up to a tenth, so that processes that started together do not end together.
#
# The process compares its memory at every check, and finishes its messages when the limit is reached. So the limit ends
# leaks, and does not bound a handler that takes much at once.


MEBIBYTE = 1024 * 1024
_JITTER = 0.1
"""The largest share by which a process's limit is lower, so that the processes do not end together."""
_STATISTICS = Path("/proc/self/statm")


class MessageQuota:
    """The number of messages that a process receives. Its methods may be called from any thread.

    Args:
        most: The largest number; each process has one that is up to a tenth lower.
        on_used_up: Called, once, when the last of them was received.
    """

    def __init__(self, most: int, on_used_up: Callable[[], object]) -> None:
        self.most = most - random.randint(0, int(most * _JITTER))  # noqa: S311 - no secret
        self.is_used_up = False
        self._on_used_up = on_used_up
        self._numbers = count(1)  # `next` of it is atomic

    def take(self) -> None:
        """Count a message that was received."""
        if next(self._numbers) == self.most:
            self.is_used_up = True
            self._on_used_up()


class MemoryLimit:
    """The memory that a process may have.

    Args:
        most: The maximum in bytes; each process's limit is lower by up to a tenth of its free part.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.at_start = resident_memory()
        self._threshold = most - max(0, most - self.at_start) * random.uniform(0.0, _JITTER)  # noqa: S311 - no secret

    @property
    def is_too_low(self) -> bool:
        """True if the process has begun with more."""
        return self.at_start >= self.most

    def is_exceeded(self) -> bool:
        """Return whether the process has more by now."""
        return resident_memory() >= self._threshold


def resident_memory() -> int:
    """Return how many bytes of memory this process has; where the system does not tell, the most that it has had."""
    try:
        pages = int(_STATISTICS.read_text().split()[1])
    except FileNotFoundError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return pages * resource.getpagesize()


def in_mebibytes(size: int) -> str:
    """Write a number of bytes for people."""
    return f"{size / MEBIBYTE:.0f} MiB"
