"""Producers and workers in processes of their own, and what became of each message."""

from __future__ import annotations

import logging
import multiprocessing
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import RawArray
from multiprocessing.synchronize import Event
from typing import Any

import psycopg

from benchmarks.database import BenchmarkDatabase
from benchmarks.queues.system import BATCH, SYSTEMS, Send, System
from jmsql import JMSException

_CAPACITY = 2_000_000
"""How many messages a run can have."""

_BACKLOG = 5_000
"""How many messages unpaced producers keep waiting."""

_context = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class _Record:
    """What processes share: by its number, when a message was sent and handled, and how often it was handled."""

    sent_at: Any = field(default_factory=lambda: RawArray("d", _CAPACITY))
    handled_at: Any = field(default_factory=lambda: RawArray("d", _CAPACITY))
    times: Any = field(default_factory=lambda: RawArray("B", _CAPACITY))
    sent: Any = field(default_factory=lambda: RawArray("q", 1))
    handled: Any = field(default_factory=lambda: RawArray("q", 256))
    connected: Any = field(default_factory=lambda: RawArray("B", 256))
    stop_sending: Event = field(default_factory=_context.Event)
    stop_handling: Event = field(default_factory=_context.Event)


def _produce(name: str, url: str, record: _Record, rate: float | None) -> None:
    logging.disable()  # lost connections are what is measured
    due = time.monotonic()
    while not record.stop_sending.is_set():
        with suppress(psycopg.Error, JMSException), SYSTEMS[name].producer(url) as send:
            due = _send(record, send, rate, due)


def _send(record: _Record, send: Send, rate: float | None, due: float) -> float:
    while not record.stop_sending.is_set():
        first = record.sent[0]
        count = BATCH if rate is None else 1
        if first + count > _CAPACITY:
            raise SystemExit(f"A run can have {_CAPACITY:,} messages.")
        if rate is None:
            if first - sum(record.handled) > _BACKLOG:
                time.sleep(0.002)
                continue
        else:
            due += count / rate
            time.sleep(max(0.0, due - time.monotonic()))
        now = time.monotonic()
        for number in range(first, first + count):
            record.sent_at[number] = now
        try:
            send(range(first, first + count))
        except (psycopg.Error, JMSException):
            for number in range(first, first + count):
                record.sent_at[number] = 0.0  # nobody knows whether it was sent
            return due
        finally:
            record.sent[0] = first + count
    return due


def _handle(name: str, url: str, record: _Record, threads: int) -> None:
    logging.disable()
    workers = [
        threading.Thread(target=_handle_in_thread, args=(name, url, record, number)) for number in range(threads)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def _handle_in_thread(name: str, url: str, record: _Record, worker: int) -> None:
    def note(numbers: Sequence[int]) -> None:
        now = time.monotonic()
        for number in numbers:
            record.times[number] += 1
            record.handled_at[number] = record.handled_at[number] or now
        record.handled[worker] += len(numbers)

    while not record.stop_handling.is_set():
        with suppress(psycopg.Error, JMSException), SYSTEMS[name].worker(url) as handle:
            record.connected[worker] = True
            while not record.stop_handling.is_set():
                handle(note)


class Load:
    """A system under load.

    Args:
        system: What is measured.
        database: Where.
        workers: How many threads receive, in one process.
        rate: How many messages a second are sent, one with each commit; None: as many as the workers keep up with, 100
            with each commit.
    """

    def __init__(self, system: System, database: BenchmarkDatabase, workers: int, rate: float | None) -> None:
        self._system = system
        self._database = database
        self._workers = min(workers, system.most_workers or workers)
        self._record = _Record()
        self._producer = self._start(_produce, rate)
        self._worker = self._start(_handle, self._workers)

    def _start(self, target: Any, argument: object) -> BaseProcess:
        process = _context.Process(target=target, args=(self._system.name, self._database.url, self._record, argument))
        process.start()
        return process

    def wait_until_handled(self, count: int) -> None:
        """Wait until all workers have connected, and have handled so many messages: all that is slow at first is over.

        Connections of many workers at once take seconds, in which those that are there already have little to do.
        """
        while sum(self._record.connected) < self._workers or sum(self._record.handled) < count:
            time.sleep(0.02)

    def handled_between(self, start: float, end: float) -> float:
        """Return how many messages a second were handled between two readings of the monotonic clock."""
        sent = self._record.sent[0]
        handled: list[float] = self._record.handled_at[:sent]
        return sum(start <= at < end for at in handled) / (end - start)

    def latency(self, start: float, end: float) -> float:
        """Return the 95th percentile, in ms, of the time from before a send until a worker has the message."""
        sent, record = self._record.sent[0], self._record
        times: list[float] = [
            (handled or end) - at
            for at, handled in zip(record.sent_at[:sent], record.handled_at[:sent], strict=True)
            if start <= at < end
        ]
        return 1000 * statistics.quantiles(times, n=20, method="inclusive")[-1]

    def kill_workers(self) -> None:
        """Kill the process of the workers, and start another."""
        self._worker.kill()
        self._worker.join()
        # What the dead had noted stays; the count of its threads' messages is theirs no more.
        self._worker = self._start(_handle, self._workers)

    def end_backends(self) -> None:
        """Have the server end all connections of producers and workers."""
        self._database.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() "
            "and pid <> pg_backend_pid() and backend_type = 'client backend'"
        )

    def drain(self, seconds: float) -> tuple[int, int]:
        """Send no more, and let the workers handle what is left.

        Args:
            seconds: How long to wait for it.

        Returns:
            How many messages were never handled, and how many more than once.
        """
        self._record.stop_sending.set()
        self._producer.join()
        end = time.monotonic() + seconds
        while (lost := self._times().count(0)) and time.monotonic() < end:
            time.sleep(0.1)
        return lost, sum(times > 1 for times in self._times())

    def _times(self) -> list[int]:
        sent, record = self._record.sent[0], self._record
        return [times for times, at in zip(record.times[:sent], record.sent_at[:sent], strict=True) if at]

    def close(self) -> None:
        """End all processes."""
        self._record.stop_sending.set()
        self._record.stop_handling.set()
        for process in (self._producer, self._worker):
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()


@contextmanager
def load(system: System, database: BenchmarkDatabase, workers: int, rate: float | None = None) -> Iterator[Load]:
    """Put a system under load, and have its operators' work done, until the end of the block."""
    ended = threading.Event()
    tending = threading.Thread(target=_tend, args=(system, database, ended))
    tending.start()
    running = Load(system, database, workers, rate)
    try:
        running.wait_until_handled(BATCH)
        yield running
    finally:
        running.close()
        ended.set()
        tending.join()


def _tend(system: System, database: BenchmarkDatabase, ended: threading.Event) -> None:
    while system.tend is not None and not ended.is_set():
        with suppress(psycopg.Error), database.connect(autocommit=True) as connection:
            while not ended.wait(0.1):
                system.tend(connection)
