"""An archive is killed while it writes, and when what it has written is not noted; DuckDB and PostgreSQL count."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
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
from tests.integration.history.conftest import SetClock, database, send, set_clock, take  # noqa: F401 - fixtures
from tests.spark.lake import assert_archived_once, in_archive, in_history

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[2]
NOON = datetime(2030, 3, 10, 12, tzinfo=UTC)
DAYS = [NOON.date() + timedelta(days=number) for number in range(3)]
ORDERS = jmsql.Queue("orders")
ALL = [("queue://orders", str(DAYS[number // 30]), f"{number:04}") for number in range(60)]

WAITING = "select count(*) from pg_locks where locktype = 'advisory' and not granted and objid = 4711"
MARK = "update jmsql.message_history set jms_timestamp = 4711 where text_body = '0025'"
DEFINITION = "select pg_get_functiondef('jmsql.to_timestamp(bigint)'::regprocedure)"
# Whoever reads the message with the mark waits for the test.
STOP = """
    create or replace function jmsql.to_timestamp(milliseconds bigint) returns timestamptz language plpgsql as $$
    begin
        if milliseconds = 4711 then
            perform pg_advisory_xact_lock_shared(4711);
        end if;
        return timestamptz 'epoch' + milliseconds * interval '1 millisecond';
    end $$
    """


@pytest.fixture
def gate(jmsql_clean_url: str) -> Iterator[psycopg.Connection]:
    """Stops whoever reads the message with the mark, until it is rolled back."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as owner, psycopg.connect(jmsql_clean_url) as gate:
        original = owner.execute(DEFINITION).fetchone()
        assert original is not None
        owner.execute(STOP)
        gate.execute("select pg_advisory_xact_lock(4711)")
        try:
            yield gate
        finally:
            gate.rollback()
            owner.execute(original[0])


@contextmanager
def killed(url: str, *command: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is killed, with all its own, when the block ends."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env={**os.environ, "JMSQL_URL": url, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
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
    gate: psycopg.Connection,
    set_clock: SetClock,  # noqa: F811
    tmp_path: Path,
) -> None:
    assert jmsql_factory.url is not None
    target = tmp_path / "lake"
    with jmsql.Administration(jmsql_factory) as administration:
        administration.create_queue("orders", history=True)
    for day in range(2):
        set_clock(NOON + timedelta(days=day))
        send(jmsql_factory, *(body for _, at, body in ALL if at == str(DAYS[day])), destination=ORDERS)
        take(jmsql_factory, ORDERS, 30)
    server.rows(MARK)
    set_clock(NOON + timedelta(days=1, hours=12, seconds=30))
    assert in_history(server) == ALL

    # While the second batch is written. It has messages of both days.
    command = ("jmsql.cli", "archive", str(target), "--max-messages-per-batch", "20")
    with killed(jmsql_factory.url, *command, "--spark-conf", "spark.driver.memory=1g"):
        wait_for(lambda: server.rows(WAITING) == [(1,)], timeout=300)
    gate.rollback()
    assert list(target.glob(".spark-staging-*"))
    assert (numbers(target, "offsets"), numbers(target, "commits")) == ([0, 1], [0])
    assert in_archive(target) == ALL[:20]
    wait_for(lambda: server.connections("jmsql-spark-archiving") == 0)

    # When it is durable, and Spark has not noted that.
    with killed(jmsql_factory.url, "tests.spark.archive_driver", str(target)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "durable\n"
    assert (numbers(target, "offsets"), numbers(target, "commits")) == ([0, 1], [0])
    assert in_archive(target) == ALL[:40]
    wait_for(lambda: server.connections("jmsql-spark-archiving") == 0)

    # As if it had been killed when one of the two directories was at its place.
    (halfway,) = target.glob(f"*/day={DAYS[1]}/batch=1")
    shutil.rmtree(halfway)
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
