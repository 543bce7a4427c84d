"""What Spark leaves behind is cleaned up by any client, and where Spark was never used, no client knows of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import jmsql
from jmsql.spark.options import Options
from jmsql.spark.writing.maintenance import request_maintenance
from jmsql.spark.writing.writer import BatchWriter
from jmsql.store.maintenance.maintenance import Maintenance
from jmsql.store.maintenance.maintenance_task import MaintenanceTask, register_task, request_tasks
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.testing import wait_for
from jmsql.timings import InternalTimings
from tests.leadership import LEADER

REQUESTED = "select name from jmsql_internal.maintenance_task order by name"

LEADING_CLIENT = """
import sys
import jmsql

with jmsql.ConnectionFactory(sys.argv[1]).create_context() as context:
    context.create_producer().send(context.create_queue("orders"), "hello")
    print(*(name for name in sys.modules if "spark" in name.lower()), flush=True)
    sys.stdin.readline()
    print(*(name for name in sys.modules if "spark" in name.lower()), flush=True)
"""


@pytest.fixture
def connection(jmsql_clean_url: str) -> Iterator[psycopg.Connection]:
    """A connection, each statement of which commits."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def leader(jmsql_clean_url: str, connection: psycopg.Connection) -> Iterator[subprocess.Popen[str]]:
    """A client that does the maintenance, in a process that has not loaded anything of Spark."""
    command = [sys.executable, "-c", LEADING_CLIENT, jmsql_clean_url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "\n"
        wait_for(lambda: connection.execute(LEADER).fetchone() is not None)
        yield process


def modules_in_the_end(leader: subprocess.Popen[str]) -> list[str]:
    """End the leading client, and return the modules of Spark that it has loaded."""
    output, _ = leader.communicate("\n", timeout=60)
    assert leader.returncode == 0
    return output.split()


def test_leading_client_of_a_schema_without_spark_loads_nothing_of_it(leader: subprocess.Popen[str]) -> None:
    assert modules_in_the_end(leader) == []


def test_leading_client_of_a_schema_without_spark_runs_no_statement_for_it(
    jmsql_clean_url: str, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []

    def connect(*arguments: Any, **parameters: Any) -> psycopg.Connection:
        opened = psycopg.Connection.connect(*arguments, **parameters)
        opened.add_notice_handler(lambda notice: statements.append(notice.message_primary or ""))
        opened.execute("set log_statement = 'all'")
        opened.execute("set client_min_messages = 'log'")
        if not opened.autocommit:
            opened.commit()
        return opened

    monkeypatch.setattr(psycopg, "connect", connect)  # as control connections do
    with jmsql.ConnectionFactory(jmsql_clean_url).create_context() as context:
        context.create_producer().send(context.create_queue("orders"), "hello")
        wait_for(lambda: connection.execute(LEADER).fetchone() is not None)
        wait_for(lambda: any("restore_pages" in statement for statement in statements))
        wait_for(lambda: sum("maintenance_task" in statement for statement in statements) > 1)
    assert [each for each in statements if "spark" in each.lower() or "pg_prepared_xacts" in each] == []


def test_client_without_spark_deletes_rows_that_no_driver_has_sent(
    connection: psycopg.Connection, leader: subprocess.Popen[str]
) -> None:
    PsycopgRunner(connection, "jmsql").run(request_maintenance())
    connection.execute(
        "insert into jmsql_internal.pending_transaction (write_id, queue_ids, first_sequence, last_sequence, abandoned)"
        " values ('w', '{}', 1, 1, true)"
    )
    wait_for(lambda: connection.execute("select from jmsql_internal.pending_transaction").fetchall() == [])
    assert "jmsql.spark.writing.maintenance" in modules_in_the_end(leader)


def test_write_requests_maintenance_in_case_it_dies(
    jmsql_clean_url: str, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JMSQL_URL", jmsql_clean_url)
    assert connection.execute(REQUESTED).fetchall() == []
    for _ in range(2):
        BatchWriter(Options.read({"queue": "orders"}))
    assert connection.execute(REQUESTED).fetchall() == [("spark-attempts",)]


class Counted:
    """A task that tells how often it was run."""

    runs: int
    has_more: bool

    def __init__(self, schema: str) -> None:
        assert schema == "jmsql"
        Counted.runs = 0
        Counted.has_more = True

    def run(self, _runner: object) -> bool:
        Counted.runs += 1
        return Counted.has_more


def make_task(schema: str) -> MaintenanceTask:
    return MaintenanceTask("counted", Counted(schema).run, 3600.0)


def fail_to_make_task(schema: str) -> MaintenanceTask:
    raise RuntimeError("its package is broken")


def test_task_that_is_registered_runs_when_it_is_requested_and_due(connection: psycopg.Connection) -> None:
    register_task("counted", f"{__name__}:make_task")
    control = PsycopgRunner(connection, "jmsql")
    control.run(request_tasks(["counted"]))
    maintenance = Maintenance(InternalTimings())
    assert maintenance.do_all(control, 0, [])  # there is more to do
    assert maintenance.do_all(control, 0, [])
    Counted.has_more = False
    assert not maintenance.do_all(control, 0, [])
    assert not maintenance.do_all(control, 0, [])  # it is due in an hour
    assert Counted.runs == 3


@pytest.mark.parametrize("name", ["unheard-of", "broken"])
def test_maintenance_goes_on_without_a_task_that_is_not_there(
    connection: psycopg.Connection, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    register_task("broken", f"{__name__}:fail_to_make_task")
    control = PsycopgRunner(connection, "jmsql")
    control.run(request_tasks([name]))
    maintenance = Maintenance(InternalTimings())
    for _ in range(2):
        assert not maintenance.do_all(control, 0, [])
    (told,) = (record.message for record in caplog.records if record.name == "jmsql")
    assert name in told
