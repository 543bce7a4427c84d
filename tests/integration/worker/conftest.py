"""Workers in processes of their own, with the application that a test writes down."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest
import sqlalchemy

from jmsql.testing import wait_for

ROOT = Path(__file__).parents[3]
PATIENCE = 60.0

PREFACE = """
import asyncio, os, threading, time
from pathlib import Path

import jmsql
import sqlalchemy
from jmsql.worker import Application

app = Application()


def insertion(message):
    return sqlalchemy.text("insert into handled values (:text, :process, :count)").bindparams(
        text=message.get_body(str),
        process=os.getpid(),
        count=message.get_int_property("JMSXDeliveryCount"),
    )


def store(database, message):
    database.execute(insertion(message))


def wait_for_leave(message):
    Path(f"began {message.get_body(str)} {os.getpid()}").touch()
    while not Path("leave").exists():
        time.sleep(0.01)


async def await_leave(message):
    Path(f"began {message.get_body(str)} {os.getpid()}").touch()
    while not Path("leave").exists():
        await asyncio.sleep(0.01)
"""

KILLED_BEFORE_STEP = """
import signal
from jmsql.store.wire._async import runner as asynchronous
from jmsql.store.wire._sync import runner as synchronous

steps = threading.local()


def killed_before_step(exchange):
    # Whatever goes to PostgreSQL and back is an exchange.
    def exchange_or_die(self, *arguments, **options):
        if getattr(steps, "left", None) is not None:
            if steps.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            steps.left -= 1
        return exchange(self, *arguments, **options)

    return exchange_or_die


for module in (asynchronous, synchronous):
    module.WireConnection.exchange = killed_before_step(module.WireConnection.exchange)
"""
"""What kills the process of a handler that sets `steps.left`, before so many further exchanges with PostgreSQL."""


class Worker:
    """A running worker.

    Args:
        directory: Where its application is, and its log.
        url: The database.
        options: What stands on its command line.
        program: What Python runs.
    """

    def __init__(
        self, directory: Path, url: str, options: Sequence[str], program: Sequence[str] = ("-m", "jmsql")
    ) -> None:
        self.directory = directory
        self._log = directory / "log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *program, "worker", "messaging:app", *options],
                cwd=directory,
                stderr=log,
                env=os.environ | {"JMSQL_URL": url, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
            )

    @property
    def log(self) -> str:
        """What it has logged."""
        return self._log.read_text()

    def wait_for_log(self, pattern: str, times: int = 1) -> list[str]:
        """Wait until the log has the pattern so many times; return what was found."""

        def found() -> list[str]:
            matches = re.findall(pattern, self.log)
            ended = self.process.poll() is not None and len(matches) < times
            assert not ended, f"the worker has ended, and its log has no {pattern!r}:\n{self.log}"
            return matches if len(matches) >= times else []

        return wait_for(found, PATIENCE)

    def wait_until_ready(self) -> None:
        """Wait until it receives messages."""
        self.wait_for_log("Handling messages")

    def began(self) -> list[tuple[str, int]]:
        """The text of each message with which `wait_for_leave` or `await_leave` was called, and the process."""
        found = [path.name.split(" ")[1:] for path in self.directory.glob("began *")]
        return sorted((text, int(process)) for text, process in found)

    def give_leave(self) -> None:
        """Let `wait_for_leave` return."""
        (self.directory / "leave").touch()

    def take_leave(self) -> None:
        """Let `wait_for_leave` wait again."""
        (self.directory / "leave").unlink()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the supervisor."""
        self.process.send_signal(number)

    def exit_code(self) -> int:
        """Wait for its end."""
        return self.process.wait(PATIENCE)

    def stop(self) -> int:
        """End it in order."""
        self.send_signal(signal.SIGTERM)
        return self.exit_code()


class StartWorker(Protocol):
    """Starts a worker."""

    def __call__(self, source: str, *options: str) -> Worker:
        """Start a worker with this application, after the preface, and these options."""


WriteApplication = Callable[[str], None]

_WITH_OTHER_PYTHON = "import sys; sys.executable = {!r}; from jmsql.cli import main; main()"


@pytest.fixture
def fresh_processes() -> None:
    """Has `start_worker` start the worker's processes as it does for users.

    The supervisor of forked processes knows them by other numbers than they do themselves.
    """


@pytest.fixture
def write_application(tmp_path: Path) -> WriteApplication:
    """Writes the application down."""

    def write(source: str) -> None:
        (tmp_path / "messaging.py").write_text(PREFACE + source)

    return write


@pytest.fixture
def start_worker(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    jmsql_clean_url: str,
    database: Any,
    write_application: WriteApplication,
) -> Iterator[StartWorker]:
    """Starts workers, and ends those that are left.

    The supervisor starts as it does for users, and its processes are forked, unless a test asks for `fresh_processes`.
    """
    workers = []
    program = ["-m", "jmsql"]
    if "fresh_processes" not in request.fixturenames:
        program = ["-c", _WITH_OTHER_PYTHON.format(request.getfixturevalue("preloaded_python"))]

    def start(source: str, *options: str) -> Worker:
        write_application(source)
        workers.append(Worker(tmp_path, jmsql_clean_url, options, program))
        return workers[-1]

    yield start
    for worker in workers:
        if worker.process.poll() is None:
            worker.send_signal(signal.SIGTERM)
            worker.send_signal(signal.SIGINT)
        worker.exit_code()


class WorkerDatabase:
    """The database of the tests, seen from outside."""

    def __init__(self, url: str) -> None:
        address = sqlalchemy.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        self.connection = psycopg.connect(address, autocommit=True)
        self.rows("drop table if exists handled")
        self.rows("create table handled (text text, process integer, delivery_count integer)")

    def rows(self, statement: str) -> list[Any]:
        """Run a statement."""
        cursor = self.connection.execute(statement)
        return [] if cursor.description is None else cursor.fetchall()

    def handled(self) -> list[tuple[str, int]]:
        """The text of each message that was handled, and how often it had been delivered by then."""
        return self.rows("select text, delivery_count from handled order by text")

    def queued(self) -> int:
        """How many messages there are, held or not."""
        return int(self.rows("select count(*) from jmsql_internal.message")[0][0])

    def wait_until_handled(self, count: int) -> None:
        """Wait until so many messages were handled and are gone."""
        wait_for(lambda: len(self.handled()) >= count and self.queued() == 0, PATIENCE)


@pytest.fixture
def database(jmsql_clean_url: str) -> Iterator[WorkerDatabase]:
    """The database, with the table that handlers write to."""
    database = WorkerDatabase(jmsql_clean_url)
    with database.connection:
        yield database
        database.rows("drop table handled")
