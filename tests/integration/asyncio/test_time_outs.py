"""A time-out ends what waits at the server, and what it ends has not happened."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Awaitable, Iterator

import anyio
import psycopg
import pytest

import jmsql.asyncio as jms
from jmsql import AcknowledgeMode, Queue, Topic, TransactionRolledBackException
from jmsql.concurrency.tasks import cancellation
from jmsql.testing import FAST_TIMINGS
from tests.integration.asyncio.texts import text_of
from tests.integration.client.locked_tables import lock
from tests.integration.client.server import Server

pytestmark = pytest.mark.usefixtures("nothing_left")

ORDERS, SHIPPED = Queue("orders"), Queue("shipped")
BRIEF, PATIENCE = 0.1, 60.0
KEEPING = dataclasses.replace(FAST_TIMINGS, idle_connection_timeout=3600.0)
MODES = [AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT, AcknowledgeMode.DUPS_OK]


@pytest.fixture(autouse=True)
def _grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancellation, "_GRACE", 0.1, raising=False)


async def times_out(work: Awaitable[object]) -> None:
    """Fail unless a time-out ends what never ends by itself."""
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(BRIEF):
            await work
    assert time.monotonic() - started < PATIENCE


async def send(connection: jms.Connection, *texts: str, to: jms.Destination = ORDERS) -> None:
    async with connection.create_session() as session, session.create_producer(to) as producer:
        for text in texts:
            await producer.send(session.create_text_message(text))


async def receive_all(connection: jms.Connection, queue: Queue = ORDERS) -> list[str]:
    texts = []
    async with connection.create_session() as session, session.create_consumer(queue) as consumer:
        while (message := await consumer.receive_no_wait()) is not None:
            texts.append(text_of(message))
    return texts


@contextlib.asynccontextmanager
async def locked(blocker: psycopg.Connection, *tables: str) -> AsyncIterator[None]:
    """Lock tables against all others, or messages against changes, while a block runs."""
    if tables:
        lock(blocker, *tables)
    else:
        blocker.execute("lock table jmsql_internal.message in share mode")
    try:
        yield
    finally:
        blocker.rollback()


async def test_send_has_sent_nothing(aio_connection: jms.Connection, blocker: psycopg.Connection) -> None:
    async with aio_connection.create_session() as session, session.create_producer(ORDERS) as producer:
        await producer.send(session.create_text_message("a"))
        async with locked(blocker, "message"):
            await times_out(producer.send(session.create_text_message("b")))
        await producer.send(session.create_text_message("c"))
    assert await receive_all(aio_connection) == ["a", "c"]


async def test_publishing_has_sent_nothing(aio_connection: jms.Connection, blocker: psycopg.Connection) -> None:
    prices = Topic("prices")
    async with aio_connection.create_session() as session, session.create_consumer(prices) as consumer:
        producer = await session.create_producer(prices)
        async with locked(blocker, "message"):
            await times_out(producer.send(session.create_text_message("a")))
        await producer.send(session.create_text_message("b"))
        assert text_of(await consumer.receive(60)) == "b"
        assert await consumer.receive_no_wait() is None


@pytest.mark.parametrize("mode", MODES)
async def test_receive_leaves_the_message(
    aio_connection: jms.Connection, blocker: psycopg.Connection, mode: AcknowledgeMode
) -> None:
    await send(aio_connection, "a", "b")
    async with aio_connection.create_session(False, mode) as session, session.create_consumer(ORDERS) as consumer:
        async with locked(blocker, "message", "delivery"):
            await times_out(consumer.receive())
        assert [text_of(await consumer.receive(60)) for _ in range(2)] == ["a", "b"]
        await session.acknowledge()
    assert await receive_all(aio_connection) == []


async def test_acknowledge_can_be_called_again(aio_connection: jms.Connection, blocker: psycopg.Connection) -> None:
    await send(aio_connection, "a")
    async with aio_connection.create_session(False, AcknowledgeMode.CLIENT) as session:
        consumer = await session.create_consumer(ORDERS)
        message = await consumer.receive(60)
        assert message is not None
        async with locked(blocker, "message", "delivery"):
            await times_out(message.acknowledge())
        await message.acknowledge()
    assert await receive_all(aio_connection) == []


async def test_receive_that_begins_a_transaction_leaves_the_message(
    aio_connection: jms.Connection, blocker: psycopg.Connection
) -> None:
    await send(aio_connection, "a")
    async with aio_connection.create_session(transacted=True) as session, session.create_consumer(ORDERS) as consumer:
        async with locked(blocker, "message"):
            await times_out(consumer.receive())
        assert text_of(await consumer.receive(60)) == "a"
        await session.commit()
    assert await receive_all(aio_connection) == []


@pytest.mark.parametrize("number", [1, 60], ids=["with the commit", "by COPY"])
@pytest.mark.parametrize("is_shared", [False, True], ids=["its own", "shared"])
async def test_commit_has_committed_nothing_and_the_transaction_is_to_be_rolled_back(
    aio_connection: jms.Connection, blocker: psycopg.Connection, number: int, is_shared: bool
) -> None:
    await send(aio_connection, "a")
    async with aio_connection.create_session(transacted=True) as session:
        consumer, producer = await session.create_consumer(ORDERS), await session.create_producer(SHIPPED)
        if is_shared:
            await session.get_database()
        assert text_of(await consumer.receive(60)) == "a"
        for _ in range(number):
            await producer.send(session.create_text_message("b"))
        async with locked(blocker):
            await times_out(session.commit())
            with pytest.raises(TransactionRolledBackException):
                await session.commit()
        assert text_of(await consumer.receive(60)) == "a"
        await producer.send(session.create_text_message("c"))
        await session.commit()
    assert (await receive_all(aio_connection), await receive_all(aio_connection, SHIPPED)) == ([], ["c"])


async def test_first_commit_of_a_session_loses_no_message_without_a_word(
    aio_connection: jms.Connection, blocker: psycopg.Connection
) -> None:
    async with aio_connection.create_session(transacted=True) as session:
        producer = await session.create_producer(ORDERS)
        await producer.send(session.create_text_message("a"))
        async with locked(blocker):
            await times_out(session.commit())
        with pytest.raises(TransactionRolledBackException):
            await session.commit()
        await producer.send(session.create_text_message("b"))
        await session.commit()
    assert await receive_all(aio_connection) == ["b"]


@pytest.fixture
def slow_check(server: Server) -> Iterator[None]:
    """A table of the application's, whose rows are checked in COMMIT, which takes long."""
    server.rows("create table checked (number integer)")
    server.rows(
        "create function check_number() returns trigger language plpgsql "
        "as 'begin perform pg_sleep(30); return null; end'"
    )
    server.rows(
        "create constraint trigger late after insert on checked deferrable initially deferred "
        "for each row execute function check_number()"
    )
    yield
    server.rows("drop table checked")
    server.rows("drop function check_number")


