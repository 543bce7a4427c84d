"""Many messages to a handler: a hundred in each exchange with PostgreSQL, and none if one of them is refused."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pydantic
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

import jmsql
import jmsql.asyncio as jms
from jmsql.testing import receive_all
from jmsql.worker import Application
from tests.faults.proxy import CuttingProxy

MANY = 250
SYNC = b"S\0\0\0\4"
"""The message of PostgreSQL's protocol that ends an exchange."""


class Order(pydantic.BaseModel):
    number: int


app = Application()


@app.listener("orders")
def ship(order: Order) -> None: ...


@app.listener(jmsql.Topic("news"), subscription="desk")
async def note(number: int) -> None: ...


class Carrying:
    """The exchanges that carry bodies, among those of the control connection."""

    def __init__(self) -> None:
        self.exchanges = 0
        self._carries = False

    def note(self, data: bytes) -> None:
        self._carries |= b'{"number"' in data or b'number\\"' in data
        if self._carries and data.endswith(SYNC):
            self.exchanges += 1
            self._carries = False


Commit = Callable[[], Any]


@asynccontextmanager
async def over_connection(url: str) -> AsyncIterator[tuple[Any, Commit]]:
    with jmsql.ConnectionFactory(url).create_connection() as connection:
        yield connection, lambda: None


@asynccontextmanager
async def in_session(url: str) -> AsyncIterator[tuple[Any, Commit]]:
    with jmsql.ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        yield session, lambda: None


@asynccontextmanager
async def in_transacted_context(url: str) -> AsyncIterator[tuple[Any, Commit]]:
    factory = jms.ConnectionFactory(url)
    async with factory.create_context(jmsql.AcknowledgeMode.TRANSACTED) as context:
        yield context, context.commit


@asynccontextmanager
async def in_transaction(url: str) -> AsyncIterator[tuple[Any, Commit]]:
    engine = sqlalchemy.create_engine(sqlalchemy.make_url(url).set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        yield connection, connection.commit
    engine.dispose()


@asynccontextmanager
async def in_awaited_transaction(url: str) -> AsyncIterator[tuple[Any, Commit]]:
    engine = create_async_engine(sqlalchemy.make_url(url).set(drivername="postgresql+psycopg"))
    async with engine.connect() as connection:
        yield connection, connection.commit
    await engine.dispose()


TARGETS = [over_connection, in_session, in_transacted_context, in_transaction, in_awaited_transaction]


async def resolved(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


@pytest.mark.parametrize("opened", TARGETS)
async def test_a_hundred_messages_are_one_exchange(opened: Any, jmsql_clean_url: str) -> None:
    carrying = Carrying()
    with CuttingProxy(jmsql_clean_url, on_request=carrying.note) as proxy:
        async with opened(proxy.url) as (target, commit):
            identifiers = await resolved(ship.send_many(target, (Order(number=number) for number in range(MANY))))
            await resolved(commit())
    with jmsql.ConnectionFactory(jmsql_clean_url).create_context() as context:
        messages = receive_all(context.create_consumer("orders"))
    assert [json.loads(each.get_body(str) or "") for each in messages] == [{"number": n} for n in range(MANY)]
    assert [message.jms_message_id for message in messages] == identifiers
    assert carrying.exchanges <= 3 + 1  # the first one may have found no queue


@pytest.mark.parametrize("opened", TARGETS)
async def test_none_is_sent_if_one_is_refused(opened: Any, jmsql_clean_url: str) -> None:
    orders: list[Any] = [Order(number=1)] * 150 + [{"number": "x"}]
    async with opened(jmsql_clean_url) as (target, commit):
        with pytest.raises(jmsql.MessageFormatException, match="The body is not Order: number"):
            await resolved(ship.send_many(target, orders))
        assert await resolved(ship.send_many(target, [])) == []
        await resolved(commit())
    with jmsql.ConnectionFactory(jmsql_clean_url).create_context() as context:
        assert receive_all(context.create_consumer("orders")) == []


def test_they_are_published_and_keep_their_options(jmsql_clean_url: str) -> None:
    with (
        psycopg.connect(jmsql_clean_url, autocommit=True) as database,
        jmsql.ConnectionFactory(jmsql_clean_url).create_context() as context,
        context.create_shared_consumer("news", "desk") as consumer,
    ):
        note.send_many(database, range(120), priority=7, group="a")
        messages = receive_all(consumer)
    assert [message.get_body(int) for message in messages] == list(range(120))
    assert {(message.jms_priority, message.get_string_property("JMSXGroupID")) for message in messages} == {(7, "a")}
