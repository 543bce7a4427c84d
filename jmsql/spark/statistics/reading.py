"""The input of the statistics: a row for each message that has left a destination, wherever it is kept."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import MapType

from jmsql import Destination, JMSException, Queue
from jmsql.admin import Administration

_COLUMNS = {
    "destination": "string",
    "sequence": "bigint",
    "message_id": "string",
    "sent_at": "timestamp",
    "delivery_time": "timestamp",
    "text_body": "string",
    "json_body": "string",
    "bytes_body": "binary",
    "delivery_count": "int",
    "properties": "string",
    "acknowledged_at": "timestamp",
    "outcome": "string",
    "subscription": "string",
    "subscription_client_id": "string",
    "connection_id": "bigint",
    "client_id": "string",
    "transaction_id": "bigint",
}
"""The data source's columns that are read, and their types: Spark then need not query them."""

_PROPERTIES = (
    *("JMSXGroupID", "JMS_jmsql_OriginalDestination", "JMS_jmsql_OriginalSubscription"),
    *("JMS_jmsql_DeadLetterReason", "JMS_jmsql_DeadLetterTime", "JMS_jmsql_LastError"),
)
_IDENTITY = ("acknowledged_at", "transaction_id", "sequence")
_HOUR = 3_600_000_000
_LONGEST_ERROR = 200
_LAST_MILLISECOND = 253_402_214_399_999
"""The last moment that the database keeps."""


class Source(NamedTuple):
    """Where the messages are, and which of them count.

    Attributes:
        history: Whether those count that are in the history.
        archive: The directory of an archive, local or ``s3a://``.
        destinations: The destinations; empty: all of them.
        since: Those that left then or later.
        until: Those that left before.
        schema: The PostgreSQL schema of jmsql.
    """

    history: bool = True
    archive: str | os.PathLike[str] | None = None
    destinations: Sequence[Destination] = ()
    since: datetime | None = None
    until: datetime | None = None
    schema: str = "jmsql"


def read_messages(spark: SparkSession, source: Source, time_zone: str = "UTC") -> DataFrame:
    """Return a row for each message that has left, with its counts and measurements.

    A message in both the history and the archive is counted once.

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
        chosen = {destination.uri: destination for destination in source.destinations}
        parts += [_past(spark, source, destination) for destination in chosen.values() or (None,)]
    if source.archive is not None:
        parts.append(_archived(spark, source))
    return parts


def _past(spark: SparkSession, source: Source, destination: Destination | None) -> DataFrame:
    reader = (
        spark.read.schema(_ddl(_COLUMNS))
        .format("jmsql")
        .options(
            history="true",
            partitions=str(spark.sparkContext.defaultParallelism),
            jmsqlSchema=source.schema,
            queryTimeout="0",
            startingOffsets="earliest" if source.since is None else source.since.astimezone(UTC).isoformat(),
            endingOffsets="latest" if source.until is None else source.until.astimezone(UTC).isoformat(),
        )
    )
    if destination is not None:
        reader = reader.option("queue" if isinstance(destination, Queue) else "topic", destination.name)
    return reader.load()


def _archived(spark: SparkSession, source: Source) -> DataFrame:
    assert source.archive is not None
    archive = os.fspath(source.archive)
    columns = _COLUMNS | {"day": "date"} | _typed_properties(spark, archive)
    rows = spark.read.schema(_ddl(columns)).parquet(archive)
    rows = rows.where("destination is not null and outcome is not null")
    if source.destinations:
        rows = rows.where(F.col("destination").isin([destination.uri for destination in source.destinations]))
    if source.since is not None:
        since = source.since.astimezone(UTC)
        rows = rows.where((F.col("day") >= F.lit(since.date())) & (F.col("acknowledged_at") >= F.lit(since)))
    if source.until is not None:
        until = source.until.astimezone(UTC)
        rows = rows.where((F.col("day") <= F.lit(until.date())) & (F.col("acknowledged_at") < F.lit(until)))
    return rows


def _typed_properties(spark: SparkSession, archive: str) -> dict[str, str]:
    """Return the type of the column of properties in an archive that has them as maps."""
    try:
        found = spark.read.parquet(archive).schema["properties"].dataType
    except (AnalysisException, KeyError):  # there is no file, or it has no such column
        return {}
    return {"properties": found.simpleString()} if isinstance(found, MapType) else {}


def _ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def _measure(rows: DataFrame, time_zone: str) -> DataFrame:
    """Reduce each message to the values that the statistics need, which are much smaller."""
    ready_at = F.greatest("sent_at", "delivery_time")  # of the existing ones
    sizes = [F.coalesce(F.octet_length(name), F.lit(0)) for name in ("text_body", "json_body", "bytes_body")]
    return _read_properties(rows).select(
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
        F.col("properties.JMSXGroupID").alias("group_id"),
        *_death(),
    )


def _hour(timestamp: Column, time_zone: str) -> Column:
    """Return when the hour began that a timestamp is in, also where zones differ by half an hour, or clocks are set."""
    micros = F.unix_micros(timestamp)
    return F.timestamp_micros(micros - F.pmod(F.unix_micros(F.from_utc_timestamp(timestamp, time_zone)), F.lit(_HOUR)))


def _read_properties(rows: DataFrame) -> DataFrame:
    """Leave of the properties those that count, as texts."""
    properties = F.col("properties")
    if isinstance(rows.schema["properties"].dataType, MapType):
        values = [properties[name] for name in _PROPERTIES]
        texts = [F.coalesce(value["string"], value["long"].cast("string")) for value in values]
        found = F.struct(*(text.alias(name) for name, text in zip(_PROPERTIES, texts, strict=True)))
    else:
        found = F.from_json(properties, _ddl(dict.fromkeys(_PROPERTIES, "string")))
    return rows.withColumn("properties", found)


def _death() -> list[Column]:
    """A dead letter's record of its death."""
    # Another program may have written anything there.
    died_at = F.col("properties.JMS_jmsql_DeadLetterTime").try_cast("bigint")
    last_line = F.regexp_extract("properties.JMS_jmsql_LastError", r"([^\n]*)\s*$", 1)
    return [
        F.col("properties.JMS_jmsql_OriginalDestination").alias("original_destination"),
        F.col("properties.JMS_jmsql_OriginalSubscription").alias("original_subscription"),
        F.col("properties.JMS_jmsql_DeadLetterReason").alias("reason"),
        F.substring(last_line, 1, _LONGEST_ERROR).alias("error"),
        F.timestamp_millis(F.when(died_at.between(0, _LAST_MILLISECOND), died_at)).alias("died_at"),
    ]


def read_dead_letters(spark: SparkSession, schema: str) -> DataFrame | None:
    """Return the records of the dead letters that still wait in their queues; None if there are none."""
    with Administration(schema=schema) as administration:
        queues = administration.dead_letter_queues()
    reader = spark.read.schema("message_id string, properties string").format("jmsql")
    reader = reader.options(selector="JMS_jmsql_DeadLetterReason IS NOT NULL", jmsqlSchema=schema, queryTimeout="0")
    rows = [_read_properties(reader.option("queue", queue).load()) for queue in queues]
    parts = [part.select("message_id", *_death()) for part in rows]
    return reduce(DataFrame.unionByName, parts) if parts else None
