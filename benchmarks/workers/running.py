"""A worker as it runs: commands and the processes that they start; and what sends to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

_END_SECONDS = 10.0
_PARENT, _FIRST_TIME, _LAST_TIME = 1, 11, 15
"""Places in what Linux tells of a process, from its state on: its parent, and its processor times."""


def processor_seconds(process_id: int) -> float:
    """Return the processor time that a process and its descendants have taken, also those that it has seen end."""
    family = _family(process_id).values()
    ticks = sum(sum(int(ticks) for ticks in fields[_FIRST_TIME:_LAST_TIME]) for fields in family)
    return ticks / os.sysconf("SC_CLK_TCK")


def _family(process_id: int) -> dict[int, list[str]]:
    """Return what Linux tells of a process and its descendants, parents first."""
    everyone: dict[int, list[str]] = {}
    children: dict[int, list[int]] = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                stat = (directory / "stat").read_text(encoding="ascii", errors="replace")
                fields = stat.rpartition(")")[2].split()
                everyone[int(directory.name)] = fields
                children.setdefault(int(fields[_PARENT]), []).append(int(directory.name))
    found: dict[int, list[str]] = {}
    following = [process_id]
    while following:
        each = following.pop(0)
        if each in everyone:
            found[each] = everyone[each]
            following += children.get(each, [])
    return found


class WorkerFailedError(Exception):
    """A worker has ended by itself, or does not handle what it is sent."""


class RunningWorker:
    """A worker's processes. A context manager, which ends them.

    Args:
        commands: What starts it, each a process that may have others.
        environment: What they find in their environment beside what is there.
    """

    def __init__(self, commands: Sequence[Sequence[str]], environment: Mapping[str, str]) -> None:
        self._commands = commands
        self._environment = os.environ | environment
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start it, again if it was killed."""
        self._started += [
            subprocess.Popen(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
            for command in self._commands
        ]

    @property
    def processor_seconds(self) -> float:
        """The processor time that it has taken."""
        return sum(processor_seconds(process.pid) for process in self._started)

    def require_running(self) -> None:
        """Make sure that it has not ended by itself.

        Raises:
            WorkerFailedError: It has.
        """
        for process in self._started:
            if process.poll() is not None:
                command = " ".join(map(str, process.args))  # type: ignore[arg-type]
                raise WorkerFailedError(f"{command} has ended with {process.returncode}:\n{self.log}")

    @property
    def log(self) -> str:
        """The end of what it has written."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-4000:]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop its processes for as long as a block runs."""
        self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill all its processes."""
        self._signal(signal.SIGKILL)
        for process in self._started:
            process.wait()
        self._started.clear()

    def _signal(self, number: int) -> None:
        # Parents first: they would start others in the places of those that were killed.
        for each in [each for process in self._started for each in _family(process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(each, number)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._started:
            process.terminate()
        deadline = time.monotonic() + _END_SECONDS
        for process in self._started:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        self.kill()
        self._log.close()


class Sender:
    """A process that sends what a worker handles. A context manager.

    Args:
        application: The module of the application.
        environment: What it finds in its environment beside what is there.
    """

    def __init__(self, application: str, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.workers.sender", application],
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        self._answer()

    def send(self, first: int, count: int) -> float:
        """Send so many messages, numbered from the first one on.

        Returns:
            When that began, by the monotonic clock.
        """
        assert self._process.stdin is not None
        print(first, count, file=self._process.stdin, flush=True)
        return float(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit("What sends to the worker has ended; its error is above.")
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.communicate()
