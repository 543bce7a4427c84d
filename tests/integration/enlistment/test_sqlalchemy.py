"""Messages in the transactions of SQLAlchemy: they share the fate of the rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession

import jmsql
from tests.integration.enlistment.conftest import ORDERS, Order

Numbers = Callable[[], list[int]]


def place(database: orm.Session | AsyncSession, number: int) -> None:
    """Store an order and announce it, as a backend does."""
    database.add(Order(number=number))
    jmsql.enlist(database).create_producer().send(ORDERS, {"number": number})


class TestSession:
    def test_commit_stores_the_row_and_sends_the_message(
        self, engine: sqlalchemy.Engine, orders_stored: Numbers, orders_announced: Numbers
    ) -> None:
        with orm.Session(engine) as database, database.begin():
            place(database, 1)
            place(database, 2)
        assert orders_stored() == orders_announced() == [1, 2]

    def test_rollback_forgets_both(
        self, engine: sqlalchemy.Engine, orders_stored: Numbers, orders_announced: Numbers
    ) -> None:
        with orm.Session(engine) as database:
            place(database, 1)
            database.rollback()
        assert orders_stored() == orders_announced() == []

    def test_a_savepoint_takes_back_only_what_came_after_it(
        self, engine: sqlalchemy.Engine, orders_stored: Numbers, orders_announced: Numbers
    ) -> None:
        with orm.Session(engine) as database, database.begin():
            place(database, 1)
            with database.begin_nested() as savepoint:
                place(database, 2)
                savepoint.rollback()
            with database.begin_nested():
                place(database, 3)
        assert orders_stored() == orders_announced() == [1, 3]

    def test_a_scoped_session_is_joined_too(
        self, engine: sqlalchemy.Engine, orders_stored: Numbers, orders_announced: Numbers
    ) -> None:
        scoped = orm.scoped_session(orm.sessionmaker(engine))
        scoped.add(Order(number=1))
        jmsql.enlist(scoped).create_producer().send(ORDERS, {"number": 1})
        scoped.commit()
        scoped.remove()
        assert orders_stored() == orders_announced() == [1]

    def test_what_is_received_is_gone_with_the_commit_and_back_after_a_rollback(
        self, engine: sqlalchemy.Engine, orders_announced: Numbers
    ) -> None:
        with orm.Session(engine) as database, database.begin():
            place(database, 1)
        with orm.Session(engine) as database:
            received = jmsql.enlist(database).create_consumer(ORDERS).receive(timeout=0)
            assert received is not None
            assert received.get_body(dict) == {"number": 1}
            database.rollback()
            assert jmsql.enlist(database).create_consumer(ORDERS).receive(timeout=0) is not None
            database.commit()
        assert orders_announced() == []

    def test_what_the_transaction_sent_it_does_not_receive(self, engine: sqlalchemy.Engine) -> None:
        with orm.Session(engine) as database:
            place(database, 1)
            assert jmsql.enlist(database).create_consumer(ORDERS).receive(timeout=0) is None
            assert list(jmsql.enlist(database).create_browser(ORDERS)) == []

    @pytest.mark.requirement("session.transactions.transactioninprogress")
    def test_the_transaction_is_the_callers_to_end(self, engine: sqlalchemy.Engine) -> None:
        with orm.Session(engine) as database:
            context = jmsql.enlist(database)
            with pytest.raises(jmsql.TransactionInProgressException, match="commit that instead"):
                context.commit()
            with pytest.raises(jmsql.TransactionInProgressException, match="roll that back instead"):
                context.rollback()
            with pytest.raises(jmsql.IllegalStateException):
                context.recover()

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

    def test_what_a_savepoint_took_back_is_received_again_at_once(
        self, engine: sqlalchemy.Engine, orders_announced: Numbers
    ) -> None:
        with orm.Session(engine) as database, database.begin():
            place(database, 1)
            place(database, 2)
        with orm.Session(engine) as database, database.begin():
            consumer = jmsql.enlist(database).create_consumer(ORDERS)
            assert consumer.receive(timeout=0) is not None
            for _ in range(3):
                with database.begin_nested() as savepoint:
                    received = consumer.receive(timeout=0)
                    assert received is not None
                    assert received.get_body(dict) == {"number": 2}
                    assert consumer.receive(timeout=0) is None
                    savepoint.rollback()
        assert orders_announced() == [2]

    def test_what_a_rollback_took_back_is_received_again_at_once(self, engine: sqlalchemy.Engine) -> None:
        with orm.Session(engine) as database, database.begin():
            place(database, 1)
        with orm.Session(engine) as database:
            consumer = jmsql.enlist(database).create_consumer(ORDERS)
            for _ in range(3):
                assert consumer.receive(timeout=0) is not None
                assert consumer.receive(timeout=0) is None
                database.rollback()

    def test_a_context_of_another_provider_of_transactions_is_refused(self) -> None:
        with pytest.raises(TypeError, match="psycopg 3 connection"):
            jmsql.enlist(object())  # type: ignore[call-overload]


class TestConnection:
    def test_commit_and_rollback(
        self, engine: sqlalchemy.Engine, orders_stored: Numbers, orders_announced: Numbers
    ) -> None:
        with engine.connect() as connection:
            for number, end in ((1, connection.commit), (2, connection.rollback), (3, connection.commit)):
                connection.execute(sqlalchemy.insert(Order).values(number=number))
                jmsql.enlist(connection).create_producer().send(ORDERS, {"number": number})
                end()
        assert orders_stored() == orders_announced() == [1, 3]

    def test_a_send_alone_is_a_transaction(self, engine: sqlalchemy.Engine, orders_announced: Numbers) -> None:
        with engine.connect() as connection:
            jmsql.enlist(connection).create_producer().send(ORDERS, {"number": 1})
            assert connection.in_transaction()
            connection.commit()
        assert orders_announced() == [1]

    def test_the_callers_statements_go_on_after_a_send_that_is_refused(
        self, engine: sqlalchemy.Engine, orders_stored: Numbers
    ) -> None:
        with engine.begin() as connection:
            producer = jmsql.enlist(connection).create_producer()
            with pytest.raises(jmsql.InvalidDestinationException):
                producer.send(jmsql.Destination("prices"), "1.0")
            connection.execute(sqlalchemy.insert(Order).values(number=1))
        assert orders_stored() == [1]


AUTOCOMMIT = {"isolation_level": "AUTOCOMMIT"}


class TestAutocommit:
    def test_a_send_on_a_connection_commits_by_itself(
        self, engine: sqlalchemy.Engine, orders_stored: Numbers, orders_announced: Numbers
    ) -> None:
        with engine.connect().execution_options(**AUTOCOMMIT) as connection:
            connection.execute(sqlalchemy.insert(Order).values(number=1))
            jmsql.enlist(connection).create_producer().send(ORDERS, {"number": 1})
        assert orders_stored() == orders_announced() == [1]

    def test_a_send_in_a_session_commits_by_itself(
        self, engine: sqlalchemy.Engine, orders_stored: Numbers, orders_announced: Numbers
    ) -> None:
        with orm.Session(engine.execution_options(**AUTOCOMMIT)) as database:
            place(database, 1)
            database.flush()
        assert orders_stored() == orders_announced() == [1]

    async def test_an_async_connection_refuses_what_would_wait_for_ever(
        self, async_engine: AsyncEngine, orders_announced: Numbers
    ) -> None:
        async with async_engine.connect() as connection:
            producer = jmsql.enlist(connection).create_producer()
            await connection.execution_options(**AUTOCOMMIT)
            await connection.execute(sqlalchemy.insert(Order).values(number=1))
            with pytest.raises(jmsql.IllegalStateException, match="AUTOCOMMIT"):
                producer.send(ORDERS, {"number": 1})
        async with async_engine.connect() as connection:
            jmsql.enlist(connection).create_producer().send(ORDERS, {"number": 2})
            await connection.commit()
        assert orders_announced() == [2]

    @pytest.mark.parametrize("of_engine", [True, False])
    async def test_an_async_session_refuses_it_whenever_it_connects(
        self, async_engine: AsyncEngine, orders_announced: Numbers, *, of_engine: bool
    ) -> None:
        bind = async_engine.execution_options(**AUTOCOMMIT) if of_engine else async_engine
        options = {} if of_engine else AUTOCOMMIT
        async with AsyncSession(bind) as database:
            await database.connection(execution_options=options)
            with pytest.raises(jmsql.IllegalStateException, match="AUTOCOMMIT"):
                jmsql.enlist(database).create_producer().send(ORDERS, {"number": 1})
        async with AsyncSession(bind) as database:
            jmsql.enlist(database).create_producer().send(ORDERS, {"number": 2})
            with pytest.raises(jmsql.IllegalStateException, match="AUTOCOMMIT"):
                await database.connection(execution_options=options)
        async with AsyncSession(async_engine.execution_options(**AUTOCOMMIT)) as database:
            jmsql.enlist(database).create_producer().send(ORDERS, {"number": 3})
            with pytest.raises(jmsql.IllegalStateException, match="AUTOCOMMIT"):
                await database.commit()
        assert orders_announced() == []


class TestAsyncSession:
    async def test_commit_stores_the_rows_and_sends_the_messages_in_order(
        self, async_engine: AsyncEngine, orders_stored: Numbers, orders_announced: Numbers
    ) -> None:
        async with AsyncSession(async_engine) as database, database.begin():
            place(database, 1)
            place(database, 2)
        assert orders_stored() == orders_announced() == [1, 2]

    async def test_a_rollback_forgets_what_waited_and_the_session_can_be_used_again(
        self, async_engine: AsyncEngine, orders_stored: Numbers, orders_announced: Numbers
    ) -> None:
        async with AsyncSession(async_engine) as database:
            jmsql.enlist(database).create_producer().send(ORDERS, {"number": 1})
            await database.rollback()
            place(database, 2)
            await database.commit()
        assert orders_stored() == orders_announced() == [2]

    async def test_a_savepoint_takes_back_only_what_came_after_it(
        self, async_engine: AsyncEngine, orders_stored: Numbers, orders_announced: Numbers
    ) -> None:
        async with AsyncSession(async_engine) as database, database.begin():
            place(database, 1)
            async with database.begin_nested() as savepoint:
                place(database, 2)
                await savepoint.rollback()
            async with database.begin_nested():
                place(database, 3)
        assert orders_stored() == orders_announced() == [1, 3]

    async def test_receiving_goes_through_run_sync(self, async_engine: AsyncEngine, orders_announced: Numbers) -> None:
        async with AsyncSession(async_engine) as database, database.begin():
            place(database, 1)

        def receive(session: orm.Session) -> jmsql.Message | None:
            return jmsql.enlist(session).create_consumer(ORDERS).receive(timeout=0)

        async with AsyncSession(async_engine) as database, database.begin():
            received = await database.run_sync(receive)
        assert received is not None
        assert orders_announced() == []


class TestAsyncConnection:
    async def place(self, connection: AsyncConnection, number: int) -> None:
        await connection.execute(sqlalchemy.insert(Order).values(number=number))
        jmsql.enlist(connection).create_producer().send(ORDERS, {"number": number})

    async def test_commit_and_rollback(
        self, async_engine: AsyncEngine, orders_stored: Numbers, orders_announced: Numbers
    ) -> None:
        async with async_engine.connect() as connection:
            for number, end in ((1, connection.commit), (2, connection.rollback), (3, connection.commit)):
                await self.place(connection, number)
                await end()
        assert orders_stored() == orders_announced() == [1, 3]

    async def test_a_savepoint_takes_back_only_what_came_after_it(
        self, async_engine: AsyncEngine, orders_stored: Numbers, orders_announced: Numbers
    ) -> None:
        async with async_engine.begin() as connection:
            await self.place(connection, 1)
            async with connection.begin_nested() as savepoint:
                await self.place(connection, 2)
                await savepoint.rollback()
            async with connection.begin_nested():
                await self.place(connection, 3)
        assert orders_stored() == orders_announced() == [1, 3]
