"""`jmsql doctor`: it finds what is wrong, says what to do, and returns 1."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy

import jmsql as library
from jmsql.testing import wait_for
from tests.integration.cli.conftest import Command, Outcome


def finding(outcome: Outcome, check: str) -> dict[str, Any]:
    """Return the one finding about `check` of a run with --json."""
    [found] = [each for each in outcome.document["findings"] if each["check"] == check]
    return dict(found)


@pytest.fixture
def holder(jmsql_clean_url: str) -> Iterator[psycopg.Connection]:
    """Another session, which tests let hold things."""
    url = sqlalchemy.make_url(jmsql_clean_url).set(drivername="postgresql")
    with psycopg.connect(url.render_as_string(hide_password=False), application_name="nightly report") as connection:
        yield connection


def test_a_healthy_store(jmsql: Command, jmsql_factory: library.ConnectionFactory) -> None:
    with jmsql_factory.create_connection():
        outcome = jmsql("doctor", "--json")
    assert outcome.exit_code == 0
    assert outcome.document["healthy"] is True
    checks = [each["check"] for each in outcome.document["findings"]]
    assert checks == [
        "server",
        "durability",
        "schema",
        "clients",
        "upkeep",
        "notifications",
        "autovacuum",
        "vacuum",
        "table message",
        "table delivery",
    ]
    assert finding(outcome, "clients")["says"] == "1 connected"
    assert "ms from NOTIFY to LISTEN" in finding(outcome, "notifications")["says"]
    assert "autovacuum_vacuum_scale_factor=0.02" in finding(outcome, "table message")["says"]


def test_people_read_the_same(jmsql: Command) -> None:
    outcome = jmsql("doctor")
    assert outcome.exit_code == 0
    assert outcome.text.endswith("All is well.\n")


def test_a_snapshot_that_holds_vacuum_back(jmsql: Command, holder: psycopg.Connection) -> None:
    holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    holder.execute("select 'the books of the year'")
    process_id = holder.info.backend_pid
    assert jmsql("doctor").exit_code == 0

    outcome = jmsql("doctor", "--oldest-snapshot", "0", "--json")
    assert outcome.exit_code == 1
    assert outcome.document["healthy"] is False
    vacuum = finding(outcome, "vacuum")
    assert vacuum["health"] == "problem"
    for fact in ("'nightly report'", f"process {process_id}", "idle in transaction", "the books of the year"):
        assert fact in vacuum["says"]
    assert f"pg_terminate_backend({process_id})" in vacuum["advice"]

    outcome = jmsql("doctor", "--oldest-snapshot", "0")
    assert outcome.exit_code == 1
    assert outcome.text.endswith("1 problem found.\n")

    holder.rollback()
    assert jmsql("doctor", "--oldest-snapshot", "0").exit_code == 0


def test_a_transaction_that_wrote_holds_vacuum_back_too(jmsql: Command, holder: psycopg.Connection) -> None:
    holder.execute("select pg_current_xact_id()")
    assert "nightly report" in finding(jmsql("doctor", "--oldest-snapshot", "0", "--json"), "vacuum")["says"]


def test_a_missing_schema(jmsql: Command) -> None:
    outcome = jmsql("doctor", "--schema", "nowhere", "--json")
    assert outcome.exit_code == 1
    assert finding(outcome, "schema") == {
        "check": "schema",
        "health": "problem",
        "says": "it is not there",
        "advice": "Run `jmsql migrate`.",
    }
    assert finding(outcome, "notifications")["health"] == "ok"


@pytest.mark.parametrize(("version", "advice"), [("0000", "jmsql migrate"), ("9999", "Upgrade jmsql")])
def test_a_schema_of_another_version(jmsql: Command, database: psycopg.Connection, version: str, advice: str) -> None:
    row = database.execute("select version_num from jmsql.schema_version").fetchone()
    database.execute("update jmsql.schema_version set version_num = %s", (version,))
    try:
        outcome = jmsql("doctor", "--json")
    finally:
        database.execute("update jmsql.schema_version set version_num = %s", row)
    assert outcome.exit_code == 1
    assert advice in finding(outcome, "schema")["advice"]


def test_autovacuum_that_was_turned_off_for_a_table(jmsql: Command, database: psycopg.Connection) -> None:
    database.execute("alter table jmsql.message set (autovacuum_enabled = false)")
    try:
        outcome = jmsql("doctor", "--json")
    finally:
        database.execute("alter table jmsql.message reset (autovacuum_enabled)")
    assert outcome.exit_code == 1
    assert "reset (autovacuum_enabled)" in finding(outcome, "table message")["advice"]
    assert finding(outcome, "table delivery")["health"] == "ok"


def test_expired_messages_that_nobody_removes(jmsql: Command, database: psycopg.Connection) -> None:
    jmsql("send", "orders", "x")
    two_minutes_ago = int(time.time() * 1000) - 120_000
    database.execute("update jmsql.message set jms_expiration = %s", (two_minutes_ago,))
    upkeep = finding(jmsql("doctor", "--json"), "upkeep")
    assert upkeep["health"] == "note"
    assert upkeep["says"].startswith("1 message expired")


def test_a_client_that_died(jmsql: Command, jmsql_clean_url: str) -> None:
    jmsql("send", "orders", "x")
    program = """
import jmsql, time
connection = jmsql.ConnectionFactory().create_connection()
session = connection.create_session(acknowledge_mode=jmsql.AcknowledgeMode.CLIENT)
connection.start()
print(session.create_consumer(jmsql.Queue("orders")).receive().text, flush=True)
time.sleep(600)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env=os.environ | {"JMSQL_URL": jmsql_clean_url}
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    wait_for(lambda: not any(client["connected"] for client in jmsql("clients", "--json").document))
    clients = finding(jmsql("doctor", "--json"), "clients")
    assert clients["health"] == "note"
    assert f"process {process.pid}" in clients["says"]
    assert "holding 1 message" in clients["says"]


def test_a_role_that_does_not_see_others(jmsql: Command, database: psycopg.Connection, jmsql_clean_url: str) -> None:
    database.execute("create role jmsql_blind nologin")
    database.execute("grant usage on schema jmsql to jmsql_blind")
    database.execute("grant select on all tables in schema jmsql to jmsql_blind")
    url = sqlalchemy.make_url(jmsql_clean_url).update_query_dict({"options": "-c role=jmsql_blind"})
    try:
        outcome = jmsql("doctor", "--json", url=url.render_as_string(hide_password=False))
    finally:
        database.execute("drop owned by jmsql_blind")
        database.execute("drop role jmsql_blind")
    assert outcome.exit_code == 0
    notes = [each for each in outcome.document["findings"] if each["check"] == "vacuum"]
    assert "pg_read_all_stats" in notes[0]["advice"]
