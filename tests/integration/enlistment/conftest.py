"""A backend's own table, beside jmsql's schema in the same database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import jmsql
from jmsql.testing import receive_all
from tests.integration.enlistment.callers import ORDERS, Order


@pytest.fixture
def sqlalchemy_url(jmsql_clean_url: str) -> str:
    return jmsql_clean_url.replace("postgresql://", "postgresql+psycopg://", 1)


@pytest.fixture
def psycopg_url(sqlalchemy_url: str) -> str:
    return sqlalchemy_url.replace("postgresql+psycopg://", "postgresql://", 1)


@pytest.fixture
def engine(sqlalchemy_url: str) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(sqlalchemy_url)
    Order.metadata.create_all(engine)
    yield engine
    Order.metadata.drop_all(engine)
    engine.dispose()


@pytest.fixture
async def async_engine(engine: sqlalchemy.Engine, sqlalchemy_url: str) -> AsyncIterator[AsyncEngine]:
    assert engine is not None  # it makes the backend's tables
    async_engine = create_async_engine(sqlalchemy_url)
    yield async_engine
    await async_engine.dispose()


@pytest.fixture
def psycopg_connection(engine: sqlalchemy.Engine, psycopg_url: str) -> Iterator[psycopg.Connection]:
    assert engine is not None  # it makes the backend's tables
    connection = psycopg.connect(psycopg_url)
    yield connection
    connection.close()


@pytest.fixture
def orders_stored(engine: sqlalchemy.Engine) -> Callable[[], list[int]]:
    """Return the numbers of the orders in the backend's table."""

    def stored() -> list[int]:
        with engine.connect() as connection:
            return list(connection.scalars(sqlalchemy.select(Order.number).order_by(Order.number)))

    return stored


@pytest.fixture
def orders_announced(jmsql_factory: jmsql.ConnectionFactory) -> Callable[[], list[int]]:
    """Return the numbers of the orders whose messages are received, in their order."""

    def announced() -> list[int]:
        with jmsql_factory.create_connection() as connection, connection.create_session() as session:
            connection.start()
            bodies = [message.get_body(dict) for message in receive_all(session.create_consumer(ORDERS))]
            return [body["number"] for body in bodies if body is not None]

    return announced
