"""Messages in the transactions of psycopg: they share the fate of the rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal

import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row

import jmsql
import jmsql.asyncio
from tests.integration.enlistment.callers import ORDERS

Numbers = Callable[[], list[int]]

INSERT = "insert into orders (number) values (%s)"


def place(connection: psycopg.Connection, number: int) -> None:
    """Store an order and announce it, as a backend does."""
    connection.execute(INSERT, [number])
    jmsql.enlist(connection).create_producer().send(ORDERS, {"number": number})


def test_the_connections_row_factory_is_the_callers_business(
    psycopg_connection: psycopg.Connection, orders_announced: Numbers
) -> None:
    psycopg_connection.row_factory = dict_row  # type: ignore[assignment]
    place(psycopg_connection, 1)
    psycopg_connection.commit()
    with psycopg_connection.transaction(force_rollback=True):
        assert jmsql.enlist(psycopg_connection).create_consumer(ORDERS).receive(timeout=0) is not None
    assert orders_announced() == [1]


def test_a_waiting_receive_in_the_callers_transaction_hears_of_new_messages(
    psycopg_connection: psycopg.Connection, engine: sqlalchemy.Engine
) -> None:
    consumer = jmsql.enlist(psycopg_connection).create_consumer(ORDERS)
    assert consumer.receive(timeout=0) is None
    with engine.begin() as other:
        jmsql.enlist(other).create_producer().send(ORDERS, {"number": 1, "prices": [Decimal("9.50")]})
    received = consumer.receive(timeout=60)
    assert received is not None
    assert received.get_body(dict) == {"number": 1, "prices": [Decimal("9.50")]}


@pytest.mark.requirement("selector.validation")
def test_a_wrong_selector_leaves_the_callers_transaction_alone(
    psycopg_connection: psycopg.Connection, orders_stored: Numbers
) -> None:
    psycopg_connection.execute(INSERT, [1])
    with pytest.raises(jmsql.InvalidSelectorException):
        jmsql.enlist(psycopg_connection).create_consumer(ORDERS, "number >")
    psycopg_connection.commit()
    assert orders_stored() == [1]


class TestPipeline:
    def test_a_send_and_a_receive_take_part(
        self, psycopg_connection: psycopg.Connection, orders_stored: Numbers, orders_announced: Numbers
    ) -> None:
        with psycopg_connection.pipeline():
            place(psycopg_connection, 1)
            place(psycopg_connection, 2)
            psycopg_connection.commit()
            received = jmsql.enlist(psycopg_connection).create_consumer(ORDERS).receive(timeout=0)
            assert received is not None
            assert received.get_body(dict) == {"number": 1}
            psycopg_connection.commit()
        assert orders_stored() == [1, 2]
        assert orders_announced() == [2]

    def test_a_send_after_a_failed_statement_is_refused_and_not_inserted(
        self, psycopg_connection: psycopg.Connection, orders_announced: Numbers
    ) -> None:
        pipeline = psycopg_connection.pipeline()
        pipeline.__enter__()
        psycopg_connection.execute("insert into missing values (1)")
        # Not `place`, whose own statement raises the driver's error if the failure has come back by then.
        with pytest.raises(jmsql.JMSException):
            jmsql.enlist(psycopg_connection).create_producer().send(ORDERS, {"number": 1})
        with suppress(psycopg.Error):  # it may tell of the failure once more
            pipeline.__exit__(None, None, None)
        psycopg_connection.rollback()
        assert orders_announced() == []

    async def test_an_asynchronous_connection_takes_part(
        self, psycopg_url: str, engine: sqlalchemy.Engine, orders_stored: Numbers, orders_announced: Numbers
    ) -> None:
        assert engine is not None  # it makes the backend's tables
        async with await psycopg.AsyncConnection.connect(psycopg_url) as connection, connection.pipeline():
            await connection.execute(INSERT, [1])
            await jmsql.asyncio.enlist(connection).create_producer().send(ORDERS, {"number": 1})
            await connection.commit()
            consumer = await jmsql.asyncio.enlist(connection).create_consumer(ORDERS)
            assert await consumer.receive(timeout=0) is not None
            await connection.rollback()
        assert orders_stored() == orders_announced() == [1]


def test_a_connection_without_an_encoding_is_refused_in_a_sentence(psycopg_connection: psycopg.Connection) -> None:
    psycopg_connection.execute("set client_encoding = 'SQL_ASCII'")
    refused = pytest.raises(jmsql.JMSException, match=r"\(SQL_ASCII\).*`set client_encoding = 'UTF8'`")
    with refused:
        jmsql.send(psycopg_connection, "orders", "an order")
    with refused:
        jmsql.enlist(psycopg_connection).create_consumer("orders")
    psycopg_connection.execute("set client_encoding = 'UTF8'")
    jmsql.send(psycopg_connection, "orders", "an order")


def test_a_connection_that_a_fork_shares_is_named_as_such(jmsql_clean_url: str) -> None:
    with psycopg.connect(jmsql_clean_url) as connection:
        connection.prepare_threshold = 0
        connection.execute("begin", prepare=False)
        for number in range(5):  # as the other process has, whose numbers begin alike
            connection.pgconn.prepare(f"_pg3_{number}".encode(), b"select 1")
        with pytest.raises(jmsql.JMSException, match=r"made before a fork.*dispose\(close=False\)"):
            jmsql.send(connection, "orders", "one")
