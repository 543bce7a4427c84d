"""A slot for one process of a worker: there is always one in it, or about to be."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from jmsql.worker.processes.child_process import ChildProcess
from jmsql.worker.timings import WorkerTimings

__all__ = ["ProcessSlot"]

logger = logging.getLogger("jmsql.worker")


class ProcessSlot:
    """Keeps a process running from `begin` on: starts it again when it dies, and has it succeeded by a new one.

    Args:
        start: Starts a process.
        timings: How long it pauses before it starts one again.
    """

    def __init__(self, start: Callable[[], ChildProcess], timings: WorkerTimings) -> None:
        self._start = start
        self._timings = timings
        self.current: ChildProcess | None = None
        self.successor: ChildProcess | None = None
        self.restarts = 0
        self._pause = timings.minimum_restart_delay
        self._restart_at = 0.0

    @property
    def is_ready(self) -> bool:
        """Whether its process receives messages."""
        return self.current is not None and self.current.is_ready

    def begin(self) -> None:
        """Start the first process."""
        self.current = self._start()

    def succeed(self) -> None:
        """Start a process that takes the slot when it is ready."""
        self.successor = self._start()

    def hand_over(self) -> ChildProcess | None:
        """Let the successor take the slot if it is ready; return the process that had it."""
        if self.successor is None or not self.successor.is_ready:
            return None
        former, self.current, self.successor = self.current, self.successor, None
        return former

    def lost(self, child: ChildProcess) -> None:
        """Note that a process is gone."""
        if child is self.successor:
            self.successor = None
        elif child is self.current:
            if time.monotonic() - child.started > self._timings.stable_duration:
                self._pause = self._timings.minimum_restart_delay
            logger.info("A process takes the place of %s in %g s.", child.name, self._pause)
            self.current = None
            self._restart_at = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, self._timings.maximum_restart_delay)

    def fill(self) -> ChildProcess | None:
        """Start a process if there is none and it is time; return it."""
        if self.current is not None or time.monotonic() < self._restart_at:
            return None
        self.restarts += 1
        self.current = self._start()
        return self.current
