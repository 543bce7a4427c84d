from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jmsql.embedded import start_server


def make_directory() -> Path:
    # Not below pytest's own directory, which the server's account cannot enter when the tests run as root.
    directory = Path(tempfile.mkdtemp(prefix="jmsql-embedded-"))
    directory.chmod(0o711)
    return directory


@pytest.fixture(scope="session")
def prepared_directory() -> Iterator[Path]:
    """Data that are there already, so that a start takes a moment only."""
    parent = make_directory()
    start_server(parent / "data").stop()
    yield parent / "data"
    shutil.rmtree(parent)


@pytest.fixture
def data_directory(prepared_directory: Path) -> Iterator[Path]:
    """A copy of the prepared data, for the test to break."""
    parent = make_directory()
    account = (prepared_directory / "cluster").stat()
    shutil.copytree(prepared_directory, parent / "data", symlinks=True)
    for path in (parent / "data" / "cluster", *(parent / "data" / "cluster").rglob("*")):
        shutil.chown(path, account.st_uid, account.st_gid)
    yield parent / "data"
    shutil.rmtree(parent)


@pytest.fixture
def empty_directory() -> Iterator[Path]:
    directory = make_directory()
    yield directory
    shutil.rmtree(directory)
