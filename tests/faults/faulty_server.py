"""A PostgreSQL server of a test's own, which can be killed in several ways, and started again."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from jmsql.embedded import EmbeddedServer, start_server
from jmsql.embedded.cluster import PORT, SUPERUSER
from jmsql.testing import wait_for
from jmsql.testing.servers import directory_of_servers
from tests.faults.network import listening_programs
from tests.prepared_data import prepare_data

_PATIENCE = 60.0


class FaultyServer:
    """Commits wait for the disk, as they do in production.

    Args:
        directory: Holds the data.
        address: Where it listens, beside its socket; None: nowhere.
    """

    def __init__(self, directory: Path, address: str | None = None) -> None:
        self._directory = directory
        self._address = address
        self._programs = None if address is None else listening_programs(directory.parent, address)
        self._server: EmbeddedServer | None = None
        self.start()
        if address is not None:
            with (self.data / "pg_hba.conf").open("a") as access:
                access.write(f"host all all {address}/8 trust\n")
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute("select pg_reload_conf()")

    @property
    def url(self) -> str:
        """Where the server is, also after a restart."""
        assert self._server is not None
        return self._server.url

    @property
    def network_url(self) -> str:
        """Where the server is for hosts of its network."""
        assert self._address is not None
        return f"postgresql://{SUPERUSER}@{self._address}:{PORT}/postgres"

    @property
    def data(self) -> Path:
        """PostgreSQL's data directory."""
        return self._directory / "cluster"

    @property
    def is_running(self) -> bool:
        """Whether there is a server, be it one that refuses connections."""
        try:
            return _is_alive(int((self.data / "postmaster.pid").read_text().splitlines()[0]))
        except (OSError, IndexError, ValueError):
            return False

    def start(self) -> None:
        """Start it, or start it again."""
        if self._server is not None:
            self._server.stop()
        self._server = start_server(self._directory, programs=self._programs, durable=True)

    def kill(self, number: signal.Signals) -> None:
        """End it by a signal: SIGKILL leaves no time for anything, SIGQUIT is `pg_ctl stop -m immediate`."""
        process = int((self.data / "postmaster.pid").read_text().splitlines()[0])
        os.kill(process, number)
        wait_for(lambda: not _is_alive(process), _PATIENCE)

    def kill_backend(self, choice: float) -> None:
        """Kill a process that serves a client, by SIGKILL, upon which the server ends all others and recovers.

        Args:
            choice: Which one: from 0 to 1.
        """
        with contextlib.suppress(psycopg.Error), psycopg.connect(self.url, autocommit=True) as connection:
            clients = connection.execute(
                "select pid from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid() "
                "order by pid"
            ).fetchall()
            if clients:
                os.kill(clients[int(choice * len(clients))][0], signal.SIGKILL)

    def terminate_backends(self, share: float) -> None:
        """End some of the clients' connections, as an administrator does."""
        with contextlib.suppress(psycopg.Error), psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where backend_type = 'client backend' and pid <> pg_backend_pid() and random() < %s",
                [share],
            )

    def wait_until_ready(self) -> None:
        """Return when it takes connections, as it does again once it has recovered."""
        wait_for(self.is_ready, _PATIENCE)

    def is_ready(self) -> bool:
        """Whether it takes connections."""
        try:
            psycopg.connect(self.url).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        """Stop it in order."""
        assert self._server is not None
        self._server.stop()


@contextmanager
def faulty_server(parent: Path | None = None, address: str | None = None) -> Iterator[FaultyServer]:
    """Run a server with the schema in it.

    Args:
        parent: Where its directory is made; by default where temporary files go.
        address: Where it listens, beside its socket.
    """
    with directory_of_servers("jmsql-faults-", parent) as directory:
        prepare_data(directory / "postgresql")
        server = FaultyServer(directory / "postgresql", address)
        try:
            yield server
        finally:
            server.stop()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
