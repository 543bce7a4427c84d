"""The demo's workers: processes that are started, listened to, killed while they hold messages, and ended."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Collection
from datetime import datetime
from types import TracebackType
from typing import NamedTuple, Self

import sqlalchemy
from sqlalchemy import Connection, Table

import jmsql
from examples.flights.database import DemoDatabase
from examples.flights.routing import Subscription
from examples.flights.worker import APPLICATION_NAME

_START_TIMEOUT = 60.0
_END_TIMEOUT = 30.0
_READ_AT_ONCE = 65536


class Worker:
    """A worker's process, and what it has reported.

    Args:
        name: Its name in the tables and in ``pg_stat_activity``.
        database: Where it works.
        subscription: What it receives from; None: the queue.
        selector: Which of the queue's flights it receives.
    """

    def __init__(
        self, name: str, database: DemoDatabase, subscription: Subscription | None, selector: str = ""
    ) -> None:
        self.name = name
        self.subscription = subscription
        self.is_ready = False
        self.handled = 0
        self.received: list[int] = []
        """The flights that it received and has not committed yet."""
        self._unread = b""
        duty = ["queue", selector] if subscription is None else ["subscription", subscription.title]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "examples.flights.worker", name, database.schema, *duty],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"JMSQL_URL": database.url},  # not an argument: others can read those
            start_new_session=True,  # Ctrl-C is for the demo, which then ends its workers
        )

    def read_reports(self) -> bool:
        """Take in what it has reported; return False if it will report no more."""
        assert self.process.stdout is not None
        chunk = os.read(self.process.stdout.fileno(), _READ_AT_ONCE)
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        for line in lines:
            self._take_in(json.loads(line))
        return bool(chunk)

    def _take_in(self, step: dict[str, object]) -> None:
        match step:
            case {"ready": True}:
                self.is_ready = True
            case {"received": list(flight_ids)}:
                self.received = flight_ids
            case {"handled": int(number)}:
                self.received = []
                self.handled += number

    def say_that_no_more_comes(self) -> None:
        """Let it end when it finds no more messages."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def close(self) -> None:
        """End the process, if it is there, and what leads to it."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


class Crew:
    """All workers. A context manager, which leaves no process behind."""

    def __init__(self, database: DemoDatabase) -> None:
        self._database = database
        self._selector = selectors.DefaultSelector()
        self._workers: list[Worker] = []
        self._killed: list[Worker] = []

    def handled(self, subscription: Subscription | None) -> int:
        """Return how many messages of a subscription, or of the queue, the workers have handled and committed."""
        return sum(worker.handled for worker in self._workers if worker.subscription is subscription)

    def handle_flights(self, name: str, selector: str) -> None:
        """Start a worker that receives from the queue what a selector chooses."""
        self._start(Worker(name, self._database, None, selector))

    def subscribe(self, subscription: Subscription) -> list[str]:
        """Start the workers of a subscription, and return their names."""
        numbers = range(1, subscription.workers + 1)
        names = [f"{subscription.title} {number}" for number in numbers] if len(numbers) > 1 else [subscription.title]
        for name in names:
            self._start(Worker(name, self._database, subscription))
        return names

    def _start(self, worker: Worker) -> None:
        self._workers.append(worker)
        assert worker.process.stdout is not None
        self._selector.register(worker.process.stdout, selectors.EVENT_READ, worker)

    def wait_until_ready(self) -> None:
        """Wait until all workers can receive.

        Raises:
            JMSException: One of them cannot.
        """
        deadline = time.monotonic() + _START_TIMEOUT
        while not all(worker.is_ready for worker in self._workers):
            if time.monotonic() > deadline:
                raise jmsql.JMSException(f"The workers did not start within {_START_TIMEOUT:g} s.")
            self.listen(0.1)

    def listen(self, timeout: float) -> bool:
        """Take in what the workers report; return whether they reported anything.

        Raises:
            JMSException: A worker has ended, and was not to.
        """
        ready = self._selector.select(timeout)
        for key, _ in ready:
            worker: Worker = key.data
            if not worker.read_reports():
                self._selector.unregister(key.fileobj)
                if worker not in self._killed and worker.process.wait() != 0:
                    raise jmsql.JMSException(f"{worker.name} ended with exit code {worker.process.returncode}.")
        return bool(ready)

    def named(self, name: str) -> Worker:
        """Return the worker of that name."""
        return next(worker for worker in self._workers if worker.name == name)

    def kill(self, worker: Worker) -> None:
        """Kill a worker: it can do nothing about it. What it had reported before is taken in."""
        self._killed.append(worker)
        worker.process.kill()
        while worker.read_reports():
            pass
        assert worker.process.stdout is not None
        self._selector.unregister(worker.process.stdout)
        worker.process.wait()

    def finish(self) -> None:
        """Wait for the workers to find no more messages and to end.

        Raises:
            JMSException: They do not.
        """
        deadline = time.monotonic() + _END_TIMEOUT
        for worker in self._workers:
            if worker not in self._killed:
                worker.say_that_no_more_comes()
        while self._selector.get_map():
            if time.monotonic() > deadline:
                raise jmsql.JMSException(f"The workers did not end within {_END_TIMEOUT:g} s.")
            self.listen(0.1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._selector.close()
        for worker in self._workers:
            worker.close()


_STOPPED_WORKERS = sqlalchemy.text(
    """
    select substr(application_name, length(cast(:prefix as text)) + 1), clock_timestamp()
    from pg_catalog.pg_stat_activity
    where starts_with(application_name, cast(:prefix as text)) and pg_backend_pid() = any(pg_blocking_pids(pid))
    """
)


class Casualty(NamedTuple):
    """A worker that was killed, the flights that it held then, and the table that their rows were for."""

    worker: str
    process_id: int
    flight_ids: list[int]
    killed_at: datetime
    table: str


class Accident:
    """Stops all workers where it is worst: they have received messages, and wait to write their rows. Then kills one.

    It locks the table of the rows. That a worker waits for it, PostgreSQL says; which messages it holds, it has
    reported before.
    """

    def __init__(self, connection: Connection, crew: Crew, table: Table, endangered: Collection[str]) -> None:
        self._connection = connection
        self._crew = crew
        self._table = table
        self._lock = sqlalchemy.text(f"lock table {table} in share mode")
        self._endangered = endangered
        self._is_locked = False
        self.casualty: Casualty | None = None

    @property
    def is_over(self) -> bool:
        """True if a worker was killed."""
        return self.casualty is not None

    def proceed(self) -> Casualty | None:
        """Bring the accident about: kill a worker if one holds messages by now, return it, and let the others go on."""
        if not self._is_locked:
            self._connection.execute(self._lock)
            self._is_locked = True
        for name, now in self._connection.execute(_STOPPED_WORKERS, {"prefix": APPLICATION_NAME}):
            if name in self._endangered:
                worker = self._crew.named(name)
                self._crew.kill(worker)
                self.casualty = Casualty(name, worker.process.pid, worker.received, now, self._table.name)
                self._connection.rollback()
                return self.casualty
        return None
