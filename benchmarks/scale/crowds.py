"""Many at once: processes that send and receive, consumers that wait, consumers of one queue, queues."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import TypeAlias

import jmsql
import jmsql.asyncio as jms
from benchmarks import floor, provider
from benchmarks.database import BODY, BenchmarkDatabase
from benchmarks.measurement import BenchmarkResult, Contender, Work, at_least, at_most, compare
from benchmarks.setting import Setting

_PROCESSES = 8
_FEW, _MANY = 8, 64
_QUEUES = 1000
_IDLE_CONSUMERS = 100
_SETTLING_SECONDS = 4.0
_REPORTING_SECONDS = 12.0
"""By then the server has counted the transactions of connections that have become idle."""
_IDLE_SECONDS = 10.0
_BATCH = 10
_LARGE_BATCH = 100
_PATIENCE = 60.0

Pump: TypeAlias = Callable[[int], None]
"""Sends so many messages, and returns when all have been received."""

OpenWork: TypeAlias = Callable[[BenchmarkDatabase], AbstractContextManager[Work]]

OpenPump: TypeAlias = Callable[[BenchmarkDatabase], AbstractContextManager[Pump]]


def processes(setting: Setting) -> list[BenchmarkResult]:
    """8 processes, each of which sends a message and receives one, by turns."""
    contenders = [
        Contender("jmsql", partial(_in_processes, setting.database, [_exchange_by_provider] * _PROCESSES)),
        Contender("floor", partial(_in_processes, setting.database, [_exchange_by_floor] * _PROCESSES)),
    ]
    samples = setting.measure(contenders, setting.effort.singles * _PROCESSES)
    return compare("processes", samples, "jmsql", {"floor": at_least(0.85)})


def idle_consumers(setting: Setting) -> list[BenchmarkResult]:
    """100 consumers of one client that wait: transactions and processor time of the server."""
    database = setting.database
    with database.factory.create_connection() as connection:
        connection.start()
        for number in range(_IDLE_CONSUMERS):
            session = connection.create_session()
            consumer = session.create_consumer(session.create_queue(f"idle {number % 10}"))
            threading.Thread(target=consumer.receive, daemon=True).start()
        time.sleep(_SETTLING_SECONDS + _REPORTING_SECONDS)  # their own looks end
        transactions, seconds = database.transactions(), database.server_seconds()
        time.sleep(_IDLE_SECONDS)
        rate = (database.transactions() - transactions) / _IDLE_SECONDS
        load = 1000 * (database.server_seconds() - seconds) / _IDLE_SECONDS
    return [
        BenchmarkResult(
            "idle-consumers", "100 consumers", "each once in 5 s", "transactions/s", [rate], [20.0], at_most(1.0)
        ),
        BenchmarkResult("idle-consumers load", "100 consumers", "1 % of a core", "ms/s", [load], [10.0]),
    ]


def many_consumers(setting: Setting) -> list[BenchmarkResult]:
    """64 consumers on one queue, beside 8: rate, and the server's processor time."""
    pumps: dict[str, OpenPump] = {
        f"{count} consumers": partial(_pump_to_threads, count=count) for count in (_MANY, _FEW)
    }
    return _compare_pumps(setting, "many-consumers", pumps)


def crowded_queue(setting: Setting) -> list[BenchmarkResult]:
    """64 consumers of one queue in transactions of 100, in one process and in 8, beside loops by hand."""
    database = setting.database
    # Whole batches for each, and many: the server plans a statement of a new connection six times.
    messages = _MANY * _LARGE_BATCH * (5 if setting.effort.is_quick else 20)
    found = []
    # Not all at once: a server has 200 connections.
    for subject, references in (
        ("64 consumers", {"1 consumer": at_least(0.8), "64 loops, a queue each": at_least(0.95)}),
        ("8 x 8 consumers", {"1 consumer": at_least(0.8), "8 x 8 loops, a queue each": at_least(0.95)}),
        ("64 loops", {"1 loop": None}),
        ("64 loops, a queue each", {"1 loop": None}),
    ):
        contenders = [_crowd(database, name) for name in (subject, *references)]
        samples = setting.measure(contenders, messages, rounds=5)
        found += compare("crowded-queue", samples, subject, references)
    return found


