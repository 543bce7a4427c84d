"""What is particular to connections of asyncpg: pools, codecs, time limits, and how they fail."""

from __future__ import annotations

import gc
import json
from collections.abc import AsyncIterator

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from jmsql import IllegalStateException, JMSException, JMSSecurityException, Queue, ResourceAllocationException
from jmsql.asyncio import ConnectionFactory, enlist
from tests.integration.client.locked_tables import lock
from tests.slowness import scaled

ORDERS = Queue("orders")


@pytest.fixture
async def connection(jmsql_clean_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(jmsql_clean_url)
    yield connection
    await connection.close()


async def received(connection: asyncpg.Connection) -> object:
    async with enlist(connection).create_consumer(ORDERS) as consumer:
        return await consumer.receive_body(dict, timeout=0)


async def test_connection_of_a_pool_is_joined(jmsql_clean_url: str) -> None:
    async with asyncpg.create_pool(jmsql_clean_url, min_size=1, max_size=1) as pool:
        async with pool.acquire() as connection, connection.transaction():
            context = enlist(connection)
            await context.create_producer().send(ORDERS, {"number": 1})
        async with pool.acquire() as connection:
            assert await received(connection) == {"number": 1}
        with pytest.raises(JMSException, match="released"):
            await context.create_producer().send(ORDERS, {"number": 2})


async def test_a_request_passes_over_a_connection_that_was_returned_to_its_pool(
    jmsql_clean_url: str, jmsql_asyncio_factory: ConnectionFactory
) -> None:
    async with (
        asyncpg.create_pool(jmsql_clean_url, min_size=1, max_size=1) as pool,
        await jmsql_asyncio_factory.create_connection() as requesting,
    ):
        await requesting.start()
        async with pool.acquire() as connection, connection.transaction():
            await enlist(connection).create_producer().send(ORDERS, {"number": 1})
            with pytest.raises(IllegalStateException, match="enlisted PoolConnectionProxy"):
                await requesting.requestor("prices").request("a", timeout=0.1)
        with pytest.raises(TimeoutError):
            await requesting.requestor("prices").request("a", timeout=0.1)


async def test_connections_that_were_returned_to_their_pool_are_forgotten(jmsql_clean_url: str) -> None:
    def known() -> int:
        gc.collect()
        return sum(type(each).__name__ == "PoolConnectionProxy" for each in gc.get_objects())

    async with asyncpg.create_pool(jmsql_clean_url, min_size=1, max_size=1) as pool:
        before = known()
        for _ in range(10):
            async with pool.acquire() as connection:
                enlist(connection)
        assert known() <= before + 1


async def test_codecs_of_the_caller_change_nothing(connection: asyncpg.Connection) -> None:
    for name in ("json", "jsonb"):
        await connection.set_type_codec(name, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    await connection.set_type_codec("uuid", encoder=str, decoder=int, schema="pg_catalog", format="text")
    await enlist(connection).create_producer(properties={"price": 5}, time_to_live=60).send(ORDERS, {"number": 1})
    assert await received(connection) == {"number": 1}


async def test_a_connection_without_a_cache_of_statements_is_joined(jmsql_clean_url: str) -> None:
    connection = await asyncpg.connect(jmsql_clean_url, statement_cache_size=0)
    for number in (1, 2):
        await enlist(connection).create_producer().send(ORDERS, {"number": number})
    assert await received(connection) == {"number": 1}
    await connection.close()


async def test_time_limit_of_the_connection_is_a_jms_exception(
    jmsql_clean_url: str, blocker: psycopg.Connection
) -> None:
    connection = await asyncpg.connect(jmsql_clean_url, command_timeout=scaled(0.3))
    lock(blocker, "message")
    with pytest.raises(JMSException, match="time limit") as failure:
        await enlist(connection).create_producer().send(ORDERS, "late")
    assert isinstance(failure.value.linked_exception, TimeoutError)
    blocker.rollback()
    await enlist(connection).create_producer().send(ORDERS, "in time")
    await connection.close()


async def test_closed_connection_is_a_jms_exception(connection: asyncpg.Connection) -> None:
    await connection.close()
    with pytest.raises(JMSException, match="closed") as failure:
        await enlist(connection).create_producer().send(ORDERS, "late")
    assert isinstance(failure.value.linked_exception, asyncpg.InterfaceError)


class TestConnectingBySQLAlchemy:
    async def test_server_that_is_not_there(self) -> None:
        engine = create_async_engine("postgresql+asyncpg://nobody@127.0.0.1:1/nowhere")
        async with AsyncSession(engine) as session:
            with pytest.raises(ResourceAllocationException, match="cannot be reached"):
                await enlist(session).create_producer().send(ORDERS, "text")
        await engine.dispose()

    async def test_role_that_is_not_there(self, jmsql_clean_url: str) -> None:
        url = sqlalchemy.make_url(jmsql_clean_url).set(drivername="postgresql+asyncpg", username="nobody_at_all")
        engine = create_async_engine(url)
        async with AsyncSession(engine) as session:
            with pytest.raises(JMSSecurityException):
                await enlist(session).create_producer().send(ORDERS, "text")
        await engine.dispose()


async def test_codec_that_returns_integers_as_text_is_refused(connection: asyncpg.Connection) -> None:
    await enlist(connection).create_producer().send(ORDERS, {"number": 1})
    await connection.set_type_codec("int8", encoder=str, decoder=str, schema="pg_catalog", format="text")
    with pytest.raises(IllegalStateException, match=r"int8 as str.*reset_type_codec\('int8', schema='pg_catalog'\)"):
        await received(connection)
