"""Reading a queue as a stream, beside reading it as a batch: both into nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from pyspark.sql import SparkSession

from benchmarks.measurement import BenchmarkResult, Contender, Work, compare
from benchmarks.setting import Setting
from benchmarks.spark.session import jmsql_options, spark_session

_QUEUE = "streamed by Spark"
_BATCH = "jmsql, batch read"
_STREAM = "jmsql, stream"


def stream(setting: Setting) -> list[BenchmarkResult]:
    """Stream a queue by one connection of the driver and by several, and read it as a batch."""
    database = setting.database

    def fill(count: int) -> None:
        database.clear()
        database.fill(_QUEUE, count)
        database.execute("vacuum (analyze) jmsql_internal.message")

    with spark_session(setting) as spark:
        options = {**jmsql_options(setting), "queue": _QUEUE, "partitions": "2"}
        streams = {f"{_STREAM}, claimConnections={count}": count for count in (1, 4)}
        contenders = [
            Contender(name, partial(_stream, spark, setting, {**options, "claimConnections": str(count)}), fill)
            for name, count in streams.items()
        ]
        contenders.append(Contender(_BATCH, partial(_read, spark, options), fill))
        samples = setting.measure(contenders, setting.effort.backlog, rounds=setting.effort.jobs)
    return [result for name in streams for result in compare("spark-stream", samples, name, {_BATCH: None})]


@contextmanager
def _stream(spark: SparkSession, setting: Setting, options: dict[str, str]) -> Iterator[Work]:
    def work(_: int) -> None:
        with tempfile.TemporaryDirectory(prefix="jmsql-benchmarks-") as checkpoint:
            rows = spark.readStream.format("jmsql").options(**options).load()
            writing = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
            writing.trigger(availableNow=True).start().awaitTermination()
        left = setting.database.count("jmsql_internal.message")
        if left:
            raise SystemExit(f"{left:,} messages were not streamed.")

    yield work


@contextmanager
def _read(spark: SparkSession, options: dict[str, str]) -> Iterator[Work]:
    def work(_: int) -> None:
        spark.read.format("jmsql").options(**options).load().write.format("noop").mode("overwrite").save()

    yield work
