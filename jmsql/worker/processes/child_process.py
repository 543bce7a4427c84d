"""The supervisor's view of one of its processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any

from jmsql.worker.processes.settings import Settings
from jmsql.worker.reporting.reports import Listening, Progress, Refusal, ReportReader

__all__ = ["ChildProcess"]


class ChildProcess:
    """Starts a process, and takes in what it reports.

    Args:
        name: Its name, in the log and in ``pg_stat_activity``.
        settings: What it is to do.
        url: The database, if the supervisor was given one.
    """

    def __init__(self, name: str, settings: Settings, url: str | None) -> None:
        self.name = name
        self.started = time.monotonic()
        self.progress = Progress()
        self.refusal: Refusal | None = None
        self.listeners: list[dict[str, Any]] = []
        self.is_ready = False
        self._drain_timeout = settings.drain_timeout
        self._exit_timeout = settings.timings.exit_timeout
        self._heartbeat: datetime | None = None
        self._last_sign = self.started
        self._kill_at: float | None = None
        self.channel, channel = socket.socketpair()
        self._reader = ReportReader(self.channel)
        environment = dict(os.environ)
        if url is not None:
            environment["JMSQL_URL"] = url  # not an argument: others can read those
        environment.setdefault("PGAPPNAME", f"jmsql {name}")
        with channel:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jmsql.worker", name, str(channel.fileno()), settings.to_json()],
                stdin=subprocess.DEVNULL,
                pass_fds=[channel.fileno()],
                env=environment,
                start_new_session=True,  # Ctrl-C is for the supervisor, which then ends its processes
            )

    @property
    def process_id(self) -> int:
        """Its number in the system."""
        return self._process.pid

    @property
    def is_draining(self) -> bool:
        """Whether it was told to end."""
        return self._kill_at is not None

    @property
    def silence(self) -> float:
        """For how many seconds it has not reported anything."""
        return time.monotonic() - self._last_sign

    def read_reports(self) -> bool:
        """Take in what it has reported; return False if it will report no more."""
        reports = self._reader.read()
        for report in reports or []:
            if isinstance(report, Refusal):
                self.refusal = report
            elif isinstance(report, Listening):
                self.listeners = report.listeners
            else:
                self.progress = report
                self.is_ready = True
            self._heartbeat = datetime.now(UTC)
            self._last_sign = time.monotonic()
        return reports is not None

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
            self._kill_at = time.monotonic() + self._drain_timeout + self._exit_timeout
            self._process.send_signal(signal.SIGTERM)

    def kill_if_overdue(self) -> None:
        """Kill it if it was to have ended by now."""
        if self._kill_at is not None and time.monotonic() > self._kill_at:
            self.kill()

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()

    @property
    def state(self) -> str:
        """Where it is in its life."""
        return "draining" if self.is_draining else "ready" if self.is_ready else "starting"

    def document(self) -> dict[str, Any]:
        """Return its state, for the health endpoint."""
        return {
            "name": self.name,
            "process_id": self.process_id,
            "state": self.state,
            "last_heartbeat": None if self._heartbeat is None else self._heartbeat.isoformat(),
            "handled": self.progress.handled,
            "failed": self.progress.failed,
            "running": self.progress.running,
        }
