"""What a benchmark is given, and what it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.database import BenchmarkDatabase
from benchmarks.measurement import BenchmarkResult, Contender, Samples, measure


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a run measures.

    Args:
        rounds: How many turns each contender has.
        messages: How many messages a turn has where they travel in batches.
        singles: How many where each travels by itself.
        backlog: What counts as a long queue.
        pinned_seconds: How long a snapshot is held.
        latencies: How many messages are timed one by one.
        jobs: How many turns each contender has where each takes a whole backlog.
        handled: How many messages a worker handles in a turn, unless its handlers run one at a time.
        sustained_seconds: How long a load lasts.
        long_run_messages: How many messages a long run has.
        long_run_seconds: How long it lasts at least; 0: as fast as it can.
    """

    rounds: int
    messages: int
    singles: int
    backlog: int
    pinned_seconds: float
    latencies: int
    jobs: int
    handled: int
    sustained_seconds: float
    long_run_messages: int
    long_run_seconds: float = 0.0

    @property
    def is_quick(self) -> bool:
        """Whether it is to show that all runs, and not to judge."""
        return self.jobs == 1


FULL = Effort(
    rounds=40,
    messages=1000,
    singles=50,
    backlog=1_000_000,
    pinned_seconds=60.0,
    latencies=400,
    jobs=3,
    handled=2500,
    sustained_seconds=20.0,
    long_run_messages=1_000_000,
)
QUICK = Effort(
    rounds=5,
    messages=1000,
    singles=50,
    backlog=50_000,
    pinned_seconds=6.0,
    latencies=60,
    jobs=1,
    handled=500,
    sustained_seconds=3.0,
    long_run_messages=50_000,
)
HOUR = replace(FULL, long_run_messages=10_000_000, long_run_seconds=3600.0)


@dataclass(slots=True)
class Setting:
    """Where a benchmark runs, and how long it may take.

    Args:
        database: The database, empty when the benchmark begins.
        effort: How much to measure.
        tell: Shows a line about what is being done.
        skipped: What could not be measured, and why.
        keep: Keeps what was found so far, in case the run does not come to its end.
    """

    database: BenchmarkDatabase
    effort: Effort
    tell: Callable[[str], None]
    skipped: list[str] = field(default_factory=list)
    keep: Callable[[list[BenchmarkResult]], None] = lambda _: None

    def measure(
        self,
        contenders: Sequence[Contender],
        messages: int,
        *,
        seconds: float = 0.0,
        rounds: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> Samples:
        """Let contenders take turns, and tell of every round."""
        names = " · ".join(contender.name for contender in contenders)
        number = 0

        def after_round() -> None:
            nonlocal number
            number += 1
            self.tell(f"round {number}: {names}")

        return measure(
            contenders, messages, rounds or self.effort.rounds, seconds=seconds, after_round=after_round, clock=clock
        )

    def skip(self, what: str, why: str) -> None:
        """Note that something could not be measured."""
        self.skipped.append(f"{what}: {why}")
        self.tell(f"skipped {what}: {why}")


Benchmark = Callable[[Setting], list[BenchmarkResult]]
"""Measures, and returns its lines of the result. Its docstring's first line says what it is about."""
