"""The client's processor time for a message, beside the same work by hand in a psycopg loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial

import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection

from benchmarks import floor, provider
from benchmarks.database import BenchmarkDatabase
from benchmarks.measurement import BenchmarkResult, Target, Work, at_most
from benchmarks.setting import Setting
from jmsql import ConnectionFactory
from jmsql.worker import Application
from jmsql.worker.handlers.handler_groups import HandlerGroup, HandlersInEventLoop, HandlersInThreads
from jmsql.worker.settings import HandlerSettings

_FIRST = 100
"""Of so many messages the time is not taken: connections are opened and statements prepared meanwhile."""

_INSERT = "insert into effect (number) values (%s)"
_SQLALCHEMY_INSERT = sqlalchemy.text("insert into effect (number) values (:number)")
_TAKE = """
    delete from jmsql_internal.message where (queue_id, inverse_priority, sequence) = (
        select queue_id, inverse_priority, sequence from jmsql_internal.message
        where queue_id = %s and inverse_priority = 5 and sequence >= %s
        order by queue_id, inverse_priority, sequence limit 1 for update skip locked)
    returning sequence, jms_message_id, text_body"""

Measure = Callable[[BenchmarkDatabase, int], float]
"""Handles so many messages, and returns the seconds of the client's processor time for one."""
_OpenWork = Callable[[BenchmarkDatabase, str], AbstractContextManager[Work]]


def _loop(concurrency: int, database: BenchmarkDatabase, count: int) -> float:
    """Dequeue, insert and commit by hand, in one transaction, in so many threads with a queue each."""
    stopwatch = _Stopwatch(count)
    share = (_FIRST + count) // concurrency

    def run(queue_id: int) -> None:
        lowest = 0
        with database.connect(autocommit=False) as connection, connection.cursor() as cursor:
            for _ in range(share):
                row = cursor.execute(_TAKE, (queue_id, lowest), prepare=True).fetchone()
                assert row is not None
                lowest = row[0] + 1
                connection.execute(_INSERT, (stopwatch.note(),), prepare=True)
                connection.commit()

    queues = [f"loop {number} of {concurrency}" for number in range(concurrency)]
    for queue in queues:
        database.fill(queue, share)
    with ThreadPoolExecutor(concurrency) as threads:
        for loop in [threads.submit(run, database.queue_id(queue)) for queue in queues]:
            loop.result()
    return stopwatch.seconds


class _Stopwatch:
    """Measures the processor time from one handled message to another."""

    def __init__(self, count: int) -> None:
        self._last = _FIRST + count
        self._started = 0.0
        self._handled = 0
        self._lock = threading.Lock()
        self.seconds = 0.0
        self.ended = threading.Event()

    def note(self) -> int:
        """Count a message."""
        with self._lock:
            self._handled += 1
            if self._handled == _FIRST:
                self._started = time.process_time()
            if self._handled == self._last:
                self.seconds = (time.process_time() - self._started) / (self._last - _FIRST)
                self.ended.set()
            return self._handled


def _handle(name: str, concurrency: int, database: BenchmarkDatabase, count: int) -> float:
    """Handle messages in this process, each with a row."""
    stopwatch = _Stopwatch(count)

    def by_psycopg(connection: psycopg.Connection) -> None:
        connection.execute(_INSERT, (stopwatch.note(),))

    def by_sqlalchemy(database: sqlalchemy.Connection) -> None:
        database.execute(_SQLALCHEMY_INSERT, {"number": stopwatch.note()})

    async def by_psycopg_async(connection: psycopg.AsyncConnection) -> None:
        await connection.execute(_INSERT, (stopwatch.note(),))

    async def by_sqlalchemy_async(database: AsyncConnection) -> None:
        await database.execute(_SQLALCHEMY_INSERT, {"number": stopwatch.note()})

    handlers: dict[str, Callable[..., object]] = {
        "def, psycopg": by_psycopg,
        "def, SQLAlchemy": by_sqlalchemy,
        "async def, psycopg": by_psycopg_async,
        "async def, SQLAlchemy": by_sqlalchemy_async,
    }
    handler = handlers[name]
    app = Application(ConnectionFactory(database.url))
    app.listener(name)(handler)
    settings = HandlerSettings(concurrency=concurrency)
    group: HandlerGroup
    database.fill(name, _FIRST + count)
    if asyncio.iscoroutinefunction(handler):
        group = HandlersInEventLoop.open(database.asyncio_factory, app.listeners, settings)
    else:
        group = HandlersInThreads.open(database.factory, app.listeners, settings)
    group.start()
    if not stopwatch.ended.wait(120.0):
        raise SystemExit(f"{name} ran out of messages.")
    group.end(10.0).result()
    return stopwatch.seconds


