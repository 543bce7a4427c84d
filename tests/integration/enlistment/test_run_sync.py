"""Code that does not await, inside `run_sync` of SQLAlchemy's asynchronous sessions and connections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

import jmsql
from jmsql.testing import FAST_TIMINGS
from tests.integration.enlistment.callers import ORDERS, Order

PATIENCE = 60.0


@pytest.fixture(params=["psycopg", "asyncpg"])
async def engine_of_tasks(
    request: pytest.FixtureRequest, engine: sqlalchemy.Engine, jmsql_clean_url: str
) -> AsyncIterator[AsyncEngine]:
    assert engine is not None  # it makes the backend's tables
    made = create_async_engine(sqlalchemy.make_url(jmsql_clean_url).set(drivername=f"postgresql+{request.param}"))
    yield made
    await made.dispose()


@pytest.mark.parametrize("commits", [True, False])
async def test_a_session_sends_and_receives(
    engine_of_tasks: AsyncEngine, jmsql_factory: jmsql.ConnectionFactory, commits: bool
) -> None:
    def place(session: orm.Session) -> None:
        session.add(Order(1))
        session.flush()
        jmsql.enlist(session).create_producer(time_to_live=60).send(ORDERS, {"number": 1})
        jmsql.enlist(session).create_producer().send(jmsql.Topic("prices"), "17.5")
        with session.begin_nested() as nested:
            jmsql.enlist(session).create_producer().send(ORDERS, {"number": 2})
            nested.rollback()

    def take(session: orm.Session) -> list[object]:
        with jmsql.enlist(session) as context:
            assert [message.get_body(dict) for message in context.create_browser(ORDERS)] == [{"number": 1}] * commits
            message = context.create_consumer(ORDERS).receive(timeout=0)
            return [
                None if message is None else message.get_body(dict),
                *session.scalars(sqlalchemy.select(Order.number)),
            ]

    async with AsyncSession(engine_of_tasks) as database:
        await database.run_sync(place)
        await (database.commit() if commits else database.rollback())
        assert await database.run_sync(take) == ([{"number": 1}, 1] if commits else [None])
        await database.commit()
        assert await database.run_sync(lambda session: jmsql.enlist(session).create_consumer(ORDERS).receive(0)) is None
    with jmsql_factory.create_context() as context:
        assert list(context.create_browser(ORDERS)) == []


async def test_a_connection_sends(engine_of_tasks: AsyncEngine, jmsql_factory: jmsql.ConnectionFactory) -> None:
    async with engine_of_tasks.begin() as connection:
        await connection.run_sync(lambda joined: jmsql.enlist(joined).create_producer().send(ORDERS, "an order"))
    with jmsql_factory.create_context() as context:
        message = context.create_consumer(ORDERS).receive(timeout=0)
        assert message is not None
        assert message.get_body(str) == "an order"


@pytest.mark.parametrize("begun", [False, True])
async def test_a_receive_that_waits_lets_other_tasks_run(
    engine_of_tasks: AsyncEngine, jmsql_factory: jmsql.ConnectionFactory, begun: bool
) -> None:
    def receive(session: orm.Session) -> str | None:
        if begun:
            session.execute(sqlalchemy.select(1))
        consumer = jmsql.enlist(session, timings=FAST_TIMINGS).create_consumer(ORDERS)
        message = consumer.receive(PATIENCE)
        return None if message is None else message.get_body(str)

    with jmsql_factory.create_context() as context:
        context.create_producer().send(jmsql.Queue("another"), "")
        async with AsyncSession(engine_of_tasks) as database:
            receiving = asyncio.create_task(database.run_sync(receive))
            for _ in range(5):
                await asyncio.sleep(0.01)
            assert not receiving.done()
            context.create_producer().send(ORDERS, "an order")
            assert await receiving == "an order"
            await database.commit()


async def test_a_receive_that_is_cancelled_leaves_the_transaction_whole(
    engine_of_tasks: AsyncEngine, jmsql_clean_url: str
) -> None:
    async with AsyncSession(engine_of_tasks) as database:
        database.add(Order(1))
        await database.flush()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await database.run_sync(lambda session: jmsql.enlist(session).create_consumer(ORDERS).receive(PATIENCE))
        await database.run_sync(lambda session: jmsql.enlist(session).create_producer().send(ORDERS, "an order"))
        await database.commit()
    with psycopg.connect(jmsql_clean_url) as connection:
        found = connection.execute("select number, text_body from orders, jmsql_internal.message").fetchall()
    assert found == [(1, "an order")]


async def test_a_receive_with_a_time_limit_ends(engine_of_tasks: AsyncEngine) -> None:
    async with AsyncSession(engine_of_tasks) as database:
        before = time.monotonic()
        consumer = database.run_sync(lambda session: jmsql.enlist(session).create_consumer(ORDERS).receive(0.2))
        assert await consumer is None
        assert 0.2 <= time.monotonic() - before < PATIENCE
