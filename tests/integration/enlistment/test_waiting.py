"""A receive that waits in the caller's transaction: a connection of jmsql's in the same process wakes it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

import jmsql
import jmsql.asyncio as jms
from jmsql import Queue, Timings
from jmsql.store.control.listening import is_listening

ORDERS = Queue("orders that come later")
NUMBERS = range(5)
NO_POLLS = Timings(minimum_poll_interval=600.0, maximum_poll_interval=600.0)
PATIENCE = 60.0


def test_threads_that_wait_are_woken(
    psycopg_connection: psycopg.Connection, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    received: list[object] = []
    has_received = threading.Semaphore(0)

    def receive() -> None:
        with jmsql.enlist(psycopg_connection, timings=NO_POLLS).create_consumer(ORDERS) as consumer:
            for _ in NUMBERS:
                received.append(consumer.receive_body(int, timeout=PATIENCE))
                psycopg_connection.commit()
                has_received.release()

    with jmsql_factory.create_context() as context:
        context.create_producer().send(ORDERS, NUMBERS[0])
        receiving = threading.Thread(target=receive)
        receiving.start()
        assert has_received.acquire(timeout=PATIENCE)
        for number in NUMBERS[1:]:
            context.create_producer().send(ORDERS, number)
            assert has_received.acquire(timeout=PATIENCE)
        receiving.join()
    assert received == list(NUMBERS)


@asynccontextmanager
async def session(engine: AsyncEngine) -> AsyncIterator[tuple[Any, Any]]:
    async with AsyncSession(engine) as session:
        yield session, session.commit


@asynccontextmanager
async def connection_of_asyncpg(engine: AsyncEngine) -> AsyncIterator[tuple[Any, Any]]:
    connection = await asyncpg.connect(engine.url.set(drivername="postgresql").render_as_string(hide_password=False))

    async def nothing() -> None:
        """Each statement commits by itself."""

    yield connection, nothing
    await connection.close()


@pytest.mark.parametrize("caller", [session, connection_of_asyncpg])
async def test_tasks_that_wait_are_woken(async_engine: AsyncEngine, jmsql_clean_url: str, caller: Any) -> None:
    received: asyncio.Queue[object] = asyncio.Queue()

    async def receive() -> None:
        async with (
            caller(async_engine) as (transaction, commit),
            jms.enlist(transaction, timings=NO_POLLS).create_consumer(ORDERS) as consumer,
        ):
            for _ in NUMBERS:
                body = await consumer.receive_body(int)
                await commit()
                await received.put(body)

    async with jms.ConnectionFactory(jmsql_clean_url).create_context() as context, asyncio.timeout(PATIENCE):
        await context.create_producer().send(ORDERS, NUMBERS[0])
        receiving = asyncio.create_task(receive())
        assert await received.get() == NUMBERS[0]
        for number in NUMBERS[1:]:
            await context.create_producer().send(ORDERS, number)
            assert await received.get() == number
        await receiving


def test_closed_connections_wake_no_consumer(jmsql_factory: jmsql.ConnectionFactory, jmsql_schema: str) -> None:
    with jmsql_factory.create_connection():
        assert is_listening(jmsql_schema)
    assert not is_listening(jmsql_schema)
