"""The queues that are compared: jmsql, pgmq, and PgQ, whose engine pgque ships again under its own name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.database import SCHEMA, BenchmarkDatabase
from benchmarks.peers.peer import Unavailable, import_peer
from jmsql import ConnectionFactory

BATCH = 100
"""The most messages that a worker receives at once, and that a producer sends with a commit."""

_QUEUE = "queues"
_WAIT = 0.5
"""Seconds that a worker waits for a message before it looks whether it is to end."""

_PAUSE = 0.02
"""Seconds that a worker of PgQ waits for the next tick."""

_PADDING = 200

Send = Callable[[Sequence[int]], None]
"""Sends messages with these numbers, with one commit."""

Note = Callable[[Sequence[int]], None]
"""Is told the numbers of the messages that a worker has, before it acknowledges them."""

Handle = Callable[[Note], None]
"""Receives messages, or waits a moment for some, notes them and acknowledges them."""


@dataclass(frozen=True, slots=True)
class System:
    """A queue, as its users reach it.

    Args:
        name: What tables call it.
        install: Makes it and its queue ready in a database.
        producer: Opens what sends, given the URL.
        worker: Opens what receives, given the URL.
        most_workers: How many workers can share a queue; None: any number.
        tend: Does what its operators have to have done each 0.1 s; None: nothing.
    """

    name: str
    install: Callable[[BenchmarkDatabase], None]
    producer: Callable[[str], AbstractContextManager[Send]]
    worker: Callable[[str], AbstractContextManager[Handle]]
    most_workers: int | None = None
    tend: Callable[[psycopg.Connection[Any]], None] | None = None


def _body(number: int) -> str:
    return f"{number:<{_PADDING}}"


# jmsql


def _install_jmsql(database: BenchmarkDatabase) -> None:
    database.queue_id(_QUEUE)


@contextmanager
def _jmsql_producer(url: str) -> Iterator[Send]:
    with (
        ConnectionFactory(url, schema=SCHEMA).create_connection() as connection,
        connection.create_session(transacted=True) as session,
    ):
        producer = session.create_producer(session.create_queue(_QUEUE))

        def send(numbers: Sequence[int]) -> None:
            for number in numbers:
                producer.send(session.create_text_message(_body(number)))
            session.commit()

        yield send


@contextmanager
def _jmsql_worker(url: str) -> Iterator[Handle]:
    with (
        ConnectionFactory(url, schema=SCHEMA).create_connection() as connection,
        connection.create_session(transacted=True) as session,
    ):
        consumer = session.create_consumer(session.create_queue(_QUEUE))
        connection.start()

        def handle(note: Note) -> None:
            message = consumer.receive(_WAIT)
            numbers: list[int] = []
            while message is not None:
                numbers.append(int(message.get_body(str) or ""))
                message = consumer.receive_no_wait() if len(numbers) < BATCH else None
            if numbers:
                note(numbers)
                session.commit()

        yield handle


# pgmq


def _install_pgmq(database: BenchmarkDatabase) -> None:
    database.execute(import_peer("pgmq.install").get_embedded_install_sql())
    with _pgmq(database.url) as client:
        client.create_queue(_QUEUE)


@contextmanager
def _pgmq(url: str) -> Iterator[Any]:
    pgmq, pool = import_peer("pgmq"), import_peer("psycopg_pool")
    with pool.ConnectionPool(url, min_size=1, max_size=1) as connections:
        yield pgmq.PGMQueue(pool=connections, init_extension=False)


@contextmanager
def _pgmq_producer(url: str) -> Iterator[Send]:
    with _pgmq(url) as client:
        yield lambda numbers: client.send_batch(_QUEUE, [{"body": _body(number)} for number in numbers])


@contextmanager
def _pgmq_worker(url: str) -> Iterator[Handle]:
    with _pgmq(url) as client:

        def handle(note: Note) -> None:
            messages = client.read_with_poll(
                _QUEUE, vt=5, qty=BATCH, max_poll_seconds=1, poll_interval_ms=int(1000 * _WAIT / 5)
            )
            if messages:
                note([int(message.message["body"]) for message in messages])
                client.delete_batch(_QUEUE, [message.msg_id for message in messages])

        yield handle


# PgQ, without its functions in C, as pgque has it

_PGQ_FILES = "/usr/share/postgresql"


def _install_pgq(database: BenchmarkDatabase) -> None:
    found = sorted(Path(_PGQ_FILES).glob("*/contrib/pgq_pl_only.sql"))
    if not found:
        raise Unavailable(f"there is no pgq_pl_only.sql under {_PGQ_FILES}; Debian has it in postgresql-15-pgq3")
    with database.connect(autocommit=True) as connection:
        connection.execute(found[-1].read_bytes())
        connection.execute("select pgq.create_queue(%s)", (_QUEUE,))
        connection.execute("select pgq.register_consumer(%s, 'worker')", (_QUEUE,))
        # A batch closes with each tick of 0.1 s, or when it has a thousand events.
        connection.execute(
            "update pgq.queue set queue_ticker_max_lag = '0.05 s', queue_ticker_max_count = 1000, "
            "queue_ticker_idle_period = '0.1 s'"
        )


def _tick(connection: psycopg.Connection[Any]) -> None:
    connection.execute("select pgq.ticker()")
    steps = connection.execute("select func_name, func_arg from pgq.maint_operations()").fetchall()
    for function, argument in steps:
        if function.startswith("pgq."):
            connection.execute(
                f"select {function}({'' if argument is None else '%s'})", [argument] * (argument is not None)
            )


@contextmanager
def _pgq_producer(url: str) -> Iterator[Send]:
    with psycopg.connect(url, autocommit=True) as connection:

        def send(numbers: Sequence[int]) -> None:
            connection.execute(
                "select pgq.insert_event(%s, 'message', body) from unnest(%s::text[]) as body",
                (_QUEUE, [_body(number) for number in numbers]),
                prepare=True,
            )

        yield send


@contextmanager
def _pgq_worker(url: str) -> Iterator[Handle]:
    with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:

        def handle(note: Note) -> None:
            row = cursor.execute("select pgq.next_batch(%s, 'worker')", (_QUEUE,), prepare=True).fetchone()
            batch = row and row[0]
            if batch is None:
                time.sleep(_PAUSE)
                return
            rows = cursor.execute("select ev_data from pgq.get_batch_events(%s)", (batch,), prepare=True).fetchall()
            note([int(body) for (body,) in rows])
            cursor.execute("select pgq.finish_batch(%s)", (batch,), prepare=True)

        yield handle


SYSTEMS = {
    system.name: system
    for system in (
        System("jmsql", _install_jmsql, _jmsql_producer, _jmsql_worker),
        System("pgmq", _install_pgmq, _pgmq_producer, _pgmq_worker),
        System("PgQ", _install_pgq, _pgq_producer, _pgq_worker, most_workers=1, tend=_tick),
    )
}
