"""How an archive is stored: each batch in partitions of its own, which take the place of an earlier try."""

from __future__ import annotations

from datetime import date
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from jmsql.exceptions import JMSException
from jmsql.spark.archiving.archive_format import ArchiveFormat
from jmsql.spark.archiving.target import Target
from jmsql.spark.jvm import java_of
from jmsql.spark.session import spark_errors

__all__ = ["KEY", "PARTITIONS", "Sink", "open_sink"]

PARTITIONS = ("destination", "day", "batch")
"""The columns that tell the directory of a row."""

KEY = {
    "destination": "string",
    "subscription": "string",
    "subscription_client_id": "string",
    "transaction_id": "bigint",
    "sequence": "bigint",
}
"""The columns that tell a row of history from all others, and their types."""

_STAGING = ".spark-staging-"


_CLASSES = {
    ArchiveFormat.delta: "io.delta.sql.DeltaSparkSessionExtension",
    ArchiveFormat.iceberg: "org.apache.iceberg.spark.SparkCatalog",
}
_PACKAGES = {
    ArchiveFormat.delta: "bring its jars along, with spark.jars.packages=io.delta:delta-spark_2.13:VERSION",
    ArchiveFormat.iceberg: "bring its jar along, with "
    "spark.jars.packages=org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:VERSION",
}


class Sink(Protocol):
    """Where batches go."""

    def write(self, rows: DataFrame, batch: int) -> None:
        """Write a batch, in the place of what an earlier try has left of it."""

    def read(self, day: date) -> DataFrame | None:
        """Return the columns `KEY` of the rows of a day; None: there are none."""

    def clean(self) -> None:
        """Remove what those have left who were killed."""


class ParquetSink:
    """Directories ``destination=…/day=…/batch=N``.

    Args:
        spark: The session.
        target: Where they are.
    """

    def __init__(self, spark: SparkSession, target: Target) -> None:
        self._spark = spark
        self._target = target

    def write(self, rows: DataFrame, batch: int) -> None:  # noqa: ARG002 - the rows tell
        """Write a batch beside the target, and move each of its directories to its place."""
        # Engines differ in how they read Spark's older kind of timestamp. The session is the query's own.
        rows.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        writer = rows.write.mode("overwrite").partitionBy(*PARTITIONS).option("compression", "zstd")
        writer.option("partitionOverwriteMode", "dynamic").parquet(self._target.url)

    def read(self, day: date) -> DataFrame | None:
        """Read the directories of a day."""
        name = f"day={day}"
        directories = [
            self._target / f"{destination}/{name}"
            for destination in self._target.names()
            if destination.startswith("destination=") and self._target.exists(f"{destination}/{name}")
        ]
        if not directories:
            return None
        schema = ", ".join(f"{column} {kind}" for column, kind in KEY.items())
        return self._spark.read.schema(schema).option("basePath", self._target.url).parquet(*directories)

    def clean(self) -> None:
        """Remove what was not moved to its place."""
        for name in self._target.names():
            if name.startswith(_STAGING):
                self._target.delete(name)


class DeltaSink:
    """A Delta table; each batch is one transaction of it.

    Args:
        spark: The session.
        target: Where the table is.
    """

    def __init__(self, spark: SparkSession, target: Target) -> None:
        self._spark = spark
        self._target = target

    def write(self, rows: DataFrame, batch: int) -> None:
        """Replace the batch."""
        writer = rows.write.format("delta").mode("overwrite").partitionBy(*PARTITIONS)
        writer.option("replaceWhere", f"batch = {batch}").save(self._target.url)

    def read(self, day: date) -> DataFrame | None:
        """Read the rows of a day."""
        if not self._target.exists("_delta_log"):
            return None
        return self._spark.read.format("delta").load(self._target.url).where(f"day = date'{day}'").select(*KEY)

    def clean(self) -> None:
        """Leave what was not committed to Delta's own ``vacuum``."""


class IcebergSink:
    """The Iceberg table ``jmsql.history`` of a catalog that is the directory; each batch is one snapshot of it.

    Args:
        spark: The session.
        target: The directory.
    """

    _CATALOG = "jmsql_archive"
    _TABLE = f"{_CATALOG}.jmsql.history"

    def __init__(self, spark: SparkSession, target: Target) -> None:
        self._spark = spark
        catalog = f"spark.sql.catalog.{self._CATALOG}"
        spark.conf.set(catalog, _CLASSES[ArchiveFormat.iceberg])
        spark.conf.set(f"{catalog}.type", "hadoop")
        spark.conf.set(f"{catalog}.warehouse", target.url)

    def write(self, rows: DataFrame, batch: int) -> None:  # noqa: ARG002 - the rows tell
        """Replace the batch."""
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in rows.schema.fields)
        rows.sparkSession.sql(
            f"create table if not exists {self._TABLE} ({columns}) using iceberg "
            f"partitioned by ({', '.join(PARTITIONS)})"
        )
        rows.writeTo(self._TABLE).overwritePartitions()

    def read(self, day: date) -> DataFrame | None:
        """Read the rows of a day."""
        if not self._spark.catalog.tableExists(self._TABLE):
            return None
        return self._spark.table(self._TABLE).where(f"day = date'{day}'").select(*KEY)

    def clean(self) -> None:
        """Leave what was not committed to Iceberg's own ``remove_orphan_files``."""


def open_sink(spark: SparkSession, target: Target, kind: ArchiveFormat) -> Sink:
    """Return the sink of a format.

    Raises:
        JMSException: The format's jars are not there; the message says how to get them.
    """
    name = _CLASSES.get(kind)
    if name is not None and not _has_class(spark, name):
        raise JMSException(f"Spark does not know the format {kind} here: {_PACKAGES[kind]}.")
    match kind:
        case ArchiveFormat.parquet:
            return ParquetSink(spark, target)
        case ArchiveFormat.delta:
            return DeltaSink(spark, target)
        case ArchiveFormat.iceberg:
            return IcebergSink(spark, target)


def _has_class(spark: SparkSession, name: str) -> bool:
    try:
        with spark_errors("looking for a class"):
            java_of(spark).java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except JMSException:
        return False
    return True
