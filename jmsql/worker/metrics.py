"""The metrics of a worker: its supervisor adds up the processes' reports, also of ended ones."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jmsql.store.control.counters import Counts
from jmsql.worker.reports import DURATION_BOUNDS, HandlerCounters, Outcome, Progress

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector


# Counters must not fall when a process is replaced. So the supervisor adds the last report of an ended process to its
# totals, in the same step in which it forgets the process, and a scrape adds the reports of the living ones.


@dataclass
class Totals:
    """The calls and messages of processes, by listener and by destination."""

    handler_counters: dict[str, HandlerCounters] = field(default_factory=dict)
    destination_counters: dict[str, Counts] = field(default_factory=dict)

    def add(self, progress: Progress) -> None:
        """Add a process's report."""
        for name, counters in progress.handler_counters.items():
            self.handler_counters.setdefault(name, HandlerCounters()).add(counters)
        for destination, counts in progress.destination_counters.items():
            self.destination_counters[destination] = self.destination_counters.get(destination, Counts()).plus(counts)


class WorkerMetrics(NamedTuple):
    """The metrics of a worker."""

    totals: Totals
    processes: Mapping[str, int]
    restarts: int
    replaced: Mapping[str, int]
    running: int
    longest_transaction: float


def are_available() -> bool:
    """Return whether the package is there that writes metrics."""
    return importlib.util.find_spec("prometheus_client") is not None


def exposition(metrics: Callable[[], WorkerMetrics]) -> bytes:
    """Write the metrics in Prometheus's text format.

    They include the application's own metrics if PROMETHEUS_MULTIPROC_DIR names their directory.
    """
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.multiprocess import MultiProcessCollector
    from prometheus_client.registry import Collector

    class WorkerCollector(Collector):
        def collect(self) -> Iterator[Metric]:
            return _families(metrics())

    class ApplicationCollector(Collector):
        def collect(self) -> Iterable[Metric]:
            # A process makes its file empty, and fills it then. prometheus_client cannot read it in between.
            files = [
                str(file) for file in Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]).glob("*.db") if _is_filled(file)
            ]
            merged: Iterable[Metric] = MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call]
            return merged

    registry = CollectorRegistry()
    registry.register(WorkerCollector())
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry.register(ApplicationCollector())
    return generate_latest(registry)


def _is_filled(file: Path) -> bool:
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:  # it belonged to a process that has ended
        return False


def handler_collector(progress: Callable[[], Progress]) -> Collector:
    """Return a collector of one process's handlers, for a Prometheus registry."""
    from prometheus_client.registry import Collector

    class HandlerCollector(Collector):
        def collect(self) -> Iterator[Metric]:
            made = progress()
            return _of_handlers(made.handler_counters, made.running, made.longest_transaction)

    return HandlerCollector()


def _of_handlers(
    handler_counters: Mapping[str, HandlerCounters], running: int, longest_transaction: float
) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    messages = CounterMetricFamily(
        "jmsql_worker_messages",
        "Calls of handlers that have ended, by listener and outcome: handled, failed, postponed, interrupted, "
        "cancelled, claim_lost.",
        labels=["listener", "outcome"],
    )
    seconds = HistogramMetricFamily(
        "jmsql_worker_handler_seconds", "How long the calls of handlers took, with their commits.", labels=["listener"]
    )
    long_transactions = CounterMetricFamily(
        "jmsql_worker_long_transactions",
        "Calls that held a transaction for longer than --warn-transaction-after.",
        labels=["listener"],
    )
    for name, counters in sorted(handler_counters.items()):
        for outcome in Outcome:
            messages.add_metric([name, outcome], counters.of(outcome))
        seconds.add_metric([name], _buckets(counters), counters.seconds)
        long_transactions.add_metric([name], counters.long_transactions)
    calls = GaugeMetricFamily("jmsql_worker_running_handlers", "Calls of handlers that have not ended.")
    calls.add_metric([], running)
    longest = GaugeMetricFamily(
        "jmsql_worker_longest_transaction_seconds", "How long the oldest transaction of a handler has been open."
    )
    longest.add_metric([], longest_transaction)
    yield from (messages, seconds, long_transactions, calls, longest)


def _families(metrics: WorkerMetrics) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    from jmsql.metrics.client_collector import client_metrics

    yield from _of_handlers(metrics.totals.handler_counters, metrics.running, metrics.longest_transaction)
    processes = GaugeMetricFamily(
        "jmsql_worker_processes",
        "Processes of the worker, by state: starting, ready, waiting, draining.",
        labels=["state"],
    )
    for state, number in metrics.processes.items():
        processes.add_metric([state], number)
    restarts = CounterMetricFamily("jmsql_worker_restarts", "Processes that died and were started again.")
    restarts.add_metric([], metrics.restarts)
    replaced = CounterMetricFamily(
        "jmsql_worker_replaced_processes",
        "Processes that reached a limit and were replaced, by limit: messages, memory.",
        labels=["limit"],
    )
    for limit, number in metrics.replaced.items():
        replaced.add_metric([limit], number)
    yield from (processes, restarts, replaced)
    yield from client_metrics(metrics.totals.destination_counters)


def _buckets(counters: HandlerCounters) -> list[tuple[str, float]]:
    """Return how many calls took at most so long."""
    bounds = [*map(str, DURATION_BOUNDS), "+Inf"]
    return [(bound, sum(counters.calls[: number + 1])) for number, bound in enumerate(bounds)]
