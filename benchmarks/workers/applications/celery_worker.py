"""Celery: a task that is acknowledged when it is done; SQLAlchemy for its row."""

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

app = import_peer("celery").Celery("effects", broker=broker_url())
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    # RabbitMQ says when it has a message. Redis' transport knows no such option.
    broker_transport_options={"confirm_publish": True} if broker_url().startswith("amqp:") else {},
)


@app.task  # type: ignore[untyped-decorator]
def record(number: int, body: str) -> None:  # noqa: ARG001 - as long as the others'
    """Handle a message."""
    began = time.monotonic()
    with _engine.begin() as connection:
        connection.execute(_insert, {"number": number, "began": began})


@contextmanager
def sending() -> Iterator[Send]:
    """Send by the task's own method."""

    def send(first: int, count: int) -> None:
        for number in range(first, first + count):
            record.delay(number, BODY)

    yield send
