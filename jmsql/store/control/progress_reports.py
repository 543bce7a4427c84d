"""The progress that handlers report of their messages, which one client writes down."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from jmsql.store.receiving.progress import ClaimedMessage, Progress, report
from jmsql.store.wire._sync.runner import Runner
from jmsql.values.clock import monotonic

_INTERVAL = 1.0
"""Seconds between two statements of a client; reports between them replace each other."""


class ProgressReports:
    """The duty to write down the last progress of each message, with one statement a second.

    Args:
        wake: Wakes the thread that does so.
    """

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._reports: dict[ClaimedMessage, Progress] = {}
        """Pending reports. Handlers add and drop them, and the client's thread removes written ones, under the lock."""
        self._next_run = 0.0

    def add(self, message: ClaimedMessage, progress: Progress) -> None:
        """Have the progress of a message written down soon. May be called from any thread."""
        with self._lock:
            is_first = not self._reports
            self._reports[message] = progress
        if is_first:
            self._wake()

    def drop(self, message: ClaimedMessage) -> None:
        """Write down nothing more of a message, whose handler has returned."""
        with self._lock:
            self._reports.pop(message, None)

    def run(self, runner: Runner) -> None:
        """Record pending reports, if it is time to."""
        if not self._reports or monotonic() < self._next_run:
            return
        self._next_run = monotonic() + _INTERVAL
        with self._lock:
            reports = dict(self._reports)
        if reports:
            runner.run(report(reports))
        with self._lock:
            for message, progress in reports.items():
                if self._reports.get(message) is progress:
                    del self._reports[message]

    def seconds_to_next(self) -> float:
        """Return in how many seconds something is to be written."""
        return max(0.0, self._next_run - monotonic()) if self._reports else math.inf
