"""A past: messages that real consumers have received, let fail, or not received in time."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg

import jmsql
from jmsql.testing import wait_for
from tests.unreadable_messages import INSERT, store_unreadable

MARKUP = "<b>&'\"$x$"
"""The name of a queue that means something in HTML, and to who sets mathematics."""

_DEAD: LiteralString = "select count(*) from jmsql.dead_letters"
_EXPIRED: LiteralString = "select count(*) from jmsql.history where outcome = 'expired'"


def make_past(factory: jmsql.ConnectionFactory, database: psycopg.Connection[Any]) -> None:
    """Send and receive, and spread over some hours what has been acknowledged."""
    with jmsql.admin.Administration(factory) as administration:
        orders = administration.create_queue("orders", history=True, maximum_deliveries=2)
        administration.create_queue("DLQ", history=True)
        odd = administration.create_queue(MARKUP, history=True)
        prices = administration.create_topic("prices", history=True)
    with factory.create_connection() as connection:
        session = connection.create_session(transacted=True)
        connection.start()
        audit = session.create_shared_durable_consumer(prices, "audit")
        producer = session.create_producer()
        for number in range(60):
            message = session.create_text_message("é" * (number % 7))
            if number % 3:
                message.set_string_property("JMSXGroupID", f"customer {number % 5}")
            producer.send(message, orders)
        for number in range(8):
            item = session.create_map_message()
            item["number"] = number
            producer.delivery_delay = 0.01 if number % 2 else 0.0
            producer.send(item, odd)
            producer.delivery_delay = 0.0
            price = session.create_bytes_message()
            price.write_bytes(bytes(number))
            producer.send(price, prices)
        session.commit()
        for _ in range(8):
            assert audit.receive(timeout=60) is not None
        session.commit()
    with jmsql.admin.Administration(factory) as administration, factory.create_context() as context:
        refused = administration.create_queue("refused", history=True)
        for body in "ab":
            context.create_producer().send(refused, body)
        assert administration.purge(refused) == 2
    _take(factory, orders, 25, "warehouse")
    _take(factory, orders, 20, "warehouse", fail_first=4)
    _take(factory, orders, 15, None)
    wait_for(lambda: database.execute("select count(*) from jmsql_internal.delayed_message").fetchone() == (0,))
    _take(factory, odd, 8, None)
    _let_some_die(factory, database, orders)
    _spread(database)
    _leave_what_others_have_stored(factory, database)


def _take(
    factory: jmsql.ConnectionFactory, queue: jmsql.Queue, number: int, client_id: str | None, *, fail_first: int = 0
) -> None:
    with factory.create_connection() as connection:
        if client_id is not None:
            connection.client_id = client_id
        session = connection.create_session(transacted=True)
        connection.start()
        consumer = session.create_consumer(queue)
        for count, end in ((fail_first, session.rollback), (number, session.commit)):
            for _ in range(count):
                assert consumer.receive(timeout=60) is not None
            end()


def _let_some_die(factory: jmsql.ConnectionFactory, database: psycopg.Connection[Any], orders: jmsql.Queue) -> None:
    """Three messages fail for good, one of which is taken from the dead-letter queue, and two expire."""
    with factory.create_connection() as connection:
        session = connection.create_session(transacted=True)
        connection.start()
        producer = session.create_producer(orders)
        consumer = session.create_consumer(orders)
        consumer.redelivery_policy = jmsql.RedeliveryPolicy(maximum_deliveries=2)
        for number, mistake in enumerate(("no such kite", "no such kite", "out of wind"), start=1):
            producer.send(session.create_text_message("poison"))
            session.commit()
            for _ in range(2):
                assert consumer.receive(timeout=60) is not None
                session.rollback(KeyError(mistake))
            wait_for(lambda number=number: database.execute(_DEAD).fetchone() == (number,))  # type: ignore[misc]
        assert session.create_consumer(jmsql.Queue("DLQ"), "JMS_jmsql_Deliveries = 2").receive(timeout=60) is not None
        consumer.close()
        for _ in range(2):
            producer.send(session.create_text_message("late"), time_to_live=0.01)
        session.commit()
        wait_for(lambda: database.execute(_EXPIRED).fetchone() == (2,))


def _spread(database: psycopg.Connection[Any]) -> None:
    """Let what was acknowledged be so within three hours on two days, after some time in the queue."""
    days: LiteralString = (
        "select jmsql_internal.make_history_partition((now() at time zone 'UTC')::date - n)"
        " from generate_series(-1, 1) n"  # tomorrow may have begun when the next statement runs
    )
    database.execute(days)
    database.execute(
        """
        update jmsql_internal.message_history
        set acknowledged_at = moment,
            jms_timestamp = extract(epoch from moment - interval '7 milliseconds' * (sequence * 131 %% 977)) * 1000,
            jms_delivery_time = jms_delivery_time - extract(epoch from acknowledged_at - moment)::bigint * 1000
        from (select h.sequence as number,
                     date_trunc('day', now(), 'UTC') - interval '45 minutes' + interval '29 minutes' * (h.sequence %% 5)
                     + interval '1 microsecond' * h.sequence as moment
              from jmsql_internal.message_history h) as new
        where number = sequence and outcome = 'acknowledged' and destination <> 'DLQ'""",
        [],
    )


def _leave_what_others_have_stored(factory: jmsql.ConnectionFactory, database: psycopg.Connection[Any]) -> None:
    """Purge messages of other programs, which no client can read."""
    with jmsql.admin.Administration(factory) as administration:
        foreign = administration.create_queue("foreign", history=True)
        store_unreadable(database, foreign.name)
        for time in ('"soon"', str(2**62)):
            properties = f'{{"JMS_jmsql_DeadLetterReason": "by hand", "JMS_jmsql_DeadLetterTime": {time}}}'
            database.execute(INSERT, ["TextMessage", None, properties, "text", None, foreign.name])
        administration.purge(foreign)
