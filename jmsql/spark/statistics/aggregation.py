"""The statistics: what each of them counts or measures, for each destination, or each destination and hour."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

__all__ = ["DEATH_COLUMNS", "aggregate", "match_deaths"]

DEATH_COLUMNS = ("message_id", "original_destination", "original_subscription", "reason", "error", "died_at")
"""What is known of a dead letter."""

_PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_CONSUMED_FROM = ("destination", "subscription_client_id", "subscription")
_LATEST_RECORD = 60_000_000
"""Microseconds between a message's leaving and the time of death that its dead letter tells."""


def aggregate(rows: DataFrame, deaths: DataFrame, keys: Sequence[str], top: int) -> dict[str, DataFrame]:
    """Compute all statistics.

    Args:
        rows: The messages, as `read_messages` returns them.
        deaths: Those that became dead letters, as `match_deaths` returns them.
        keys: What they are computed for: ``destination``, or ``destination`` and ``hour``.
        top: How many consumers and groups are named, those with the most messages.

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
    return {name: table.orderBy(*keys, F.desc("messages")) for name, table in tables.items()}


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
        F.count_if(F.col("outcome") == "expired").alias("expired"),
    )
    percentiles = {name: F.col("percentiles")[place] for place, name in enumerate(_PERCENTILES)}
    return counts.withColumns(percentiles).drop("percentiles")


def _consumers(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Count what each consumer has acknowledged of a queue, or of a subscription."""
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


def match_deaths(rows: DataFrame, waiting: DataFrame | None) -> DataFrame:
    """Return the messages that became dead letters, each with its reason and the last error.

    A message that leaves for the dead-letter queue does not say why; the dead letter that it has become does, with the
    same message id. It may wait in its queue, or have left it for the history.

    Args:
        rows: The messages that have left.
        waiting: What the dead letters say that still wait; None: there are none.
    """
    known = rows.where(F.col("reason").isNotNull()).select(*DEATH_COLUMNS)
    if waiting is not None:
        known = known.unionByName(waiting.select(*DEATH_COLUMNS))
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
