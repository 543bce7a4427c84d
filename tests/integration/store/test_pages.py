"""The tables keep the pages on which plans count, or get them back."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

import jmsql
from jmsql.client._sync.link.opening import open_runner
from jmsql.store.administration.diagnosis import tables_without_pages
from jmsql.store.maintenance.maintenance import Maintenance
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.testing import wait_for
from jmsql.timings import InternalTimings
from tests.integration.store.plans import bloat_indexes

SCHEMA = "jmsql_pages"
TABLES = ["delayed_message", "delivery", "message"]
LEADER = 1


@pytest.fixture
def database(jmsql_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a database with a schema of the test's own."""
    jmsql.migrate(jmsql_url, SCHEMA)
    with psycopg.connect(jmsql_url, autocommit=True) as connection:
        yield connection
        connection.execute(f"drop schema {SCHEMA}, {SCHEMA}_internal cascade")


def missing(database: psycopg.Connection[Any]) -> list[str]:
    """Return the tables that have fewer pages than they should."""
    return [name for (name,) in database.execute(f"select {SCHEMA}_internal.tables_without_pages()").fetchall()]


def pages(database: psycopg.Connection[Any], suffix: str = "") -> list[int]:
    statement = f"select pg_relation_size('{SCHEMA}_internal.' || unnest(%s::text[]) || '{suffix}') / 8192"
    return [number for (number,) in database.execute(statement.encode(), (TABLES,)).fetchall()]


def maintain(database: psycopg.Connection[Any]) -> None:
    Maintenance(InternalTimings()).run(PsycopgRunner(database, SCHEMA), LEADER)


def mend(database: psycopg.Connection[Any]) -> None:
    """Do the maintenance until all is mended: a run takes a second for it, and passes what autovacuum has locked."""

    def is_mended() -> bool:
        maintain(database)
        return missing(database) == []

    wait_for(is_mended, timeout=60)


@pytest.mark.parametrize(
    "statement", ["vacuum (full) {}", "cluster {} using {}", "truncate {}", "vacuum (truncate) {}"]
)
def test_tables_that_lost_their_pages_get_them_back_once(database: psycopg.Connection[Any], statement: str) -> None:
    for name in TABLES:
        table, key = sql.Identifier(f"{SCHEMA}_internal", name), sql.Identifier(f"{name}_pkey")
        database.execute(sql.SQL(statement).format(table, key))
    assert missing(database) == TABLES

    mend(database)

    mended = pages(database)
    assert min(mended) >= 128
    assert database.execute(f"select count(*) from {SCHEMA}_internal.message").fetchone() == (0,)
    maintain(database)
    assert pages(database) == mended


def test_a_new_schema_has_all_pages(database: psycopg.Connection[Any]) -> None:
    assert missing(database) == []
    assert min(pages(database)) >= 128


def test_a_table_grows_when_an_index_has(database: psycopg.Connection[Any]) -> None:
    bloat_indexes(database, SCHEMA)
    indexes = pages(database, "_pkey")
    assert missing(database) == TABLES

    mend(database)

    assert all(table >= 128 + 2 * index for table, index in zip(pages(database), indexes, strict=True))
    for name in TABLES:
        assert database.execute(f"select from {SCHEMA}_internal.{name}".encode()).fetchall() == []


def test_vacuum_leaves_the_pages(database: psycopg.Connection[Any]) -> None:
    database.execute(f"vacuum full {SCHEMA}_internal.message")
    mend(database)

    database.execute(f"vacuum (analyze) {SCHEMA}_internal.message")

    assert missing(database) == []


def test_messages_that_are_there_stay(
    database: psycopg.Connection[Any], jmsql_url: str, jmsql_timings: InternalTimings
) -> None:
    timings = dataclasses.replace(jmsql_timings, table_check_interval=0.1)
    with jmsql.ConnectionFactory(jmsql_url, schema=SCHEMA, timings=timings).create_context() as context:
        producer = context.create_producer()
        producer.send(jmsql.Queue("orders"), "now")
        producer.delivery_delay = 3600
        producer.send(jmsql.Queue("orders"), "later")
        for name in TABLES:
            database.execute(sql.SQL("vacuum (full) {}").format(sql.Identifier(f"{SCHEMA}_internal", name)))

        wait_for(lambda: missing(database) == [], timeout=60)

        assert context.create_consumer(jmsql.Queue("orders")).receive_body(str, timeout=60) == "now"
    assert database.execute(f"select count(*) from {SCHEMA}_internal.delayed_message").fetchone() == (1,)


def test_the_doctor_names_tables_without_pages(database: psycopg.Connection[Any], jmsql_url: str) -> None:
    with open_runner(jmsql_url, SCHEMA) as runner:
        assert runner.run(tables_without_pages) == []
        database.execute(f"vacuum full {SCHEMA}_internal.message")
        assert runner.run(tables_without_pages) == ["message"]


def test_a_locked_table_holds_up_no_session(database: psycopg.Connection[Any], jmsql_url: str) -> None:
    database.execute(f"vacuum full {SCHEMA}_internal.message")
    with psycopg.connect(jmsql_url) as other:
        other.execute(f"lock table {SCHEMA}_internal.message in share update exclusive mode")
        maintain(database)
        assert missing(database) == ["message"]

    mend(database)


def test_a_restored_dump_gets_its_pages_back(database: psycopg.Connection[Any], jmsql_url: str, tmp_path: Path) -> None:
    row = database.execute("select setting from pg_config where name = 'BINDIR'").fetchone()
    assert row is not None
    programs, dump = Path(row[0]), tmp_path / "dump"
    if not (programs / "pg_dump").exists():
        pytest.skip("the server is not on this machine, or has no pg_dump")
    dsn = jmsql_url.replace("+psycopg", "")
    subprocess.run([programs / "pg_dump", "-Fc", "-n", SCHEMA, "-n", f"{SCHEMA}_internal", "-f", dump, dsn], check=True)
    database.execute(f"drop schema {SCHEMA}, {SCHEMA}_internal cascade")
    subprocess.run([programs / "pg_restore", "-d", dsn, dump], check=True)
    assert missing(database) == TABLES

    mend(database)

    targets = database.execute(
        "select count(*) from pg_attribute where attnum > 0 and attstattarget = 0 "
        f"and attrelid in ('{SCHEMA}_internal.message'::regclass, '{SCHEMA}_internal.message_group'::regclass)"
    ).fetchone()
    assert targets == (6,)
