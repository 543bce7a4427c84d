"""The data directory of a server that has the schema: a copy takes a tenth of what initdb and the migration take."""

from __future__ import annotations

import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import IO

from jmsql.embedded import start_server
from jmsql.store.schema.migration import migrate


def prepare_data(directory: Path) -> None:
    """Put a copy where `start_server` will find it.

    Args:
        directory: The data directory, which does not exist. The server's account must be able to reach it.
    """
    archived = _archived_data()
    archived.seek(0)
    with tarfile.open(fileobj=archived) as archive:
        archive.extractall(directory, filter="fully_trusted")  # with the server's account as the owner


@cache
def _archived_data() -> IO[bytes]:
    with tempfile.TemporaryDirectory(prefix="jmsql-prepared-") as name:
        directory = Path(name)
        directory.chmod(0o711)  # for root: the server's account must pass through
        with start_server(directory / "server", durable=False) as server:
            migrate(server.url)
        archived = tempfile.TemporaryFile()  # noqa: SIM115 - for as long as this process lives
        with tarfile.open(fileobj=archived, mode="w") as archive:
            archive.add(directory / "server", ".")
    return archived