def _drive(open_work: _OpenWork, queue: str, database: BenchmarkDatabase, count: int) -> float:
    """Send or receive messages, each of which commits by itself."""
    with open_work(database, queue) as work:
        work(_FIRST)
        started = time.process_time()
        work(count)
        return (time.process_time() - started) / count


def _drain(open_work: _OpenWork, queue: str, database: BenchmarkDatabase, count: int) -> float:
    database.fill(queue, _FIRST + count)
    return _drive(open_work, queue, database, count)


def _dequeue(database: BenchmarkDatabase, queue: str) -> AbstractContextManager[Work]:
    return floor.receive(database, queue, 1)


MEASURES: dict[str, Measure] = {
    "the loop, by hand": partial(_loop, 1),
    "10 loops, by hand": partial(_loop, 10),
    **{
        f"{name}, {concurrency}": partial(_handle, name, concurrency)
        for name in ("def, psycopg", "def, SQLAlchemy", "async def, psycopg", "async def, SQLAlchemy")
        for concurrency in (1, 10)
    },
    "one INSERT, by hand": partial(_drive, floor.send, "sent by hand"),
    "AUTO send": partial(_drive, provider.send, "sent"),
    "one DELETE, by hand": partial(_drain, _dequeue, "received by hand"),
    "AUTO receive": partial(_drain, provider.receive, "received"),
}
"""What is measured, by the names of tables."""

_COMPARISONS: tuple[tuple[str, str, Target | None], ...] = (
    ("def, psycopg, 1", "the loop, by hand", at_most(1.4)),
    ("10 loops, by hand", "the loop, by hand", None),
    ("def, psycopg, 10", "the loop, by hand", at_most(1.4)),
    ("def, psycopg, 10", "10 loops, by hand", None),
    ("def, SQLAlchemy, 1", "the loop, by hand", at_most(1.7)),
    ("def, SQLAlchemy, 10", "the loop, by hand", at_most(1.7)),
    ("def, SQLAlchemy, 10", "10 loops, by hand", None),
    ("async def, psycopg, 1", "the loop, by hand", None),
    ("async def, psycopg, 10", "the loop, by hand", None),
    ("async def, psycopg, 1", "def, psycopg, 1", at_most(1.25)),
    ("async def, psycopg, 10", "def, psycopg, 10", at_most(1.25)),
    ("async def, SQLAlchemy, 1", "the loop, by hand", None),
    ("async def, SQLAlchemy, 10", "the loop, by hand", None),
    ("async def, SQLAlchemy, 1", "def, SQLAlchemy, 1", at_most(1.25)),
    ("async def, SQLAlchemy, 10", "def, SQLAlchemy, 10", at_most(1.25)),
    ("AUTO send", "one INSERT, by hand", at_most(1.5)),
    ("AUTO receive", "one DELETE, by hand", None),
)


def client_time(setting: Setting) -> list[BenchmarkResult]:
    """Send and handle single messages, by the client's processor time, beside a psycopg loop."""
    setting.database.execute("create table effect (number integer)")
    found: dict[str, list[float]] = {name: [] for name in MEASURES}
    # Rounds of a few milliseconds would measure the clock.
    messages = 200 if setting.effort.is_quick else 1000
    for number in range(min(setting.effort.rounds, 10) + 1):  # the first one warms up
        setting.tell(f"round {number}")
        names = list(MEASURES) if number % 2 else list(reversed(MEASURES))
        for name in names:
            microseconds = MEASURES[name](setting.database, messages) * 1e6
            if number:
                found[name].append(microseconds)
    return [
        BenchmarkResult("client-time", subject, reference, "µs of CPU", found[subject], found[reference], target)
        for subject, reference, target in _COMPARISONS
    ]
