"""How much memory Spark's driver takes while a long queue is streamed."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.measurement import BenchmarkResult, at_most
from benchmarks.setting import Setting
from benchmarks.spark.session import jmsql_options, spark_session

_QUEUE = "streamed by Spark"
_BATCHES = 20
_FIRST = 2
"""The batch after which the driver has loaded all that it needs."""

_ALLOWED_MEBIBYTES = 50.0


def driver_memory(setting: Setting) -> list[BenchmarkResult]:
    """Stream a queue in 20 batches, and look at the driver after the third and after the last."""
    if not sys.platform.startswith("linux"):
        setting.skip("spark-memory", "it is read from /proc, which only Linux has")
        return []
    setting.tell(f"filling a queue with {setting.effort.backlog:,} messages")
    setting.database.fill(_QUEUE, setting.effort.backlog)
    setting.database.execute("vacuum (analyze) jmsql_internal.message")
    with spark_session(setting) as spark:
        heap, source = _stream(spark, setting)
    return [
        BenchmarkResult("spark-memory", what, "allowed", "MiB", [after - before], [_ALLOWED_MEBIBYTES], at_most(1))
        for what, (before, after) in {"growth, heap": heap, "growth, process of the source": source}.items()
    ]


def _stream(spark: SparkSession, setting: Setting) -> tuple[tuple[float, float], tuple[float, float]]:
    heaps: dict[int, float] = {}
    sources: dict[int, float] = {}

    def sink(batch: DataFrame, number: int) -> None:
        batch.write.format("noop").mode("append").save()
        setting.tell(f"batch {number + 1} of {_BATCHES}")
        heaps[number] = _heap(spark)
        sources[number] = _largest_child(os.getpid())

    rows = spark.readStream.format("jmsql").options(
        **jmsql_options(setting),
        queue=_QUEUE,
        partitions="2",
        maxMessagesPerTrigger=str(setting.effort.backlog // _BATCHES),
    )
    with tempfile.TemporaryDirectory(prefix="jmsql-benchmarks-") as checkpoint:
        writing = rows.load().writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
        query = writing.trigger(availableNow=True).start()
        query.awaitTermination()
    if len(heaps) != _BATCHES or setting.database.count("jmsql_internal.message"):
        raise SystemExit(f"{_BATCHES} batches were to empty the queue; there were {len(heaps)}.")
    last = _BATCHES - 1
    return (heaps[_FIRST], heaps[last]), (sources[_FIRST], sources[last])


def _heap(spark: SparkSession) -> float:
    """Return what lives on the heap of the driver's JVM, in MiB."""
    runtime = spark._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]
    runtime.gc()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 2**20


def _largest_child(process: int) -> float:
    """Return what the largest Python process below a process has in memory, in MiB."""
    largest = 0.0
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in task.read_text(encoding="ascii").split():
            path = Path("/proc", child)
            try:
                status = dict(line.split(":", 1) for line in (path / "status").read_text("utf-8").splitlines())
            except OSError:
                continue  # it has ended
            if status["Name"].strip().startswith("python"):
                largest = max(largest, int(status.get("VmRSS", "0 kB").split()[0]) / 1024)
            largest = max(largest, _largest_child(int(child)))
    return largest
