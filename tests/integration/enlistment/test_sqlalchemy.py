"""Messages in the transactions of SQLAlchemy: they share the fate of the rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_scoped_session, async_sessionmaker

import jmsql
import jmsql.asyncio
from tests.integration.enlistment.callers import ORDERS, Order

Numbers = Callable[[], list[int]]


def place(database: orm.Session, number: int) -> None:
    """Store an order and announce it, as a backend does."""
    database.add(Order(number=number))
    jmsql.enlist(database).create_producer().send(ORDERS, {"number": number})


class TestSession:
    def test_a_scoped_session_is_joined_too(
        self, engine: sqlalchemy.Engine, orders_stored: Numbers, orders_announced: Numbers
    ) -> None:
        scoped = orm.scoped_session(orm.sessionmaker(engine))
        scoped.add(Order(number=1))
        jmsql.enlist(scoped).create_producer().send(ORDERS, {"number": 1})
        scoped.commit()
        scoped.remove()
        assert orders_stored() == orders_announced() == [1]

    def test_a_scoped_session_that_was_removed_takes_no_send_that_it_would_not_commit(
        self, engine: sqlalchemy.Engine, orders_stored: Numbers, orders_announced: Numbers
    ) -> None:
        scoped = orm.scoped_session(orm.sessionmaker(engine))
        context = jmsql.enlist(scoped)
        for has_successor in (False, True):
            scoped.remove()
            if has_successor:
                scoped.add(Order(number=1))
            with pytest.raises(jmsql.IllegalStateException, match="enlist it again"):
                context.create_producer().send(ORDERS, {"number": 1})
        jmsql.enlist(scoped).create_producer().send(ORDERS, {"number": 1})
        scoped.commit()
        scoped.remove()
        assert orders_stored() == orders_announced() == [1]

    def test_a_session_with_engines_for_classes_alone_says_which_connection_to_give(
        self, engine: sqlalchemy.Engine, orders_stored: Numbers, orders_announced: Numbers
    ) -> None:
        with orm.Session(binds={Order: engine}) as database:
            database.add(Order(number=1))
            with pytest.raises(jmsql.IllegalStateException, match="bind_arguments"):
                jmsql.send(database, ORDERS, {"number": 1})
            jmsql.send(database.connection(bind_arguments={"mapper": Order}), ORDERS, {"number": 1})
            database.commit()
        assert orders_stored() == orders_announced() == [1]

    def test_receiving_is_refused_where_a_snapshot_hides_the_claims_of_others(self, engine: sqlalchemy.Engine) -> None:
        with orm.Session(engine.execution_options(isolation_level="REPEATABLE READ")) as database:
            context = jmsql.enlist(database)
            with pytest.raises(jmsql.IllegalStateException, match="READ COMMITTED"):
                context.create_consumer(ORDERS)

    def test_each_receive_looks_at_the_isolation_level(self, engine: sqlalchemy.Engine) -> None:
        with orm.Session(engine) as database, database.begin():
            place(database, 1)
            jmsql.enlist(database).create_producer().send(ORDERS, {"number": 2})
        with engine.connect() as connection:
            consumer = jmsql.enlist(connection).create_consumer(ORDERS)
            assert consumer.receive(timeout=0) is not None
            connection.rollback()
            connection.execute(sqlalchemy.text("set transaction isolation level serializable"))
            jmsql.enlist(connection).create_producer().send(ORDERS, {"number": 3})
            with pytest.raises(jmsql.IllegalStateException, match=r"serializable.*READ COMMITTED"):
                consumer.receive(timeout=0)

    def test_messages_of_a_rollback_are_received_again_at_once(self, engine: sqlalchemy.Engine) -> None:
        with orm.Session(engine) as database, database.begin():
            place(database, 1)
        with orm.Session(engine) as database:
            consumer = jmsql.enlist(database).create_consumer(ORDERS)
            for _ in range(3):
                assert consumer.receive(timeout=0) is not None
                assert consumer.receive(timeout=0) is None
                database.rollback()

    @pytest.mark.parametrize("enlisted", [orm.Session, sqlalchemy.Engine.connect], ids=["session", "connection"])
    def test_messages_of_a_rollback_keep_their_order_in_a_transaction_that_the_application_begins(
        self, engine: sqlalchemy.Engine, enlisted: Callable[[sqlalchemy.Engine], Any]
    ) -> None:
        with engine.begin() as connection:
            producer = jmsql.enlist(connection).create_producer()
            for number in range(4):
                producer.send(ORDERS, str(number))
        with enlisted(engine) as database:
            consumer = jmsql.enlist(database).create_consumer(ORDERS)
            for begins in (True, True, False, True):
                with database.begin() if begins else nullcontext():
                    assert [consumer.receive_body(str, timeout=0) for _ in range(3)] == ["0", "1", "2"]
                    database.rollback()

    def test_loaded_objects_stay_loaded_while_it_receives_nothing(self, engine: sqlalchemy.Engine) -> None:
        with orm.Session(engine, expire_on_commit=False) as database:
            place(database, 1)
            order = Order(2)
            database.add(order)
            database.commit()
            assert jmsql.enlist(database).create_consumer(ORDERS).receive(timeout=0) is not None
            database.commit()
            assert jmsql.enlist(database).create_consumer(ORDERS).receive(timeout=0) is None
            assert not database.in_transaction()
            assert not sqlalchemy.inspect(order).expired
            assert order in database

    def test_it_begins_no_transaction_where_only_the_application_may(
        self, engine: sqlalchemy.Engine, orders_announced: Numbers
    ) -> None:
        with orm.Session(engine, autobegin=False) as database:
            context = jmsql.enlist(database)
            with pytest.raises(jmsql.JMSException, match="Autobegin is disabled"):
                context.create_producer().send(ORDERS, {"number": 1})
            assert not database.in_transaction()
            with database.begin():
                context.create_producer().send(ORDERS, {"number": 2})
        assert orders_announced() == [2]


class TestConnection:
    def test_the_callers_statements_go_on_after_a_send_that_is_refused(
        self, engine: sqlalchemy.Engine, orders_stored: Numbers
    ) -> None:
        with engine.begin() as connection:
            producer = jmsql.enlist(connection).create_producer()
            with pytest.raises(jmsql.InvalidDestinationException):
                producer.send(jmsql.Destination("prices"), "1.0")
            connection.execute(sqlalchemy.insert(Order).values(number=1))
        assert orders_stored() == [1]


class TestAsyncSession:
    async def test_loaded_objects_stay_loaded_while_it_receives_nothing(self, async_engine: AsyncEngine) -> None:
        async with AsyncSession(async_engine, expire_on_commit=False) as database:
            order = Order(1)
            database.add(order)
            await database.commit()
            async with jmsql.asyncio.enlist(database).create_consumer(ORDERS) as consumer:
                assert await consumer.receive(timeout=0) is None
            assert not database.in_transaction()
            assert not sqlalchemy.inspect(order).expired
            assert order in database

    async def test_a_scoped_session_is_joined_too(self, async_engine: AsyncEngine, orders_announced: Numbers) -> None:
        scoped = async_scoped_session(async_sessionmaker(async_engine), scopefunc=asyncio.current_task)
        context = jmsql.asyncio.enlist(scoped)
        await asyncio.wait_for(context.create_producer().send(ORDERS, {"number": 1}), timeout=60)
        await scoped.commit()
        consumer = await context.create_consumer(ORDERS)
        received = await consumer.receive(timeout=60)
        assert received is not None
        await scoped.rollback()
        await scoped.remove()
        with pytest.raises(jmsql.IllegalStateException, match="enlist it again"):
            await context.create_producer().send(ORDERS, {"number": 2})
        assert orders_announced() == [1]

    async def test_it_begins_no_transaction_where_only_the_application_may(
        self, async_engine: AsyncEngine, orders_announced: Numbers
    ) -> None:
        async with AsyncSession(async_engine, autobegin=False) as database:
            with pytest.raises(jmsql.JMSException, match="Autobegin is disabled"):
                await jmsql.asyncio.send(database, ORDERS, {"number": 1})
            async with database.begin():
                await jmsql.asyncio.send(database, ORDERS, {"number": 2})
        assert orders_announced() == [2]

    async def test_a_connection_that_is_not_connected_yet_is_refused(self, async_engine: AsyncEngine) -> None:
        with pytest.raises(TypeError, match="async with"):
            jmsql.asyncio.enlist(async_engine.connect())


async def test_each_world_refuses_the_transactions_of_the_other(
    engine: sqlalchemy.Engine, async_engine: AsyncEngine
) -> None:
    async with AsyncSession(async_engine) as session, async_engine.connect() as connection:
        raw = (await connection.get_raw_connection()).driver_connection
        for transaction in (session, connection, raw):
            refused: Any = transaction
            with pytest.raises(TypeError, match=r"not (sqlalchemy|psycopg)\..*Async.*use jmsql\.asyncio\."):
                jmsql.enlist(refused)
    with orm.Session(engine) as database, engine.connect() as connected:
        for other in (database, connected, connected.connection.driver_connection, object()):
            refused = other
            with pytest.raises(TypeError, match=r"use jmsql itself"):
                jmsql.asyncio.enlist(refused)
    given: Any
    for given, enlist in ((engine, jmsql.enlist), (async_engine, jmsql.asyncio.enlist)):
        with pytest.raises(TypeError, match=r"with engine\.begin\(\) as"):
            enlist(given)