@pytest.mark.usefixtures("slow_check")
async def test_a_transaction_that_ended_in_its_commit_is_known_as_lost(aio_connection: jms.Connection) -> None:
    async with aio_connection.create_session(transacted=True) as session:
        producer = await session.create_producer(ORDERS)
        await producer.send(session.create_text_message("a"))
        database = await session.get_database()
        await database.exec_driver_sql("insert into checked values (1)")
        await times_out(session.commit())
        with pytest.raises(TransactionRolledBackException, match="cancelled"):
            await session.commit()
        await session.rollback()
        await producer.send(session.create_text_message("b"))
        await session.commit()
    assert await receive_all(aio_connection) == ["b"]


async def test_a_statement_that_ends_by_itself_soon_has_happened(
    aio_connection: jms.Connection, blocker: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellation, "_GRACE", PATIENCE)
    async with aio_connection.create_session() as session, session.create_producer(ORDERS) as producer:
        await producer.send(session.create_text_message("a"))
        lock(blocker, "message")
        asyncio.get_running_loop().call_later(BRIEF + 0.05, blocker.rollback)
        async with asyncio.timeout(BRIEF):
            await producer.send(session.create_text_message("b"))
    assert await receive_all(aio_connection) == ["a", "b"]


@pytest.mark.parametrize("jmsql_timings", [KEEPING], ids=["kept"])
async def test_a_connection_that_was_interrupted_serves_the_next_statement(
    aio_connection: jms.Connection, blocker: psycopg.Connection, server: Server
) -> None:
    """A request that came late would interrupt what runs next."""
    async with aio_connection.create_session() as session, session.create_producer(ORDERS) as producer:
        await producer.send(session.create_text_message("0"))
        pids = "select pid from pg_stat_activity where application_name = 'client''s sessions' order by pid"
        before = server.rows(pids)
        for number in range(1, 4):
            async with locked(blocker, "message"):
                await times_out(producer.send(session.create_text_message("lost")))
            for _ in range(20):
                await producer.send(session.create_text_message(str(number)))
        assert server.rows(pids) == before
    assert len(await receive_all(aio_connection)) == 61


async def test_under_anyio_waiting_for_the_server_takes_no_processor_time(
    aio_connection: jms.Connection, blocker: psycopg.Connection
) -> None:
    async with aio_connection.create_session() as session, session.create_producer(ORDERS) as producer:
        await producer.send(session.create_text_message("a"))
        async with locked(blocker, "message"):
            started, worked = time.monotonic(), time.thread_time()
            with anyio.move_on_after(10 * BRIEF) as scope:
                await producer.send(session.create_text_message("b"))
            waited, worked = time.monotonic() - started, time.thread_time() - worked
        assert scope.cancelled_caught
        assert worked < waited / 2
    assert await receive_all(aio_connection) == ["a"]


async def test_a_task_that_is_cancelled_ends(aio_connection: jms.Connection, blocker: psycopg.Connection) -> None:
    await send(aio_connection, "a")
    async with aio_connection.create_session() as session, session.create_consumer(ORDERS) as consumer:
        async with locked(blocker, "message"):
            task = asyncio.create_task(consumer.receive())
            await asyncio.sleep(BRIEF)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert text_of(await consumer.receive(60)) == "a"


async def test_a_wait_for_another_commit_does_not_interrupt_it(
    aio_connection: jms.Connection, blocker: psycopg.Connection
) -> None:
    """The commit of a message that was received is answered with the next exchange."""
    await send(aio_connection, "a", "b")
    async with aio_connection.create_session() as session, session.create_consumer(ORDERS) as consumer:
        assert text_of(await consumer.receive(60)) == "a"
        async with locked(blocker, "message"):
            await times_out(consumer.receive())
        assert text_of(await consumer.receive(60)) == "b"
    assert await receive_all(aio_connection) == []
