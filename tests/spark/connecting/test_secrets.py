"""The password in the database's URL is nowhere to be seen."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import jmsql
from tests.faults.faulty_server import FaultyServer, faulty_server
from tests.integration.client.server import Server, with_parameters
from tests.spark.conftest import SECRET, write_services
from tests.spark.streaming import run_now, stream

pytestmark = pytest.mark.timeout(400)


def traces(directory: Path) -> str:
    """Everything that is written there, but for the file in which the password stands."""
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != "services.conf")
    return "\n".join(path.read_text(errors="replace") for path in files)


def command_lines() -> str:
    """Those of all processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_text(errors="replace"))
        except OSError:
            continue
    return "\n".join(found)


def assert_nowhere(found: dict[str, str]) -> None:
    assert {name: text.count(SECRET) for name, text in found.items()} == dict.fromkeys(found, 0)


@pytest.mark.parametrize("connection", ["shop", "marked", "tests.spark.connecting.vault:url"])
def test_password_is_in_no_plan_event_checkpoint_log_or_command_line(
    spark: SparkSession,
    context: jmsql.JMSContext,
    server: Server,
    spark_directory: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    connection: str,
) -> None:
    for body in ("0001", "0002"):
        context.create_producer().send(context.create_queue("orders"), body)
    context.commit()
    options = {"queue": "orders", "columns": "text_body", "connection": connection}
    read = spark.read.format("jmsql").options(**options, partitions="2", snapshotTimeout="300").load()
    spark.conf.set("spark.sql.codegen.wholeStage", "true")
    try:
        for mode in ("simple", "extended", "codegen", "cost", "formatted"):
            read.explain(mode)
    finally:
        spark.conf.set("spark.sql.codegen.wholeStage", "false")
    read.write.format("jmsql").options(queue="copies", connection=connection).mode("append").save()
    assert "jmsql.spark.reading.snapshot" in command_lines()
    names = "\n".join(name for (name,) in server.rows("select application_name from pg_stat_activity"))
    assert "jmsql-spark-keeping-a-snapshot" in names
    shown = command_lines()
    assert server.terminate("jmsql-spark-keeping-a-snapshot")
    progress = run_now(stream(spark, **options), tmp_path)
    assert server.rows("select queue, count(*) from jmsql.messages group by 1") == [("copies", 2)]

    assert '"backlogMessages"' in progress
    events, logs = traces(spark_directory / "events"), (spark_directory / "spark.log").read_text()
    assert "jmsql" in events
    assert "MicroBatchExecution" in logs
    assert_nowhere(
        {
            "plans": capsys.readouterr().out,
            "events": events,
            "checkpoints": traces(tmp_path),
            "progress": progress,
            "logs": logs,
            "command lines": shown,
            "application names": names,
        }
    )


@pytest.fixture
def private(services: Path, spark: SparkSession) -> Iterator[FaultyServer]:
    """A server of the test's own that asks for the password, under the names of three services."""
    with faulty_server() as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"create role keeper login superuser password '{SECRET}'")
        url = re.sub(r"//[^@/]*@", "//", server.url)
        right = with_parameters(url, user="keeper", password=SECRET)
        wrong = with_parameters(url, user="keeper", password=f"{SECRET}-too")
        elsewhere = with_parameters(right, dbname="nowhere")
        kept = services.read_text()
        write_services(services, right=right, wrong=wrong, elsewhere=elsewhere)
        try:
            yield server
        finally:
            services.write_text(kept)


def test_errors_name_the_mistake_without_the_password(
    spark: SparkSession, private: FaultyServer, spark_directory: Path, tmp_path: Path
) -> None:
    rows = spark.sql("select 'a' as text_body, 12 as priority")

    def read(connection: str) -> object:
        return spark.read.format("jmsql").options(queue="orders", connection=connection).load().collect()

    def write(connection: str) -> None:
        rows.write.format("jmsql").options(queue="orders", connection=connection).mode("append").save()

    def run(connection: str) -> object:
        return run_now(stream(spark, connection=connection), tmp_path, f"{connection}-{len(shown)}")

    shown: list[str] = []

    def fails(doing: Callable[[str], object], connection: str, words: str) -> None:
        with pytest.raises(PySparkException, match=words) as raised:
            doing(connection)
        shown.append("".join(traceback.format_exception(raised.value)))

    fails(read, "elsewhere", "the database does not exist")
    for doing in (read, write, run):
        fails(doing, "wrong", "PostgreSQL refused the user or the password")
    fails(write, "right", "The column 'priority' holds 12")
    fails(run, "right", "Option 'queue': there is no queue 'orders'")
    fails(read, "missing", "Option 'connection': 'missing' is neither a variable JMSQL_CONNECTION_MISSING, nor")
    private.stop()
    for doing in (read, write, run):
        fails(doing, "right", "the server cannot be reached")
    assert_nowhere(
        {
            "errors": "\n".join(shown),
            "events": traces(spark_directory / "events"),
            "logs": (spark_directory / "spark.log").read_text(),
            "checkpoints": traces(tmp_path),
        }
    )
