"""The demonstration, ended before its time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy

from jmsql.testing import wait_for


@pytest.fixture
def database(jmsql_clean_url: str) -> Iterator[psycopg.Connection]:
    url = sqlalchemy.make_url(jmsql_clean_url).set(drivername="postgresql")
    with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as connection:
        yield connection
        connection.execute("drop schema if exists jmsql_demo cascade")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_process_behind(
    jmsql_clean_url: str, database: psycopg.Connection, number: signal.Signals
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "examples.flights", "--workers", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | {"JMSQL_URL": jmsql_clean_url},
        text=True,
    ) as process:
        assert process.stderr is not None
        assert "Starting" in process.stderr.readline()
        assert "Storing" in process.stderr.readline()
        assert _workers(database)
        process.send_signal(number)
        _, errors = process.communicate()
    assert (process.returncode, "Traceback" in errors) == (128 + number, False), errors
    wait_for(lambda: not _workers(database))


def _workers(database: psycopg.Connection) -> list[Any]:
    return database.execute(
        "select application_name from pg_stat_activity where starts_with(application_name, 'jmsql demo: ')"
    ).fetchall()
