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
        with tempfile.TemporaryDirectory(prefix="jmsql-tests-") as directory:
            Path(directory).chmod(0o711)  # for root: the server's account must pass through
            data = Path(directory, "postgresql")
            with start_server(data, programs=None if programs is None else Path(programs), durable=False) as server:
                yield server.url


def _docker_runs() -> bool:
    docker = shutil.which("docker")
    if docker is None or importlib.util.find_spec("testcontainers") is None:
        return False
    return subprocess.run([docker, "info"], capture_output=True, check=False).returncode == 0
