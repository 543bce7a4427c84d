"""What opens something is a coroutine, and an asynchronous context manager."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import jmsql.asyncio as jms
from jmsql import Queue, Topic
from jmsql.concurrency.tasks import Opening

pytestmark = pytest.mark.usefixtures("nothing_left")

OPENERS: dict[str, Callable[[jms.Session], Opening[Any]]] = {
    "create_producer": lambda session: session.create_producer(Queue("orders")),
    "create_consumer": lambda session: session.create_consumer(Queue("orders")),
    "create_browser": lambda session: session.create_browser(Queue("orders")),
    "create_shared_consumer": lambda session: session.create_shared_consumer(Topic("prices"), "desk"),
}


@pytest.mark.parametrize("opener", OPENERS.values(), ids=OPENERS)
async def test_a_task_opens_the_sessions_objects(
    aio_connection: jms.Connection, opener: Callable[[jms.Session], Opening[Any]]
) -> None:
    async with aio_connection.create_session() as session:
        async with asyncio.TaskGroup() as tasks:
            opening = tasks.create_task(opener(session))
        assert "closed" not in repr(opening.result())
        await (await asyncio.wait_for(opener(session), 60)).close()
        async with opener(session) as opened:
            assert "closed" not in repr(opened)
        [gathered] = await asyncio.gather(opener(session))
        await gathered.close()


async def test_a_task_opens_a_connection_and_a_context(aio_factory: jms.ConnectionFactory) -> None:
    async with asyncio.TaskGroup() as tasks:
        connection = tasks.create_task(aio_factory.create_connection())
        context = tasks.create_task(aio_factory.create_context())
    await connection.result().close()
    await context.result().close()


async def test_a_task_that_is_cancelled_opens_nothing(aio_connection: jms.Connection) -> None:
    async with aio_connection.create_session() as session:
        opening = asyncio.create_task(session.create_consumer(Queue("orders")))
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening


async def test_a_coroutine_that_is_not_awaited_warns(aio_connection: jms.Connection) -> None:
    async with aio_connection.create_session() as session:
        opening = session.create_consumer(Queue("orders"))
        assert inspect.isawaitable(opening)
        assert asyncio.iscoroutine(opening)
        with pytest.warns(RuntimeWarning, match="never awaited"):
            del opening
