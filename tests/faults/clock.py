"""A clock that is set while programs run, and a server whose clock jumps under load.

``python -m tests.faults --fault clock --hours H --seed N`` runs the latter; it needs libfaketime.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.clocks import HOUR
from tests.faults.faulty_server import FaultyServer, faulty_server
from tests.faults.trial import Trial


class Clock:
    """What tells a process the time, if it was started with `environment`.

    Args:
        file: Where it is written by how much the time is off.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(0)

    @property
    def environment(self) -> dict[str, str]:
        """What makes a process ask it."""
        return {
            "LD_PRELOAD": str(_libraries()[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # Its "fix" lets a wait until a moment of the monotonic clock, as all of Python's are, return at once.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }

    @staticmethod
    def can_be_set() -> bool:
        """Whether the library is there by which processes ask it."""
        return bool(_libraries())

    def start(self, server: FaultyServer) -> None:
        """Start a server again, which then asks the clock."""
        server.stop()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            server.start()

    def set(self, seconds: float) -> None:
        """Let it be off by so many seconds, for all at once: nobody reads a file that is half written."""
        written = self._file.with_suffix(".new")
        written.write_text(f"{seconds:+}s\n")
        written.chmod(0o644)
        written.replace(self._file)


class JumpingClocks(Trial):
    """The server's clock jumps by an hour, and those of the clients do not."""

    def begin(self, stack: ExitStack) -> tuple[str, str]:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jmsql-clock-")))
        directory.chmod(0o711)  # for the server's account
        self._clock = Clock(directory / "clock")
        server = stack.enter_context(faulty_server())
        self._clock.start(server)
        return server.url, server.url

    def strike(self, seconds: float) -> str:
        killed = self.perhaps_kill_a_client()
        self._clock.set(self.random.choice([-HOUR, HOUR]))
        time.sleep(seconds)
        self._clock.set(0)
        return f"clock an hour off and back{killed}"


def _libraries() -> list[Path]:
    return list(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
