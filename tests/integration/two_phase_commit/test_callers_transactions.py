"""Sends in an application's transaction that the application, or its transaction manager, prepares."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import jmsql
import jmsql.asyncio
from jmsql import Queue, Session
from jmsql.xa import XASession
from tests.texts import receive_texts

pytestmark = pytest.mark.usefixtures("xa_session")  # which says if the server prepares nothing

Send = Callable[[Any], object]

SENDS: dict[str, Callable[[Queue], Send]] = {
    "plainly": lambda queue: lambda caller: jmsql.send(caller, queue, "an order"),
    "later": lambda queue: lambda caller: jmsql.send(caller, queue, "an order", delivery_delay=0.1),
    "with a key": lambda queue: lambda caller: jmsql.send(caller, queue, "an order", coalesce="customer 5"),
}


@pytest.fixture
def engine(jmsql_clean_url: str) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(jmsql_clean_url.replace("postgresql://", "postgresql+psycopg://", 1))
    yield engine
    engine.dispose()


@pytest.fixture(params=SENDS)
def send(request: pytest.FixtureRequest, queue: Queue, others: Session) -> Send:
    """Send to a queue at which a consumer may wait."""
    others.create_producer(queue)
    return SENDS[request.param](queue)


def received(others: Session, queue: Queue) -> list[str]:
    return receive_texts(others.create_consumer(queue), 1)


def test_a_session_of_sqlalchemy_prepares_it(
    engine: sqlalchemy.Engine, send: Send, others: Session, queue: Queue
) -> None:
    with orm.Session(engine, twophase=True) as session:
        send(session)
        session.prepare()
        session.commit()
    assert received(others, queue) == ["an order"]


def test_a_connection_of_sqlalchemy_prepares_it(
    engine: sqlalchemy.Engine, send: Send, others: Session, queue: Queue
) -> None:
    with engine.connect() as connection:
        transaction = connection.begin_twophase()
        send(connection)
        transaction.prepare()
        transaction.commit()
    assert received(others, queue) == ["an order"]


def test_a_connection_of_psycopg_prepares_it(jmsql_clean_url: str, send: Send, others: Session, queue: Queue) -> None:
    with psycopg.connect(jmsql_clean_url) as connection:
        connection.tpc_begin(connection.xid(4711, str(uuid.uuid4()), "branch"))
        send(connection)
        connection.tpc_prepare()
        connection.tpc_commit()
    assert received(others, queue) == ["an order"]


def test_an_xa_session_prepares_what_was_sent_by_its_database(
    xa_session: XASession, send: Send, others: Session, queue: Queue
) -> None:
    xa_session.tpc_begin(xa_session.xid(4711, str(uuid.uuid4()), "branch"))
    send(xa_session.database)
    xa_session.tpc_prepare()
    xa_session.tpc_commit()
    assert received(others, queue) == ["an order"]


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_a_session_under_asyncio_prepares_it(
    jmsql_clean_url: str, others: Session, queue: Queue, driver: str
) -> None:
    others.create_producer(queue)
    engine = create_async_engine(jmsql_clean_url.replace("postgresql://", f"postgresql+{driver}://", 1))
    async with AsyncSession(engine, twophase=True) as session:
        await jmsql.asyncio.send(session, queue, "an order")
        await session.run_sync(lambda inner: inner.prepare())
        await session.commit()
    await engine.dispose()
    assert received(others, queue) == ["an order"]
