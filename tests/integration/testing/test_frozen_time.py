"""Tests of applications freeze time: limits of time go on, and messages have the server's time."""

from __future__ import annotations

import time

import freezegun

from jmsql import ConnectionFactory, Queue


def test_a_receive_ends_though_time_is_frozen(jmsql_factory: ConnectionFactory) -> None:
    now = time.time() * 1000
    with jmsql_factory.create_context() as context, freezegun.freeze_time("2020-01-01"):
        consumer = context.create_consumer(Queue("orders"))
        context.create_producer(time_to_live=60.0).send(Queue("orders"), "two kites")
        received = consumer.receive(timeout=60)
        assert received is not None
        assert received.jms_timestamp > now - 60_000
        assert consumer.receive(timeout=0.1) is None
