"""What the public benchmark of PostgreSQL's queues looks at: https://github.com/hardbyte/postgresql-job-queue-benchmarking."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.database import BenchmarkDatabase, database_on
from benchmarks.measurement import BenchmarkResult, Target, at_least, at_most, compare
from benchmarks.peers.peer import Unavailable
from benchmarks.queues.load import load
from benchmarks.queues.system import SYSTEMS, System
from benchmarks.setting import Setting

_WORKERS = (1, 4, 16, 64)
_STEADY = 200.0
"""Messages a second that are sent where they are paced, as the public benchmark has it."""

_STEADY_WORKERS = 8
_PERIOD = 2.0
"""Seconds between two kills."""

_DRAINING = 30.0


@contextmanager
def _systems(setting: Setting) -> Iterator[dict[str, tuple[System, BenchmarkDatabase]]]:
    """Install each system in a database of its own: what one leaves behind is no burden to another."""
    with contextlib.ExitStack() as stack:
        found = {}
        for name, system in SYSTEMS.items():
            database = stack.enter_context(database_on(setting.database.url))
            try:
                system.install(database)
            except Unavailable as unavailable:
                setting.skip(name, str(unavailable))
            else:
                found[name] = system, database
        yield found


def sweep(setting: Setting) -> list[BenchmarkResult]:
    """Send and receive at once as fast as it goes, with 1 to 64 workers, beside pgmq and PgQ."""
    results = []
    with _systems(setting) as systems:
        for workers in _WORKERS:
            samples: dict[str, list[float]] = {name: [] for name in systems}
            for number in range(setting.effort.jobs):
                for name, (system, database) in _turns(systems, number):
                    setting.tell(f"{workers} workers: {name}")
                    with load(system, database, workers) as running:
                        start = time.monotonic()
                        time.sleep(setting.effort.sustained_seconds)
                        samples[name].append(running.handled_between(start, time.monotonic()))
            targets: dict[str, Target | None] = {"pgmq": at_least(1.0), "PgQ": None}
            results += compare(f"queues: {workers} workers", samples, "jmsql", targets)
    return results


def held_transaction(setting: Setting) -> list[BenchmarkResult]:
    """Send 200/s to 8 workers while a transaction that has written is left open: latency beside that before."""
    before: dict[str, list[float]] = {}
    held: dict[str, list[float]] = {}
    with _systems(setting) as systems:
        for name, (system, database) in systems.items():
            setting.tell(name)
            with load(system, database, _STEADY_WORKERS, _STEADY) as running:
                seconds = setting.effort.sustained_seconds
                start = time.monotonic()
                time.sleep(seconds)
                before[name] = [running.latency(start, time.monotonic())]
                with database.connect(autocommit=False) as holder:
                    holder.execute("select pg_current_xact_id()")
                    time.sleep(2 * seconds)
                    start = time.monotonic()
                    time.sleep(seconds)
                    held[name] = [running.latency(start, time.monotonic())]
    results = [
        BenchmarkResult(
            "queues: held transaction, p95",
            name,
            f"{name}, none held",
            "ms",
            held[name],
            before[name],
            at_most(1.5) if name == "jmsql" else None,
        )
        for name in held
    ]
    return results + compare("queues: held transaction, p95", held, "jmsql", {"pgmq": None, "PgQ": None}, "ms")


def chaos(setting: Setting) -> list[BenchmarkResult]:
    """Send 200/s to 8 workers, and kill by turns them and all connections every 2 s: what is lost and doubled."""
    samples: dict[str, list[float]] = {}
    outcomes: dict[str, str] = {}
    with _systems(setting) as systems:
        for name, (system, database) in systems.items():
            setting.tell(name)
            with load(system, database, _STEADY_WORKERS, _STEADY) as running:
                start = time.monotonic()
                end = start + 3 * setting.effort.sustained_seconds
                number = 0
                while time.monotonic() < end:
                    time.sleep(_PERIOD)
                    (running.end_backends if number % 2 else running.kill_workers)()
                    number += 1
                lost, doubled = running.drain(_DRAINING)
                samples[name] = [running.handled_between(start, time.monotonic())]
                outcomes[name] = f"{name} ({lost} lost, {doubled} handled twice)"
                if name == "jmsql" and lost:
                    raise SystemExit(f"jmsql lost {lost} messages.")
    named = {outcomes[name]: figures for name, figures in samples.items()}
    return compare(
        "queues: kills",
        named,
        outcomes["jmsql"],
        {outcome: None for name, outcome in outcomes.items() if name != "jmsql"},
    )


def _turns(
    systems: dict[str, tuple[System, BenchmarkDatabase]], number: int
) -> list[tuple[str, tuple[System, BenchmarkDatabase]]]:
    turns = list(systems.items())
    place = number % len(turns)
    return [*turns[place:], *turns[:place]]
