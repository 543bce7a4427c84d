"""Dramatiq: an actor, whose messages are acknowledged when it is done; SQLAlchemy for its row."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy

from benchmarks.database import BODY
from benchmarks.peers.peer import import_peer
from benchmarks.workers.applications import Send
from benchmarks.workers.effects import SQLALCHEMY_INSERT, broker_url, concurrency, sqlalchemy_url

_insert = sqlalchemy.text(SQLALCHEMY_INSERT)
_engine = sqlalchemy.create_engine(sqlalchemy_url(), pool_size=concurrency())

dramatiq = import_peer("dramatiq")
if broker_url().startswith("amqp:"):
    broker = import_peer("dramatiq.brokers.rabbitmq").RabbitmqBroker(url=broker_url(), confirm_delivery=True)
else:
    broker = import_peer("dramatiq.brokers.redis").RedisBroker(url=broker_url())
dramatiq.set_broker(broker)


@dramatiq.actor  # type: ignore[untyped-decorator]
def record(number: int, body: str) -> None:  # noqa: ARG001 - as long as the others'
    """Handle a message."""
    began = time.monotonic()
    with _engine.begin() as connection:
        connection.execute(_insert, {"number": number, "began": began})


@contextmanager
def sending() -> Iterator[Send]:
    """Send by the actor's own method."""

    def send(first: int, count: int) -> None:
        for number in range(first, first + count):
            record.send(number, BODY)

    yield send
