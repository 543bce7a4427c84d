"""Drivers, executors and servers are killed; each message arrives once all the same. PostgreSQL and DuckDB count."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import jmsql
from jmsql.testing import wait_for
from tests.faults.faulty_server import FaultyServer, faulty_server
from tests.integration.client.server import Server
from tests.spark.conftest import write_services
from tests.spark.faults.cluster import cluster
from tests.spark.faults.holding_source import VARIABLE
from tests.spark.faults.striking import Strike, break_off, kill_worker, strike_once
from tests.spark.streaming import archive, archived, forward_now, run_now, stream
from tests.spark.subprocesses import environment, start_module

pytestmark = pytest.mark.timeout(900)

COUNT = 60
ALL = [f"{number:04}" for number in range(COUNT)]
GATE = 4711
WAITING = "select count(*) from pg_locks where locktype = 'advisory' and not granted and objid = 4711"
OPTIONS = {"maxMessagesPerTrigger": "20", "partitions": "2", "columns": "text_body"}

# Where a driver is killed: what it does to a batch in the database, inside its transaction, or a step that it tells.
# A batch is read alike for each sink.
EVENTS = {"claimed": "update", "done": "delete"}
STOP = """
    create function public.stop() returns trigger language plpgsql as
        'begin perform pg_advisory_xact_lock(4711); return coalesce(new, old); end';
    create trigger stop before {event} on jmsql_internal.spark_batch for each row execute function public.stop();
"""
STEPS = {"parquet": ("claimed", "durable", "done"), "jmsql": ("written", "written", "sent")}


def send(factory: jmsql.ConnectionFactory) -> None:
    with factory.create_context(session_mode=jmsql.AcknowledgeMode.TRANSACTED) as context:
        for body in ALL:
            context.create_producer().send(context.create_queue("orders"), body)
        context.commit()


def compete(factory: jmsql.ConnectionFactory) -> list[str]:
    """Take a message, give another one back, and return the first."""
    with factory.create_context(session_mode=jmsql.AcknowledgeMode.TRANSACTED) as context:
        consumer = context.create_consumer(jmsql.Queue("orders"))
        taken = [consumer.receive_body(str, timeout=60)]
        context.commit()
        consumer.receive(60)
        context.rollback()
    return [body for body in taken if body is not None]


@contextmanager
def driver(
    directory: Path, url: str, sink: str, step: str = "", is_there: Callable[[], bool] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A driver that is killed with all its processes when the block ends, which begins when the driver is at a step."""
    held = directory / "held"
    held.unlink(missing_ok=True)
    with (directory / "driver.log").open("w") as log:
        settings = {**environment(url), VARIABLE: f"{step}:{directory}"}
        process = start_module(
            "tests.spark.programs.faulty_driver", str(directory), sink, environment=settings, log=log
        )
    try:
        wait_for(lambda: (is_there or held.exists)() or process.poll() is not None, timeout=300)
        assert process.poll() is None, (directory / "driver.log").read_text()[-4000:]
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, and those that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def gate(server: Server, url: str, event: str) -> Iterator[Callable[[], bool]]:
    """Stop a driver before it changes a batch in the database; the block gets what tells whether it is there."""
    with psycopg.connect(url) as holder:
        holder.execute("select pg_advisory_xact_lock(%s)", (GATE,))
        server.rows(STOP.format(event=event))
        try:
            yield lambda: server.rows(WAITING) == [(1,)]
        finally:
            holder.rollback()
            server.rows("drop function public.stop() cascade")


def sent(server: Server, queue: str = "copies") -> list[str]:
    return [body for (body,) in server.rows("select body from jmsql.messages where queue = %s", queue)]


def assert_nothing_left(server: Server) -> None:
    counts = "select (select count(*) from jmsql.messages where queue not in ('copies', 'numbers')), (select count(*) from jmsql_internal.delivery where claim_id is not null), (select count(*) from jmsql_internal.spark_batch), (select count(*) from jmsql_internal.spark_staging)"  # noqa: E501
    assert server.rows(counts) == [(0, 0, 0, 0)]


@pytest.mark.parametrize("sink", STEPS)
def test_driver_is_killed_at_each_step_of_a_batch(
    spark: SparkSession, jmsql_factory: jmsql.ConnectionFactory, server: Server, tmp_path: Path, sink: str
) -> None:
    send(jmsql_factory)
    url = jmsql_factory.url
    assert url is not None
    taken: list[str] = []
    for step in STEPS[sink]:
        if step in EVENTS:
            with gate(server, url, EVENTS[step]) as is_there, driver(tmp_path, url, sink, is_there=is_there):
                pass
        else:
            with driver(tmp_path, url, sink, step):
                taken += compete(jmsql_factory)
            hidden = server.rows("select count(*) from jmsql_internal.pending_transaction where not abandoned")
            assert hidden == [(2 if step == "written" else 0,)]  # of the last driver alone
        taken += compete(jmsql_factory)

    if sink == "parquet":
        run_now(stream(spark, **OPTIONS), tmp_path)
        assert sorted(archived(tmp_path) + taken) == ALL
    else:
        forward_now(stream(spark, **OPTIONS), tmp_path)
        assert sorted(sent(server) + taken) == ALL
    assert_nothing_left(server)


