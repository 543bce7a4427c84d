"""The benchmark of workers, with jmsql's own: what it measures, what a missing peer leaves, what the page shows."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.database import BenchmarkDatabase, database_on, server
from benchmarks.machine import describe_machine
from benchmarks.report import write_json
from benchmarks.setting import QUICK, Setting
from benchmarks.workers import comparison, page
from benchmarks.workers.figures import (
    DOUBLED,
    JMSQL,
    JMSQL_CHUNK_COROUTINES,
    JMSQL_CHUNKS,
    JMSQL_COROUTINES,
    JMSQL_PSYCOPG,
    JMSQL_PSYCOPG_COROUTINES,
    MISSING,
    OWN,
    RATE,
    WorkerFigures,
    arrangement,
    pairs,
)
from benchmarks.workers.systems import SYSTEMS, System

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="the processor time of others is read from /proc"),
]

ABSENT = System("Absent", "absent", lambda _concurrency, _processes: [], ["a_package_that_nobody_has"])
# So many that their processor time, which is counted in hundredths of a second, is not 0.
EFFORT = dataclasses.replace(QUICK, handled=700, latencies=24)


@pytest.fixture
def database() -> Iterator[BenchmarkDatabase]:
    with server(None) as url, database_on(url) as database:
        yield database


def test_a_run_records_results_and_missing_peers_and_the_page_shows_them(
    database: BenchmarkDatabase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(comparison, "SYSTEMS", (*SYSTEMS[: len(OWN)], ABSENT))
    # Each start of a worker costs a second. All show their rates; two of them also wait idle, and one is killed.
    for name, count in {"_latencies": 2, "_kills": 1}.items():
        measure = getattr(comparison, name)
        monkeypatch.setattr(
            comparison, name, lambda setting, workers, measure=measure, count=count: measure(setting, workers[:count])
        )
    skipped: list[str] = []
    results = comparison.worker_peers(Setting(database, EFFORT, lambda _: None, skipped))
    [absent] = skipped
    assert absent.startswith("Absent: ")
    assert "install the dependency group `benchmarks`" in absent

    figures = tmp_path / "figures.json"
    write_json(
        figures,
        results,
        machine=describe_machine(database),
        effort=dataclasses.asdict(EFFORT),
        skipped=skipped,
        started="2026-03-01T12:00:00+00:00",
    )
    found = WorkerFigures(json.loads(figures.read_text(encoding="utf-8"))["comparisons"])
    assert found.workers == [*OWN]
    assert found.arrangements == [(10, 1)]
    for benchmark in (RATE, "worker-peers client", "worker-peers server"):
        assert all(found.median(benchmark + arrangement(10, 1), worker) for worker in found.workers)
    for benchmark in (MISSING, DOUBLED):
        assert found.counted(benchmark, OWN[0]) == f"0 of {EFFORT.handled}"

    shown = tmp_path / "page.md"
    shown.write_text("before\n<!-- figures -->\nold\n<!-- end of figures -->\nafter\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["page", str(figures), "--page", str(shown), "--plots", str(tmp_path)])
    for _ in range(2):
        page.main()
    text = shown.read_text(encoding="utf-8")
    assert "\nold\n" not in text
    assert text.startswith("before\n<!-- figures -->\n")
    assert text.endswith("\n<!-- end of figures -->\nafter\n")
    assert text.count(f"| {JMSQL_COROUTINES}, beside {JMSQL} |") == 1
    assert text.count(f"| {JMSQL_PSYCOPG_COROUTINES}, beside {JMSQL_PSYCOPG} |") == 1
    assert f"Measured on 2026-03-01: one round of {EFFORT.handled} messages" in text
    assert absent in text
    assert {path.name for path in tmp_path.glob("*.svg")} == {"worker-light.svg", "worker-dark.svg"}


def test_peers_on_postgresql_stand_beside_jmsql_with_sqlalchemy_and_with_psycopg() -> None:
    assert pairs([*OWN, "on PostgreSQL", "with a broker"], {"on PostgreSQL": 2.0, "with a broker": 1.0}) == [
        (JMSQL_COROUTINES, JMSQL, 1.0),
        (JMSQL_PSYCOPG, JMSQL, 1.0),
        (JMSQL_PSYCOPG_COROUTINES, JMSQL_PSYCOPG, 1.0),
        (JMSQL_CHUNKS, JMSQL_PSYCOPG, 10.0),
        (JMSQL_CHUNK_COROUTINES, JMSQL_PSYCOPG_COROUTINES, 10.0),
        (JMSQL, "on PostgreSQL", 2.0),
        (JMSQL_PSYCOPG, "on PostgreSQL", 2.0),
        (JMSQL_PSYCOPG_COROUTINES, "on PostgreSQL", 2.0),
        (JMSQL_CHUNKS, "on PostgreSQL", 3.0),
        (JMSQL_CHUNK_COROUTINES, "on PostgreSQL", 3.0),
        (JMSQL, "with a broker", 1.0),
    ]


def test_figures_of_runs_before_there_was_a_worker_can_be_shown() -> None:
    assert pairs([JMSQL, JMSQL_COROUTINES, "on PostgreSQL"], {"on PostgreSQL": 2.0}) == [
        (JMSQL_COROUTINES, JMSQL, 1.0),
        (JMSQL, "on PostgreSQL", 2.0),
    ]
