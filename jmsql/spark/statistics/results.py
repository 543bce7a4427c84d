"""The statistics: computed, at hand, and written as Parquet."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from jmsql.spark.statistics.aggregation import aggregate, match_deaths
from jmsql.spark.statistics.reading import Source, read_dead_letters, read_messages

__all__ = ["GRAINS", "Progress", "Results", "compute_statistics", "write_statistics"]

GRAINS = {"by_hour": ("destination", "hour"), "overall": ("destination",)}
"""What the statistics are computed for, and the names of these tables' keys."""

_OF_THE_COUNTS = {
    "throughput": {"messages": "acknowledged", "bytes": "bytes"},
    "time_in_queue": {"messages": "timed", "p50": "p50", "p95": "p95", "p99": "p99", "longest": "longest"},
    "redeliveries": {name: name for name in ("messages", "redelivered", "redeliveries", "most_deliveries")},
    "expiries": {"messages": "messages", "expired": "expired"},
}
"""Statistics that are columns of the counts, by the names that they have there."""

_JOBS = 5

Progress = Callable[[str, int, int], None]
"""Is told what is being done, how many steps are done, and how many there are."""


class Results(NamedTuple):
    """The statistics: tables by name, for each hour and for all of the time.

    Attributes:
        by_hour: For each destination and hour.
        overall: For each destination.
        time_zone: Whose hours they are.
    """

    by_hour: dict[str, pa.Table]
    overall: dict[str, pa.Table]
    time_zone: str

    @property
    def is_empty(self) -> bool:
        """Whether there was no message."""
        return not self.rows("expiries")

    @property
    def messages(self) -> int:
        """How many messages there were."""
        return sum(row["messages"] for row in self.rows("expiries"))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of a statistic of all of the time."""
        return list(self.overall[name].to_pylist())

    def hours(self, name: str) -> list[dict[str, Any]]:
        """The rows of a statistic for each hour."""
        return list(self.by_hour[name].to_pylist())


def compute_statistics(
    spark: SparkSession,
    source: Source,
    *,
    time_zone: str = "UTC",
    top: int = 10,
    progress: Progress = lambda _doing, _done, _total: None,
) -> Results:
    """Read the messages, once, and compute all statistics of them.

    Args:
        spark: The session. Its environment names the database, if the history is read.
        source: Which messages.
        time_zone: Whose hours are meant.
        top: How many consumers and groups are named, for each destination, and for each destination and hour.
        progress: Is told how far it is.
    """
    total = 1 + len(GRAINS) * _JOBS
    progress("Reading messages", 0, total)
    with _kept(read_messages(spark, source, time_zone)) as rows:
        rows.count()
        waiting = read_dead_letters(spark, source.schema) if source.history else None
        done = 1
        tables: dict[str, dict[str, pa.Table]] = {}
        with _kept(match_deaths(rows, waiting)) as deaths:
            for grain, keys in GRAINS.items():
                found = {}
                for name, frame in aggregate(rows, deaths, keys, top).items():
                    progress(f"Computing {name.replace('_', ' ')}", done, total)
                    found[name] = frame.toArrow()
                    done += 1
                counts = found.pop("counts")
                tables[grain] = {name: _select(counts, keys, columns) for name, columns in _OF_THE_COUNTS.items()}
                tables[grain] |= found
        progress("Computed", total, total)
        return Results(**tables, time_zone=time_zone)


def _select(counts: pa.Table, keys: tuple[str, ...], columns: Mapping[str, str]) -> pa.Table:
    arrays = {key: counts[key] for key in keys} | {name: counts[source] for name, source in columns.items()}
    table = pa.table(arrays)
    return table.filter(pc.greater(table["messages"], 0))


@contextmanager
def _kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Keep what is read or computed for as long as it is used, on disk if memory is short."""
    frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield frame
    finally:
        frame.unpersist()


def write_statistics(results: Results, directory: Path) -> None:
    """Write the statistics to ``by_hour/NAME`` and ``overall/NAME`` in a directory, in place of what is there.

    They are written beside it first: readers see those of one run, even if this one breaks off.

    Args:
        results: The statistics.
        directory: Where to.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        for grain, tables in (("by_hour", results.by_hour), ("overall", results.overall)):
            for name, table in tables.items():
                place = new / grain / name
                place.mkdir(parents=True)
                pyarrow.parquet.write_table(table, place / "part-0.parquet")
        new.chmod(0o755)
        if directory.exists():
            former = new.with_name(f"{new.name}-former")
            directory.rename(former)
            new.rename(directory)
            shutil.rmtree(former)
        else:
            new.rename(directory)
    finally:
        shutil.rmtree(new, ignore_errors=True)
