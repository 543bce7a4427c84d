from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from jmsql.embedded import start_server
from jmsql.exceptions import ResourceAllocationException
from tests.integration.embedded.server_processes import is_running


def test_data_directory_without_version(data_directory: Path) -> None:
    (data_directory / "cluster" / "PG_VERSION").unlink()
    with pytest.raises(ResourceAllocationException, match=r"is not a PostgreSQL data directory.*move it away"):
        start_server(data_directory)


def test_data_directory_of_a_version_that_is_not_installed(data_directory: Path) -> None:
    (data_directory / "cluster" / "PG_VERSION").write_text("9\n")
    with pytest.raises(
        ResourceAllocationException, match=r"No server programs of PostgreSQL 9 were found \(found: 1\d"
    ):
        start_server(data_directory)


def test_broken_data_directory_shows_the_log(data_directory: Path) -> None:
    (data_directory / "cluster" / "global" / "pg_control").unlink()
    with pytest.raises(
        ResourceAllocationException, match=r"(?s)does not start.*move .* away.*could not find the database system"
    ):
        start_server(data_directory)
    assert not is_running(data_directory)


def test_interrupted_making_of_the_data_directory_is_done_again(data_directory: Path) -> None:
    (data_directory / "cluster").rename(data_directory / "cluster.unfinished")
    (data_directory / "cluster.unfinished" / "PG_VERSION").unlink()
    with start_server(data_directory, durable=False):
        assert is_running(data_directory)
        assert not (data_directory / "cluster.unfinished").exists()


def test_place_that_cannot_be_written(empty_directory: Path) -> None:
    (empty_directory / "file").touch()
    with pytest.raises(ResourceAllocationException, match="choose another directory") as refused:
        start_server(empty_directory / "file" / "data")
    assert isinstance(refused.value.linked_exception, OSError)


def test_no_programs(empty_directory: Path) -> None:
    with pytest.raises(ResourceAllocationException, match=r"\(found: none\). Install jmsql\[embedded\]"):
        start_server(empty_directory / "data", programs=empty_directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's server runs under the user's own account")
def test_root_is_told_of_a_directory_closed_to_the_account_of_the_server(empty_directory: Path) -> None:
    closed = empty_directory / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(ResourceAllocationException, match="cannot enter"):
        start_server(closed / "data")
    shutil.rmtree(closed)
