"""The application's own statements on a session's connection wait as psycopg's do, and can be cancelled."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any, cast

import psycopg
import pytest

from jmsql.store.wire._async.runner import WireConnection

_LARGE = "x" * 8_000_000
"""More than the buffers of a socket hold, so that the client waits to write."""


@pytest.fixture
async def connection(jmsql_url: str) -> AsyncIterator[WireConnection]:
    async with await WireConnection.connect(jmsql_url) as connection:
        yield connection


async def _wait_until_active(connection: WireConnection, url: str) -> None:
    state = "select state from pg_stat_activity where pid = %s and query like '%%pg_sleep%%'"
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:
        while await (await other.execute(state, (connection.info.backend_pid,))).fetchone() != ("active",):
            pass


async def test_a_cancelled_statement_is_interrupted_at_the_server(connection: WireConnection, jmsql_url: str) -> None:
    statement = asyncio.create_task(connection.execute("select pg_sleep(3600)"))
    await _wait_until_active(connection, jmsql_url)
    statement.cancel("the user went away")

    with pytest.raises(asyncio.CancelledError, match="the user went away"):
        await statement

    assert statement.cancelling() == 1
    assert connection.info.transaction_status is psycopg.pq.TransactionStatus.INERROR
    await connection.rollback()
    assert await (await connection.execute("select 1")).fetchone() == (1,)


async def test_a_time_out_ends_as_a_time_out(connection: WireConnection) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await connection.execute("select pg_sleep(3600)")

    await connection.rollback()
    assert await (await connection.execute("select 1")).fetchone() == (1,)


async def test_statements_that_have_to_wait_to_write_come_whole(connection: WireConnection) -> None:
    assert await (await connection.execute("select length(%s::text)", (_LARGE,))).fetchone() == (len(_LARGE),)
    await connection.execute("create temporary table copied (body text)")
    async with connection.cursor() as cursor, cursor.copy("copy copied from stdin") as copy:
        for _ in range(3):
            await copy.write_row((_LARGE,))
    async with connection.pipeline():
        length = await connection.execute("select sum(length(body)) from copied")
        body = await connection.execute("select body from copied limit 1")
        assert await length.fetchone() == (3 * len(_LARGE),)
        assert await body.fetchone() == (_LARGE,)


@pytest.mark.parametrize("statement", ["select 1/0", "select pg_terminate_backend(pg_backend_pid())"])
async def test_errors_are_raised_where_the_statement_is_awaited(connection: WireConnection, statement: str) -> None:
    with pytest.raises(psycopg.Error) as raised:
        await connection.execute(cast(Any, statement))

    assert re.search("division by zero|terminating connection|closed", str(raised.value))
    assert connection.closed is (statement != "select 1/0")


async def test_other_tasks_run_while_a_statement_runs(connection: WireConnection) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    await connection.execute("select pg_sleep(0.05)")
    ticking.cancel()
    assert ticks > 1