def _crowd(database: BenchmarkDatabase, name: str) -> Contender:
    """Return the receivers of a name. Those with a queue each pass over nothing."""
    queues = [[f"{name} {process} {number}" for number in range(_FEW)] for process in range(_PROCESSES)]
    each = [queue for some in queues for queue in some]
    open_works: dict[str, OpenWork] = {
        "1 consumer": partial(_receive_in_threads, queue=name, count=1),
        "64 consumers": partial(_receive_in_threads, queue=name, count=_MANY),
        "8 x 8 consumers": partial(
            _in_processes, works=[partial(_receive_in_threads, queue=name, count=_FEW)] * _PROCESSES
        ),
        "1 loop": partial(_loop_in_threads, queue=name, count=1),
        "64 loops": partial(_loop_in_threads, queue=name, count=_MANY),
        "64 loops, a queue each": partial(_loop_apart, queues=each),
        "8 x 8 loops, a queue each": partial(
            _in_processes, works=[partial(_loop_apart, queues=some) for some in queues]
        ),
    }
    fill = partial(_fill_each, database, each) if name.endswith("each") else partial(database.fill, name)
    return Contender(name, partial(open_works[name], database), fill)


def many_queues(setting: Setting) -> list[BenchmarkResult]:
    """1,000 queues with a consumer each in one event loop, beside 8: rate, and the server's processor time."""
    pumps: dict[str, OpenPump] = {f"{count} queues": partial(_pump_to_tasks, count=count) for count in (_QUEUES, _FEW)}
    return _compare_pumps(setting, "many-queues", pumps)


def _compare_pumps(setting: Setting, benchmark: str, pumps: Mapping[str, OpenPump]) -> list[BenchmarkResult]:
    """Compare the first pump with the second."""
    database = setting.database
    rates: dict[str, list[float]] = {name: [] for name in pumps}
    loads: dict[str, list[float]] = {name: [] for name in pumps}
    with ExitStack() as stack:
        opened = [(name, stack.enter_context(open_pump(database))) for name, open_pump in pumps.items()]
        time.sleep(_SETTLING_SECONDS)
        for number in range(setting.effort.rounds + 1):
            for name, pump in opened if number % 2 else reversed(opened):
                seconds, started = database.server_seconds(), time.perf_counter()
                pump(setting.effort.messages)
                duration = time.perf_counter() - started
                if number:
                    rates[name].append(setting.effort.messages / duration)
                    loads[name].append(1000 * (database.server_seconds() - seconds) / setting.effort.messages)
            setting.tell(f"round {number}")
    many, few = pumps
    return [
        BenchmarkResult(benchmark, many, few, "messages/s", rates[many], rates[few], at_least(1.0)),
        BenchmarkResult(f"{benchmark} load", many, few, "ms a message", loads[many], loads[few], at_most(1.0)),
    ]


@contextmanager
def _pump_to_threads(database: BenchmarkDatabase, count: int) -> Iterator[Pump]:
    """Have so many threads receive from one queue, in AUTO sessions."""
    received = threading.Semaphore(0)
    queue = jmsql.Queue(f"{count} consumers")

    def receive(consumer: jmsql.MessageConsumer) -> None:
        while consumer.receive() is not None:
            received.release()

    with (
        database.factory.create_connection() as connection,
        provider.send_in_transactions(database, queue.name, _BATCH) as send,
    ):
        connection.start()
        for _ in range(count):
            consumer = connection.create_session().create_consumer(queue)
            threading.Thread(target=receive, args=(consumer,), daemon=True).start()

        def pump(messages: int) -> None:
            send(messages)
            for _ in range(messages):
                if not received.acquire(timeout=_PATIENCE):
                    raise SystemExit("A message did not come.")

        yield pump


@contextmanager
def _receive_in_threads(database: BenchmarkDatabase, queue: str, count: int) -> Iterator[Work]:
    """Have so many sessions of one client receive in transactions."""
    with database.factory.create_connection() as connection:
        sessions = [connection.create_session(transacted=True) for _ in range(count)]
        connection.start()
        yield partial(_divided, [partial(_receive, each, each.create_consumer(queue)) for each in sessions])


def _receive(session: jmsql.Session, consumer: jmsql.MessageConsumer, messages: int) -> None:
    for number in range(1, messages + 1):
        if consumer.receive(_PATIENCE) is None:
            raise SystemExit("A message did not come.")
        if number % _LARGE_BATCH == 0:
            session.commit()


@contextmanager
def _loop_in_threads(database: BenchmarkDatabase, queue: str, count: int) -> Iterator[Work]:
    """Have so many connections dequeue in transactions, each scan from the front of the queue."""
    with ExitStack() as stack:
        loops = [floor.receive(database, queue, _LARGE_BATCH, transacted=True, bounded=False) for _ in range(count)]
        yield partial(_divided, [stack.enter_context(loop) for loop in loops])


