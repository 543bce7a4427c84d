"""Watching and killing an embedded server from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from jmsql.testing import wait_for

_USER = """
import sys
from pathlib import Path
from jmsql.embedded import start_server
servers = [start_server(Path(directory)) for directory in sys.argv[1:]]
print(servers[0].url, flush=True)
sys.stdin.readline()
"""


class OtherProcess:
    """Another process that uses the servers until it is told to end."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._input: IO[str] | None = process.stdin
        self._output: IO[str] | None = process.stdout

    def url(self) -> str:
        assert self._output is not None
        return self._output.readline().strip()

    def end(self) -> str:
        """End it, and return its errors."""
        _, errors = self._process.communicate("\n", timeout=60)
        assert self._process.returncode == 0
        return errors

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def other_process(*directories: Path) -> Iterator[OtherProcess]:
    process = subprocess.Popen(
        [sys.executable, "-c", _USER, *directories],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield OtherProcess(process)
    finally:
        process.kill()
        process.communicate()


def server_process(directory: Path) -> int:
    return int((directory / "cluster" / "postmaster.pid").read_text().splitlines()[0])


def is_running(directory: Path) -> bool:
    return (directory / "cluster" / "postmaster.pid").exists()


def kill_server(directory: Path) -> None:
    process = server_process(directory)
    os.kill(process, signal.SIGKILL)
    wait_for(lambda: not _is_alive(process))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
