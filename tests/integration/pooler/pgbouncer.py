"""PgBouncer in transaction mode, in front of a test server."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
import sqlalchemy
from psycopg import sql

from jmsql.embedded.account import ServerAccount
from jmsql.testing import wait_for

SERVER_CONNECTIONS = 8
"""How many connections to PostgreSQL all clients share: more than the tests have transactions open at once."""

_ADMINISTRATOR = "administrator"
_PORT = 6432  # names the socket file; nothing listens on the network
_PATIENCE = 60.0

_SETTINGS = """
[databases]
* = {server}
[pgbouncer]
listen_addr =
listen_port = {port}
unix_socket_dir = {directory}
auth_type = any
admin_users = {administrator}
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 500
server_login_retry = 1
# As busy servers do: the next transaction is on another connection than the last one.
server_round_robin = 1
log_connections = 0
log_disconnections = 0
"""


class PgBouncer:
    """A running pooler.

    Args:
        directory: Where its settings are, and its socket.
        program: What runs.
    """

    def __init__(self, directory: Path, program: str) -> None:
        self._directory = directory
        self._program = program

    def start(self) -> None:
        """Start it, or start it again."""
        entry = ServerAccount.choose().entry
        with (self._directory / "log").open("w+b") as log:
            self._process = subprocess.Popen(
                [self._program, "--quiet", self._directory / "pgbouncer.ini"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd="/",
                user=None if entry is None else entry.pw_uid,
                group=None if entry is None else entry.pw_gid,
                extra_groups=None if entry is None else [],
            )
            wait_for(lambda: self.is_ready() or self._process.poll() is not None, _PATIENCE)
            log.seek(0)
            assert self._process.poll() is None, f"pgbouncer does not start: {log.read().decode()}"

    def kill(self) -> None:
        """End it as nothing can prevent."""
        self._process.kill()
        self._process.wait()

    def url(self, server_url: str) -> str:
        """The URL that leads to the same database through the pooler."""
        return self._url(sqlalchemy.make_url(server_url).database or "postgres", "client")

    def clients(self) -> list[str]:
        """The databases of the clients that are connected, each as often as it has clients."""
        return [row["database"] for row in self._administer("show clients") if row["database"] != "pgbouncer"]

    def forget(self, server_url: str) -> None:
        """Close the connections to a database, and those of its clients."""
        database = sqlalchemy.make_url(server_url).database
        if any(row["database"] == database for row in self._administer("show pools")):
            self._administer(f"kill {database}")
            self._administer(f"resume {database}")

    def pause(self, server_url: str) -> None:
        """Let the clients of a database wait, once their transactions have ended."""
        self._administer(f"pause {sqlalchemy.make_url(server_url).database}")

    def resume(self, server_url: str) -> None:
        """Let them go on."""
        self._administer(f"resume {sqlalchemy.make_url(server_url).database}")

    def reconnect(self, server_url: str) -> None:
        """Replace the connections to a database that are open now, each once its transaction has ended."""
        self._administer(f"reconnect {sqlalchemy.make_url(server_url).database}")

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            self._administer("show version")
        except psycopg.OperationalError:
            return False
        return True

    def _url(self, database: str, user: str) -> str:
        return f"postgresql://{user}@/{quote(database)}?host={quote(str(self._directory))}&port={_PORT}"

    def _administer(self, command: str) -> list[dict[str, Any]]:
        url = self._url("pgbouncer", _ADMINISTRATOR)
        with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
            cursor = connection.execute(command.encode())
            if cursor.description is None:
                return []
            names = [column.name for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]


@contextmanager
def pgbouncer(server_url: str, size: int = SERVER_CONNECTIONS, *, current: bool = False) -> Iterator[PgBouncer]:
    """Run the pooler in front of all databases of a server.

    Args:
        server_url: The server.
        size: How many connections it has to each database.
        current: Whether it is one that keeps prepared statements, if there is one beside the system's.
    """
    program = _program(current=current)
    server = sqlalchemy.make_url(server_url)
    role, password = f"pooler_{secrets.token_hex(4)}", secrets.token_hex(16)
    with _role(server_url, role, password), tempfile.TemporaryDirectory(prefix="jmsql-pooler-") as name:
        directory = Path(name)
        settings = directory / "pgbouncer.ini"
        place = {
            "host": server.query.get("host") or server.host or "localhost",
            "port": server.query.get("port") or server.port or 5432,
            "user": role,
            "password": password,
        }
        settings.write_text(
            _SETTINGS.format(
                server=" ".join(f"{key}='{value}'" for key, value in place.items()),
                port=_PORT,
                directory=directory,
                administrator=_ADMINISTRATOR,
                size=size,
            )
        )
        for path in (directory, settings):
            ServerAccount.choose().take_over(path)
        pooler = PgBouncer(directory, program)
        pooler.start()
        try:
            yield pooler
        finally:
            pooler.kill()


def _program(*, current: bool) -> str:
    built = Path(sys.prefix, "bin", "pgbouncer")
    if current and built.exists():
        return str(built)
    program = os.environ.get("JMSQL_TEST_PGBOUNCER") or shutil.which("pgbouncer", path=f"{os.defpath}:/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed (Debian: apt-get install pgbouncer)")
    return program


@contextmanager
def _role(server_url: str, name: str, password: str) -> Iterator[None]:
    """A role with a password, since the server may know this user by other means, which the pooler lacks."""
    url = sqlalchemy.make_url(server_url).set(drivername="postgresql").render_as_string(hide_password=False)
    role = sql.Identifier(name)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("create role {} superuser login password {}").format(role, sql.Literal(password)))
    try:
        yield
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.SQL("drop role {}").format(role))
