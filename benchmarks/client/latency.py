"""How long a message takes from send to receive while nothing else goes on."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import psycopg
from psycopg.rows import dict_row

from benchmarks import floor
from benchmarks.database import BenchmarkDatabase
from benchmarks.measurement import BenchmarkResult, Target, at_most, percentiles
from benchmarks.setting import Setting

_PAUSE = 0.02
_BLOCKS = 3

Send = Callable[[], None]


def idle_latency(setting: Setting) -> list[BenchmarkResult]:
    """Time from send to receive in another process, in a thread or an event loop, on an idle system."""
    samples: dict[str, list[float]] = {"jmsql": [], "asyncio": [], "floor": []}
    with (
        _receiving(_receive_by_provider, setting.database) as jmsql_times,
        _receiving(_receive_by_asyncio, setting.database) as asyncio_times,
        _receiving(_receive_by_floor, setting.database) as floor_times,
        _provider_sender(setting.database, "jmsql") as send_by_provider,
        _provider_sender(setting.database, "asyncio") as send_to_asyncio,
        _floor_sender(setting.database) as send_by_floor,
    ):
        turns = [
            ("jmsql", send_by_provider, jmsql_times),
            ("asyncio", send_to_asyncio, asyncio_times),
            ("floor", send_by_floor, floor_times),
        ]
        for number in range(setting.effort.latencies):
            place = number % len(turns)
            for name, send, times in [*turns[place:], *turns[:place]]:
                time.sleep(_PAUSE * random.uniform(0.5, 1.5))
                started = time.monotonic()
                send()
                samples[name].append(1000 * (times.recv() - started))
            if number % 50 == 0:
                setting.tell(f"{number} messages of {setting.effort.latencies}")
    return [
        _percentile("idle-latency p50", 50, samples, "jmsql", "floor", at_most(1.1)),
        _percentile("idle-latency p99", 99, samples, "jmsql", "floor", at_most(1.3)),
        _percentile("idle-latency p50", 50, samples, "asyncio", "jmsql", at_most(1.3)),
        _percentile("idle-latency p99", 99, samples, "asyncio", "jmsql"),
    ]


def _percentile(
    benchmark: str,
    percent: int,
    samples: dict[str, list[float]],
    subject: str,
    reference: str,
    target: Target | None = None,
) -> BenchmarkResult:
    figures, reference_figures = (percentiles(samples[name], percent, _BLOCKS) for name in (subject, reference))
    return BenchmarkResult(benchmark, subject, reference, "ms", figures, reference_figures, target)


@contextmanager
def _receiving(receive: Callable[[str, Connection], None], database: BenchmarkDatabase) -> Iterator[Connection]:
    """Run a receiver in a process of its own, which tells the time when it has a message."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=receive, args=(database.url, there), daemon=True)
    process.start()
    there.close()
    here.recv()
    time.sleep(1.0)  # what it starts in the background settles
    try:
        yield here
    finally:
        process.terminate()
        process.join()


def _receive_by_provider(url: str, times: Connection) -> None:
    with BenchmarkDatabase(url).factory.create_connection() as connection, connection.create_session() as session:
        consumer = session.create_consumer(session.create_queue("jmsql"))
        connection.start()
        times.send(None)
        while consumer.receive() is not None:
            times.send(time.monotonic())


def _receive_by_asyncio(url: str, times: Connection) -> None:
    async def receive() -> None:
        async with (
            BenchmarkDatabase(url).asyncio_factory.create_connection() as connection,
            connection.create_session() as session,
        ):
            consumer = await session.create_consumer(session.create_queue("asyncio"))
            await connection.start()
            times.send(None)
            while await consumer.receive() is not None:
                times.send(time.monotonic())

    asyncio.run(receive())


def _receive_by_floor(url: str, times: Connection) -> None:
    database = BenchmarkDatabase(url)
    queue_id = database.queue_id("floor")
    bounds = floor.Bounds()
    with database.connect(autocommit=True) as connection:
        connection.execute("listen floor")
        cursor = connection.cursor(row_factory=dict_row)
        times.send(None)
        while True:
            rows = cursor.execute(*floor.dequeue(queue_id, bounds, 1), prepare=True).fetchall()
            if rows:
                times.send(time.monotonic())
                bounds.passed(rows)
            else:
                next(connection.notifies())


@contextmanager
def _provider_sender(database: BenchmarkDatabase, queue: str) -> Iterator[Send]:
    with database.factory.create_connection() as connection, connection.create_session() as session:
        producer = session.create_producer(session.create_queue(queue))

        def send() -> None:
            producer.send(session.create_text_message("x" * 200))

        yield send


@contextmanager
def _floor_sender(database: BenchmarkDatabase) -> Iterator[Send]:
    queue_id = database.queue_id("floor")
    with database.connect(autocommit=True) as connection:
        yield partial(_send_and_notify, connection, queue_id)


def _send_and_notify(connection: psycopg.Connection[Any], queue_id: int) -> None:
    with connection.transaction():
        connection.execute(*floor.insert(queue_id, 1), prepare=True)
        connection.execute("notify floor", prepare=True)
