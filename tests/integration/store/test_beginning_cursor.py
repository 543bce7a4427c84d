"""A cursor that sends BEGIN together with a prepared statement."""

from __future__ import annotations

import asyncio
import runpy
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.pq import PipelineStatus, TransactionStatus

from jmsql.store.wire import beginning_cursor
from jmsql.store.wire.beginning_cursor import KNOWN_RELEASE, BeginningCursor
from jmsql.testing import wait_for
from tests.background import Background
from tests.faults.proxy import CutPoint, CuttingProxy

SELECT = "select %s::integer"
INSERT = "insert into numbers values (%s)"
SLEEP = "select pg_sleep(%s)"


class Cursor(BeginningCursor, psycopg.Cursor[Any]):
    """For threads."""


class AsyncCursor(BeginningCursor, psycopg.AsyncCursor[Any]):
    """For asyncio."""


@pytest.fixture
def proxy(jmsql_url: str) -> Iterator[CuttingProxy]:
    with CuttingProxy(jmsql_url) as proxy:
        yield proxy


@pytest.fixture
def connection(proxy: CuttingProxy) -> Iterator[psycopg.Connection[Any]]:
    """A connection with an empty table and three prepared statements, and no open transaction."""
    with psycopg.connect(proxy.url, cursor_factory=Cursor) as connection:
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection.execute("create temporary table numbers (number integer primary key)")
        for statement in (SELECT, SLEEP):
            connection.execute(statement, [0], prepare=True)
        connection.execute(INSERT, [0], prepare=True)
        connection.commit()
        yield connection


def states(connection: psycopg.BaseConnection[Any]) -> tuple[TransactionStatus, PipelineStatus]:
    """Return the states of the transaction and of libpq's pipeline."""
    return TransactionStatus(connection.pgconn.transaction_status), PipelineStatus(connection.pgconn.pipeline_status)


def test_the_installed_psycopg_is_a_known_release() -> None:
    assert psycopg.__version__.startswith(KNOWN_RELEASE)


def test_another_release_of_psycopg_sends_begin_its_own_way(monkeypatch: pytest.MonkeyPatch, jmsql_url: str) -> None:
    monkeypatch.setattr(psycopg, "__version__", "3.4.0")
    for internal in ("psycopg._cursor_base", "psycopg._preparing"):
        monkeypatch.setitem(sys.modules, internal, None)  # importing it fails
    unknown: Any = runpy.run_path(beginning_cursor.__file__)["BeginningCursor"]

    other: Any = type("OtherCursor", (unknown, psycopg.Cursor), {})
    with psycopg.connect(jmsql_url, cursor_factory=other) as connection:
        for _ in range(2):
            assert connection.execute(SELECT, [1], prepare=True).fetchall() == [(1,)]
            connection.rollback()


def test_begin_takes_no_round_trip_of_its_own(connection: psycopg.Connection[Any], proxy: CuttingProxy) -> None:
    before = proxy.requests
    cursor = connection.execute(SELECT, [1])
    assert proxy.requests == before + 1
    assert cursor.fetchall() == [(1,)]
    assert (cursor.rowcount, cursor.statusmessage) == (1, "SELECT 1")
    assert states(connection) == (TransactionStatus.INTRANS, PipelineStatus.OFF)


@pytest.mark.parametrize(
    ("option", "value", "setting", "shown"),
    [
        ("isolation_level", psycopg.IsolationLevel.SERIALIZABLE, "transaction_isolation", "serializable"),
        ("read_only", True, "transaction_read_only", "on"),
        ("deferrable", True, "transaction_deferrable", "on"),
    ],
)
def test_the_transaction_has_the_options_of_the_connection(
    connection: psycopg.Connection[Any], option: str, value: object, setting: str, shown: str
) -> None:
    setattr(connection, option, value)
    connection.execute(SELECT, [1])
    assert connection.execute(f"show {setting}").fetchone() == (shown,)


@pytest.mark.parametrize("binary", [None, False, True])
def test_the_result_has_the_format_that_is_asked_for(connection: psycopg.Connection[Any], binary: bool | None) -> None:
    cursor = connection.cursor()
    cursor.execute(SELECT, [1], binary=binary)
    assert cursor.pgresult is not None
    assert cursor.pgresult.fformat(0) == bool(binary)
    assert cursor.fetchall() == [(1,)]


def test_a_rollback_undoes_the_first_statement(connection: psycopg.Connection[Any]) -> None:
    connection.execute(INSERT, [1])
    connection.rollback()
    assert connection.execute("select number from numbers").fetchall() == [(0,)]


def test_a_failed_statement_leaves_an_aborted_transaction(connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.UniqueViolation):
        connection.execute(INSERT, [0])
    assert states(connection) == (TransactionStatus.INERROR, PipelineStatus.OFF)
    connection.rollback()
    connection.execute(INSERT, [1])
    connection.commit()


@pytest.mark.parametrize("parameters", [[object()], [1, 2]])
def test_wrong_parameters_leave_an_open_transaction(
    connection: psycopg.Connection[Any], parameters: list[object]
) -> None:
    with pytest.raises(psycopg.ProgrammingError):
        connection.execute(SELECT, parameters)
    assert states(connection) == (TransactionStatus.INTRANS, PipelineStatus.OFF)


@pytest.mark.parametrize("cut_point", CutPoint)
def test_a_lost_connection_is_an_operational_error(
    connection: psycopg.Connection[Any], proxy: CuttingProxy, cut_point: CutPoint
) -> None:
    proxy.cut(cut_point)
    with pytest.raises(psycopg.OperationalError):
        connection.execute(INSERT, [1])
    assert connection.closed


def test_another_thread_interrupts_the_first_statement(connection: psycopg.Connection[Any], jmsql_url: str) -> None:
    sleeps = "select from pg_stat_activity where pid = %s and wait_event = 'PgSleep'"
    process = connection.info.backend_pid

    def interrupt() -> None:
        with psycopg.connect(jmsql_url, autocommit=True) as other:
            wait_for(lambda: other.execute(sleeps, [process]).fetchall())
        connection.cancel_safe()

    interruption = Background(interrupt)
    with pytest.raises(psycopg.errors.QueryCanceled):
        connection.execute(SLEEP, [60])
    interruption.result()
    assert states(connection) == (TransactionStatus.INERROR, PipelineStatus.OFF)


async def test_a_cancelled_task_interrupts_the_first_statement(jmsql_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(jmsql_url, cursor_factory=AsyncCursor) as connection:
        await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        await connection.execute(SLEEP, [0], prepare=True)
        await connection.commit()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await connection.execute(SLEEP, [60])
        assert states(connection) == (TransactionStatus.INERROR, PipelineStatus.OFF)
        await connection.rollback()
        cursor = await connection.execute(SLEEP, [0])
        assert len(await cursor.fetchall()) == 1
