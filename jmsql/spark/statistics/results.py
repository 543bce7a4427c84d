"""The statistics: counts and measurements of each destination and hour, in memory and as Parquet."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from jmsql.spark.statistics.reading import Source, read_dead_letters, read_messages

_DEATH_COLUMNS = ("message_id", "original_destination", "original_subscription", "reason", "error", "died_at")
"""The columns of a dead letter."""

_PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_CONSUMED_FROM = ("destination", "subscription_client_id", "subscription")
_LATEST_RECORD = 60_000_000
"""Microseconds between a message's leaving and the time of death that its dead letter tells."""


def _aggregate(rows: DataFrame, deaths: DataFrame, keys: Sequence[str], top: int) -> dict[str, DataFrame]:
    """Compute all statistics, for the destinations, or the destinations and hours.

    Of consumers and groups, those are named that have the most messages.

    Returns:
        By name: ``counts``, of which several statistics consist, ``dead_letters``, ``consumers``, ``consumer_balance``
        and ``largest_groups``.
    """
    consumers = _consumers(rows, keys)
    tables = {
        "counts": _counts(rows, keys),
        "dead_letters": deaths.groupBy(*keys, "reason", "error").agg(F.count("*").alias("messages")),
        "consumers": _first(consumers, (*_CONSUMED_FROM, *keys), "consumer", top),
        "consumer_balance": _balance(consumers, keys),
        "largest_groups": _groups(rows, keys, top),
    }
    return {name: table.orderBy(*keys, F.desc("messages"), *_names(table, keys)) for name, table in tables.items()}


def _names(table: DataFrame, keys: Sequence[str]) -> list[Column]:
    """Return the other columns that tell rows of a table apart."""
    return [F.asc_nulls_last(name) for name, kind in table.dtypes if kind == "string" and name not in keys]


