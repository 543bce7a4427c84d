"""A part of a test that runs in a process of its own, and begins at once: forked from one that has imported jmsql."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

_FORKS = multiprocessing.get_context("forkserver")
_PRELOADED = ["jmsql.client._sync.connection.factory", "tests.faults.work"]


class ForkedProcess:
    """Calls a function in a process of its own, whose input and output are this object's.

    Args:
        function: What it runs: a function of a module.
        arguments: What the function is called with; they are pickled.
        log: Where its output goes instead, and its errors.
    """

    def __init__(self, function: Callable[..., object], *arguments: object, log: Path | None = None) -> None:
        _FORKS.set_forkserver_preload(_PRELOADED)
        own, other = socket.socketpair()
        with other:
            self._process = _FORKS.Process(target=_run, args=(other, log, function, arguments))
            self._process.start()
        self._input, self._output = own.makefile("w"), own.makefile("r")
        own.close()

    @property
    def process_id(self) -> int:
        """Its number in the system."""
        assert self._process.pid is not None
        return self._process.pid

    def write_line(self, line: str) -> None:
        """Give it a line to read."""
        self._input.write(f"{line}\n")
        self._input.flush()

    def read_line(self) -> str:
        """Wait for the next line that it writes; return "" once it has ended."""
        return self._output.readline()

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.exit_code() is None:
            os.kill(self.process_id, number)

    def exit_code(self) -> int | None:
        """Return what it ended with, or minus the signal that has ended it; None: it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for its end; return as `exit_code` does."""
        self._process.join(timeout)
        return self.exit_code()

    def kill(self) -> None:
        """End it as nothing can prevent."""
        self._process.kill()
        self._process.join()
        self._input.close()
        self._output.close()


def _run(
    channel: socket.socket, log: Path | None, function: Callable[..., object], arguments: tuple[object, ...]
) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the process that forks ignores it
    os.dup2(channel.fileno(), 0)
    if log is None:
        os.dup2(channel.fileno(), 1)
    else:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
    channel.close()
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115 - its own
    function(*arguments)
    sys.stdout.flush()
