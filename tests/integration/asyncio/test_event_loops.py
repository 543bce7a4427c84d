"""What else runs coroutines: anyio's cancel scopes and task groups on asyncio."""

from __future__ import annotations

from collections import Counter

import anyio
import anyio.lowlevel
import pytest

import jmsql.asyncio as jms
from jmsql import AcknowledgeMode, Queue

pytestmark = pytest.mark.usefixtures("nothing_left")


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
            with anyio.move_on_after(0.02) as scope:
                while True:
                    message = await consumer.receive()
                    assert message is not None
                    received.append(message.get_body(str))
            assert scope.cancelled_caught
            await anyio.lowlevel.checkpoint()
    assert Counter(received) == Counter(expected)


async def test_task_groups_of_anyio_run_consumers_side_by_side(aio_connection: jms.Connection) -> None:
    queue = Queue("orders")
    received: list[str] = []

    async def consume() -> None:
        async with aio_connection.create_session() as session, session.create_consumer(queue) as consumer:
            async for message in consumer:
                received.append(message.get_body(str))
                if len(received) == 20:
                    group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(consume)
        async with aio_connection.create_session() as session, session.create_producer(queue) as producer:
            for number in range(20):
                await producer.send(session.create_text_message(str(number)))
    assert Counter(received) == Counter(str(number) for number in range(20))