def _counts(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    acknowledged = F.col("outcome") == "acknowledged"
    seconds = F.when(acknowledged, F.col("seconds"))
    counts = rows.groupBy(*keys).agg(
        F.count("*").alias("messages"),
        F.count_if(acknowledged).alias("acknowledged"),
        F.coalesce(F.sum(F.when(acknowledged, F.col("bytes"))), F.lit(0)).alias("bytes"),
        F.count(seconds).alias("timed"),
        F.percentile(seconds, list(_PERCENTILES.values())).alias("percentiles"),
        F.max(seconds).alias("longest"),
        F.count_if(F.col("deliveries") > 1).alias("redelivered"),
        F.sum(F.greatest(F.col("deliveries") - 1, F.lit(0))).alias("redeliveries"),
        F.max("deliveries").alias("most_deliveries"),
        *(F.count_if(F.col("outcome") == outcome).alias(outcome) for outcome in ("expired", "purged")),
    )
    percentiles = {name: F.col("percentiles")[place] for place, name in enumerate(_PERCENTILES)}
    return counts.withColumns(percentiles).drop("percentiles")


def _consumers(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Count each consumer's acknowledged messages of a queue or subscription."""
    # Consumers of a topic that share no named subscription each get all of it: there is nothing to balance.
    shared = F.col("destination").startswith("queue://") | F.col("subscription").isNotNull()
    by = dict.fromkeys((*_CONSUMED_FROM, *keys))
    return (
        rows.where((F.col("outcome") == "acknowledged") & shared)
        .groupBy(*by, "consumer")
        .agg(F.count("*").alias("messages"))
        .withColumn("share", F.col("messages") / F.sum("messages").over(Window.partitionBy(*by)))
    )


def _balance(consumers: DataFrame, keys: Sequence[str]) -> DataFrame:
    return consumers.groupBy(*dict.fromkeys((*_CONSUMED_FROM, *keys))).agg(
        F.count("*").alias("consumers"),
        F.sum("messages").alias("messages"),
        F.max("share").alias("largest_share"),
        # How much more than its equal part the busiest has had: 0 if all had the same.
        F.when(F.count("*") > 1, F.max("messages") / F.avg("messages") - 1).alias("imbalance"),
    )


def _groups(rows: DataFrame, keys: Sequence[str], top: int) -> DataFrame:
    groups = (
        rows.where((F.col("outcome") == "acknowledged") & F.col("group_id").isNotNull())
        .groupBy(*keys, "group_id")
        .agg(F.count("*").alias("messages"), F.sum("bytes").alias("bytes"))
    )
    return _first(groups, keys, "group_id", top)


def _first(table: DataFrame, keys: Sequence[str], name: str, top: int) -> DataFrame:
    """Leave the rows with the most messages."""
    order = Window.partitionBy(*dict.fromkeys(keys)).orderBy(F.desc("messages"), F.asc_nulls_last(name))
    return table.withColumn("place", F.row_number().over(order)).where(F.col("place") <= top).drop("place")


def _match_deaths(rows: DataFrame, waiting: DataFrame | None) -> DataFrame:
    """Return the messages that became dead letters, each with its reason and the last error.

    A message that leaves for the dead-letter queue does not say why; the dead letter that it has become does, with the
    same message id. It may wait in its queue, or have left it for the history.
    """
    known = rows.where(F.col("reason").isNotNull()).select(*_DEATH_COLUMNS)
    if waiting is not None:
        known = known.unionByName(waiting.select(*_DEATH_COLUMNS))
    dead = rows.where(F.col("outcome") == "dead-lettered").select(
        "acknowledged_at", "transaction_id", "sequence", "destination", "subscription", "hour", "message_id"
    )
    left, right = dead.alias("left"), known.alias("right")
    distance = F.abs(F.unix_micros("left.acknowledged_at") - F.unix_micros("right.died_at"))
    same_subscription = F.col("left.subscription").eqNullSafe(F.col("right.original_subscription"))
    condition: Column = (
        (F.col("left.message_id") == F.col("right.message_id"))
        & (distance <= _LATEST_RECORD)
        # One that dies again, of a dead-letter queue, still names the destination where it died first.
        & ((F.col("left.destination") != F.col("right.original_destination")) | same_subscription)
    )
    nearest = Window.partitionBy("acknowledged_at", "transaction_id", "sequence").orderBy(F.asc_nulls_last("distance"))
    return (
        left.join(right, condition, "left")
        .select(
            *("left.acknowledged_at", "left.transaction_id", "left.sequence", "left.destination", "left.hour"),
            F.coalesce("right.reason", F.lit("maximum deliveries")).alias("reason"),
            "right.error",
            distance.alias("distance"),
        )
        .withColumn("nearness", F.row_number().over(nearest))
        .where("nearness = 1")
    )


_GRAINS = {"by_hour": ("destination", "hour"), "overall": ("destination",)}
"""The tables of the statistics, and their keys."""

_OF_THE_COUNTS = {
    "throughput": {"messages": "acknowledged", "bytes": "bytes"},
    "time_in_queue": {"messages": "timed", "p50": "p50", "p95": "p95", "p99": "p99", "longest": "longest"},
    "redeliveries": {name: name for name in ("messages", "redelivered", "redeliveries", "most_deliveries")},
    "expiries": {name: name for name in ("messages", "expired", "purged")},
}
"""Statistics that are columns of the counts, by the names that they have there."""

_JOBS = 5

Progress = Callable[[str, int, int], None]
"""Called with the current step, the number of finished steps, and the number of all steps."""


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
        """True if there was no message."""
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


def consumed_from(row: Mapping[str, Any]) -> str:
    """Return the source that consumers share: a queue, or a subscription to a topic."""
    names = (row["destination"], row["subscription_client_id"], row["subscription"])
    return " ".join(name for name in names if name is not None)


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
    total = 1 + len(_GRAINS) * _JOBS
    progress("Reading messages", 0, total)
    with _kept(read_messages(spark, source, time_zone)) as rows:
        rows.count()
        waiting = read_dead_letters(spark, source.schema) if source.history else None
        done = 1
        tables: dict[str, dict[str, pa.Table]] = {}
        with _kept(_match_deaths(rows, waiting)) as deaths:
            for grain, keys in _GRAINS.items():
                found = {}
                for name, frame in _aggregate(rows, deaths, keys, top).items():
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
    """Cache a frame while it is used, on disk if memory is short."""
    frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield frame
    finally:
        frame.unpersist()


def write_statistics(results: Results, directory: str | os.PathLike[str]) -> None:
    """Write the statistics to ``by_hour/NAME`` and ``overall/NAME`` in a directory, replacing earlier ones.

    They are written beside it first: readers see one run's results, even if this one breaks off.

    Args:
        results: The statistics.
        directory: Where to.
    """
    target = Path(directory)
    target.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        for grain, tables in (("by_hour", results.by_hour), ("overall", results.overall)):
            for name, table in tables.items():
                place = new / grain / name
                place.mkdir(parents=True)
                pyarrow.parquet.write_table(table, place / "part-0.parquet")
        new.chmod(0o755)
        if target.exists():
            former = new.with_name(f"{new.name}-former")
            target.rename(former)
            new.rename(target)
            shutil.rmtree(former)
        else:
            new.rename(target)
    finally:
        shutil.rmtree(new, ignore_errors=True)
