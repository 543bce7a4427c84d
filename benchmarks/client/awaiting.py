"""jmsql.asyncio, beside the API for threads and beside psycopg's own loops."""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import asyncpg
import psycopg
from psycopg.rows import dict_row

import jmsql.asyncio as jms
from benchmarks import floor, provider
from benchmarks.database import BODY, BenchmarkDatabase
from benchmarks.measurement import BenchmarkResult, Contender, Work, at_least, at_most, compare
from benchmarks.scale.memory import mebibytes
from benchmarks.setting import Setting
from jmsql import AcknowledgeMode, Queue
from jmsql.asyncio.domains import QueueRequestor
from jmsql.domains import QueueRequestor as ThreadQueueRequestor

_BATCH = 100
_TARGETS = {"threads": at_least(0.8), "psycopg, async": at_least(0.8), "asyncpg": None}
_SINGLE_TARGETS = {"threads": None, "psycopg, async": at_least(0.85)}
_PROCESSOR_UNIT = "messages/s of CPU"
_SINGLES_OF_A_ROUND = 200
"""More than where the time of a round is taken: the clock of a process is coarser."""
_WAITING = 1000
_REQUESTS = 200
_IDLE_SECONDS = 10.0


def awaited_send(setting: Setting) -> list[BenchmarkResult]:
    """Send with jmsql.asyncio, 100 messages a commit."""
    database = setting.database
    contenders = [
        Contender("asyncio", partial(_send, database, "asyncio")),
        Contender("threads", partial(provider.send_in_transactions, database, "threads", _BATCH)),
        Contender("psycopg, async", partial(_send_by_psycopg, database, "floor")),
        Contender("asyncpg", partial(_send_by_asyncpg, database, "asyncpg")),
    ]
    samples = setting.measure(contenders, setting.effort.messages)
    return compare("awaited-send", samples, "asyncio", _TARGETS)


def awaited_receive(setting: Setting) -> list[BenchmarkResult]:
    """Receive with jmsql.asyncio, 100 messages a commit."""
    database = setting.database
    contenders = [
        Contender("asyncio", partial(_receive, database, "asyncio"), partial(database.fill, "asyncio")),
        Contender(
            "threads",
            partial(provider.receive_in_transactions, database, "threads", _BATCH),
            partial(database.fill, "threads"),
        ),
        Contender("psycopg, async", partial(_receive_by_psycopg, database, "floor"), partial(database.fill, "floor")),
        Contender("asyncpg", partial(_receive_by_asyncpg, database, "asyncpg"), partial(database.fill, "asyncpg")),
    ]
    samples = setting.measure(contenders, setting.effort.messages)
    return compare("awaited-receive", samples, "asyncio", _TARGETS)


def awaited_single_send(setting: Setting) -> list[BenchmarkResult]:
    """Send with jmsql.asyncio, one message a commit, by the client's processor time."""
    database = setting.database
    contenders = [
        Contender("asyncio", partial(_send_singly, database, "asyncio")),
        Contender("threads", partial(provider.send, database, "threads")),
        Contender("psycopg, async", partial(_send_singly_by_psycopg, database, "floor")),
    ]
    samples = setting.measure(contenders, _SINGLES_OF_A_ROUND, clock=time.process_time)
    return compare("awaited-single-send", samples, "asyncio", _SINGLE_TARGETS, _PROCESSOR_UNIT)


def awaited_single_receive(setting: Setting) -> list[BenchmarkResult]:
    """Receive in an AUTO session of jmsql.asyncio, one message a commit, by the client's processor time."""
    database = setting.database
    contenders = [
        Contender("asyncio", partial(_receive_singly, database, "asyncio"), partial(database.fill, "asyncio")),
        Contender("threads", partial(provider.receive, database, "threads"), partial(database.fill, "threads")),
        Contender(
            "psycopg, async", partial(_receive_singly_by_psycopg, database, "floor"), partial(database.fill, "floor")
        ),
    ]
    samples = setting.measure(contenders, _SINGLES_OF_A_ROUND, clock=time.process_time)
    return compare("awaited-single-receive", samples, "asyncio", _SINGLE_TARGETS, _PROCESSOR_UNIT)


