"""Connections that nobody has closed, and nobody can close any more: they end, with a warning."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

import jmsql
import jmsql.asyncio as jms
from jmsql import AcknowledgeMode, Queue
from jmsql.testing import wait_for
from tests.integration.client.server import CONTROL, SESSIONS, Server, with_parameters

ORDERS = Queue("orders")
LONG = 1.5
"""Seconds; longer than the control connection takes to notice."""

# What the pool of SQLAlchemy and psycopg say of connections that the garbage collector finds.
pytestmark = pytest.mark.filterwarnings("ignore:.*garbage collector:sqlalchemy.exc.SAWarning", "ignore:.*was deleted")


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """What a test has dropped is collected before the next one begins, in which the warnings would be errors."""
    yield
    gc.collect()


def is_gone(server: Server) -> bool:
    """Whether neither connections nor threads are left."""
    gc.collect()
    is_served = any(thread.name.startswith("jmsql-control") for thread in threading.enumerate())
    return not is_served and not server.connections(SESSIONS) and not server.connections(CONTROL)


async def hold_a_message(factory: jms.ConnectionFactory) -> tuple[jms.Connection, jms.MessageConsumer]:
    """Make a connection and a consumer, which holds a message."""
    connection = await factory.create_connection()
    await connection.start()
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    producer = await session.create_producer(ORDERS)
    await producer.send(session.create_text_message("an order"))
    consumer = await session.create_consumer(ORDERS)
    assert await consumer.receive(60) is not None
    return connection, consumer


def receive_again(factory: jmsql.ConnectionFactory) -> str | None:
    with factory.create_context() as context:
        return context.create_consumer(ORDERS).receive_body(str, timeout=60)


def test_the_end_of_its_event_loop_ends_it(
    aio_factory: jms.ConnectionFactory, jmsql_factory: jmsql.ConnectionFactory, server: Server
) -> None:

    async def begin() -> object:
        connection, consumer = await hold_a_message(aio_factory)
        database = await connection.create_session(transacted=True).get_database()
        await database.exec_driver_sql("select 1")
        return consumer

    kept = asyncio.run(begin())
    with pytest.warns(ResourceWarning, match=r"<Connection .*> was not closed"):
        wait_for(lambda: is_gone(server), 60)
    assert kept
    assert receive_again(jmsql_factory) == "an order"


async def test_it_ends_once_it_and_its_children_are_unreferenced(
    aio_factory: jms.ConnectionFactory, jmsql_factory: jmsql.ConnectionFactory, server: Server
) -> None:
    consumer = (await hold_a_message(aio_factory))[1]
    gc.collect()
    await asyncio.sleep(LONG)
    assert server.connections(CONTROL), "a consumer is used"
    del consumer
    with pytest.warns(ResourceWarning, match=r"<Connection .*> was not closed"):
        await asyncio.to_thread(wait_for, lambda: is_gone(server), 60)
    assert await asyncio.to_thread(receive_again, jmsql_factory) == "an order"


async def test_it_ends_as_well_if_its_database_is_lent_in_an_open_transaction(
    aio_factory: jms.ConnectionFactory, server: Server
) -> None:
    async def lend() -> None:
        connection = await aio_factory.create_connection()
        session = connection.create_session(transacted=True)
        await (await session.get_database()).exec_driver_sql("select 1")

    await lend()
    with pytest.warns(ResourceWarning, match=r"<Connection .*> was not closed"):
        await asyncio.to_thread(wait_for, lambda: is_gone(server), 60)


async def test_the_application_that_has_its_database_has_it(
    aio_factory: jms.ConnectionFactory, jmsql_factory: jmsql.ConnectionFactory, server: Server
) -> None:
    async def send() -> AsyncConnection:
        connection = await aio_factory.create_connection()
        session = connection.create_session(transacted=True)
        database = await session.get_database()
        producer = await session.create_producer(ORDERS)
        await producer.send(session.create_text_message("an order"))
        return database

    database = await send()
    gc.collect()
    await asyncio.sleep(LONG)
    assert server.connections(CONTROL)
    await database.exec_driver_sql("select 1")  # what the session has not inserted yet goes before it
    await database.commit()
    assert await asyncio.to_thread(receive_again, jmsql_factory) == "an order"
    del database
    with pytest.warns(ResourceWarning, match=r"<Connection .*> was not closed"):
        await asyncio.to_thread(wait_for, lambda: is_gone(server), 60)


async def test_one_whose_listener_waits_for_messages_goes_on(
    aio_factory: jms.ConnectionFactory, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    heard = asyncio.Event()

    async def listen() -> weakref.ref[jms.Connection]:
        connection = await aio_factory.create_connection()
        consumer = await connection.create_session().create_consumer(ORDERS)
        await consumer.set_message_listener(lambda _: heard.set())
        await connection.start()
        return weakref.ref(connection)

    reference = await listen()
    gc.collect()
    await asyncio.sleep(LONG)
    with jmsql_factory.create_context() as context:
        context.create_producer().send(ORDERS, "an order")
    async with asyncio.timeout(60):
        await heard.wait()
    connection = reference()
    assert connection is not None
    await connection.close()


def test_one_of_threads_ends_as_well(jmsql_factory: jmsql.ConnectionFactory, server: Server) -> None:
    url = jmsql_factory.url
    assert url is not None
    factory = jmsql.ConnectionFactory(
        with_parameters(url, application_name=SESSIONS), control_url=with_parameters(url, application_name=CONTROL)
    )

    def hold() -> None:
        connection = factory.create_connection()
        connection.start()
        session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        session.create_producer(ORDERS).send(session.create_text_message("an order"))
        assert session.create_consumer(ORDERS).receive(60) is not None

    hold()
    with pytest.warns(ResourceWarning, match=r"<Connection .*> was not closed"):
        wait_for(lambda: is_gone(server), 60)
    assert receive_again(jmsql_factory) == "an order"
