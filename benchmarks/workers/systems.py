"""The workers that are compared, each as its documentation says that it is run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from benchmarks.workers.brokers import Broker, open_rabbitmq, open_redis
from benchmarks.workers.figures import (
    JMSQL,
    JMSQL_CHUNK_COROUTINES,
    JMSQL_CHUNKS,
    JMSQL_COROUTINES,
    JMSQL_PSYCOPG,
    JMSQL_PSYCOPG_COROUTINES,
)

Command = Sequence[str]
Commands = Callable[[int, int], list[Command]]
"""What starts a worker: so many handlers at a time in each process, and so many processes."""

_APPLICATIONS = "benchmarks.workers.applications"
_MOST_CHILDREN = 20
"""From this many on Celery has threads instead of processes: 100 of those do not belong on two cores."""


@dataclass(frozen=True)
class System:
    """A worker.

    Args:
        name: What tables call it.
        application: The module of its application.
        commands: What starts it.
        packages: What has to be installed beside jmsql.
        open_broker: Starts its broker; None: PostgreSQL is all that it needs.
        installation: The command that makes its tables; None: there are none.
        recovery: For how many seconds to wait, once it was killed and started again, for what it had: at least as long
            as its documentation says that this takes.
        pace: How many times as many messages it handles in a turn, so that the turn is long enough to be measured.
    """

    name: str
    application: str
    commands: Commands
    packages: Sequence[str] = ()
    open_broker: Callable[[], AbstractContextManager[Broker]] | None = None
    installation: Command | None = None
    recovery: float = 45.0
    pace: int = 1


def _python(*arguments: str | int) -> Command:
    return [sys.executable, "-m", *map(str, arguments)]


def _jmsql(name: str, application: str, pace: int = 1) -> System:
    def commands(concurrency: int, processes: int) -> list[Command]:
        command = ["jmsql", "worker", f"{_APPLICATIONS}.{application}:app"]
        return [_python(*command, "--concurrency", concurrency, "--processes", processes)]

    return System(name, f"{_APPLICATIONS}.{application}", commands, pace=pace)


def _procrastinate() -> System:
    application = f"{_APPLICATIONS}.procrastinate_worker"

    def commands(concurrency: int, processes: int) -> list[Command]:
        # Jobs that are done are deleted, as messages are; by default they stay, and the table grows.
        command = ["procrastinate", f"--app={application}.app", "worker", "--delete-jobs", "always"]
        return [_python(*command, "--concurrency", concurrency)] * processes

    installation = _python("procrastinate", f"--app={application}.app", "schema", "--apply")
    # What was under way is taken up by a task that runs each minute.
    return System("Procrastinate", application, commands, ["procrastinate"], installation=installation, recovery=90.0)


def _pgqueuer() -> System:
    application = f"{_APPLICATIONS}.pgqueuer_worker"

    def commands(concurrency: int, processes: int) -> list[Command]:
        # It takes at least two jobs at a time, and two batches of them.
        most = max(2, concurrency)
        return [_python(application, most, min(10, most // 2))] * processes

    installation = _python("pgqueuer", "install")
    # After half a minute without a heartbeat a job is taken up by another worker.
    return System("PgQueuer", application, commands, ["pgqueuer", "asyncpg"], installation=installation, recovery=50.0)


def _celery(name: str, open_broker: Callable[[], AbstractContextManager[Broker]], packages: Sequence[str]) -> System:
    application = f"{_APPLICATIONS}.celery_worker"

    def commands(concurrency: int, processes: int) -> list[Command]:
        begin = ["celery", "-A", application, "worker", "--loglevel", "WARNING"]
        if concurrency * processes <= _MOST_CHILDREN:
            return [_python(*begin, "--concurrency", concurrency * processes)]
        return [
            _python(*begin, "--pool", "threads", "--concurrency", concurrency, "-n", f"worker{number}@%h")
            for number in range(processes)
        ]

    # With Redis it would be an hour, for which nobody waits here.
    return System(name, application, commands, ["celery", *packages], open_broker)


def _dramatiq(
    name: str,
    open_broker: Callable[[], AbstractContextManager[Broker]],
    packages: Sequence[str],
    recovery: float = System.recovery,
) -> System:
    application = f"{_APPLICATIONS}.dramatiq_worker"

    def commands(concurrency: int, processes: int) -> list[Command]:
        return [_python("dramatiq", application, "--processes", processes, "--threads", concurrency)]

    return System(name, application, commands, ["dramatiq", *packages], open_broker, recovery=recovery)


SYSTEMS = (
    _jmsql(JMSQL, "jmsql_worker"),
    _jmsql(JMSQL_COROUTINES, "jmsql_coroutine_worker"),
    _jmsql(JMSQL_PSYCOPG, "jmsql_psycopg_worker"),
    _jmsql(JMSQL_PSYCOPG_COROUTINES, "jmsql_psycopg_coroutine_worker"),
    _jmsql(JMSQL_CHUNKS, "jmsql_chunk_worker", pace=10),
    _jmsql(JMSQL_CHUNK_COROUTINES, "jmsql_chunk_coroutine_worker", pace=10),
    _procrastinate(),
    _pgqueuer(),
    _celery("Celery, RabbitMQ", open_rabbitmq, ["pika"]),
    _dramatiq("Dramatiq, RabbitMQ", open_rabbitmq, ["pika"]),
    _celery("Celery, Redis", open_redis, ["redis"]),
    # After a minute of silence a worker counts as dead.
    _dramatiq("Dramatiq, Redis", open_redis, ["redis"], recovery=90.0),
)

BOUNDS = {system.name: 2.0 if system.open_broker is None else 1.0 for system in SYSTEMS}
"""By what factor jmsql's rate has to be higher: peers on PostgreSQL, and those with a broker."""
