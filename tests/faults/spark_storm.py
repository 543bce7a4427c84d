"""Spark's drivers and tasks, and the server, are killed at random while two streams run; then the accounts are made.

``python -m tests.faults --spark --hours H --seed N`` runs it.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import sqlalchemy

import jmsql
from jmsql.testing import wait_for
from tests.faults.faulty_server import FaultyServer, faulty_server
from tests.spark.streaming import archived
from tests.spark.subprocesses import children_of, environment, start_module

_PATIENCE = 600.0
"""Seconds for what is left to be done once the faults are over."""

_DRIVER_KILLED = "driver killed"
"""After which the next fault waits for the next driver to do something."""

_FAILURES = (jmsql.JMSException, sqlalchemy.exc.SQLAlchemyError)

_ACCOUNT = "create table account (queue text, body text, what text)"
_NOTE = sqlalchemy.text("insert into account values (:queue, :body, :what)")


@dataclass
class SparkReport:
    """What happened, and what became of the messages."""

    seed: int
    seconds: float = 0.0
    drivers: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    accounts: dict[str, Counter[str]] = field(default_factory=dict)
    left: int = 0

    @property
    def is_right(self) -> bool:
        """Whether nothing is lost, doubled or left."""
        wrong = sum(account["lost"] + account["doubled"] for account in self.accounts.values())
        return not self.left and not wrong and all(account["sent"] for account in self.accounts.values())

    def __str__(self) -> str:
        faults = ", ".join(f"{count} times {name}" for name, count in sorted(self.faults.items()))
        lines = [f"seed {self.seed}, {self.seconds:.0f} s, {self.drivers} drivers: {faults}"]
        for name, account in self.accounts.items():
            lines.append(f"{name}: " + ", ".join(f"{count} {what}" for what, count in account.items()))
        if self.left:
            lines.append(f"{self.left} messages, claims, batches or staged messages are still there")
        return "\n".join(lines)


class SparkStorm:
    """Two streams, a producer and a competing consumer, and the faults that come over them.

    Args:
        seed: Repeats the choices.
        directory: Where the streams write.
        tell: Called with each fault.
    """

    def __init__(self, seed: int, directory: Path, tell: Callable[[str], None] = lambda _: None) -> None:
        self._random = random.Random(seed)
        self._directory = directory
        self._tell = tell
        self._report = SparkReport(seed)
        self._ends = threading.Event()
        self._is_quiet = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def run(self, seconds: float, pause: float) -> SparkReport:
        """Let faults come for so many seconds, then finish what is left and make the accounts.

        Args:
            seconds: How long.
            pause: Mean seconds between two faults.
        """
        with faulty_server() as server:
            with psycopg.connect(server.url) as connection:
                connection.execute(_ACCOUNT)
                connection.execute("insert into jmsql_internal.queue (name) values ('orders'), ('parcels')")
            started = time.monotonic()
            threads = [
                threading.Thread(target=work, args=(jmsql.ConnectionFactory(server.url),))
                for work in (self._produce, self._compete)
            ]
            with self._driver(server.url):
                for thread in threads:
                    thread.start()
                try:
                    self._wait_for_work(server.url)
                    started = time.monotonic()
                    self._strike(server, started + seconds, pause)
                finally:
                    self._ends.set()
                    for thread in threads:
                        thread.join()
                self._tell("no more faults")
                wait_for(lambda: self._left(server.url) == 0, _PATIENCE)
            self._report.seconds = time.monotonic() - started
            self._report.left = self._left(server.url)
            self._account(server.url)
        return self._report

    def _strike(self, server: FaultyServer, end: float, pause: float) -> None:
        faults: dict[str, Callable[[], object]] = {
            _DRIVER_KILLED: self._kill_driver,
            "task's process killed": self._kill_worker,
            "server stopped with -m immediate": lambda: server.kill(signal.SIGQUIT),
            "server killed": lambda: server.kill(signal.SIGKILL),
            "half of the connections terminated": lambda: server.terminate_backends(0.5),
            "process of the server killed": lambda: server.kill_backend(self._random.random()),
        }
        while time.monotonic() < end:
            time.sleep(min(self._random.expovariate(1 / pause), max(0.0, end - time.monotonic())))
            name = self._random.choice(list(faults))
            self._report.faults[name] += 1
            self._tell(name)
            faults[name]()
            if name.startswith("server"):
                server.start()
            server.wait_until_ready()
            if name == _DRIVER_KILLED:
                self._wait_for_work(server.url)

    @staticmethod
    def _wait_for_work(url: str) -> None:
        """Return when the driver has done something: it takes long to start."""
        before = _batches(url)
        wait_for(lambda: _batches(url) > before, _PATIENCE)

    @contextmanager
    def _driver(self, url: str) -> Iterator[None]:
        """Keep a driver running: as soon as it ends, it is started again."""
        ends = threading.Event()

        def keep() -> None:
            while not ends.is_set():
                self._report.drivers += 1
                with (self._directory / "driver.log").open("ab") as log, self._lock:
                    self._process = start_module(
                        "tests.spark.programs.pipeline_driver",
                        str(self._directory),
                        environment=environment(url),
                        log=log,
                    )
                self._process.wait()

        keeper = threading.Thread(target=keep)
        keeper.start()
        try:
            yield
        finally:
            ends.set()
            self._kill_driver()
            keeper.join()

    def _kill_driver(self) -> None:
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self._process is not None:
                os.killpg(self._process.pid, signal.SIGKILL)

    def _kill_worker(self) -> None:
        """Kill one of the driver's Python processes, if it has any."""
        if self._process is not None:
            workers = [process for process, line in children_of(self._process.pid) if "pyspark.daemon" in line]
            if workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._random.choice(workers), signal.SIGKILL)

    def _produce(self, factory: jmsql.ConnectionFactory) -> None:
        """Send messages, each with a row that says so in the same transaction."""
        number = 0
        while not self._ends.is_set():
            with contextlib.suppress(*_FAILURES), factory.create_connection() as connection:
                session = connection.create_session(transacted=True)
                producer = session.create_producer()
                while not self._ends.wait(0.5):
                    for queue in ("orders", "parcels"):
                        for _ in range(10):
                            number += 1
                            producer.send(session.create_text_message(f"{number:08}"), session.create_queue(queue))
                            self._note(session, queue, f"{number:08}", "sent")
                    session.commit()

    def _compete(self, factory: jmsql.ConnectionFactory) -> None:
        """Receive from the queue that is archived, and roll half of it back."""
        chance = random.Random(self._report.seed)
        while not self._ends.is_set():
            with contextlib.suppress(*_FAILURES), factory.create_connection() as connection:
                session = connection.create_session(transacted=True)
                consumer = session.create_consumer(session.create_queue("orders"))
                connection.start()
                while not self._ends.wait(0.3):
                    for _ in range(3):
                        message = consumer.receive(0.2)
                        if message is not None:
                            self._note(session, "orders", message.get_body(str) or "", "taken")
                    if chance.random() < 0.5:
                        session.commit()
                    else:
                        session.rollback()

    @staticmethod
    def _note(session: jmsql.Session, queue: str, body: str, what: str) -> None:
        session.database.execute(_NOTE, {"queue": queue, "body": body, "what": what})

    def _left(self, url: str) -> int:
        try:
            with psycopg.connect(url) as connection:
                row = connection.execute(
                    """select (select count(*) from jmsql.messages where queue in ('orders', 'parcels'))
                            + (select count(*) from jmsql_internal.delivery where claim_id is not null)
                            + (select count(*) from jmsql_internal.spark_batch)"""
                ).fetchone()
        except psycopg.OperationalError:
            return -1
        assert row is not None
        return int(row[0])

    def _account(self, url: str) -> None:
        with psycopg.connect(url) as connection:

            def found(statement: str) -> Counter[str]:
                return Counter(body for (body,) in connection.execute(statement.encode()))

            account = "select body from account where queue = '{}' and what = '{}'"
            taken = found(account.format("orders", "taken"))
            lake = Counter(archived(self._directory, "orders"))
            copies = found("select body from jmsql.messages where queue = 'copies'")
            self._report.accounts = {
                "orders, archived to Parquet": _compare(found(account.format("orders", "sent")), lake, taken),
                "parcels, forwarded to a queue": _compare(found(account.format("parcels", "sent")), copies, Counter()),
            }


def _batches(url: str) -> int:
    """How many batches are done."""
    with psycopg.connect(url) as connection:
        row = connection.execute("select coalesce(sum(last_batch), 0) from jmsql.spark_sources").fetchone()
    assert row is not None
    return int(row[0])


def _compare(sent: Counter[str], streamed: Counter[str], taken: Counter[str]) -> Counter[str]:
    arrived = streamed + taken
    return Counter(
        {
            "sent": sent.total(),
            "streamed": streamed.total(),
            "taken by others": taken.total(),
            "lost": (sent - arrived).total(),
            "doubled": (arrived - sent).total(),
        }
    )
