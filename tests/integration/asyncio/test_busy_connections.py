"""Sessions that wait for the connections of others get them in turn, and lose nothing if they give up."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Awaitable

import pytest

import jmsql.asyncio as jms
from jmsql import AcknowledgeMode, JMSException, Queue, ResourceAllocationException, Timings
from jmsql.client import connection_limit
from tests.integration.asyncio.cancelling import cancelled_at
from tests.integration.asyncio.texts import text_of

pytestmark = pytest.mark.usefixtures("nothing_left")

MODES = [AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT, AcknowledgeMode.DUPS_OK, AcknowledgeMode.TRANSACTED]
GIVING_UP = 0.1
PATIENCE = 60.0
MOST_WAITS = 40
"""More than a call waits."""


@pytest.fixture
async def crowded(aio_factory: jms.ConnectionFactory) -> AsyncIterator[jms.Connection]:
    """A started connection whose sessions have one connection to the server."""
    async with dataclasses.replace(aio_factory, max_connections=1).create_connection() as connection:
        await connection.start()
        yield connection


@contextlib.asynccontextmanager
async def all_in_use(connection: jms.Connection) -> AsyncIterator[None]:
    """Keep the connection of the other sessions for as long as a block runs."""
    async with connection.create_session(transacted=True) as session:
        database = await session.get_database()
        await database.exec_driver_sql("select 1")
        yield


def session_in(connection: jms.Connection, mode: AcknowledgeMode) -> jms.Session:
    return connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)


async def send(connection: jms.Connection, queue: Queue, *texts: str) -> None:
    async with connection.create_session() as session, session.create_producer(queue) as producer:
        for text in texts:
            await producer.send(session.create_text_message(text))


async def receive_all(connection: jms.Connection, queue: Queue) -> list[str]:
    texts = []
    async with connection.create_session() as session, session.create_consumer(queue) as consumer:
        while (message := await consumer.receive_no_wait()) is not None:
            texts.append(text_of(message))
    return texts


async def give_up(work: Awaitable[object]) -> bool:
    """Await something for a moment, and return whether it was cancelled."""
    try:
        async with asyncio.timeout(GIVING_UP):
            await work
    except TimeoutError:
        return True
    return False


# Nothing is lost


async def test_a_commit_that_is_cancelled_while_it_waits_can_be_repeated(crowded: jms.Connection) -> None:
    queue = Queue("orders")
    async with crowded.create_session(transacted=True) as session, session.create_producer(queue) as producer:
        await producer.send(session.create_text_message("a"))
        async with all_in_use(crowded):
            assert await give_up(session.commit())
            assert await give_up(session.commit())
        await session.commit()
    assert await receive_all(crowded, queue) == ["a"]


@pytest.mark.parametrize("most", [1, 20])
async def test_a_first_commit_that_is_cancelled_anywhere_sends_all_or_can_be_repeated(
    aio_factory: jms.ConnectionFactory, most: int
) -> None:
    for number in range(1, MOST_WAITS):
        queue = Queue(f"orders {number}")
        async with dataclasses.replace(aio_factory, max_connections=most).create_connection() as connection:
            await connection.start()
            async with connection.create_session(transacted=True) as session:
                producer = await session.create_producer(queue)
                await producer.send(session.create_text_message("a"))
                outcome = await cancelled_at(number, session.commit())
                if outcome.was_cancelled:
                    await session.commit()
            assert await receive_all(connection, queue) == ["a"]
        if outcome.waited < number:
            break
    assert 1 < number < MOST_WAITS - 1


async def test_a_send_that_is_cancelled_while_it_waits_has_sent_nothing(crowded: jms.Connection) -> None:
    queue = Queue("orders")
    async with crowded.create_session() as session, session.create_producer(queue) as producer:
        async with all_in_use(crowded):
            assert await give_up(producer.send(session.create_text_message("a")))
        await producer.send(session.create_text_message("b"))
    assert await receive_all(crowded, queue) == ["b"]


async def test_a_send_of_a_full_batch_that_is_cancelled_while_it_waits_is_no_part_of_the_transaction(
    crowded: jms.Connection,
) -> None:
    queue = Queue("orders")
    async with crowded.create_session(transacted=True) as session, session.create_producer(queue) as producer:
        async with all_in_use(crowded):
            sent = 0
            while not await give_up(producer.send(session.create_text_message(str(sent)))):
                sent += 1
        await session.commit()
    assert sent > 1
    assert await receive_all(crowded, queue) == [str(number) for number in range(sent)]


async def test_recover_and_acknowledge_that_are_cancelled_leave_the_messages_as_they_were(
    crowded: jms.Connection,
) -> None:
    queue = Queue("orders")
    for call in ("recover", "acknowledge"):
        for next_call in ("recover", "acknowledge"):
            await send(crowded, queue, "a", "b")
            async with crowded.create_session(acknowledge_mode=AcknowledgeMode.CLIENT) as session:
                consumer = await session.create_consumer(queue)
                assert text_of(await consumer.receive(60)) == "a"
                async with all_in_use(crowded):
                    was_cancelled = await give_up(getattr(session, call)())
                await getattr(session, next_call)()
                is_acknowledged = next_call == "acknowledge" and (was_cancelled or call == "acknowledge")
                assert text_of(await consumer.receive(60)) == ("b" if is_acknowledged else "a")
            assert await receive_all(crowded, queue) == (["b"] if is_acknowledged else ["a", "b"])


@pytest.mark.parametrize("call", ["recover", "acknowledge"])
async def test_recover_and_acknowledge_can_be_cancelled_anywhere(aio_connection: jms.Connection, call: str) -> None:
    for number in range(1, MOST_WAITS):
        queue = Queue(f"orders {number}")
        await send(aio_connection, queue, "a", "b")
        async with aio_connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT) as session:
            consumer = await session.create_consumer(queue)
            assert text_of(await consumer.receive(60)) == "a"
            outcome = await cancelled_at(number, getattr(session, call)())
            if outcome.was_cancelled or call == "acknowledge":
                await session.acknowledge()
                assert text_of(await consumer.receive(60)) == "b"
            else:
                assert text_of(await consumer.receive(60)) == "a"
                await session.acknowledge()
        assert await receive_all(aio_connection, queue) == ["b"]
        if outcome.waited < number:
            break
    assert 1 < number < MOST_WAITS - 1


async def test_a_listener_that_is_not_set_leaves_the_messages_fetched_before(crowded: jms.Connection) -> None:
    queue = Queue("orders")
    await send(crowded, queue, "a", "b", "c")
    async with crowded.create_session(acknowledge_mode=AcknowledgeMode.CLIENT) as session:
        consumer = await session.create_consumer(queue)
        assert text_of(await consumer.receive(60)) == "a"
        handled: list[str] = []
        async with all_in_use(crowded):
            await give_up(consumer.set_message_listener(lambda message: handled.append(text_of(message))))
        await consumer.set_message_listener(None)
        while (message := await consumer.receive_no_wait()) is not None:
            handled.append(text_of(message))
        assert handled == ["b", "c"]


@pytest.mark.parametrize("mode", MODES)
async def test_receive_that_is_cancelled_while_it_waits_loses_nothing(
    crowded: jms.Connection, mode: AcknowledgeMode
) -> None:
    queue = Queue("orders")
    await send(crowded, queue, "a", "b")
    async with session_in(crowded, mode) as session, session.create_consumer(queue) as consumer:
        async with all_in_use(crowded):
            assert await give_up(consumer.receive())
        assert text_of(await consumer.receive(60)) == "a"
        await (session.commit() if session.transacted else session.acknowledge())
    assert await receive_all(crowded, queue) == ["b"]


async def test_closing_a_consumer_and_a_session_needs_no_connection_of_the_sessions(crowded: jms.Connection) -> None:
    queue = Queue("orders")
    for closes_session in (False, True):
        await send(crowded, queue, "a", "b")
        session = crowded.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        consumer = await session.create_consumer(queue)
        assert text_of(await consumer.receive(60)) == "a"
        async with all_in_use(crowded), asyncio.timeout(60):
            await (session.close() if closes_session else consumer.close())
        assert await receive_all(crowded, queue) == (["a", "b"] if closes_session else ["b"])
        await session.close()
        assert await receive_all(crowded, queue) == ([] if closes_session else ["a"])


# In turn


async def test_those_that_wait_get_connections_in_the_order_in_which_they_came(crowded: jms.Connection) -> None:
    queue = Queue("orders")
    order: list[int] = []

    async def commit(number: int, session: jms.Session) -> None:
        producer = session.unidentified_producer()
        await producer.send(session.create_text_message(str(number)), queue)
        waits.set()
        await session.commit()
        order.append(number)

    async with contextlib.AsyncExitStack() as stack:
        waiting = []
        async with all_in_use(crowded):
            for number in range(20):
                waits = asyncio.Event()
                session = await stack.enter_async_context(crowded.create_session(transacted=True))
                waiting.append(asyncio.create_task(commit(number, session)))
                await waits.wait()
                await asyncio.sleep(0)
            waiting[0].cancel()
            waiting[7].cancel()
        await asyncio.wait(waiting)
    assert order == [number for number in range(20) if number not in {0, 7}]
    assert await receive_all(crowded, queue) == [str(number) for number in order]


async def test_one_that_is_cancelled_as_its_turn_comes_passes_it_on(crowded: jms.Connection) -> None:
    queue = Queue("orders")
    for is_transacted in (True, False):
        async with crowded.create_session(is_transacted) as first, crowded.create_session() as second:
            holder = crowded.create_session(transacted=True)
            await holder.get_database()
            await asyncio.sleep(0)
            tasks = [asyncio.create_task((await s.create_consumer(queue)).receive(60)) for s in (first, second)]
            await asyncio.sleep(GIVING_UP)
            closing = asyncio.create_task(holder.close())
            while not closing.done():
                await asyncio.sleep(0)
                tasks[0].cancel()
            await send(crowded, queue, "a")
            assert text_of(await tasks[1]) == "a"
            await asyncio.wait(tasks)


async def test_receive_with_a_timeout_ends_in_time_if_no_connection_is_free(crowded: jms.Connection) -> None:
    queue = Queue("orders")
    async with crowded.create_session() as session, session.create_consumer(queue) as consumer:
        async with all_in_use(crowded):
            started = time.monotonic()
            assert await consumer.receive(timeout=0.3) is None
            assert 0.3 <= time.monotonic() - started < PATIENCE
        await send(crowded, queue, "a")
        assert text_of(await consumer.receive(timeout=60)) == "a"


async def test_the_error_names_the_uses_of_the_connections(
    aio_factory: jms.ConnectionFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limit, "_PATIENCE", 0.2)
    queue = Queue("orders")
    async with dataclasses.replace(aio_factory, max_connections=3).create_connection() as connection:
        await connection.start()
        await send(connection, queue, "a", "b")
        sessions = [connection.create_session(transacted=True) for _ in range(4)]
        for session in sessions[:2]:
            assert await (await session.create_consumer(queue)).receive(60) is not None
        await sessions[2].get_database()
        await sessions[2].commit()
        producer = await sessions[3].create_producer(queue)
        await producer.send(sessions[3].create_text_message("c"))
        reason = r"2 are in an open transaction and 1 is kept for the application since get_database\(\)"
        with pytest.raises(JMSException, match=reason) as raised:
            await sessions[3].commit()
        assert isinstance(raised.value.__cause__, ResourceAllocationException)


# The number of those that wait costs nothing


async def test_many_consumers_on_few_connections_all_receive(aio_factory: jms.ConnectionFactory) -> None:
    queue, count = Queue("orders"), 300
    received: list[str] = []

    async def consume(session: jms.Session) -> None:
        async with session, session.create_consumer(queue) as consumer:
            received.append(text_of(await consumer.receive(timeout=60)))

    # With the polls of the tests' own timings, so many would leave a slow machine no time for anything else.
    factory = dataclasses.replace(aio_factory, max_connections=5, timings=Timings())
    async with factory.create_connection() as connection:
        await connection.start()
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(consume(connection.create_session()))
            await send(connection, queue, *map(str, range(count)))
    assert sorted(received, key=int) == [str(number) for number in range(count)]
