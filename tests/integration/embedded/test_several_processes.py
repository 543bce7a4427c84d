from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from jmsql.embedded import start_server
from jmsql.testing import wait_for
from tests.integration.embedded.server_processes import is_running, other_process


def test_server_stops_with_the_last_process(prepared_directory: Path) -> None:
    with other_process(prepared_directory) as other:
        with start_server(prepared_directory) as server:
            assert other.url() == server.url
        assert is_running(prepared_directory)
        with psycopg.connect(server.url) as connection:
            assert connection.execute("select 1").fetchone() == (1,)
        other.end()
    assert not is_running(prepared_directory)


def test_server_outlives_the_process_that_started_it(prepared_directory: Path) -> None:
    with other_process(prepared_directory) as other:
        url = other.url()
        with start_server(prepared_directory) as server:
            assert server.url == url
            other.end()
            assert is_running(prepared_directory)
    assert not is_running(prepared_directory)


def test_server_of_a_killed_process_stops_with_its_next_user(prepared_directory: Path) -> None:
    with other_process(prepared_directory) as other:
        other.url()
        other.kill()
    assert is_running(prepared_directory)
    start_server(prepared_directory).stop()
    assert not is_running(prepared_directory)


@pytest.mark.parametrize("failing", [0, 1], ids=["first", "second"])
def test_all_servers_of_a_process_stop_though_one_cannot_be_locked(
    prepared_directory: Path, data_directory: Path, failing: int
) -> None:
    directories = prepared_directory, data_directory
    lock, other = directories[failing] / "lock", directories[1 - failing]
    try:
        with other_process(*directories) as process:
            process.url()
            lock.unlink()
            lock.mkdir()
            assert "IsADirectoryError" in process.end()
        assert not is_running(other)
    finally:
        lock.rmdir()
        for directory in directories:
            start_server(directory).stop()


def test_processes_that_start_together_share_one_server(empty_directory: Path) -> None:
    directory = empty_directory / "data"
    with ExitStack() as stack:
        others = [stack.enter_context(other_process(directory)) for _ in range(3)]
        assert len({other.url() for other in others}) == 1
        for other in others:
            assert is_running(directory)
            other.end()
    wait_for(lambda: not is_running(directory))
