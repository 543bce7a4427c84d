"""Handlers that send by `jmsql.send`, in a drained transaction."""

from __future__ import annotations

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection

import jmsql
import jmsql.asyncio as jms
from jmsql.testing import sent
from jmsql.worker import Application


@pytest.fixture
def driver_url(jmsql_clean_url: str) -> str:
    return jmsql_clean_url.replace("postgresql+psycopg:", "postgresql:", 1)


def test_each_target_that_a_function_is_given(driver_url: str) -> None:
    app = Application()

    @app.listener("orders")
    def ship(body: str, database: sqlalchemy.Connection, context: jmsql.JMSContext, session: jmsql.Session) -> None:
        for target in (database, context, session):
            jmsql.send(target, "shipments", body)

    with psycopg.connect(driver_url) as transaction:
        jmsql.send(transaction, "orders", "a lantern")
        app.drain(transaction=transaction)
        assert [message.get_body(str) for message in sent(transaction, "queue://shipments")] == ["a lantern"] * 3
        transaction.rollback()
        assert sent(transaction, "shipments") == []


async def test_each_target_that_a_coroutine_function_is_given(driver_url: str) -> None:
    app = Application()

    @app.listener("orders")
    async def ship(body: str, database: AsyncConnection, context: jms.JMSContext, session: jms.Session) -> None:
        for target in (database, context, session):
            await jms.send(target, "shipments", body)

    async with await psycopg.AsyncConnection.connect(driver_url) as transaction:
        await jms.send(transaction, "orders", "a lantern")
        await app.drain(transaction=transaction)
        assert [message.get_body(str) for message in await sent(transaction, "shipments")] == ["a lantern"] * 3
        await transaction.rollback()
