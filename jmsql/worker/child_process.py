"""The supervisor's view of its processes: each one, and the slots that always have one in them, or are about to."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any, Protocol

from jmsql.logs import contained_logger
from jmsql.values.clock import monotonic
from jmsql.worker.reports import Listening, Progress, Refusal, ReportReader, Retirement, outcomes
from jmsql.worker.settings import Settings
from jmsql.worker.timings import WorkerTimings

# The channel to a process is its lifeline in both directions. The supervisor sees the end of a process by the end of
# the stream, and a process sees the end of the supervisor, however that ended, in the same way. A process that a
# handler has forked may hold the channel open, so the supervisor asks the system as well (`has_ended`):
# test_a_helper_that_outlives_its_process_hides_neither_the_death_nor_the_messages.
#
# The fields are written by the supervisor's thread, most as it reads reports, and read by the health endpoint's.


class ChildProcess:
    """Starts a process, and reads its reports."""

    def __init__(self, name: str, settings: Settings, url: str | None) -> None:
        self.name = name
        self.started = monotonic()
        self.progress = Progress()
        self.refusal: Refusal | None = None
        self.retirement: Retirement | None = None
        self.listeners: list[dict[str, Any]] = []
        self.database = ""
        self.is_ready = False
        self._drain_timeout = settings.drain_timeout
        self._exit_timeout = settings.timings.exit_timeout
        self._heartbeat: datetime | None = None
        self._last_sign = self.started
        # When a process that was told to end is killed, on the monotonic clock; None: it was not told.
        self._kill_at: float | None = None
        self.channel, channel = socket.socketpair()
        self._reader = ReportReader(self.channel)
        environment = dict(os.environ)
        if url is not None:
            environment["JMSQL_URL"] = url  # not an argument: others can read those
        environment.setdefault("PGAPPNAME", f"jmsql {name}")
        try:
            with channel:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "jmsql.worker", name, str(channel.fileno()), settings.to_json()],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[channel.fileno()],
                    env=environment,
                    start_new_session=True,  # Ctrl-C is for the supervisor, which then ends its processes
                )
        except OSError:
            self.channel.close()
            raise

    @property
    def process_id(self) -> int:
        """Its number in the system."""
        return self._process.pid

    @property
    def is_draining(self) -> bool:
        """True if it was told to end."""
        return self._kill_at is not None

    @property
    def has_timeouts(self) -> bool:
        """True if one of its handlers has a time-out."""
        return any(listener.get("timeout") is not None for listener in self.listeners)

    @property
    def silence(self) -> float:
        """For how many seconds it has not reported anything."""
        return monotonic() - self._last_sign

    def excuse(self, seconds: float) -> None:
        """Leave some seconds since its last report out of its silence."""
        self._last_sign = min(self._last_sign + seconds, monotonic())

    def read_reports(self) -> bool:
        """Read its reports; return False if it has closed its end."""
        reports = self._reader.read()
        for report in reports or []:
            if isinstance(report, Refusal):
                self.refusal = report
            elif isinstance(report, Retirement):
                self.retirement = report
            elif isinstance(report, Listening):
                self.listeners, self.database = report.listeners, report.database
            else:
                self.progress = report
                self.is_ready = True
            self._heartbeat = datetime.now(UTC)
            self._last_sign = monotonic()
        return reports is not None

    @property
    def has_ended(self) -> bool:
        """True if the process is gone, even if one that it has forked still holds its channel."""
        return self._process.poll() is not None

    def wait(self) -> int:
        """Wait for its end, once it reports no more; return its exit code, or minus the signal that has killed it."""
        self.channel.close()
        try:
            return self._process.wait(self._exit_timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()

    def drain(self) -> None:
        """Tell it to end. It is killed if it does not do so in time."""
        if self._kill_at is None:
            self._kill_at = monotonic() + self._drain_timeout + self._exit_timeout
            self._process.send_signal(signal.SIGTERM)

    def kill_if_overdue(self) -> None:
        """Kill it if it was to have ended by now."""
        if self._kill_at is not None and monotonic() > self._kill_at:
            self.kill()

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()

    @property
    def state(self) -> str:
        """Its state, for the log and the metrics."""
        if self.is_draining or self.retirement is not None:
            return "draining"
        if not self.is_ready:
            return "starting"
        return "ready" if self.progress.can_receive else "waiting"

    def document(self) -> dict[str, Any]:
        """Return its state, for the health endpoint."""
        return {
            "name": self.name,
            "process_id": self.process_id,
            "state": self.state,
            "last_heartbeat": None if self._heartbeat is None else self._heartbeat.isoformat(),
            **outcomes(self.progress.handler_counters),
            "running": self.progress.running,
        }


logger = contained_logger("jmsql.worker")


class StartProcess(Protocol):
    """Starts a process."""

    def __call__(self, *, is_replacement: bool) -> ChildProcess:
        """Start a process, which perhaps takes the place of one that has ended."""


class ProcessSlot:
    """Keeps a process running from `start_first` on: replaces it when it dies, and has a new one succeed it."""

    def __init__(self, start: StartProcess, timings: WorkerTimings) -> None:
        self._start = start
        self._timings = timings
        self.current: ChildProcess | None = None
        self.successor: ChildProcess | None = None
        self.restarts = 0
        # The pause before the next start after a death. It doubles each time, and is reset once a process has lived for
        # `stable_duration`.
        self._pause = timings.minimum_restart_delay
        self._restart_at = 0.0

    @property
    def is_ready(self) -> bool:
        """True once its process has begun to receive messages."""
        return self.current is not None and self.current.is_ready

    @property
    def can_receive(self) -> bool:
        """True if its process receives messages now."""
        return self.is_ready and self.current is not None and self.current.progress.can_receive

    def start_first(self) -> None:
        """Start the first process."""
        self.current = self._start(is_replacement=False)

    def succeed(self) -> None:
        """Start a process that takes the slot when it is ready."""
        self.successor = self._start(is_replacement=False)

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
            self.restarts += 1
            pause = self._lengthen_pause(child)
            logger.info("A process takes the place of %s in %g s.", child.name, pause)
            self.current = None
            self._restart_at = monotonic() + pause

    def retire(self, child: ChildProcess) -> None:
        """Have another process take the slot of one that ends in order; after a pause if it has handled nothing."""
        self.current = None
        has_handled = any(outcomes(child.progress.handler_counters).values()) or child.progress.running > 0
        self._restart_at = 0.0 if has_handled else monotonic() + self._lengthen_pause(child)

    def fill(self) -> None:
        """Start a process if there is none, none is about to succeed it, and it is time."""
        if self.current is None and self.successor is None and monotonic() >= self._restart_at:
            try:
                self.current = self._start(is_replacement=True)
            except OSError:  # the system has no memory, process or file left just now
                pause = self._lengthen_pause(None)
                logger.exception("No process can be started. It is tried again in %g s.", pause)
                self._restart_at = monotonic() + pause

    def _lengthen_pause(self, child: ChildProcess | None) -> float:
        """Return the pause before the next start, and have the one after it last twice as long."""
        if child is not None and monotonic() - child.started > self._timings.stable_duration:
            self._pause = self._timings.minimum_restart_delay
        pause = self._pause
        self._pause = min(2 * pause, self._timings.maximum_restart_delay)
        return pause
