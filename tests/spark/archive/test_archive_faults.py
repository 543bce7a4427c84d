"""An archive is killed while it reads, and at each step of what follows; DuckDB and PostgreSQL count."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

import jmsql
from jmsql.spark import archive
from jmsql.testing import wait_for
from tests.integration.client.server import Server
from tests.integration.history.conftest import SetClock, database, dequeue, send, set_clock  # noqa: F401 - fixtures
from tests.spark.archive.lake import assert_archived_once, in_archive, in_history
from tests.spark.subprocesses import environment, start_module

pytestmark = pytest.mark.timeout(600)

NOON = datetime(2030, 3, 10, 12, tzinfo=UTC)
DAYS = [NOON.date() + timedelta(days=number) for number in range(3)]
ORDERS = jmsql.Queue("orders")
ALL = [("queue://orders", str(DAYS[number // 30]), f"{number:04}") for number in range(60)]

# A reader of messages reads where their bodies may be, and waits for the test.
STOP = "lock table jmsql_internal.body in access exclusive mode"
WAITING = "select count(*) from pg_locks where relation = 'jmsql_internal.body'::regclass and not granted"


@contextmanager
def killed(errors: Path, url: str, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is killed, with all its own, when the block ends."""
    with errors.open("w") as file:
        process = start_module(*command, environment=environment(url), log=file, output=subprocess.PIPE)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):  # it has ended by itself, which is the test's to find
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def keep(jmsql_factory: jmsql.ConnectionFactory, set_clock: SetClock) -> Callable[[int, int], None]:  # noqa: F811
    """Lets messages leave a queue on their days."""
    with jmsql.admin.Administration(jmsql_factory) as administration:
        administration.create_queue("orders", history=True)

    def keep(first: int, end: int) -> None:
        set_clock(NOON + timedelta(days=first // 30))
        send(jmsql_factory, *(body for *_, body in ALL[first:end]), destination=ORDERS)
        dequeue(jmsql_factory, ORDERS, end - first)

    return keep


def test_archive_that_is_killed_while_it_reads_has_each_message_once(
    keep: Callable[[int, int], None],
    server: Server,
    jmsql_clean_url: str,
    set_clock: SetClock,  # noqa: F811
    tmp_path: Path,
) -> None:
    target, errors = tmp_path / "lake", tmp_path / "errors"
    keep(0, 20)
    assert archive(str(target)).messages == 20
    keep(20, 30)
    keep(30, 60)
    assert in_history(server) == ALL

    # While the second batch is read. It has messages of both days.
    command = ("jmsql", "archive", str(target), "--max-messages-per-batch", "20")
    with psycopg.connect(jmsql_clean_url) as gate:
        gate.execute(STOP)
        with killed(errors, jmsql_clean_url, *command) as process:
            wait_for(lambda: server.rows(WAITING) != [(0,)] or process.poll() is not None, timeout=300)
            assert process.poll() is None, errors.read_text()
    assert in_archive(target) == ALL[:20]
    wait_for(lambda: server.connections("jmsql-spark-archiving") == 0)

    set_clock(NOON + timedelta(days=1, hours=12, seconds=30))
    report = archive(str(target), max_messages_per_batch=20, drop=True)
    assert (report.batches, report.messages) == (2, 40)
    assert_archived_once(target, ALL)
    assert not list(target.glob("_new/*"))

    # The second day is not over for a minute yet.
    assert [(day.day, day.in_archive, day.dropped) for day in report.days] == [
        (DAYS[0], 30, True),
        (DAYS[1], 30, False),
    ]
    assert in_history(server) == ALL[30:]
    set_clock(NOON + timedelta(days=2))
    report = archive(str(target), drop=True)
    assert (report.messages, [(day.day, day.dropped) for day in report.days]) == (0, [(DAYS[1], True)])
    assert in_history(server) == []
    assert_archived_once(target, ALL)


@pytest.mark.parametrize("partitions", ["1", "2"])
def test_archive_that_is_interrupted_says_so_and_goes_on_later(
    keep: Callable[[int, int], None], server: Server, jmsql_clean_url: str, tmp_path: Path, partitions: str
) -> None:
    target, errors = tmp_path / "lake", tmp_path / "errors"
    keep(0, 20)
    command = [sys.executable, "-m", "jmsql", "archive", str(target), "--partitions", partitions]
    with psycopg.connect(jmsql_clean_url) as gate, errors.open("w") as log:
        gate.execute(STOP)
        process = subprocess.Popen(command, env=environment(jmsql_clean_url), stderr=log)
        wait_for(lambda: server.rows(WAITING) != [(0,)] or process.poll() is not None, timeout=300)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert "Traceback" not in errors.read_text()
    wait_for(lambda: server.connections("jmsql-spark-archiving") == 0)
    assert archive(str(target)).messages == 20


@pytest.mark.parametrize("partitions", [1, 2])
def test_interrupt_while_connections_are_opened_ends_those_that_read(
    keep: Callable[[int, int], None],
    server: Server,
    jmsql_clean_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    partitions: int,
) -> None:
    keep(0, 20)
    submit = ThreadPoolExecutor.submit

    def submit_until_interrupted(threads: ThreadPoolExecutor, *arguments: Any) -> Future[Any]:
        future = submit(threads, *arguments)
        if threading.current_thread() is threading.main_thread():
            wait_for(lambda: server.rows(WAITING) == [(1,)], timeout=60)
            raise KeyboardInterrupt
        return future

    with psycopg.connect(jmsql_clean_url) as gate, monkeypatch.context() as interrupted:
        gate.execute(STOP)
        interrupted.setattr(ThreadPoolExecutor, "submit", submit_until_interrupted)
        with pytest.raises(KeyboardInterrupt):
            archive(str(tmp_path / "lake"), partitions=partitions)
        assert server.rows(WAITING) == [(0,)]
    assert archive(str(tmp_path / "lake")).messages == 20


def test_archive_and_merging_that_are_killed_at_any_step_have_each_message_once(
    keep: Callable[[int, int], None],
    jmsql_clean_url: str,
    set_clock: SetClock,  # noqa: F811
    tmp_path: Path,
) -> None:
    keep(0, 30)
    keep(30, 40)
    set_clock(NOON + timedelta(days=5))
    targets, errors = tmp_path / "targets", tmp_path / "errors"
    with errors.open("w") as log:
        surroundings = environment(jmsql_clean_url)
        process = start_module("tests.spark.programs.archive_driver", str(targets), environment=surroundings, log=log)
        assert process.wait() == 0, errors.read_text()
    found = [*targets.iterdir()]
    assert len(found) > 20
    for target in found:
        assert_archived_once(target, ALL[:40])
        # The first day had files of two batches.
        assert len([*target.glob("destination=*/*/*/*.parquet")]) == 2
