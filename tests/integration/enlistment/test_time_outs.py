"""A time-out of asyncio's ends what waits at the server in the caller's transaction, which has failed then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable

import anyio
import psycopg
import pytest
import sqlalchemy

from jmsql import Queue
from jmsql.asyncio import enlist
from jmsql.concurrency.tasks import cancellation
from tests.integration.client.locked_tables import lock
from tests.integration.client.server import with_parameters
from tests.integration.enlistment.callers import ASYNCHRONOUS, NAME, ORDERS, Caller, Kind

BRIEF, PATIENCE = 0.1, 60.0


@pytest.fixture(autouse=True)
def _grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancellation, "_GRACE", 0.1)


@pytest.fixture(params=list(ASYNCHRONOUS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return ASYNCHRONOUS[request.param]


@pytest.fixture
async def caller(kind: Kind, jmsql_clean_url: str, engine: sqlalchemy.Engine) -> AsyncIterator[Caller]:
    """An application with a transaction open."""
    assert engine is not None  # it makes the backend's tables
    async with kind(with_parameters(jmsql_clean_url, application_name=NAME)) as caller:
        await caller.begin()
        yield caller


async def times_out(work: Awaitable[object]) -> None:
    """Fail unless a time-out ends what never ends by itself."""
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(BRIEF):
            await work
    assert time.monotonic() - started < PATIENCE


async def test_send_has_sent_nothing(caller: Caller, blocker: psycopg.Connection) -> None:
    await caller.insert(1)
    lock(blocker, "message")
    await times_out(caller.send("a"))
    blocker.rollback()
    with pytest.raises(Exception, match="abort"):
        await caller.insert(2)
    await caller.rollback()
    await caller.begin()
    await caller.place(3)
    await caller.commit()
    await caller.begin()
    message = await caller.receive()
    assert message is not None
    assert message.get_body(dict) == {"number": 3}
    assert await caller.receive() is None
    await caller.rollback()


async def test_receive_leaves_the_message(caller: Caller, blocker: psycopg.Connection) -> None:
    await caller.place(1)
    await caller.commit()
    await caller.begin()
    lock(blocker, "message")
    await times_out(caller.receive(20))
    blocker.rollback()
    await caller.rollback()
    await caller.begin()
    message = await caller.receive()
    assert message is not None
    assert message.get_body(dict) == {"number": 1}
    await caller.rollback()


@pytest.mark.parametrize("name", [name for name in ASYNCHRONOUS if name != "asyncpg.Connection"])  # which begins none
async def test_receive_ends_the_transaction_that_it_has_begun(
    name: str, jmsql_clean_url: str, blocker: psycopg.Connection
) -> None:
    async with ASYNCHRONOUS[name](with_parameters(jmsql_clean_url, application_name=NAME)) as caller:
        consumer = await caller.consumer()
        lock(blocker, "message")
        await times_out(consumer.receive(20))
        blocker.rollback()
        assert await consumer.receive(0) is None


async def test_a_statement_interrupted_late_has_no_effect(jmsql_clean_url: str, blocker: psycopg.Connection) -> None:
    """asyncpg does not tell whether a statement that was cancelled had ended before."""
    for delay in (0.0, 0.002, 0.005, 0.01):
        async with ASYNCHRONOUS["asyncpg.Connection"](jmsql_clean_url) as caller:
            await caller.begin()
            await caller.send("a")
            await caller.commit()
            await caller.begin()
            lock(blocker, "message")
            asyncio.get_running_loop().call_later(BRIEF + 0.1 + delay, blocker.rollback)
            try:
                async with asyncio.timeout(BRIEF):
                    message = await caller.receive(20)
            except TimeoutError:
                await caller.rollback()
            else:
                assert message is not None
                await caller.commit()
                continue
            await caller.begin()
            assert await caller.receive() is not None
            await caller.commit()


async def test_a_copy_of_the_caller_is_waited_for_until_the_time_out_and_goes_on(psycopg_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(psycopg_url) as connection:
        await connection.execute("create temporary table copied (number integer)")
        async with connection.cursor().copy("copy copied from stdin") as copying:
            await copying.write_row([1])
            await times_out(enlist(connection).create_producer().send(ORDERS, "a"))
            await copying.write_row([2])
        await enlist(connection).create_producer().send(ORDERS, "b")
        cursor = await connection.execute("select count(*) from copied")
        assert await cursor.fetchone() == (2,)
        await connection.commit()
        async with enlist(connection).create_consumer(ORDERS) as consumer:
            assert await consumer.receive_body(str, timeout=0) == "b"
            assert await consumer.receive_no_wait() is None


async def test_a_statement_of_another_task_is_not_interrupted(psycopg_url: str, blocker: psycopg.Connection) -> None:
    blocker.execute("select pg_advisory_xact_lock(4711)")
    async with await psycopg.AsyncConnection.connect(psycopg_url) as connection:
        other = asyncio.create_task(connection.execute("select pg_advisory_xact_lock(4711)"))
        await asyncio.sleep(0)  # it begins to run
        assert connection.lock.locked()
        await times_out(enlist(connection).create_producer().send(Queue("orders"), "a"))
        assert not other.done()
        blocker.rollback()
        await other


async def test_under_anyio_waiting_for_the_server_takes_no_processor_time(
    caller: Caller, blocker: psycopg.Connection
) -> None:
    lock(blocker, "message")
    started, worked = time.monotonic(), time.thread_time()
    with anyio.move_on_after(10 * BRIEF) as scope:
        await caller.send("a")
    waited, worked = time.monotonic() - started, time.thread_time() - worked
    blocker.rollback()
    assert scope.cancelled_caught
    assert worked < waited / 2
    await caller.rollback()
