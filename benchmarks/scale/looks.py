"""How long bounded looks take where there are many queues and messages."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import closing

import psycopg

from benchmarks.measurement import BenchmarkResult, at_most
from benchmarks.scale.console_pages import fill
from benchmarks.setting import Setting
from jmsql.admin import Administration, OverviewOrder
from jmsql.client._sync.administration.lent_administration import LentAdministration
from jmsql.client._sync.link.opening import open_runner

_CALLS = 20
_MOST_MILLISECONDS = 50.0
_LONGEST = "first overview of 500"
"""The one look that may take twice as long: once for each process that collects metrics."""


def looks(setting: Setting) -> list[BenchmarkResult]:
    """Bounded looks with 10,000 queues and 5,000,000 messages: the median and the processor time, beside 50 ms.

    An overview by age remembers what it has seen for the ones that follow. So the first one, which looks at all queues,
    is measured too; that of 500 destinations beside 100 ms.
    """
    fill(setting)
    url = setting.database.factory.url
    assert url is not None
    runner = open_runner(url, setting.database.factory.schema)
    with Administration(url) as administration, psycopg.connect(url, autocommit=True) as database, closing(runner):
        deep = administration.overview(1, "depth")[0].number
        metrics = LentAdministration(runner)
        middle = list(administration.browse(deep, limit=1000))[-1].delivery.place
        work: dict[str, Callable[[], object]] = {
            **{f"overview by {order}": _overview(administration, order) for order in OverviewOrder},
            "overview of a pattern": lambda: administration.overview(like="queue 77%"),
            "depth": lambda: administration.depth(deep),
            "jmsql.depth": lambda: database.execute("select jmsql.depth('deep')").fetchall(),
            "page": lambda: list(administration.browse(deep, after=middle, limit=50)),
            "page of a selector": lambda: list(administration.browse(deep, "weight = 77", after=middle, limit=1)),
            "at a place": lambda: administration.at(deep, middle),
            "overview of 500, as metrics have it": lambda: metrics.overview(500),
            "first overview by age": lambda: LentAdministration(runner).overview(50),
            _LONGEST: lambda: LentAdministration(runner).overview(500),
        }
        times, loads = _measure(setting, work)
    return [
        BenchmarkResult(
            f"looks {name}{what}", subject, f"{_most(name):.0f} ms", "ms", figures[name],
            [_most(name)] * len(figures[name]), at_most(1.0),
        )
        for what, subject, figures in (("", "median", times), (" load", "processor time", loads))
        for name in work
    ]  # fmt: skip


def _most(name: str) -> float:
    return 2 * _MOST_MILLISECONDS if name == _LONGEST else _MOST_MILLISECONDS


def _overview(administration: Administration, order: OverviewOrder) -> Callable[[], object]:
    return lambda: administration.overview(50, order)


def _measure(
    setting: Setting, work: dict[str, Callable[[], object]]
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return for each look the median of its time, and the processor time that it takes here and at the server."""
    times: dict[str, list[float]] = {name: [] for name in work}
    loads: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(max(3, setting.effort.rounds // 4)):
        for name, look in work.items():
            taken = []
            seconds = time.process_time() + setting.database.server_seconds()
            for _ in range(_CALLS):
                started = time.perf_counter()
                look()
                taken.append(1000 * (time.perf_counter() - started))
            seconds = time.process_time() + setting.database.server_seconds() - seconds
            times[name].append(statistics.median(taken))
            loads[name].append(1000 * seconds / _CALLS)
        setting.tell(f"round {turn}")
    return times, loads
