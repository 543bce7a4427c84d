"""What else runs coroutines: uvloop, and anyio's cancel scopes and task groups on asyncio."""

from __future__ import annotations

import asyncio
from collections import Counter

import anyio
import anyio.abc
import anyio.lowlevel
import pytest
import uvloop

import jmsql.asyncio as jms
from jmsql import AcknowledgeMode, Queue
from tests.integration.asyncio.texts import text_of
from tests.slowness import scaled

NOTHING_LEFT = pytest.mark.usefixtures("nothing_left")


@NOTHING_LEFT
async def test_cancel_scopes_of_anyio_lose_and_double_nothing(aio_connection: jms.Connection) -> None:
    queue = Queue("orders")
    expected = [str(number) for number in range(60)]
    async with aio_connection.create_session(transacted=True) as session, session.create_producer(queue) as producer:
        for text in expected:
            await producer.send(session.create_text_message(text))
        await session.commit()
    received: list[str] = []
    while len(received) < len(expected):
        async with aio_connection.create_session(acknowledge_mode=AcknowledgeMode.AUTO) as session:
            consumer = await session.create_consumer(queue)
            with anyio.move_on_after(scaled(0.02)) as scope:
                while True:
                    message = await consumer.receive()
                    assert message is not None
                    received.append(text_of(message))
            assert scope.cancelled_caught
            await anyio.lowlevel.checkpoint()
    assert Counter(received) == Counter(expected)


@NOTHING_LEFT
async def test_task_groups_of_anyio_run_consumers_side_by_side(aio_connection: jms.Connection) -> None:
    queue = Queue("orders")

    async def consume(group: anyio.abc.TaskGroup, received: list[str]) -> None:
        async with aio_connection.create_session() as session, session.create_consumer(queue) as consumer:
            async for message in consumer:
                received.append(text_of(message))
                if len(received) == 20:
                    group.cancel_scope.cancel()

    for _ in range(15):  # a consumer and its session that are closed while they are cancelled must not meet
        received: list[str] = []
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(consume, group, received)
            async with aio_connection.create_session() as session, session.create_producer(queue) as producer:
                for number in range(20):
                    await producer.send(session.create_text_message(str(number)))
        assert Counter(received) == Counter(str(number) for number in range(20))


def test_uvloop_runs_it(aio_factory: jms.ConnectionFactory) -> None:
    queue = Queue("orders")

    async def exchange() -> list[str]:
        handled: list[str] = []
        both = asyncio.Event()

        async def handle(message: jms.Message) -> None:
            handled.append(text_of(message))
            if len(handled) == 2:
                both.set()

        async with aio_factory.create_connection() as connection:
            await connection.start()
            async with connection.create_session() as listening, listening.create_consumer(queue) as consumer:
                await consumer.set_message_listener(handle)
                session = connection.create_session(transacted=True)
                producer = await session.create_producer(queue)
                for text in ("a", "b"):
                    await producer.send(session.create_text_message(text))
                await session.commit()
                async with asyncio.timeout(60):
                    await both.wait()
            async with connection.create_session() as session, session.create_consumer(queue) as consumer:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await consumer.receive()
        return handled

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(exchange()) == ["a", "b"]
