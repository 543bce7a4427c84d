"""The send of one call in the transactions of applications of every kind."""

from __future__ import annotations

import inspect
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

import jmsql
import jmsql.asyncio as jms
from jmsql.testing import receive_all
from jmsql.worker import Application
from tests.integration.enlistment.callers import ASYNCHRONOUS, KINDS, Kind, resolved


@dataclass
class Order:
    number: int


app = Application()


@app.listener("orders")
def ship(order: Order) -> None: ...


@app.listener("lists")
async def handle_several(orders: list[Order] | None) -> None: ...


@pytest.mark.parametrize("name", KINDS)
async def test_it_is_part_of_the_callers_transaction(name: str, psycopg_url: str, engine: object) -> None:
    assert engine is not None  # it makes the application's table
    kind: Kind = KINDS[name]
    send = jms.send if name in ASYNCHRONOUS else jmsql.send
    async with kind(f"{psycopg_url}{'&' if '?' in psycopg_url else '?'}application_name=the-application") as caller:
        await caller.begin()
        await resolved(send(caller.transaction, "orders", "taken back"))
        await caller.rollback()
        await caller.begin()
        identifier = await resolved(send(caller.transaction, "orders", {"number": 1}, priority=7))
        with psycopg.connect(psycopg_url, autocommit=True) as database:
            consumer = jmsql.enlist(database).create_consumer("orders")
            assert receive_all(consumer) == []
            await caller.commit()
            (message,) = receive_all(consumer)
    assert (message.jms_message_id, message.jms_priority, message.get_body(dict)) == (identifier, 7, {"number": 1})


async def test_an_object_of_the_other_api_is_refused(jmsql_factory: jmsql.ConnectionFactory) -> None:
    with (
        jmsql_factory.create_context() as context,
        pytest.raises(TypeError, match=r"not jmsql\.JMSContext\. .* use jmsql itself"),
    ):
        await jms.send(context, "orders", "text")


@pytest.mark.parametrize("name", KINDS)
async def test_a_listener_sends_in_the_callers_transaction(name: str, psycopg_url: str, engine: object) -> None:
    assert engine is not None  # it makes the application's table
    kind: Kind = KINDS[name]
    async with kind(f"{psycopg_url}{'&' if '?' in psycopg_url else '?'}application_name=the-application") as caller:
        target: Any = caller.transaction
        await caller.begin()
        await resolved(ship.send(target, Order(5)))
        await caller.rollback()
        await caller.begin()
        identifier = await resolved(ship.send(target, Order(1), priority=7))
        with pytest.raises(jmsql.MessageFormatException, match="The body is not Order: number"):
            await resolved(ship.send(target, {"number": "five"}))  # type: ignore[call-overload]
        await caller.commit()
    with psycopg.connect(psycopg_url, autocommit=True) as database:
        (message,) = receive_all(jmsql.enlist(database).create_consumer("orders"))
    assert (message.jms_message_id, message.jms_priority, message.jms_type) == (identifier, 7, "Order")
    assert message.get_body(str) == '{"number":1}'


async def test_a_listener_sends_over_sessions_contexts_and_connections(jmsql_url: str) -> None:
    with ExitStack() as exits:
        async with AsyncExitStack() as awaited_exits:
            connection = exits.enter_context(jmsql.ConnectionFactory(jmsql_url).create_connection())
            context = exits.enter_context(jmsql.ConnectionFactory(jmsql_url).create_context())
            awaited = await awaited_exits.enter_async_context(jms.ConnectionFactory(jmsql_url).create_connection())
            awaited_context = await awaited_exits.enter_async_context(jms.ConnectionFactory(jmsql_url).create_context())
            session = exits.enter_context(connection.create_session())
            awaited_session = await awaited_exits.enter_async_context(awaited.create_session())
            targets: list[Any] = [connection, session, context, awaited, awaited_session, awaited_context]
            for target in targets:
                sent = handle_several.send(target, [Order(1)])
                assert inspect.isawaitable(sent) is (target in targets[3:])
                await resolved(sent)
            messages = receive_all(context.create_consumer("lists"))
    assert [message.get_body(str) for message in messages] == ['[{"number":1}]'] * len(targets)
