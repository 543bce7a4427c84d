"""Whatever leaves a queue that keeps history is in it, once, and says how it left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
import sqlalchemy

import jmsql
from jmsql.testing import wait_for
from tests.integration.history.conftest import dequeue, send

BODIES = ("first", "second", "third")
Consume = Callable[[jmsql.ConnectionFactory, jmsql.Queue], None]

ENTRIES = """
    select body, outcome, delivery_count, destination, destination_type, consumed_by is not null
    from jmsql.history order by sequence"""


def _transacted(factory: jmsql.ConnectionFactory, queue: jmsql.Queue) -> None:
    dequeue(factory, queue, len(BODIES))


def _automatically(factory: jmsql.ConnectionFactory, queue: jmsql.Queue) -> None:
    with factory.create_connection() as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(queue)
        for _ in BODIES:
            assert consumer.receive(timeout=60) is not None


def _claiming(mode: jmsql.AcknowledgeMode) -> Consume:
    def consume(factory: jmsql.ConnectionFactory, queue: jmsql.Queue) -> None:
        with factory.create_connection() as connection:
            session = connection.create_session(mode)
            connection.start()
            consumer = session.create_consumer(queue)
            messages = [consumer.receive(timeout=60) for _ in BODIES]
            assert messages[-1] is not None
            messages[-1].acknowledge()

    return consume


def _listening(factory: jmsql.ConnectionFactory, queue: jmsql.Queue) -> None:
    received: list[jmsql.Message] = []
    with factory.create_connection() as connection:
        session = connection.create_session()
        session.create_consumer(queue).message_listener = received.append
        connection.start()
        wait_for(lambda: len(received) == len(BODIES))


def _prepared(factory: jmsql.ConnectionFactory, queue: jmsql.Queue) -> None:
    xa = jmsql.xa.XAConnectionFactory(factory.url, schema=factory.schema)
    with xa.create_xa_connection() as connection:
        session = connection.create_xa_session()
        connection.start()
        consumer = session.create_consumer(queue)
        session.tpc_begin(session.xid(1, "history", "test"))
        for _ in BODIES:
            assert consumer.receive(timeout=60) is not None
        session.tpc_prepare()
        session.tpc_commit()


WAYS = {
    "transacted": _transacted,
    "AUTO": _automatically,
    "CLIENT": _claiming(jmsql.AcknowledgeMode.CLIENT),
    "DUPS_OK": _claiming(jmsql.AcknowledgeMode.DUPS_OK),
    "listener": _listening,
    "two-phase commit": _prepared,
}


@pytest.mark.parametrize("consume", list(WAYS.values()), ids=list(WAYS))
def test_acknowledged_messages_are_recorded(
    consume: Consume, jmsql_factory: jmsql.ConnectionFactory, orders: jmsql.Queue, database: psycopg.Connection[Any]
) -> None:
    send(jmsql_factory, *BODIES, destination=orders)

    consume(jmsql_factory, orders)

    assert database.execute(ENTRIES).fetchall() == [
        (body, "acknowledged", 1, "orders", "queue", True) for body in BODIES
    ]
    assert database.execute("select count(*) from jmsql_internal.message").fetchone() == (0,)


@pytest.mark.parametrize("consume", list(WAYS.values()), ids=list(WAYS))
def test_a_queue_without_history_leaves_none(
    consume: Consume, jmsql_factory: jmsql.ConnectionFactory, orders: jmsql.Queue, database: psycopg.Connection[Any]
) -> None:
    plain = jmsql.Queue("plain")
    send(jmsql_factory, *BODIES, destination=plain)

    consume(jmsql_factory, plain)

    assert database.execute("select count(*) from jmsql_internal.message").fetchone() == (0,)
    assert database.execute(ENTRIES).fetchall() == []


def test_an_enlisted_sessions_receipts_are_recorded_with_the_callers_commit(
    jmsql_factory: jmsql.ConnectionFactory,
    jmsql_clean_url: str,
    orders: jmsql.Queue,
    database: psycopg.Connection[Any],
) -> None:
    send(jmsql_factory, "order", destination=orders)
    engine = sqlalchemy.create_engine(sqlalchemy.make_url(jmsql_clean_url).set(drivername="postgresql+psycopg"))
    try:
        with engine.connect() as connection:
            received = jmsql.enlist(connection).create_consumer(orders).receive(timeout=0)
            assert received is not None
            assert database.execute(ENTRIES).fetchall() == []
            connection.rollback()
            assert database.execute(ENTRIES).fetchall() == []
            assert jmsql.enlist(connection).create_consumer(orders).receive(timeout=0) is not None
            connection.commit()
    finally:
        engine.dispose()

    assert database.execute(ENTRIES).fetchall() == [("order", "acknowledged", 1, "orders", "queue", False)]


def test_rolled_back_receipts_are_not_recorded_and_their_deliveries_count(
    jmsql_factory: jmsql.ConnectionFactory, orders: jmsql.Queue, database: psycopg.Connection[Any]
) -> None:
    send(jmsql_factory, "order", destination=orders)
    with jmsql_factory.create_connection() as connection:
        session = connection.create_session(transacted=True)
        connection.start()
        consumer = session.create_consumer(orders)
        assert consumer.receive(timeout=60) is not None
        session.rollback()
        assert database.execute(ENTRIES).fetchall() == []
        assert consumer.receive(timeout=60) is not None
        session.commit()

    assert database.execute("select delivery_count from jmsql.history").fetchall() == [(2,)]


def test_deliveries_of_claimed_messages_count(
    jmsql_factory: jmsql.ConnectionFactory, orders: jmsql.Queue, database: psycopg.Connection[Any]
) -> None:
    send(jmsql_factory, "order", destination=orders)
    with jmsql_factory.create_connection() as connection:
        session = connection.create_session(acknowledge_mode=jmsql.AcknowledgeMode.CLIENT)
        connection.start()
        consumer = session.create_consumer(orders)
        assert consumer.receive(timeout=60) is not None
        session.recover()
        message = consumer.receive(timeout=60)
        assert message is not None
        message.acknowledge()

    assert database.execute("select delivery_count from jmsql.history").fetchall() == [(2,)]


def test_everything_of_a_message_is_recorded(
    jmsql_factory: jmsql.ConnectionFactory, orders: jmsql.Queue, administration: jmsql.admin.Administration
) -> None:
    with jmsql_factory.create_connection() as connection:
        connection.client_id = "warehouse"
        session = connection.create_session()
        message = session.create_map_message()
        message["weight"] = 2.5
        message.set_short_property("size", 3)
        message.jms_correlation_id = "c-1"
        message.jms_reply_to = jmsql.Queue("answers")
        message.jms_type = "order"
        session.create_producer(orders).send(message, priority=7)
        connection.start()
        assert session.create_consumer(orders).receive(timeout=60) is not None

    [(past, entry)] = administration.history.messages(orders)

    assert isinstance(past, jmsql.MapMessage)
    assert past["weight"] == 2.5
    assert (past.get_object_property("size"), past.get_short_property("size")) == (3, 3)
    assert (past.jms_correlation_id, past.jms_reply_to, past.jms_type) == ("c-1", jmsql.Queue("answers"), "order")
    assert (past.jms_message_id, past.jms_timestamp) == (message.jms_message_id, message.jms_timestamp)
    assert (past.jms_priority, past.jms_destination) == (7, orders)
    assert (entry.client_id, entry.outcome, entry.delivery_count) == ("warehouse", "acknowledged", 1)
    assert entry.time_in_queue is not None
    assert entry.time_in_queue.total_seconds() >= -1


def test_expired_messages_are_recorded(
    jmsql_factory: jmsql.ConnectionFactory, orders: jmsql.Queue, database: psycopg.Connection[Any]
) -> None:
    with jmsql_factory.create_connection() as connection:
        session = connection.create_session()
        session.create_producer(orders).send(session.create_text_message("late"), time_to_live=0.01)
        wait_for(lambda: database.execute("select count(*) from jmsql_internal.message").fetchone() == (0,))

    assert database.execute(ENTRIES).fetchall() == [("late", "expired", 0, "orders", "queue", False)]


def test_purged_messages_are_recorded(
    jmsql_factory: jmsql.ConnectionFactory,
    orders: jmsql.Queue,
    administration: jmsql.admin.Administration,
    database: psycopg.Connection[Any],
) -> None:
    send(jmsql_factory, *BODIES, destination=orders)

    assert administration.purge(orders) == len(BODIES)

    assert database.execute(ENTRIES).fetchall() == [(body, "purged", 0, "orders", "queue", False) for body in BODIES]


def test_dead_letters_are_recorded(
    jmsql_factory: jmsql.ConnectionFactory,
    administration: jmsql.admin.Administration,
    database: psycopg.Connection[Any],
) -> None:
    queue = administration.create_queue("orders", history=True, maximum_deliveries=2)
    send(jmsql_factory, "poison", destination=queue)
    with jmsql_factory.create_connection() as connection:
        session = connection.create_session(transacted=True)
        connection.start()
        consumer = session.create_consumer(queue)
        for _ in range(2):
            assert consumer.receive(timeout=60) is not None
            session.rollback()
        wait_for(lambda: database.execute("select queue from jmsql.dead_letters").fetchall() == [("DLQ",)])

    assert database.execute(ENTRIES).fetchall() == [("poison", "dead-lettered", 2, "orders", "queue", False)]


def test_an_open_consumer_hears_within_seconds_that_its_queue_keeps_history_now(
    jmsql_factory: jmsql.ConnectionFactory,
    administration: jmsql.admin.Administration,
    database: psycopg.Connection[Any],
) -> None:
    queue = administration.create_queue("orders")
    with jmsql_factory.create_connection() as connection:
        session = connection.create_session()
        producer = session.create_producer(queue)
        consumer = session.create_consumer(queue)
        connection.start()

        def is_recorded() -> bool:
            producer.send(session.create_text_message("order"))
            assert consumer.receive(timeout=60) is not None
            return database.execute(ENTRIES).fetchall() != []

        assert not is_recorded()
        administration.alter(queue, history=True)
        wait_for(is_recorded, timeout=60)


def test_the_history_stays_when_the_queue_is_deleted(
    jmsql_factory: jmsql.ConnectionFactory, orders: jmsql.Queue, administration: jmsql.admin.Administration
) -> None:
    send(jmsql_factory, "order", destination=orders)
    dequeue(jmsql_factory, orders)

    administration.delete(orders)

    [(message, entry)] = administration.history.messages(orders)
    assert (message.get_body(str), entry.destination) == ("order", "orders")


class TestTopics:
    """A topic's history is that of its subscriptions."""

    @pytest.fixture
    def prices(self, administration: jmsql.admin.Administration) -> jmsql.Topic:
        """A topic that keeps history."""
        return administration.create_topic("prices", history=True)

    def test_each_subscription_records_its_acknowledged_messages(
        self, jmsql_factory: jmsql.ConnectionFactory, prices: jmsql.Topic, database: psycopg.Connection[Any]
    ) -> None:
        with jmsql_factory.create_connection() as connection:
            connection.client_id = "exchange"
            session = connection.create_session()
            connection.start()
            consumers = [session.create_durable_consumer(prices, name) for name in ("audit", "work")]
            session.create_producer(prices).send(session.create_text_message("17.5"))
            for consumer in consumers:
                assert consumer.receive(timeout=60) is not None

        statement = """
            select destination_type, destination, subscription, subscription_client_id, body
            from jmsql.history order by subscription"""
        assert database.execute(statement).fetchall() == [
            ("topic", "prices", name, "exchange", "17.5") for name in ("audit", "work")
        ]

    def test_a_large_body_stays_as_long_as_the_history(
        self,
        jmsql_factory: jmsql.ConnectionFactory,
        prices: jmsql.Topic,
        administration: jmsql.admin.Administration,
        database: psycopg.Connection[Any],
    ) -> None:
        large = "x" * 10_000
        with jmsql_factory.create_connection() as connection:
            session = connection.create_session()
            connection.start()
            consumers = [session.create_consumer(prices) for _ in range(2)]
            session.create_producer(prices).send(session.create_text_message(large))
            for consumer in consumers:
                assert consumer.receive(timeout=60) is not None
            # Maintenance takes a look at every body: one that nobody needs any more is gone.
            database.execute("insert into jmsql_internal.body (text_body) values ('unused')")
            wait_for(
                lambda: (
                    database.execute("select from jmsql_internal.body where text_body = 'unused'").fetchone() is None
                )
            )
            assert database.execute("select count(*) from jmsql_internal.body").fetchone() == (1,)
            assert [past.message.get_body(str) for past in administration.history.messages(prices)] == [large] * 2

            database.execute("delete from jmsql_internal.message_history")
            wait_for(lambda: database.execute("select count(*) from jmsql_internal.body").fetchone() == (0,))
