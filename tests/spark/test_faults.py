"""Drivers are killed; each message arrives once all the same. PostgreSQL and DuckDB count."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

import jmsql
from jmsql.testing import wait_for
from tests.integration.client.server import Server
from tests.spark.streaming import archived, run_now, stream

pytestmark = pytest.mark.timeout(400)

ROOT = Path(__file__).parents[2]
COUNT = 60
ALL = [f"{number:04}" for number in range(COUNT)]
GATE = 4711
WAITING = "select count(*) from pg_locks where locktype = 'advisory' and not granted and objid = 4711"

# A step of the driver stops at a lock that the test holds, inside its transaction.
STOP = """
    create function public.stop() returns trigger language plpgsql as
        'begin perform pg_advisory_xact_lock(4711); return coalesce(new, old); end';
    create trigger stop before {event} on jmsql.spark_batch for each row execute function public.stop();
"""


@pytest.fixture
def orders(jmsql_factory: jmsql.ConnectionFactory) -> None:
    with jmsql_factory.create_context(session_mode=jmsql.AcknowledgeMode.TRANSACTED) as context:
        for body in ALL:
            context.create_producer().send(context.create_queue("orders"), body)
        context.commit()


@pytest.fixture
def stopping(server: Server, jmsql_clean_url: str, request: pytest.FixtureRequest) -> Iterator[psycopg.Connection]:
    """Stop whoever does `event` to a batch; the transaction holds the lock, until it ends."""
    with psycopg.connect(jmsql_clean_url) as gate:
        gate.execute("select pg_advisory_xact_lock(%s)", (GATE,))
        server.rows(STOP.format(event=request.param))
        try:
            yield gate
        finally:
            gate.rollback()
            server.rows("drop function public.stop() cascade")


@contextmanager
def driver(directory: Path, url: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A driver that is killed, with all its processes, when the block ends."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.archiving_driver", str(directory), *arguments],
        cwd=ROOT,
        env={**os.environ, "JMSQL_URL": url, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
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


def compete(factory: jmsql.ConnectionFactory) -> list[str]:
    """Take two messages, give one back, and return the other."""
    with factory.create_context(session_mode=jmsql.AcknowledgeMode.TRANSACTED) as context:
        consumer = context.create_consumer(jmsql.Queue("orders"))
        taken = [consumer.receive_body(str, timeout=10)]
        context.commit()
        consumer.receive(10)
        context.rollback()
    return [body for body in taken if body is not None]


def assert_all_there_once(server: Server, found: list[str]) -> None:
    assert sorted(found) == ALL
    left = "select (select count(*) from jmsql.message), (select count(*) from jmsql.delivery where claim_id is not null), (select count(*) from jmsql.spark_batch)"  # noqa: E501
    assert server.rows(left) == [(0, 0, 0)]


@pytest.mark.parametrize("stopping", ["update", "delete"], indirect=True, ids=["claimed", "done"])
@pytest.mark.usefixtures("orders")
def test_driver_is_killed_before_its_batch_is_frozen_or_before_it_is_acknowledged(
    spark: SparkSession,
    jmsql_factory: jmsql.ConnectionFactory,
    server: Server,
    stopping: psycopg.Connection,
    tmp_path: Path,
) -> None:
    assert jmsql_factory.url is not None
    with driver(tmp_path, jmsql_factory.url):
        wait_for(lambda: server.rows(WAITING) == [(1,)], timeout=300)
    stopping.rollback()
    taken = compete(jmsql_factory)
    run_now(stream(spark, columns="text_body"), tmp_path)
    assert_all_there_once(server, archived(tmp_path) + taken)


@pytest.mark.usefixtures("orders")
def test_driver_is_killed_when_its_sink_is_durable_and_its_batch_not_noted(
    spark: SparkSession, jmsql_factory: jmsql.ConnectionFactory, server: Server, tmp_path: Path
) -> None:
    assert jmsql_factory.url is not None
    with driver(tmp_path, jmsql_factory.url, "hold") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "durable\n"
        taken = compete(jmsql_factory)
    assert len(archived(tmp_path)) == 20
    run_now(stream(spark, columns="text_body"), tmp_path)
    assert_all_there_once(server, archived(tmp_path) + taken)