def waiting_consumers(setting: Setting) -> list[BenchmarkResult]:
    """1,000 consumers that wait in one event loop: memory, and transactions of the idle server."""

    async def wait() -> tuple[float, float]:
        async with setting.database.asyncio_factory.create_connection() as connection:
            await connection.start()
            before = mebibytes("VmRSS")
            consumers = []
            for number in range(_WAITING):
                session = connection.create_session(acknowledge_mode=AcknowledgeMode.AUTO)
                consumers.append(await session.create_consumer(Queue(f"idle {number % 100}")))
            tasks = [asyncio.create_task(_swallow(consumer)) for consumer in consumers]
            await asyncio.sleep(_IDLE_SECONDS)  # their polls become rare
            grown = mebibytes("VmRSS") - before
            first = setting.database.transactions()
            await asyncio.sleep(_IDLE_SECONDS)
            rate = (setting.database.transactions() - first) / _IDLE_SECONDS
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return grown, rate

    grown, rate = asyncio.run(wait())
    return [
        BenchmarkResult("waiting-consumers memory", "1,000 consumers", "allowed", "MiB", [grown], [100.0], at_most(1)),
        BenchmarkResult("waiting-consumers load", "1,000 consumers", "each 5 s", "transactions/s", [rate], [200.0]),
    ]


def awaited_requests(setting: Setting) -> list[BenchmarkResult]:
    """200 requests at once, each with its reply: in tasks, and in threads."""
    database = setting.database
    contenders = [
        Contender("asyncio", partial(_request, database, "asyncio")),
        Contender("threads", partial(_request_by_threads, database, "threads")),
    ]
    samples = setting.measure(contenders, _REQUESTS, rounds=min(setting.effort.rounds, 10))
    return compare("awaited-requests", samples, "asyncio", {"threads": at_least(1.0)}, "requests/s")


@contextmanager
def _in_session(
    database: BenchmarkDatabase,
    work: Callable[[jms.Connection, jms.Session, int], Awaitable[None]],
    *,
    transacted: bool = True,
) -> Iterator[Work]:
    """Do work in a session, whose event loop runs while there is work."""
    with asyncio.Runner() as runner:

        async def connect() -> tuple[jms.Connection, jms.Session]:
            connection = await database.asyncio_factory.create_connection()
            await connection.start()
            return connection, connection.create_session(transacted=transacted)

        connection, session = runner.run(connect())

        async def run(count: int) -> None:
            await work(connection, session, count)

        def run_in_loop(count: int) -> None:
            runner.run(run(count))

        yield run_in_loop
        runner.run(connection.close())


