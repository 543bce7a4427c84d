"""What the statistics are computed from: a row for each message that has left a destination, wherever it is kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from jmsql.destinations import Destination, Queue
from jmsql.exceptions import JMSException
from jmsql.spark.connection import DatabaseReference
from jmsql.spark.schema import COLUMNS
from jmsql.store._sync.runner import PsycopgRunner
from jmsql.store.dead_letters import dead_letter_queues

__all__ = ["Source", "read_dead_letters", "read_messages"]

_COLUMNS = {
    **{
        name: COLUMNS[name]
        for name in (
            *("destination", "sequence", "message_id", "sent_at", "delivery_time", "properties"),
            *("text_body", "json_body", "bytes_body", "delivery_count"),
        )
    },
    "acknowledged_at": "timestamp",
    "outcome": "string",
    "subscription": "string",
    "subscription_client_id": "string",
    "connection_id": "bigint",
    "client_id": "string",
    "transaction_id": "bigint",
}
_IDENTITY = ("acknowledged_at", "transaction_id", "sequence")
_HOUR = 3_600_000_000
_LONGEST_ERROR = 200


class Source(NamedTuple):
    """Where the messages are, and which of them count.

    Attributes:
        history: Whether those count that are in the history.
        archive: The directory of an archive, local or ``s3a://``.
        destinations: Those of these destinations; none: of all.
        since: Those that left then or later.
        until: Those that left before.
        schema: The PostgreSQL schema of jmsql.
    """

    history: bool = True
    archive: str | None = None
    destinations: Sequence[Destination] = ()
    since: datetime | None = None
    until: datetime | None = None
    schema: str = "jmsql"


def read_messages(spark: SparkSession, source: Source, time_zone: str = "UTC") -> DataFrame:
    """Return a row for each message that has left, with what is counted and measured of it.

    What is in the history and in the archive is there once.

    Args:
        spark: The session. Its environment names the database.
        source: Which messages.
        time_zone: Whose hours are meant.

    Raises:
        JMSException: The source names nothing to read.
    """
    parts = [_measure(part, time_zone) for part in _parts(spark, source)]
    if not parts:
        raise JMSException("Name what the statistics are computed from: the history, an archive, or both.")
    rows = reduce(DataFrame.unionByName, parts)
    return rows.dropDuplicates(list(_IDENTITY)) if len(parts) > 1 and source.archive is not None else rows


def _parts(spark: SparkSession, source: Source) -> list[DataFrame]:
    parts = []
    if source.history:
        parts += [_past(spark, source, destination) for destination in source.destinations or (None,)]
    if source.archive is not None:
        parts.append(_archived(spark, source))
    return parts


def _past(spark: SparkSession, source: Source, destination: Destination | None) -> DataFrame:
    reader = spark.read.format("jmsql").options(
        history="true",
        columns=",".join(_COLUMNS),
        partitions=str(spark.sparkContext.defaultParallelism),
        jmsqlSchema=source.schema,
        startingOffsets="earliest" if source.since is None else source.since.astimezone(UTC).isoformat(),
        endingOffsets="latest" if source.until is None else source.until.astimezone(UTC).isoformat(),
    )
    if destination is not None:
        reader = reader.option("queue" if isinstance(destination, Queue) else "topic", destination.name)
    return reader.load()


def _archived(spark: SparkSession, source: Source) -> DataFrame:
    assert source.archive is not None
    schema = ", ".join(f"{name} {kind}" for name, kind in (_COLUMNS | {"day": "date"}).items())
    rows = spark.read.schema(schema).parquet(source.archive).where("destination is not null and outcome is not null")
    if source.destinations:
        rows = rows.where(F.col("destination").isin([destination.uri for destination in source.destinations]))
    if source.since is not None:
        since = source.since.astimezone(UTC)
        rows = rows.where((F.col("day") >= F.lit(since.date())) & (F.col("acknowledged_at") >= F.lit(since)))
    if source.until is not None:
        until = source.until.astimezone(UTC)
        rows = rows.where((F.col("day") <= F.lit(until.date())) & (F.col("acknowledged_at") < F.lit(until)))
    return rows


def _measure(rows: DataFrame, time_zone: str) -> DataFrame:
    """Leave of each message what the statistics need, which is much less than the message."""
    ready_at = F.greatest("sent_at", "delivery_time")  # of what is there
    sizes = [F.coalesce(F.octet_length(name), F.lit(0)) for name in ("text_body", "json_body", "bytes_body")]
    return rows.select(
        *_IDENTITY,
        "destination",
        "subscription",
        "subscription_client_id",
        "outcome",
        "message_id",
        _hour(F.col("acknowledged_at"), time_zone).alias("hour"),
        F.col("delivery_count").alias("deliveries"),
        reduce(Column.__add__, sizes).cast("bigint").alias("bytes"),
        ((F.unix_micros("acknowledged_at") - F.unix_micros(ready_at)) / 1e6).alias("seconds"),
        F.coalesce("client_id", F.concat(F.lit("connection "), F.col("connection_id"))).alias("consumer"),
        _text_property("JMSXGroupID").alias("group_id"),
        *_death(),
    )


def _hour(timestamp: Column, time_zone: str) -> Column:
    """Return when the hour began that a timestamp is in, also where zones differ by half an hour, or clocks are set."""
    micros = F.unix_micros(timestamp)
    return F.timestamp_micros(micros - F.pmod(F.unix_micros(F.from_utc_timestamp(timestamp, time_zone)), F.lit(_HOUR)))


def _text_property(name: str) -> Column:
    return F.col("properties")[name]["string"]


def _death() -> list[Column]:
    """What a dead letter says of how it became one."""
    last_line = F.regexp_extract(_text_property("JMS_jmsql_LastError"), r"([^\n]*)\s*$", 1)
    return [
        _text_property("JMS_jmsql_OriginalDestination").alias("original_destination"),
        _text_property("JMS_jmsql_OriginalSubscription").alias("original_subscription"),
        _text_property("JMS_jmsql_DeadLetterReason").alias("reason"),
        F.substring(last_line, 1, _LONGEST_ERROR).alias("error"),
        F.timestamp_millis(F.col("properties")["JMS_jmsql_DeadLetterTime"]["long"]).alias("died_at"),
    ]


def read_dead_letters(spark: SparkSession, schema: str) -> DataFrame | None:
    """Return what the dead letters say of themselves that still wait in their queues; None if there are none."""
    with DatabaseReference().connect("looking for dead letters") as connection:
        queues = PsycopgRunner(connection, schema).run(dead_letter_queues())
    reader = spark.read.format("jmsql").options(
        columns="message_id,properties", selector="JMS_jmsql_DeadLetterReason IS NOT NULL", jmsqlSchema=schema
    )
    parts = [reader.option("queue", queue).load().select("message_id", *_death()) for queue in queues]
    return reduce(DataFrame.unionByName, parts) if parts else None
