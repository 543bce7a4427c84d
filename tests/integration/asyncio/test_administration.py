"""Administration and history, awaited: what they say is what those for threads say of the same store."""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg import sql
from sqlalchemy.ext.asyncio import create_async_engine

import jmsql
import jmsql.admin
import jmsql.asyncio as jms
import jmsql.asyncio.admin
import jmsql.domains
from jmsql import JMSException, Queue, Topic
from jmsql.asyncio.admin import Administration
from jmsql.asyncio.domains import QueueConnectionFactory
from jmsql.testing import wait_for
from tests.integration.asyncio.cancelling import cancelled_at
from tests.integration.asyncio.texts import text_of
from tests.integration.client.server import SESSIONS, Server, with_parameters

pytestmark = pytest.mark.usefixtures("nothing_left")

ORDERS = Queue("orders")
PRICES = Topic("prices")
MOST_WAITS = 60
"""More than an operation waits."""


@pytest.fixture
async def administration(aio_factory: jms.ConnectionFactory) -> AsyncIterator[Administration]:
    async with Administration(aio_factory) as administration:
        yield administration


@pytest.fixture
async def threaded(jmsql_factory: jmsql.ConnectionFactory) -> AsyncIterator[jmsql.admin.Administration]:
    with jmsql.admin.Administration(jmsql_factory) as administration:
        yield administration


@pytest.fixture
def role(jmsql_clean_url: str) -> Iterator[str]:
    """A role without any rights."""
    name = f"jmsql_test_{secrets.token_hex(4)}"
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        connection.execute(sql.SQL("create role {}").format(sql.Identifier(name)))
        yield name
        connection.execute(sql.SQL("drop owned by {}").format(sql.Identifier(name)))
        connection.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


async def send(factory: jms.ConnectionFactory, destination: jmsql.Destination, *texts: str) -> None:
    async with factory.create_context() as context:
        for text in texts:
            await context.create_producer().set_property("text", text).send(destination, text)


async def receive(factory: jms.ConnectionFactory, queue: Queue, number: int) -> None:
    async with factory.create_context() as context, context.create_consumer(queue) as consumer:
        for _ in range(number):
            assert await consumer.receive(60) is not None