@contextmanager
def _send(database: BenchmarkDatabase, queue: str) -> Iterator[Work]:
    async def work(_connection: jms.Connection, session: jms.Session, count: int) -> None:
        async with session.create_producer(Queue(queue)) as producer:
            for _ in range(count // _BATCH):
                for _ in range(_BATCH):
                    await producer.send(session.create_text_message(BODY))
                await session.commit()

    with _in_session(database, work) as run:
        yield run


@contextmanager
def _receive(database: BenchmarkDatabase, queue: str) -> Iterator[Work]:
    consumers: list[jms.MessageConsumer] = []

    async def work(_connection: jms.Connection, session: jms.Session, count: int) -> None:
        if not consumers:
            consumers.append(await session.create_consumer(Queue(queue)))
        for number in range(1, count + 1):
            if await consumers[0].receive(timeout=10.0) is None:
                raise SystemExit(f"{queue} ran out of messages.")
            if number % _BATCH == 0:
                await session.commit()

    with _in_session(database, work) as run:
        yield run


@contextmanager
def _send_singly(database: BenchmarkDatabase, queue: str) -> Iterator[Work]:
    async def work(_connection: jms.Connection, session: jms.Session, count: int) -> None:
        async with session.create_producer(Queue(queue)) as producer:
            for _ in range(count):
                await producer.send(session.create_text_message(BODY))

    with _in_session(database, work, transacted=False) as run:
        yield run


@contextmanager
def _receive_singly(database: BenchmarkDatabase, queue: str) -> Iterator[Work]:
    consumers: list[jms.MessageConsumer] = []

    async def work(_connection: jms.Connection, session: jms.Session, count: int) -> None:
        if not consumers:
            consumers.append(await session.create_consumer(Queue(queue)))
        for _ in range(count):
            if await consumers[0].receive(timeout=10.0) is None:
                raise SystemExit(f"{queue} ran out of messages.")

    with _in_session(database, work, transacted=False) as run:
        yield run


async def _swallow(consumer: jms.MessageConsumer) -> None:
    async for _ in consumer:
        pass


@contextmanager
def _by_psycopg(
    database: BenchmarkDatabase, work: Callable[[psycopg.AsyncConnection[Any], int], Awaitable[None]]
) -> Iterator[Work]:
    with asyncio.Runner() as runner:

        async def connect() -> psycopg.AsyncConnection[Any]:
            return await psycopg.AsyncConnection.connect(database.url)

        connection = runner.run(connect())

        async def run(count: int) -> None:
            await work(connection, count)

        def run_in_loop(count: int) -> None:
            runner.run(run(count))

        yield run_in_loop
        runner.run(connection.close())


@contextmanager
def _send_by_psycopg(database: BenchmarkDatabase, queue: str) -> Iterator[Work]:
    queue_id = database.queue_id(queue)

    async def work(connection: psycopg.AsyncConnection[Any], count: int) -> None:
        for _ in range(count // _BATCH):
            await connection.execute(*floor.insert(queue_id, _BATCH), prepare=True)
            await connection.commit()

    with _by_psycopg(database, work) as run:
        yield run


@contextmanager
def _receive_by_psycopg(database: BenchmarkDatabase, queue: str) -> Iterator[Work]:
    queue_id, bounds = database.queue_id(queue), floor.Bounds()

    async def work(connection: psycopg.AsyncConnection[Any], count: int) -> None:
        cursor = connection.cursor(row_factory=dict_row)
        for _ in range(count // _BATCH):
            await cursor.execute(*floor.dequeue(queue_id, bounds, _BATCH), prepare=True)
            bounds.passed(await cursor.fetchall())
            await connection.commit()

    with _by_psycopg(database, work) as run:
        yield run


@contextmanager
def _send_singly_by_psycopg(database: BenchmarkDatabase, queue: str) -> Iterator[Work]:
    queue_id = database.queue_id(queue)

    async def work(connection: psycopg.AsyncConnection[Any], count: int) -> None:
        await connection.set_autocommit(True)
        for _ in range(count):
            await connection.execute(*floor.insert(queue_id, 1), prepare=True)

    with _by_psycopg(database, work) as run:
        yield run


@contextmanager
def _receive_singly_by_psycopg(database: BenchmarkDatabase, queue: str) -> Iterator[Work]:
    queue_id, bounds = database.queue_id(queue), floor.Bounds()

    async def work(connection: psycopg.AsyncConnection[Any], count: int) -> None:
        await connection.set_autocommit(True)
        cursor = connection.cursor(row_factory=dict_row)
        for _ in range(count):
            await cursor.execute(*floor.dequeue(queue_id, bounds, 1), prepare=True)
            bounds.passed(await cursor.fetchall())

    with _by_psycopg(database, work) as run:
        yield run


@contextmanager
def _by_asyncpg(
    database: BenchmarkDatabase, work: Callable[[asyncpg.Connection[asyncpg.Record], int], Awaitable[None]]
) -> Iterator[Work]:
    with asyncio.Runner() as runner:

        async def connect() -> asyncpg.Connection[asyncpg.Record]:
            return await asyncpg.connect(database.url)

        connection = runner.run(connect())

        async def run(count: int) -> None:
            for _ in range(count // _BATCH):
                async with connection.transaction():
                    await work(connection, _BATCH)

        yield lambda count: runner.run(run(count))
        runner.run(connection.close())


@contextmanager
def _send_by_asyncpg(database: BenchmarkDatabase, queue: str) -> Iterator[Work]:
    queue_id = database.queue_id(queue)

    async def work(connection: asyncpg.Connection[asyncpg.Record], count: int) -> None:
        statement, parameters = floor.insert(queue_id, count)
        await connection.execute(_numbered(statement), *parameters)

    with _by_asyncpg(database, work) as run:
        yield run


@contextmanager
def _receive_by_asyncpg(database: BenchmarkDatabase, queue: str) -> Iterator[Work]:
    queue_id, bounds = database.queue_id(queue), floor.Bounds()

    async def work(connection: asyncpg.Connection[asyncpg.Record], count: int) -> None:
        statement, parameters = floor.dequeue(queue_id, bounds, count)
        bounds.passed([dict(row) for row in await connection.fetch(_numbered(statement), *parameters.values())])

    with _by_asyncpg(database, work) as run:
        yield run


@cache
def _numbered(statement: str) -> str:
    """Return a statement of psycopg's with the placeholders of asyncpg's."""
    names: dict[str, int] = {"queue_id": 1, "lowest": 2, "limit": 3}
    positions = itertools.count(1)
    return re.sub(r"%(?:\((\w+)\))?s", lambda found: f"${names[found[1]] if found[1] else next(positions)}", statement)


@contextmanager
def _request(database: BenchmarkDatabase, queue: str) -> Iterator[Work]:
    async def answer(connection: jms.Connection) -> None:
        async with connection.create_session() as session, session.create_consumer(Queue(queue)) as consumer:
            producer = await session.create_producer()
            async for request in consumer:
                reply = session.create_text_message(request.get_body(str))
                reply.jms_correlation_id = request.jms_message_id
                assert request.jms_reply_to is not None
                await producer.send(reply, request.jms_reply_to)

    async def work(connection: jms.Connection, _: jms.Session, count: int) -> None:
        answering = [asyncio.create_task(answer(connection)) for _ in range(4)]
        requestors = [QueueRequestor(connection.create_session(), Queue(queue)) for _ in range(count)]
        replies = await asyncio.gather(*(each.request(jms.TextMessage("a"), timeout=60) for each in requestors))
        if None in replies:
            raise SystemExit("A reply did not come.")
        for requestor in requestors:
            await requestor.close()
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)

    with _in_session(database, work) as run:
        yield run


@contextmanager
def _request_by_threads(database: BenchmarkDatabase, queue: str) -> Iterator[Work]:
    with database.factory.create_connection() as connection:
        connection.start()

        def answer() -> None:
            with connection.create_session() as session, session.create_consumer(Queue(queue)) as consumer:
                producer = session.create_producer()
                while not ended.is_set():
                    request = consumer.receive(timeout=0.2)
                    if request is not None:
                        reply = session.create_text_message(request.get_body(str))
                        reply.jms_correlation_id = request.jms_message_id
                        assert request.jms_reply_to is not None
                        producer.send(reply, request.jms_reply_to)

        def ask() -> None:
            requestor = ThreadQueueRequestor(connection.create_session(), Queue(queue))
            if requestor.request(jms.TextMessage("a"), timeout=60) is None:
                failures.append(time.monotonic())
            requestor.close()

        failures: list[float] = []
        ended = threading.Event()

        def work(count: int) -> None:
            threads = [threading.Thread(target=ask) for _ in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if failures:
                raise SystemExit("A reply did not come.")

        answering = [threading.Thread(target=answer) for _ in range(4)]
        for thread in answering:
            thread.start()
        yield work
        ended.set()
        for thread in answering:
            thread.join()
