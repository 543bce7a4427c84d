"""How much processor time it takes a client to connect."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from benchmarks.database import BenchmarkDatabase
from benchmarks.measurement import BenchmarkResult, at_most
from benchmarks.setting import Setting

_MAKE_KNOWN = "insert into jmsql_internal.connection (host, process_id) values ('floor', 0)"


def connecting(setting: Setting) -> list[BenchmarkResult]:
    """Processor time of a client that connects, the first time in its process and later."""
    rounds = setting.effort.singles
    database = setting.database
    later: dict[str, list[float]] = {"jmsql": [], "floor": []}
    with database.factory.create_connection() as connection, connection.create_session() as session:
        session.create_producer(session.create_queue("jmsql")).send(session.create_message())
        for number in range(rounds):
            turns = [("jmsql", _connect), ("floor", _connect_floor)]
            for name, connect in turns if number % 2 else reversed(turns):
                later[name].append(connect(database))
    setting.tell(f"{rounds} connections in one process")
    first: dict[str, list[float]] = {"jmsql": [], "floor": []}
    for number in range(max(rounds // 10, 3)):
        setting.tell(f"process {number}")
        for name, connect in (("jmsql", _connect), ("floor", _connect_floor)):
            first[name].append(_in_new_process(connect, database.url))
    return [
        BenchmarkResult("connecting", "jmsql", "floor", "ms", later["jmsql"], later["floor"], at_most(3.0)),
        BenchmarkResult("connecting first", "jmsql", "floor", "ms", first["jmsql"], first["floor"]),
    ]


def _connect(database: BenchmarkDatabase) -> float:
    started = time.process_time()
    connection = database.factory.create_connection()
    taken = time.process_time() - started
    connection.close()
    return 1000 * taken


def _connect_floor(database: BenchmarkDatabase) -> float:
    started = time.process_time()
    connection = database.connect(autocommit=True)
    connection.execute("listen floor")
    connection.execute(_MAKE_KNOWN)
    taken = time.process_time() - started
    connection.execute("delete from jmsql_internal.connection where host = 'floor'")
    connection.close()
    return 1000 * taken


def _in_new_process(connect: Callable[[BenchmarkDatabase], float], url: str) -> float:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_tell, args=(connect, url, there))
    process.start()
    there.close()
    taken: float = here.recv()
    process.join()
    return taken


def _tell(connect: Callable[[BenchmarkDatabase], float], url: str, result: Connection) -> None:
    result.send(connect(BenchmarkDatabase(url)))
