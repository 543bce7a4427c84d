"""Where tests find a PostgreSQL server."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jmsql.embedded import start_server
from jmsql.exceptions import ResourceAllocationException

_IMAGE = "postgres:18"
_GUARD = """
cat >/dev/null
for file in "$0"/*/cluster/postmaster.pid; do
    if read -r process <"$file"; then
        kill -QUIT "$process"
        while kill -0 "$process"; do sleep 0.1; done
    fi
done 2>/dev/null
rm -rf "$0"
"""
"""Stops the servers of a directory by an immediate shutdown, once the other end of its input is closed."""


@contextmanager
def server_for_tests() -> Iterator[str]:
    """The URL of a server on which databases may be made: the first of those that `jmsql.testing` names.

    Raises:
        ResourceAllocationException: There is no PostgreSQL at all, or JMSQL_EMBEDDED forbids to start one.
    """
    programs = os.environ.get("JMSQL_TEST_PROGRAMS")
    if url := os.environ.get("JMSQL_TEST_URL"):
        yield url
    elif programs is None and _docker_runs():
        from testcontainers.community.postgres import PostgresContainer

        with PostgresContainer(_IMAGE, driver=None).with_command("-c max_prepared_transactions=20") as container:
            yield container.get_connection_url()
    else:
        if os.environ.get("JMSQL_EMBEDDED") == "off":
            raise ResourceAllocationException(
                "Tests need a PostgreSQL server, and the environment variable JMSQL_EMBEDDED is off, so none is "
                "started. Name one in JMSQL_TEST_URL on which a database for the tests can be made, which is dropped "
                "at the end; JMSQL_URL is for the application, and no test uses it."
            )
        with directory_of_servers("jmsql-tests-") as directory:
            data = directory / "postgresql"
            with start_server(data, programs=None if programs is None else Path(programs), durable=False) as server:
                yield server.url


@contextmanager
def directory_of_servers(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a directory for the data of embedded servers, which end with this process, however it ends.

    A process that a signal kills stops nothing. Another one, of a session of its own, waits for the end of a pipe then.

    Args:
        prefix: The beginning of the directory's name.
        parent: Where it is made; by default where temporary files go.
    """
    guard = None
    try:
        with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as name:
            directory = Path(name)
            directory.chmod(0o711)  # for root: the server's account must pass through
            guard = subprocess.Popen(["/bin/sh", "-c", _GUARD, name], stdin=subprocess.PIPE, start_new_session=True)
            yield directory
    finally:
        if guard is not None:
            guard.communicate()


def _docker_runs() -> bool:
    docker = shutil.which("docker")
    if docker is None or importlib.util.find_spec("testcontainers") is None:
        return False
    return subprocess.run([docker, "info"], capture_output=True, check=False).returncode == 0
