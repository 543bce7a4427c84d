"""A PostgreSQL server with a synchronous standby, which takes over when the primary is killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from jmsql.embedded import EmbeddedServer, start_server
from jmsql.embedded.account import ServerAccount
from jmsql.embedded.cluster import PORT, SUPERUSER
from jmsql.embedded.installation import find_installation
from jmsql.testing import wait_for
from jmsql.testing.servers import directory_of_servers
from tests.faults.network import listening_programs
from tests.prepared_data import prepare_data
from tests.spark.subprocesses import children_of

_PATIENCE = 60.0
_COPIES = Path("/var/lib/jmsql/programs")


class _Member:
    """One of two servers, which are primary and standby by turns.

    Args:
        directory: Holds its data.
        address: Where it listens, beside its socket.
    """

    def __init__(self, directory: Path, address: str) -> None:
        self.directory = directory
        self.address = address
        directory.mkdir(mode=0o711)
        self._programs = listening_programs(directory, address)
        self._server: EmbeddedServer | None = None

    @property
    def url(self) -> str:
        """The way to this server alone."""
        return f"postgresql://{SUPERUSER}@{self.address}:{PORT}/postgres"

    @property
    def cluster(self) -> Path:
        """PostgreSQL's data directory."""
        return self.directory / "postgresql/cluster"

    def start(self) -> None:
        """Start it on its data."""
        self._server = start_server(self.cluster.parent, programs=self._programs, durable=True)

    def stop(self) -> None:
        """Stop it in order, if it runs."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def kill(self) -> None:
        """End the server with SIGKILL, and all of its processes: its host is gone."""
        process = int((self.cluster / "postmaster.pid").read_text().splitlines()[0])
        for each in (process, *(child for child, _ in children_of(process))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self.stop()


class ReplicatedServers:
    """A primary and a standby that has each commit on its disk before the primary answers it.

    Args:
        directory: Holds the data of both.
    """

    def __init__(self, directory: Path) -> None:
        number = os.getpid()
        self._members = [
            _Member(directory / name, f"127.{100 + number % 100}.{number // 100 % 250}.{last}")
            for last, name in enumerate(("one", "two"), start=1)
        ]
        self._account = ServerAccount.choose()
        for member in self._members:
            member.cluster.parent.mkdir(mode=0o711)
        prepare_data(self._primary.cluster.parent)
        with (self._primary.cluster / "pg_hba.conf").open("a") as access:
            access.write("host all all 127.0.0.0/8 trust\nhost replication all 127.0.0.0/8 trust\n")
        self._primary.start()
        self.add_standby()

    @property
    def url(self) -> str:
        """The way to whichever is the primary."""
        addresses = ",".join(f"{member.address}:{PORT}" for member in sorted(self._members, key=lambda m: m.address))
        return f"postgresql://{SUPERUSER}@{addresses}/postgres?target_session_attrs=read-write"

    @property
    def primary_url(self) -> str:
        """The way to the server that is the primary now."""
        return self._primary.url

    def kill_primary(self) -> None:
        """Nobody hears of the primary again."""
        self._primary.kill()

    def promote(self) -> float:
        """Let the standby be the primary; return how many seconds PostgreSQL took for that."""
        started = time.monotonic()
        with psycopg.connect(self._standby.url, autocommit=True) as connection:
            connection.execute("alter system reset synchronous_standby_names")  # there is none yet
            assert connection.execute("select pg_promote()").fetchone() == (True,)
            connection.execute("select pg_reload_conf()")
        self._members.reverse()
        return time.monotonic() - started

    def switch_over(self) -> float:
        """Stop the primary in order and promote the standby, as for maintenance; return what `promote` does."""
        self._primary.stop()
        return self.promote()

    def add_standby(self) -> None:
        """Make the server that is not the primary a synchronous standby, with a copy of the primary's data."""
        self._standby.stop()
        shutil.rmtree(self._standby.cluster.parent)
        self._standby.cluster.parent.mkdir(mode=0o711)
        self._standby.cluster.mkdir(mode=0o700)
        self._account.take_over(self._standby.cluster)
        programs = find_installation(self._account, major=None, programs=None, copies=_COPIES).programs
        host = ["--host", self._primary.address, "--port", str(PORT), "--username", SUPERUSER]
        with tempfile.TemporaryFile() as output:
            command: list[str | Path] = [programs / "pg_basebackup", "--pgdata", self._standby.cluster, *host]
            command += ["--write-recovery-conf", "--checkpoint=fast", "--no-sync"]
            code = self._account.run(command, output=output, timeout=_PATIENCE)
            output.seek(0)
            assert code == 0, output.read().decode()
        self._standby.start()
        with psycopg.connect(self._primary.url, autocommit=True) as connection:
            connection.execute("alter system set synchronous_standby_names = '*'")
            connection.execute("select pg_reload_conf()")
            synchronous = "select count(*) from pg_stat_replication where state = 'streaming' and sync_state = 'sync'"
            wait_for(lambda: connection.execute(synchronous).fetchone() == (1,), _PATIENCE)

    def wait_until_ready(self) -> None:
        """Return when there is a primary that takes connections."""

        def is_ready() -> bool:
            try:
                psycopg.connect(self.url).close()
            except psycopg.OperationalError:
                return False
            return True

        wait_for(is_ready, _PATIENCE)

    def stop(self) -> None:
        """Stop both, the primary first: it waits for its standby."""
        for member in self._members:
            member.stop()

    @property
    def _primary(self) -> _Member:
        return self._members[0]

    @property
    def _standby(self) -> _Member:
        return self._members[1]


@contextmanager
def replicated_servers() -> Iterator[ReplicatedServers]:
    """Run both servers, with the schema in them."""
    with directory_of_servers("jmsql-replicated-") as directory:
        servers = ReplicatedServers(directory)
        try:
            yield servers
        finally:
            servers.stop()