@contextmanager
def _loop_apart(database: BenchmarkDatabase, queues: Sequence[str]) -> Iterator[Work]:
    """Have a connection for each queue dequeue in transactions."""
    with ExitStack() as stack:
        loops = [floor.receive(database, queue, _LARGE_BATCH, transacted=True) for queue in queues]
        yield partial(_divided, [stack.enter_context(loop) for loop in loops])


def _fill_each(database: BenchmarkDatabase, queues: Sequence[str], count: int) -> None:
    for queue in queues:
        database.fill(queue, count // len(queues))


def _divided(works: Sequence[Work], messages: int) -> None:
    """Have each of some threads do its part of the work."""
    with ThreadPoolExecutor(len(works)) as threads:
        for done in [threads.submit(work, messages // len(works)) for work in works]:
            done.result()


@contextmanager
def _pump_to_tasks(database: BenchmarkDatabase, count: int) -> Iterator[Pump]:
    """Have an event loop receive from so many queues, in AUTO sessions."""
    with asyncio.Runner() as runner:
        received = asyncio.Semaphore(0)

        async def receive(consumer: jms.MessageConsumer) -> None:
            while await consumer.receive() is not None:
                received.release()

        async def open_consumers() -> tuple[jms.Connection, list[asyncio.Task[None]]]:
            connection = await database.asyncio_factory.create_connection()
            await connection.start()
            receiving = []
            for number in range(count):
                consumer = await connection.create_session().create_consumer(jmsql.Queue(f"{number} of {count}"))
                receiving.append(asyncio.create_task(receive(consumer)))
            return connection, receiving

        async def run(messages: int) -> None:
            async with connection.create_session(transacted=True) as session:
                producer = await session.create_producer()
                for number in range(messages):
                    queue = jmsql.Queue(f"{number % count} of {count}")
                    await producer.send(session.create_text_message(BODY), queue)
                    if number % _BATCH == _BATCH - 1:
                        await session.commit()
                await session.commit()
            async with asyncio.timeout(_PATIENCE):
                for _ in range(messages):
                    await received.acquire()

        connection, receiving = runner.run(open_consumers())
        yield lambda messages: runner.run(run(messages))
        for task in receiving:
            task.cancel()
        runner.run(connection.close())


@contextmanager
def _in_processes(database: BenchmarkDatabase, works: Sequence[OpenWork]) -> Iterator[Work]:
    """Have a process for each work do its part."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.scale.crowds", "sqlalchemy.dialects.postgresql.psycopg"])
    pipes, children = [], []
    for open_work in works:
        here, there = context.Pipe()
        children.append(context.Process(target=_obey, args=(database.url, there, open_work), daemon=True))
        children[-1].start()
        there.close()
        pipes.append(here)

    def work(count: int) -> None:
        for pipe in pipes:
            pipe.send(count // len(pipes))
        for pipe in pipes:
            pipe.recv()

    for pipe in pipes:
        pipe.recv()
    yield work
    for pipe in pipes:
        pipe.send(0)
    for child in children:
        child.join()


def _obey(url: str, orders: Connection, open_work: OpenWork) -> None:
    with open_work(BenchmarkDatabase(url)) as work:
        orders.send(None)
        while count := orders.recv():
            work(count)
            orders.send(None)


@contextmanager
def _exchange_by_provider(database: BenchmarkDatabase) -> Iterator[Work]:
    """Send a message and receive one, by turns."""
    with provider.send(database, "jmsql") as send, provider.receive(database, "jmsql") as receive:
        yield partial(_take_turns, send, receive)


@contextmanager
def _exchange_by_floor(database: BenchmarkDatabase) -> Iterator[Work]:
    """Insert a message and dequeue one, by turns."""
    queue_id = database.queue_id("floor")
    # From the front: what commits late is below where the last scan ended.
    bounds = floor.Bounds(kept=False)
    with floor.send(database, "floor") as send, database.connect(autocommit=True) as connection:

        def receive(_: int) -> None:
            while not connection.execute(*floor.dequeue(queue_id, bounds, 1), prepare=True).fetchall():
                pass  # others have what this one saw, and what they sent since it did not

        yield partial(_take_turns, send, receive)


def _take_turns(send: Work, receive: Work, messages: int) -> None:
    for _ in range(messages):
        send(1)
        receive(1)