def test_later_of_two_drivers_stops_the_earlier_and_nothing_is_sent_twice(
    spark: SparkSession, jmsql_factory: jmsql.ConnectionFactory, server: Server, tmp_path: Path
) -> None:
    send(jmsql_factory)
    assert jmsql_factory.url is not None
    with driver(tmp_path, jmsql_factory.url, "jmsql", "written") as earlier:
        taken = compete(jmsql_factory)
        # In the same directory, Spark's own log might stop the earlier one before it comes to the fence.
        shutil.copytree(tmp_path / "query.checkpoint", tmp_path / "later.checkpoint")
        forward_now(stream(spark, **OPTIONS), tmp_path, "later")
        (tmp_path / "released").touch()
        assert earlier.wait(120) != 0
    assert "Another driver has taken over this streaming read" in (tmp_path / "driver.log").read_text()
    assert sorted(sent(server) + taken) == ALL
    assert_nothing_left(server)


@pytest.mark.parametrize("strike", [break_off, kill_worker])
def test_task_that_dies_in_the_middle_is_repeated(
    spark: SparkSession,
    jmsql_factory: jmsql.ConnectionFactory,
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    strike: Strike,
) -> None:
    send(jmsql_factory)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "5")
    try:
        rows = stream(spark, **OPTIONS)
        struck = rows.mapInArrow(strike_once(strike, tmp_path / "struck"), rows.schema)
        forward_now(struck, tmp_path)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert (tmp_path / "struck").exists()
    assert sorted(sent(server)) == ALL
    assert server.rows("select from jmsql_internal.pending_transaction") == []
    assert_nothing_left(server)


def test_executors_are_killed_and_slow_ones_are_overtaken(
    jmsql_factory: jmsql.ConnectionFactory, server: Server, tmp_path: Path
) -> None:
    send(jmsql_factory)
    url = jmsql_factory.url
    assert url is not None
    with cluster(tmp_path, url) as master, (tmp_path / "driver.log").open("w") as log:
        arguments = (master, str(tmp_path))
        settings = {**environment(url), VARIABLE: f":{tmp_path}"}
        process = start_module("tests.spark.programs.cluster_driver", *arguments, environment=settings, log=log)
        try:
            wait_for(lambda: (tmp_path / "struck").exists() or process.poll() is not None, timeout=300)
            taken = compete(jmsql_factory)
            assert process.wait(500) == 0, (tmp_path / "driver.log").read_text()[-4000:]
        finally:
            kill(process)
    assert (tmp_path / "struck").exists()
    assert sorted(sent(server) + taken) == ALL
    assert sorted(sent(server, "numbers")) == ALL
    assert_nothing_left(server)
    # What the attempt has written that was overtaken is gone.
    assert server.rows(
        "select count(*), (select count(*) from jmsql_internal.pending_transaction) from jmsql_internal.message"
    ) == [(2 * COUNT - len(taken), 0)]


@pytest.fixture
def faulty(services: Path, spark: SparkSession) -> Iterator[FaultyServer]:
    """A server of the test's own, which Spark knows as the service `faulty`."""
    with faulty_server() as server:
        kept = services.read_text()
        write_services(services, faulty=server.url)
        try:
            yield server
        finally:
            services.write_text(kept)


def restart(server: FaultyServer) -> None:
    server.kill(signal.SIGQUIT)
    server.start()


def test_server_crashes_while_a_stream_reads(spark: SparkSession, faulty: FaultyServer, tmp_path: Path) -> None:
    factory = jmsql.ConnectionFactory(faulty.url)
    send(factory)
    taken: list[str] = []

    def write(batch: DataFrame, number: int) -> None:
        if number == 1 and not taken:
            taken.extend(compete(factory))
            restart(faulty)
        batch.write.mode("overwrite").parquet(f"{tmp_path}/query/batch={number}")

    archive(stream(spark, connection="faulty", **OPTIONS), write, tmp_path)
    run_now(stream(spark, connection="faulty", **OPTIONS), tmp_path)
    assert sorted(archived(tmp_path) + taken) == ALL
    with psycopg.connect(faulty.url, autocommit=True) as connection:
        assert_nothing_left(Server(connection))


def test_server_crashes_while_a_stream_writes(spark: SparkSession, faulty: FaultyServer, tmp_path: Path) -> None:
    factory = jmsql.ConnectionFactory(faulty.url)
    send(factory)
    arrived, repaired = tmp_path / "arrived", tmp_path / "repaired"

    def crash() -> None:
        arrived.touch()
        wait_for(repaired.exists, timeout=120)

    rows = stream(spark, connection="faulty", **OPTIONS)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "5")
    held = rows.mapInArrow(strike_once(crash, tmp_path / "struck"), rows.schema)
    query = (
        held.writeStream.format("jmsql")
        .options(queue="copies", connection="faulty", checkpointLocation=str(tmp_path / "query.checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        with psycopg.connect(faulty.url, autocommit=True) as connection:
            written = "select count(*) from jmsql_internal.pending_transaction"
            wait_for(lambda: arrived.exists() and Server(connection).rows(written) == [(1,)], timeout=120)
        taken = compete(factory)
        restart(faulty)
        repaired.touch()
        with suppress(StreamingQueryException):  # the source has lost its connection
            query.awaitTermination()
    finally:
        query.stop()
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    forward_now(held, tmp_path, connection="faulty")
    with psycopg.connect(faulty.url, autocommit=True) as connection:
        assert sorted(sent(Server(connection)) + taken) == ALL
        assert_nothing_left(Server(connection))
