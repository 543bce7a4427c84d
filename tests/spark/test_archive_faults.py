"""An archive is killed while it writes, and when what it has written is not noted; DuckDB and PostgreSQL count."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

import jmsql
from jmsql.spark import archive
from jmsql.testing import wait_for
from tests.integration.client.server import Server
from tests.integration.history.conftest import SetClock, database, dequeue, send, set_clock  # noqa: F401 - fixtures
from tests.spark.lake import assert_archived_once, in_archive, in_history
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
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def numbers(target: Path, log: str) -> list[int]:
    """The batches in a log of the checkpoint."""
    return sorted(int(file.name) for file in (target / "_checkpoint" / log).iterdir() if file.name.isdigit())


def test_archive_that_is_killed_twice_has_each_message_once(
    spark: SparkSession,
    jmsql_factory: jmsql.ConnectionFactory,
    server: Server,
    jmsql_clean_url: str,
    set_clock: SetClock,  # noqa: F811
    tmp_path: Path,
) -> None:
    target, errors = tmp_path / "lake", tmp_path / "errors"
    with jmsql.admin.Administration(jmsql_factory) as administration:
        administration.create_queue("orders", history=True)

    def keep(first: int, end: int) -> None:
        set_clock(NOON + timedelta(days=first // 30))
        send(jmsql_factory, *(body for *_, body in ALL[first:end]), destination=ORDERS)
        dequeue(jmsql_factory, ORDERS, end - first)

    keep(0, 20)
    assert archive(spark, str(target)).messages == 20
    keep(20, 30)
    keep(30, 60)
    assert in_history(server) == ALL

    # While the second batch is written. It has messages of both days.
    command = ("jmsql.cli", "archive", str(target), "--max-messages-per-batch", "20")
    settings = ("--spark-conf", "spark.driver.memory=1g", "--spark-conf", "spark.sql.shuffle.partitions=2")
    with psycopg.connect(jmsql_clean_url) as gate:
        gate.execute(STOP)
        with killed(errors, jmsql_clean_url, *command, *settings) as process:
            wait_for(lambda: server.rows(WAITING) != [(0,)] or process.poll() is not None, timeout=300)
            assert process.poll() is None, errors.read_text()
    assert list(target.glob(".spark-staging-*"))
    assert (numbers(target, "offsets"), numbers(target, "commits")) == ([0, 1], [0])
    assert in_archive(target) == ALL[:20]
    wait_for(lambda: server.connections("jmsql-spark-archiving") == 0)

    # When it is durable, and Spark has not noted that.
    with killed(errors, jmsql_clean_url, "tests.spark.archive_driver", str(target)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"durable\n", errors.read_text()
    assert (numbers(target, "offsets"), numbers(target, "commits")) == ([0, 1], [0])
    assert in_archive(target) == ALL[:40]
    wait_for(lambda: server.connections("jmsql-spark-archiving") == 0)

    # As if it had been killed when one of the two directories was at its place.
    (halfway,) = target.glob(f"*/day={DAYS[1]}/batch=1")
    shutil.rmtree(halfway)
    set_clock(NOON + timedelta(days=1, hours=12, seconds=30))
    report = archive(spark, str(target), max_messages_per_batch=20, drop=True)
    assert (report.batches, report.messages) == (2, 40)
    assert_archived_once(target, ALL)
    assert not list(target.glob(".spark-staging-*"))

    # The second day is not over for a minute yet.
    assert [(day.day, day.in_archive, day.dropped) for day in report.days] == [
        (DAYS[0], 30, True),
        (DAYS[1], 30, False),
    ]
    assert in_history(server) == ALL[30:]
    set_clock(NOON + timedelta(days=2))
    report = archive(spark, str(target), drop=True)
    assert (report.messages, [(day.day, day.dropped) for day in report.days]) == (0, [(DAYS[1], True)])
    assert in_history(server) == []
    assert_archived_once(target, ALL)