def public_methods(kind: type) -> dict[str, list[inspect.Parameter]]:
    return {
        name: [parameter.replace(annotation=None) for parameter in inspect.signature(method).parameters.values()]
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


@pytest.mark.parametrize("name", ["Administration", "History"])
async def test_they_have_the_same_methods(name: str) -> None:
    awaited, threaded = getattr(jmsql.asyncio.admin, name), getattr(jmsql.admin, name)
    assert public_methods(awaited) == public_methods(threaded)
    for method in public_methods(awaited):
        assert inspect.iscoroutinefunction(getattr(awaited, method)) == (
            "Iterator" not in getattr(threaded, method).__annotations__["return"]
        )


async def test_destinations(administration: Administration, threaded: jmsql.admin.Administration) -> None:
    assert await administration.create(ORDERS, maximum_deliveries=7)
    assert not await administration.create("orders", history=True)
    assert await administration.create_queue("other") == Queue("other")
    assert await administration.create_topic("prices") == PRICES
    await administration.alter(ORDERS, expiry_queue="other")
    await administration.reset(ORDERS, "maximum_deliveries")
    await administration.pause(ORDERS)
    assert await administration.destination(ORDERS) == threaded.destination(ORDERS)
    assert (await administration.destination(ORDERS)).settings["paused"]
    await administration.resume(ORDERS)
    assert await administration.destinations() == threaded.destinations()
    assert len(await administration.destinations()) == 3
    assert await administration.automatic_creation()
    await administration.set_automatic_creation(enabled=False)
    assert not threaded.automatic_creation()
    await administration.set_automatic_creation(enabled=True)
    await administration.delete("topic://prices")
    assert {each.destination for each in await administration.destinations()} == {"orders", "other"}
    with pytest.raises(jms.InvalidDestinationException, match="prices"):
        await administration.delete(PRICES, force=True)


async def test_messages(
    administration: Administration, threaded: jmsql.admin.Administration, aio_factory: jms.ConnectionFactory
) -> None:
    await send(aio_factory, ORDERS, *(f"order {number}" for number in range(205)))
    await administration.create_queue("other")
    assert await administration.count(ORDERS, "text <> 'order 0'") == 204
    browsed = [text_of(message) async for message, _ in administration.browse(ORDERS, limit=202)]
    assert browsed == [text_of(message) for message, _ in threaded.browse(ORDERS, limit=202)]
    assert browsed == [f"order {number}" for number in range(202)]
    first, delivery = await anext(administration.browse(ORDERS))
    [found] = await administration.message(first.jms_message_id or "")
    assert (text_of(found.message), found.delivery) == ("order 0", delivery)
    assert await administration.queues() == threaded.queues()
    assert await administration.clients() == threaded.clients() == []
    assert await administration.move(ORDERS, "other", "text = 'order 1'") == 1
    assert await administration.purge(ORDERS) == 204
    assert await administration.count("other") == threaded.count("other") == 1
    for doing in (administration.purge("absent"), administration.move("absent", "other")):
        with pytest.raises(jms.InvalidDestinationException, match="absent"):
            await doing
    with pytest.raises(jms.InvalidDestinationException, match="absent"):
        await anext(administration.browse("absent"))
    with pytest.raises(jms.InvalidSelectorException):
        administration.browse(ORDERS, "text =")


async def test_subscriptions(
    administration: Administration, threaded: jmsql.admin.Administration, aio_factory: jms.ConnectionFactory
) -> None:
    assert await administration.subscribe("prices", "archive", shared=True)
    assert not await administration.subscribe(PRICES, "archive", shared=True)
    await send(aio_factory, PRICES, "1", "2")
    browsed = [text_of(message) async for message, _ in administration.browse_subscription("archive")]
    assert browsed == [text_of(message) for message, _ in threaded.browse_subscription("archive")] == ["1", "2"]
    assert await administration.subscriptions() == threaded.subscriptions()
    assert await administration.subscription("archive") == threaded.subscription("archive")
    await administration.unsubscribe("archive")
    assert await administration.subscription("archive") is None


async def test_dead_letters(
    administration: Administration, threaded: jmsql.admin.Administration, aio_factory: jms.ConnectionFactory
) -> None:
    await administration.create_queue("orders", maximum_deliveries=1)
    await send(aio_factory, ORDERS, "a", "b")
    mode = jms.AcknowledgeMode.TRANSACTED
    async with aio_factory.create_context(session_mode=mode) as context, context.create_consumer(ORDERS) as consumer:
        for _ in range(2):
            assert await consumer.receive(60) is not None
            await context.rollback()
    dead = await administration.dead_letters()
    assert dead == threaded.dead_letters()
    assert {letter.body for letter in dead} == {"a", "b"}
    retried = await administration.retry(limit=1)
    assert (retried.returned, len(threaded.dead_letters())) == ({"queue://orders": 1}, 1)


@pytest.mark.usefixtures("row_security_is_off_again")
async def test_access(administration: Administration, threaded: jmsql.admin.Administration, role: str) -> None:
    await administration.create_queue("orders")
    await administration.create_roles()
    assert threaded.create_roles() == []
    await administration.grant(ORDERS, role, send=True, browse=True)
    assert await administration.grants() == threaded.grants()
    assert await administration.grants(ORDERS) == threaded.grants(ORDERS)
    assert role in {each.role for each in await administration.grants(ORDERS)}
    await administration.revoke(ORDERS, role, send=True, browse=True)
    assert role not in {each.role for each in await administration.grants(ORDERS)}


async def test_administered_objects(
    administration: Administration, threaded: jmsql.admin.Administration, aio_factory: jms.ConnectionFactory
) -> None:
    """What is bound for one of the APIs is found by the other, as its own."""
    assert aio_factory.url is not None
    awaited = QueueConnectionFactory(aio_factory.url, client_id="web", timings=aio_factory.timings)
    await administration.bind("jms/factory", awaited)
    await administration.bind("jms/orders", ORDERS)
    found = await administration.bindings()
    assert found.keys() == threaded.bindings().keys() == {"jms/factory", "jms/orders"}
    assert type(threaded.bindings()["jms/factory"]) is jmsql.domains.QueueConnectionFactory
    factory = await jms.lookup("jms/factory", aio_factory)
    assert type(factory) is QueueConnectionFactory
    assert (factory.client_id, factory.timings, found["jms/orders"]) == ("web", aio_factory.timings, ORDERS)
    assert await jms.lookup("jms/orders", aio_factory.url) == ORDERS
    await administration.unbind("jms/orders")
    with pytest.raises(JMSException, match="Nothing is bound to 'jms/orders'"):
        await jms.lookup("jms/orders", aio_factory)


async def test_history(
    administration: Administration,
    threaded: jmsql.admin.Administration,
    aio_factory: jms.ConnectionFactory,
    server: Server,
) -> None:
    since = datetime.now(UTC) - timedelta(minutes=5)
    await administration.create_queue("orders", history=True)
    await send(aio_factory, ORDERS, *(f"order {number}" for number in range(105)))
    await receive(aio_factory, ORDERS, 102)
    history = administration.history
    past = [each async for each in history.messages(ORDERS, since=since)]
    assert [each.entry for each in past] == [each.entry for each in threaded.history.messages(ORDERS, since=since)]
    assert [text_of(each.message) for each in past] == [f"order {number}" for number in range(101, 1, -1)]
    [entry] = await history.message(past[0].message.jms_message_id or "")
    assert entry.entry == past[0].entry
    assert await history.count(ORDERS) == threaded.history.count(ORDERS) == 102
    progress: list[tuple[int, int]] = []
    replayed = await history.replay(
        ORDERS, ORDERS, since=since, selector="text = 'order 7'", progress=lambda sent, of: progress.append((sent, of))
    )
    assert (replayed, progress, await administration.count(ORDERS)) == (1, [(1, 1)], 4)
    assert await history.today() == threaded.history.today()
    days = await history.days()
    assert days == threaded.history.days()
    assert await history.readers(days[0], [ORDERS]) == []
    assert [step async for step in history.prune()] == []
    tomorrow = await history.today() + timedelta(days=1)
    assert [step.messages async for step in history.prune(before=tomorrow, destination=ORDERS)] == [102]
    with pytest.raises(jms.IllegalStateException, match="may still grow"):
        # Other tests may have left an earlier day, which goes first.
        [step async for step in history.prune(before=tomorrow)]
    with pytest.raises(ValueError, match="is not an outcome"):
        history.messages(outcomes=["lost"])


async def test_an_engine_is_used(jmsql_clean_url: str, server: Server) -> None:
    engine = create_async_engine(
        with_parameters(jmsql_clean_url, application_name=SESSIONS).replace("postgresql://", "postgresql+psycopg://")
    )
    try:
        async with Administration(engine) as administration:
            await administration.create_queue("orders")
            assert [summary.queue for summary in await administration.queues()] == ["orders"]
            await administration.bind("jms/orders", ORDERS)
        assert await jms.lookup("jms/orders", engine) == ORDERS
    finally:
        await engine.dispose()


async def test_an_engine_of_the_other_world_is_refused(jmsql_clean_url: str) -> None:
    url = jmsql_clean_url.replace("postgresql://", "postgresql+psycopg://")
    blocking: Any = sqlalchemy.create_engine(url)
    awaited: Any = create_async_engine(url)
    with pytest.raises(jms.JMSException, match=r"an AsyncEngine of SQLAlchemy, .* got Engine"):
        await Administration(blocking).queues()
    with pytest.raises(jms.JMSException, match=r"an Engine of SQLAlchemy, .* got AsyncEngine"):
        jmsql.admin.Administration(awaited).queues()


async def test_it_is_closed_for_good(aio_factory: jms.ConnectionFactory) -> None:
    administration = Administration(aio_factory)
    assert await administration.queues() == []
    await administration.close()
    with pytest.raises(jms.IllegalStateException, match="closed"):
        await administration.queues()


async def test_a_schema_is_made(jmsql_clean_url: str, server: Server) -> None:
    try:
        assert await jms.migrate(jmsql_clean_url, "jmsql_awaited") is None
        async with Administration(jmsql_clean_url, schema="jmsql_awaited") as administration:
            assert [summary.queue for summary in await administration.queues()] == ["DLQ"]
        assert await jms.migrate(jmsql_clean_url, "jmsql_awaited") is not None
    finally:
        server.rows("drop schema if exists jmsql_awaited, jmsql_awaited_internal cascade")


async def test_a_cancelled_step_leaves_no_transaction_open(aio_factory: jms.ConnectionFactory, server: Server) -> None:
    """The administration goes on with the connection, or with another."""
    open_ones = "select from pg_stat_activity where datname = current_database() and state like 'idle in transaction%%'"
    async with Administration(aio_factory) as administration:
        for number in range(1, MOST_WAITS):
            outcome = await cancelled_at(number, administration.subscribe(PRICES, f"archive {number}", shared=True))
            names = {each.subscription for each in await administration.subscriptions()}
            assert outcome.was_cancelled == (f"archive {number}" not in names)
            # The server may not have ended the connection that another has replaced.
            await asyncio.to_thread(wait_for, lambda: not server.rows(open_ones))
            await asyncio.to_thread(wait_for, lambda: server.connections(SESSIONS) == 1)
            if outcome.waited < number:
                break
    assert 1 < number < MOST_WAITS - 1


async def test_a_statement_that_waits_is_interrupted(
    administration: Administration, blocker: psycopg.Connection, server: Server
) -> None:
    await administration.create_queue("orders")
    blocker.execute("lock table jmsql_internal.queue in access exclusive mode")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await administration.pause(ORDERS)
    waiting = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    await asyncio.to_thread(wait_for, lambda: not server.rows(waiting))
    blocker.rollback()
    assert not (await administration.destination(ORDERS)).settings.get("paused")
    await administration.pause(ORDERS)


async def test_connecting_is_given_up_at_once(aio_factory: jms.ConnectionFactory) -> None:
    for number in range(1, MOST_WAITS):
        administration = Administration(aio_factory)
        outcome = await cancelled_at(number, administration.connect())
        await administration.close()
        if outcome.waited < number:
            break
    assert 1 < number < MOST_WAITS - 1
