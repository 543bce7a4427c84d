"""One PostgreSQL data directory: making it, starting its server, stopping it.

The directory that belongs to the embedded server holds::

    cluster/ PostgreSQL's own data directory socket/ the Unix domain socket, for the owner (and root) only server.log
    the server's log since its last start lock, lease see jmsql.embedded.lease

Callers serialize: no two processes may use the same directory's [`Cluster`] at once.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from jmsql.embedded.account import ServerAccount, user_name
from jmsql.embedded.installation import Installation, find_installation
from jmsql.exceptions import ResourceAllocationException

PORT = 5432
"""Names the socket file; nothing listens on the network."""

SUPERUSER = "postgres"
"""The role that the user of the server connects as."""

_SOCKET_PATH_LIMIT = 103  # bytes; macOS allows 103, Linux 107
_PATIENCE = 60.0  # seconds for PostgreSQL to do one thing
_PATIENCE_WITH_CLIENTS = 20.0  # seconds for PostgreSQL to end its connections; an immediate stop follows
_PATIENCE_WITH_PREDECESSOR = 10.0  # seconds for the processes of a killed server to end
_LOG_LINES_SHOWN = 12

_PARAMETERS = {
    "listen_addresses": "",
    "max_connections": "200",
    "max_prepared_transactions": "20",
    "shared_buffers": "128MB",
    "jit": "off",
    "log_checkpoints": "off",
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """The data directory and its server.

    Args:
        directory: Holds all that belongs to the server. Must exist.
        programs: Where the programs of PostgreSQL are; None looks for them.
        copies: Where copies of the packaged programs may go.
        durable: Whether commits wait for the disk. Without it a crash of the machine can destroy the data.
    """

    directory: Path
    programs: Path | None
    copies: Path
    durable: bool

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.directory / "server.log"

    @property
    def _data(self) -> Path:
        return self.directory / "cluster"

    def make_directory(self) -> None:
        """Make the directory if it does not exist.

        Raises:
            OSError: It cannot be made.
        """
        try:
            self.directory.mkdir(mode=0o700, parents=True)
        except FileExistsError:  # perhaps by another process, a moment ago
            if not self.directory.is_dir():
                raise
        else:
            if os.geteuid() == 0:
                self.directory.chmod(0o711)  # the server's account must pass through

    def socket_directory(self) -> Path | None:
        """Where a running server listens, None if none runs."""
        running = self._running_server()
        return None if running is None else running[1]

    def start(self) -> Path:
        """Start the server, after making the data directory if there is none; return where it listens.

        Raises:
            ResourceAllocationException: It does not start; the message holds the end of the log.
            OSError: A file or directory cannot be written.
        """
        account = ServerAccount.choose()
        if not account.reaches(self.directory):
            raise ResourceAllocationException(
                f"The server would run under another account than root, which cannot enter {self.directory}: a "
                "directory above it is closed to others. Choose a directory that every account can reach."
            )
        installation = find_installation(
            account, major=self._data_version(), programs=self.programs, copies=self.copies
        )
        if not self._data.exists():
            self._initialize(account, installation)
        return self._launch(account, installation)

    def stop(self) -> None:
        """Stop the server, if one runs; connections still open are ended and their transactions rolled back.

        Where it does not stop so within 20 seconds, an immediate shutdown follows, which its next start recovers from:
        a full disk can keep one of its processes from ending.

        Raises:
            ResourceAllocationException: The server did not stop within a minute.
        """
        running = self._running_server()
        if running is None:
            return
        process, socket_directory = running
        for shutdown, patience in (
            (signal.SIGINT, _PATIENCE_WITH_CLIENTS),
            (signal.SIGQUIT, _PATIENCE - _PATIENCE_WITH_CLIENTS),
        ):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, shutdown)
            if self._has_ended(process, patience):
                break
        else:
            raise ResourceAllocationException(
                f"The embedded PostgreSQL server, process {process}, did not stop within {_PATIENCE:.0f} s; see "
                f"{self.log}."
            )
        if socket_directory != self.directory / "socket":
            with contextlib.suppress(OSError):
                socket_directory.rmdir()

    def _has_ended(self, process: int, patience: float) -> bool:
        """Wait for a server that is to stop, and tell whether it has."""
        deadline = time.monotonic() + patience
        # PostgreSQL removes the file last; one that is killed meanwhile leaves it.
        while (self._data / "postmaster.pid").exists() and _is_alive(process):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True

    def _running_server(self) -> tuple[int, Path] | None:
        """Process and socket directory of the running server. A crashed one leaves its file, but does not answer."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
            process, socket_directory = int(lines[0]), Path(lines[4])
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(str(_socket_file(socket_directory)))
        except (OSError, IndexError, ValueError):
            return None
        return process, socket_directory

    def _data_version(self) -> int | None:
        """The major version that wrote the data, None if there is none yet."""
        if not self._data.exists():
            return None
        try:
            return int((self._data / "PG_VERSION").read_text())
        except (OSError, ValueError) as error:
            raise ResourceAllocationException(
                f"{self._data} is not a PostgreSQL data directory: its file PG_VERSION is missing or unreadable. "
                "Restore it from a backup, or move it away to start with an empty one."
            ) from error

    def _initialize(self, account: ServerAccount, installation: Installation) -> None:
        unfinished = self.directory / "cluster.unfinished"
        if unfinished.exists():
            shutil.rmtree(unfinished)
        unfinished.mkdir(mode=0o700)
        account.take_over(unfinished)
        command: list[str | Path] = [installation.programs / "initdb", "--pgdata", unfinished]
        command += [f"--username={SUPERUSER}", "--auth=peer", "--encoding=UTF8", "--locale=C", "--no-instructions"]
        if installation.major >= 17:
            command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        if not self.durable:
            command.append("--no-sync")
        with self._log_file() as log:
            code = account.run(command, output=log, timeout=_PATIENCE)
        if code != 0:
            raise ResourceAllocationException(f"PostgreSQL could not make {self._data}.{self._end_of_log()}")
        # The kernel tells the server which user connects. Roles made later prove themselves by their passwords.
        (unfinished / "pg_hba.conf").write_text(f"local all {SUPERUSER} peer map=jmsql\nlocal all all scram-sha-256\n")
        (unfinished / "pg_ident.conf").write_text(f'jmsql "{user_name()}" {SUPERUSER}\n')
        unfinished.rename(self._data)

    def _launch(self, account: ServerAccount, installation: Installation) -> Path:
        socket_directory = self._make_socket_directory(account)
        parameters = _PARAMETERS | {"unix_socket_directories": str(socket_directory), "port": str(PORT)}
        parameters |= {"unix_socket_permissions": "0700", "fsync": "on" if self.durable else "off"}
        options = [word for name, value in parameters.items() for word in ("-c", f"{name}={value}")]
        command: list[str | Path] = [installation.programs / "pg_ctl", "start", "--wait", "--silent"]
        command += [f"--timeout={_PATIENCE:.0f}", "--pgdata", self._data, "--options", shlex.join(options)]
        deadline = time.monotonic() + _PATIENCE_WITH_PREDECESSOR
        while True:
            with self._log_file() as log:
                code = account.run(command, output=log, timeout=2 * _PATIENCE)
            if code == 0:
                return socket_directory
            if not self._predecessor_lingers() or time.monotonic() > deadline:
                raise ResourceAllocationException(
                    f"The PostgreSQL server of {self._data} does not start. If the log speaks of damaged "
                    f"data, restore them from a backup, or move {self._data} away to start with none."
                    f"{self._end_of_log()}"
                )
            time.sleep(0.1)

    def _make_socket_directory(self, account: ServerAccount) -> Path:
        directory = self.directory / "socket"
        if len(os.fsencode(_socket_file(directory))) > _SOCKET_PATH_LIMIT:
            directory = Path(tempfile.mkdtemp(prefix="jmsql-", dir="/tmp"))
        directory.mkdir(mode=0o700, exist_ok=True)
        account.take_over(directory)
        return directory

    def _log_file(self) -> BinaryIO:
        """The log, emptied. The server inherits it open, so its account needs no right to it."""
        return os.fdopen(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600), "wb")

    def _predecessor_lingers(self) -> bool:
        """Return whether the start failed because processes of a killed server have not ended yet."""
        log = self.log.read_text(errors="replace")
        return "is still in use" in log or 'lock file "postmaster.pid" already exists' in log

    def _end_of_log(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:]
        return f" The end of {self.log}:\n" + "\n".join(f"  {line}" for line in lines)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _socket_file(directory: Path) -> Path:
    return directory / f".s.PGSQL.{PORT}"
