from __future__ import annotations

import os
import signal
import stat
import threading
from pathlib import Path

import psycopg
import pytest
import sqlalchemy

from jmsql.embedded import EmbeddedServer, cluster, start_server
from tests.integration.embedded.server_processes import is_running, kill_server

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "listen_addresses": "",
    "server_encoding": "UTF8",
    "max_prepared_transactions": "20",
}


def test_server_is_durable_private_and_able_to_prepare_transactions(prepared_directory: Path) -> None:
    with start_server(str(prepared_directory)) as server:
        with psycopg.connect(server.url) as connection:
            assert connection.execute("select current_user, current_database()").fetchone() == ("postgres", "postgres")
            assert connection.execute("select upper('öl')").fetchone() == ("ÖL",), "letters beyond ASCII have cases"
            for name, value in SETTINGS.items():
                found = connection.execute("select current_setting(%s)", (name,)).fetchone()
                assert found == (value,), name
        engine = sqlalchemy.create_engine(server.url.replace("postgresql:", "postgresql+psycopg:"))
        with engine.connect() as connection_of_engine:
            assert connection_of_engine.scalar(sqlalchemy.text("select 1")) == 1
        engine.dispose()
        assert server.data_directory == prepared_directory
        assert repr(server) == f"<EmbeddedServer {server.url}>"
        for name in ("socket", "cluster"):
            assert stat.S_IMODE((prepared_directory / name).stat().st_mode) == 0o700
        assert stat.S_IMODE((prepared_directory / "server.log").stat().st_mode) == 0o600
        check_that_other_roles_need_their_password(server.url)


def check_that_other_roles_need_their_password(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("drop role if exists visitor")
        connection.execute("create role visitor login password 'right'")
    with psycopg.connect(url, user="visitor", password="right") as connection:
        assert connection.execute("select current_user").fetchone() == ("visitor",)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(url, user="visitor", password="wrong")


def test_server_with_a_process_that_hangs_stops_at_once_after_a_while_and_starts_again(
    data_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_PATIENCE_WITH_CLIENTS", 1.0)
    with start_server(data_directory) as server, psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("create table kept as select 1 as number")
        os.kill(connection.info.backend_pid, signal.SIGSTOP)
        server.stop()
    with start_server(data_directory) as server, psycopg.connect(server.url) as connection:
        assert connection.execute("select number from kept").fetchone() == (1,)


def test_server_stops_with_its_last_handle(prepared_directory: Path) -> None:
    first, second = start_server(prepared_directory), start_server(prepared_directory)
    assert first.url == second.url
    first.stop()
    first.stop()
    assert is_running(prepared_directory)
    second.stop()
    assert not is_running(prepared_directory)


def test_stop_ends_open_transactions(prepared_directory: Path) -> None:
    server = start_server(prepared_directory)
    with psycopg.connect(server.url) as connection:
        connection.execute("select 1")
        server.stop()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")


def test_threads_that_start_together_share_one_server(prepared_directory: Path) -> None:
    barrier = threading.Barrier(4)
    servers: list[EmbeddedServer] = []

    def start() -> None:
        barrier.wait()
        servers.append(start_server(prepared_directory))

    threads = [threading.Thread(target=start) for _ in range(barrier.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({server.url for server in servers}) == 1
    for server in servers:
        assert is_running(prepared_directory)
        server.stop()
    assert not is_running(prepared_directory)


def test_killed_server_is_started_again_with_all_that_was_committed(prepared_directory: Path) -> None:
    with start_server(prepared_directory) as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("create table if not exists kept (number integer)")
            connection.execute("insert into kept values (1)")
        kill_server(prepared_directory)
        with start_server(prepared_directory) as again, psycopg.connect(again.url, autocommit=True) as connection:
            assert connection.execute("select count(*) from kept").fetchone() == (1,)
            connection.execute("drop table kept")
    assert not is_running(prepared_directory)


def test_stopping_a_killed_server_is_no_error(prepared_directory: Path) -> None:
    server = start_server(prepared_directory)
    kill_server(prepared_directory)
    server.stop()
    start_server(prepared_directory).stop()
    assert not is_running(prepared_directory)


def test_path_too_long_for_a_socket(empty_directory: Path) -> None:
    directory = empty_directory / ("long" * 25) / "data"
    with start_server(directory, durable=False) as server:
        socket_directory = sqlalchemy.make_url(server.url).query["host"]
        assert isinstance(socket_directory, str)
        assert stat.S_IMODE(Path(socket_directory).stat().st_mode) == 0o700
        with psycopg.connect(server.url) as connection:
            assert connection.execute("select current_setting('fsync')").fetchone() == ("off",)
        with start_server(directory) as joined:
            assert joined.url == server.url
    assert not Path(socket_directory).exists()


def test_path_with_spaces_and_quotes(empty_directory: Path) -> None:
    with (
        start_server(empty_directory / "it's a path", durable=False) as server,
        psycopg.connect(server.url) as connection,
    ):
        assert connection.execute("select 1").fetchone() == (1,)


def test_forked_child_leaves_the_server_to_its_parent(prepared_directory: Path) -> None:
    with start_server(prepared_directory) as server:
        child = os.fork()
        if child == 0:
            server.stop()
            start_server(prepared_directory).stop()
            os._exit(0 if is_running(prepared_directory) else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert is_running(prepared_directory)
