"""A notification may come with the answer to another statement of the control connection."""

from __future__ import annotations

import dataclasses
import time

import psycopg

from jmsql import ConnectionFactory, Queue
from jmsql.timings import InternalTimings
from tests.background import Background
from tests.integration.client.server import Server
from tests.slowness import scaled

ORDERS = Queue("orders")
SLOW = InternalTimings(minimum_poll_interval=30, maximum_poll_interval=30, shared_poll_interval=30)


def test_it_is_heeded_at_once(jmsql_factory: ConnectionFactory, server: Server, blocker: psycopg.Connection) -> None:
    factory = dataclasses.replace(jmsql_factory, timings=SLOW)
    delays = []
    # The first connection does the maintenance, which finds a message that nobody has told of.
    with factory.create_connection(), factory.create_connection() as connection:
        connection.start()
        session = connection.create_session()
        consumer, producer = session.create_consumer(ORDERS), connection.create_session().create_producer(Queue("more"))
        for number in range(6):
            receiving = Background(lambda: (consumer.receive(30), time.monotonic()))
            receiving.wait_until_it_waits()
            blocker.execute("lock table jmsql_internal.destination_counters in share mode")
            producer.send(session.create_text_message("counted"))
            server.wait_until_someone_waits()  # the control connection, which writes down what was sent
            server.rows("select jmsql.send('orders', %s)", str(number))
            released = time.monotonic()
            blocker.rollback()
            message, received = receiving.result()
            assert message is not None
            delays.append(received - released)
    assert max(delays) < scaled(0.3), delays
