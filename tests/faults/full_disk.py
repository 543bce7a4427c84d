"""The disk of the server fills, stays full for a while, and has room again.

``python -m tests.faults --fault full-disk --hours H --seed N`` runs it, as root.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg

from jmsql.embedded.account import ServerAccount
from tests.faults.faulty_server import faulty_server
from tests.faults.trial import Trial

_MEGABYTES = 400
_REFILL = 2.0
"""Seconds after which what PostgreSQL has released is filled as well."""


class Disk:
    """A small file system.

    Args:
        directory: Where it is mounted.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ballast = directory / "ballast"

    def fill(self, free: int) -> None:
        """Leave so many bytes free."""
        state = os.statvfs(self.directory)
        with contextlib.suppress(OSError), self._ballast.open("ab") as ballast:  # the server was quicker
            ballast.write(bytes(max(0, state.f_bavail * state.f_frsize - free)))

    def make_room(self) -> None:
        """Remove what fills it."""
        self._ballast.unlink()


@contextmanager
def small_disk(directory: Path, megabytes: int) -> Iterator[Disk]:
    """Mount one."""
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0755", "jmsql", directory], check=True)
    try:
        ServerAccount.choose().take_over(directory)
        yield Disk(directory)
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


class FullDisks(Trial):
    """The disk has the tables and, with some seeds, the write-ahead log: then the server may end."""

    def begin(self, stack: ExitStack) -> tuple[str, str]:
        reachable = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jmsql-disk-")))
        reachable.chmod(0o711)
        self._disk = stack.enter_context(small_disk(reachable / "whole", _MEGABYTES))
        self._server = stack.enter_context(faulty_server(self._disk.directory))
        self._has_log_elsewhere = self.random.random() < 0.5
        if self._has_log_elsewhere:
            self._server.stop()
            log = self._server.data / "pg_wal"
            subprocess.run(["mv", log, reachable / "pg_wal"], check=True)  # with its owner
            log.symlink_to(reachable / "pg_wal")
            self._server.start()
        with psycopg.connect(self._server.url, autocommit=True) as administrator:
            administrator.execute("alter system set max_wal_size = '64MB'")  # else the log alone would fill the disk
            administrator.execute("select pg_reload_conf()")
        return self._server.url, self._server.url

    def strike(self, seconds: float) -> str:
        free = self.random.choice([0, 0, 1_000_000])
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            self._disk.fill(free)
            time.sleep(_REFILL)
        killed = self.perhaps_kill_a_client(0.25)
        self._disk.make_room()
        has_ended = False
        while not self._server.is_ready():
            if not self._server.is_running:
                has_ended = True
                self._server.start()
        kind = "disk of the tables full" if self._has_log_elsewhere else "disk full"
        return f"{kind}{', and the server ended' if has_ended else ''}{killed}"
