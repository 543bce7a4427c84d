"""A task can be cancelled wherever it waits: nothing is lost, nothing is doubled, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import jmsql.asyncio as jms
from jmsql import AcknowledgeMode, Message, Queue, Topic
from jmsql.client import send_buffer
from jmsql.client._async.session import asynchronous_sender
from jmsql.concurrency import tasks
from jmsql.testing import wait_for
from tests.integration.asyncio.cancelling import cancelled_at
from tests.integration.asyncio.texts import text_of
from tests.integration.client.server import SESSIONS, Server
from tests.slowness import scaled

pytestmark = pytest.mark.usefixtures("nothing_left")

MODES = [AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT, AcknowledgeMode.DUPS_OK, AcknowledgeMode.TRANSACTED]
MOST_WAITS = 40
"""More than an operation waits."""


def session_in(connection: jms.Connection, mode: AcknowledgeMode) -> jms.Session:
    return connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)


async def settle(session: jms.Session) -> None:
    if session.transacted:
        await session.commit()
    else:
        await session.acknowledge()


async def send(connection: jms.Connection, queue: Queue, texts: list[str]) -> None:
    async with connection.create_session(transacted=True) as session, session.create_producer(queue) as producer:
        for text in texts:
            await producer.send(session.create_text_message(text))
        await session.commit()


async def receive_all(connection: jms.Connection, queue: Queue) -> list[str]:
    """Receive all that is left."""
    texts = []
    async with connection.create_session() as session, session.create_consumer(queue) as consumer:
        while (message := await consumer.receive_no_wait()) is not None:
            texts.append(text_of(message))
    return texts


@pytest.mark.parametrize("mode", MODES)
async def test_receive_loses_and_doubles_nothing(aio_connection: jms.Connection, mode: AcknowledgeMode) -> None:
    for number in range(1, MOST_WAITS):
        queue = Queue(f"orders {number}")
        await send(aio_connection, queue, ["a", "b", "c"])
        received: list[str] = []
        async with session_in(aio_connection, mode) as session, session.create_consumer(queue) as consumer:
            outcome = await cancelled_at(number, consumer.receive(60))
            if not outcome.was_cancelled:
                received.append(text_of(outcome.result))
            rest = await consumer.receive(60)
            received.append(text_of(rest))
            await settle(session)
        assert Counter(received + await receive_all(aio_connection, queue)) == Counter("abc")
        if outcome.waited < number:
            break
    assert 1 < number < MOST_WAITS - 1


@pytest.mark.parametrize("mode", MODES)
async def test_messages_keep_their_order(aio_connection: jms.Connection, mode: AcknowledgeMode) -> None:
    queue = Queue("orders")
    for number in range(1, 8):
        await send(aio_connection, queue, ["a", "b", "c"])
        async with session_in(aio_connection, mode) as session, session.create_consumer(queue) as consumer:
            received: list[str] = []
            while len(received) < 3:
                outcome = await cancelled_at(number, consumer.receive(60))
                message = await consumer.receive(60) if outcome.was_cancelled else outcome.result
                received.append(text_of(message))
            await settle(session)
        assert received == ["a", "b", "c"]


@pytest.mark.parametrize("mode", MODES)
async def test_receive_that_waits_is_cancelled_at_once(aio_connection: jms.Connection, mode: AcknowledgeMode) -> None:
    async with session_in(aio_connection, mode) as session, session.create_consumer(Queue("orders")) as consumer:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await consumer.receive()
        assert await consumer.receive_no_wait() is None


@pytest.mark.parametrize("most", [20, 1])
async def test_a_caller_that_gives_up_uses_the_opened_connection_the_next_time(
    aio_factory: jms.ConnectionFactory, most: int
) -> None:
    async with dataclasses.replace(aio_factory, max_connections=most).create_connection() as connection:
        await connection.start()
        async with connection.create_session() as session, session.create_producer(Queue("orders")) as producer:
            await producer.send(session.create_text_message("a"))
        async with connection.create_session() as session, session.create_consumer(Queue("orders")) as consumer:
            async with asyncio.timeout(60):
                message = None
                while message is None:
                    with contextlib.suppress(TimeoutError):
                        message = await asyncio.wait_for(consumer.receive(), scaled(0.001))
            assert text_of(message) == "a"


async def test_a_session_that_is_closed_while_it_connects_leaves_nothing(aio_connection: jms.Connection) -> None:
    for number in range(1, 5):
        async with aio_connection.create_session() as session, session.create_consumer(Queue("orders")) as consumer:
            await cancelled_at(number, consumer.receive_no_wait())


@pytest.mark.parametrize("mode", MODES)
async def test_a_send_happens_once_or_not_at_all(aio_connection: jms.Connection, mode: AcknowledgeMode) -> None:
    for number in range(1, MOST_WAITS):
        queue = Queue(f"orders {number}")
        async with session_in(aio_connection, mode) as session, session.create_producer(queue) as producer:
            outcome = await cancelled_at(number, producer.send(session.create_text_message("a")))
            if session.transacted:
                await session.commit()
        assert await receive_all(aio_connection, queue) == ([] if outcome.was_cancelled else ["a"])
        if outcome.waited < number:
            break


async def test_a_commit_that_returns_has_committed_and_one_that_is_cancelled_has_not(
    aio_connection: jms.Connection,
) -> None:
    for number in range(1, MOST_WAITS):
        source, target = Queue(f"source {number}"), Queue(f"target {number}")
        await send(aio_connection, source, ["a"])
        async with aio_connection.create_session(transacted=True) as session:
            consumer, producer = await session.create_consumer(source), await session.create_producer(target)
            message = await consumer.receive(60)
            assert message is not None
            await producer.send(message)
            outcome = await cancelled_at(number, session.commit())
        moved = not outcome.was_cancelled
        assert (await receive_all(aio_connection, source), await receive_all(aio_connection, target)) == (
            ([], ["a"]) if moved else (["a"], [])
        )
        if outcome.waited < number:
            break
    assert 1 < number < MOST_WAITS - 1


@pytest.mark.parametrize("end", ["rollback", "recover", "acknowledge"])
async def test_calls_that_end_a_delivery_can_be_repeated(aio_connection: jms.Connection, end: str) -> None:
    mode = AcknowledgeMode.TRANSACTED if end == "rollback" else AcknowledgeMode.CLIENT
    for number in range(1, MOST_WAITS):
        queue = Queue(f"orders {number}")
        await send(aio_connection, queue, ["a"])
        async with session_in(aio_connection, mode) as session, session.create_consumer(queue) as consumer:
            assert await consumer.receive(60) is not None
            operation: Callable[[], Coroutine[Any, Any, None]] = getattr(session, end)
            outcome = await cancelled_at(number, operation())
            if outcome.was_cancelled:
                await operation()
            message = await consumer.receive(60 if end != "acknowledge" else 0)
            assert (message is None) == (end == "acknowledge")
            await settle(session)
        assert await receive_all(aio_connection, queue) == []
        if outcome.waited < number:
            break


async def test_a_consumer_is_made_or_leaves_nothing(aio_connection: jms.Connection, server: Server) -> None:
    topic = Topic("prices")

    async def open_and_keep(session: jms.Session, kept: list[jms.MessageConsumer]) -> None:
        kept.append(await session.create_shared_consumer(topic, "ticker"))

    for number in range(1, MOST_WAITS):
        kept: list[jms.MessageConsumer] = []
        async with aio_connection.create_session() as session:
            outcome = await cancelled_at(number, open_and_keep(session, kept))
            assert bool(kept) != outcome.was_cancelled
        assert server.rows("select count(*) from jmsql.subscriptions") == [(0,)]
        if outcome.waited < number:
            break
    assert number < MOST_WAITS - 1


@pytest.mark.parametrize("what", ["consumer", "session", "connection"])
async def test_a_close_is_completed_though_the_caller_does_not_wait(
    aio_factory: jms.ConnectionFactory, server: Server, what: str
) -> None:
    for number in range(1, MOST_WAITS):
        connection = await aio_factory.create_connection()
        await connection.start()
        queue = Queue(f"orders {number}")
        await send(connection, queue, ["a", "b"])
        session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        consumer = await session.create_consumer(queue)
        assert await consumer.receive(60) is not None
        closed: Any = {"consumer": consumer, "session": session, "connection": connection}[what]
        outcome = await cancelled_at(number, closed.close())
        if what == "connection":
            await asyncio.to_thread(wait_for, lambda: not server.connections(SESSIONS))
        else:
            await asyncio.to_thread(
                wait_for,
                lambda held=1 if what == "consumer" else 0: (
                    server.rows("select count(*) from jmsql.messages where claimed_by is not null") == [(held,)]
                ),
            )
            await connection.close()
        async with aio_factory.create_connection() as another:
            await another.start()
            assert await receive_all(another, queue) == ["a", "b"]
        if outcome.waited < number:
            break
    assert number < MOST_WAITS - 1


async def test_a_connection_is_made_or_leaves_nothing(aio_factory: jms.ConnectionFactory) -> None:
    async def open_and_close() -> None:
        async with aio_factory.create_connection() as connection:
            await connection.start()

    for number in range(1, MOST_WAITS):
        outcome = await cancelled_at(number, open_and_close())
        if outcome.waited < number:
            break
    assert 1 < number < MOST_WAITS - 1


async def test_a_listener_that_is_slow_holds_up_no_cancellation(aio_connection: jms.Connection) -> None:
    handling, may_end = asyncio.Event(), asyncio.Event()

    async def handle(_: jms.Message) -> None:
        handling.set()
        await may_end.wait()

    queue = Queue("orders")
    await send(aio_connection, queue, ["a"])
    session = aio_connection.create_session()
    consumer = await session.create_consumer(queue)
    await consumer.set_message_listener(handle)
    await handling.wait()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await session.close()
    may_end.set()
    await session.close()


async def test_a_cancellation_that_came_too_late_ends_a_loop_of_receives(aio_connection: jms.Connection) -> None:
    queue = Queue("orders")
    await send(aio_connection, queue, [str(number) for number in range(200)])
    received: list[str] = []

    async def keep_receiving() -> None:
        async with aio_connection.create_session() as session, session.create_consumer(queue) as consumer:
            async for message in consumer:
                received.append(text_of(message))
                if len(received) == 3:
                    reached.set()

    reached = asyncio.Event()
    task = asyncio.create_task(keep_receiving())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(received) < 10
    assert Counter(received + await receive_all(aio_connection, queue)) == Counter(str(number) for number in range(200))


async def test_a_timeout_that_came_too_late_leaves_no_cancellation_behind(aio_connection: jms.Connection) -> None:
    """With Python 3.11 and 3.12 a task that swallows a cancellation may be cancelled later without a reason."""
    queue = Queue("orders")
    for number in range(1, 12):
        await send(aio_connection, queue, ["a"])
        async with aio_connection.create_session() as session, session.create_consumer(queue) as consumer:
            received = None
            try:
                async with asyncio.timeout(number / 2000):
                    received = await consumer.receive()
            except TimeoutError:
                pass
            for _ in range(3):
                await asyncio.sleep(0)
        assert len(await receive_all(aio_connection, queue)) == (0 if received else 1)


async def test_a_time_out_that_is_over_does_not_cancel_a_task_that_was_cancelled_before_and_went_on() -> None:
    async def work() -> str:
        await asyncio.sleep(0.03)
        return "done"

    async def go_on() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        assert task.cancelling() == 1, "nobody has taken it back"
        async with asyncio.timeout(0.01):
            result = await tasks.run_to_completion(work())
        await asyncio.sleep(0.01)
        return result

    assert await asyncio.create_task(go_on()) == "done"


@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.TRANSACTED])
async def test_a_cancelled_send_in_batches_keeps_the_messages_before_it(
    aio_connection: jms.Connection, mode: AcknowledgeMode
) -> None:
    # The next send hands over a batch; in a transaction, to a buffer that is full then.
    before = [str(number) for number in range(600 if mode is AcknowledgeMode.TRANSACTED else 100)]
    for number in range(1, MOST_WAITS):
        queue = Queue(f"orders {number}")
        async with session_in(aio_connection, mode) as session, session.create_producer(queue) as producer:
            async with producer.in_batches():
                for text in before:
                    await producer.send(session.create_text_message(text))
                outcome = await cancelled_at(number, producer.send(session.create_text_message("last")))
            if session.transacted:
                await session.commit()
        async with aio_connection.create_session() as session, session.create_browser(queue) as browser:
            texts = [text_of(message) async for message in browser]
        assert texts == before + ([] if outcome.was_cancelled else ["last"]), number
        if outcome.waited < number:
            break
    assert 1 < number < MOST_WAITS - 1


@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.TRANSACTED])
async def test_an_asynchronous_send_that_is_cancelled_while_too_many_are_on_their_way_sends_nothing(
    aio_connection: jms.Connection, mode: AcknowledgeMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asynchronous_sender, "_MOST_MESSAGES", 1)
    queue, returning = Queue("orders"), asyncio.Event()
    told: list[str] = []

    async def completed(message: Message, _: object) -> None:
        await returning.wait()
        told.append(text_of(message))

    async with session_in(aio_connection, mode) as session, session.create_producer(queue) as producer:

        async def send(text: str) -> None:
            await producer.send(session.create_text_message(text), completion_listener=completed)

        await send("a")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await send("b")
        returning.set()
        await send("c")
        if session.transacted:
            await session.commit()
    assert told == ["a", "c"]
    assert await receive_all(aio_connection, queue) == ["a", "c"]


@pytest.mark.parametrize("kind", ["with a completion listener", "under a condition"])
async def test_a_cancelled_send_that_finds_the_buffer_full_sends_nothing(
    aio_connection: jms.Connection, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(send_buffer, "_MOST_MESSAGES", 2)
    for number in range(1, MOST_WAITS):
        queue = Queue(f"orders {number}")
        async with aio_connection.create_session(transacted=True) as session:
            async with session.create_producer(queue) as producer:
                for text in "ab":
                    await producer.send(session.create_text_message(text))
                sending: Coroutine[Any, Any, object]
                if kind == "under a condition":
                    sending = jms.send(session, queue, "c", deduplication_id="c")
                else:
                    sending = producer.send(session.create_text_message("c"), completion_listener=lambda *_: None)
                outcome = await cancelled_at(number, sending)
            await session.commit()
        assert await receive_all(aio_connection, queue) == ["a", "b"] + ([] if outcome.was_cancelled else ["c"]), number
        if outcome.waited < number:
            break
    assert 1 < number < MOST_WAITS - 1
