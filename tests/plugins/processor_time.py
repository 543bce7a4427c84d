"""How much processor time this process and all that it has started have taken."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import NamedTuple

_MARK = "JMSQL_TEST_PROCESS"
_PROCESSES = Path("/proc")


class _Process(NamedTuple):
    parent: int
    seconds: float
    """With those of its children that have ended, and that it has waited for."""


class ProcessorTime:
    """Counts from now on. A server that has left its parent is found by its environment, where there is /proc.

    So are the processes that it has begun: PostgreSQL's write their titles over theirs.
    """

    def __init__(self) -> None:
        self._mark = f"{_MARK}={os.getpid()}".encode()
        self._tick = os.sysconf("SC_CLK_TCK")
        self._is_ours: dict[tuple[int, bytes], bool] = {}
        self._living: dict[int, _Process] = {}
        self._ended = 0.0
        os.environ[_MARK] = str(os.getpid())

    def seconds(self) -> float:
        """The seconds until now."""
        own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        living = self._others()
        for process, last in self._living.items():
            # Nobody of ours counts what an orphan took, once it has ended.
            if process not in living and last.parent != os.getpid() and last.parent not in self._living:
                self._ended += last.seconds
        self._living = living
        others = sum(process.seconds for process in living.values())
        return sum(usage.ru_utime + usage.ru_stime for usage in own) + others + self._ended

    def _others(self) -> dict[int, _Process]:
        all_processes = {}
        is_ours = {}
        for name in [directory.name for directory in _PROCESSES.glob("[0-9]*")]:
            process = int(name)
            if process == os.getpid():
                continue
            try:
                fields = _read(f"{_PROCESSES}/{name}/stat").rpartition(b")")[2].split()
                started = fields[19]
                known = self._is_ours.get((process, started))
                if known is None:
                    known = self._mark in _read(f"{_PROCESSES}/{name}/environ").split(b"\0")
            except (OSError, IndexError):
                continue  # it has ended
            is_ours[process, started] = known
            all_processes[process] = _Process(int(fields[1]), sum(map(int, fields[11:15])) / self._tick)
        self._is_ours = is_ours
        marked = {process for (process, _), known in is_ours.items() if known}
        return {
            process: found for process, found in all_processes.items() if process in marked or found.parent in marked
        }


def _read(path: str) -> bytes:
    """Read a file of /proc as cheaply as can be: there is one for each process of the machine."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a Path costs as much as to read the file
        return file.read()
