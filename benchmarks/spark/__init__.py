"""The data source for Spark, beside Spark's own JDBC source and beside plain ADBC."""

from __future__ import annotations

from benchmarks.measurement import BenchmarkResult
from benchmarks.setting import Setting
from jmsql.exceptions import ResourceAllocationException

__all__ = ["spark_history", "spark_memory", "spark_read", "spark_stream", "spark_write"]


def spark_read(setting: Setting) -> list[BenchmarkResult]:
    """Read 1,000,000 messages into Parquet with Spark, beside plain ADBC and JDBC."""
    if not _can_run(setting):
        return []
    from benchmarks.spark.reading import read

    return read(setting)


def spark_history(setting: Setting) -> list[BenchmarkResult]:
    """Archive 1,000,000 messages of the history, and read them with Spark, beside plain ADBC and JDBC."""
    if not _can_run(setting):
        return []
    from benchmarks.spark.reading import read_history

    return read_history(setting)


def spark_write(setting: Setting) -> list[BenchmarkResult]:
    """Send 1,000,000 rows of a DataFrame exactly once, beside plain JDBC."""
    if not _can_run(setting):
        return []
    from benchmarks.spark.writing import write

    return write(setting)


def spark_stream(setting: Setting) -> list[BenchmarkResult]:
    """Stream 1,000,000 messages with Spark, beside reading them as a batch."""
    if not _can_run(setting):
        return []
    from benchmarks.spark.streaming import stream

    return stream(setting)


def spark_memory(setting: Setting) -> list[BenchmarkResult]:
    """Growth of Spark's driver while it streams 1,000,000 messages."""
    if not _can_run(setting):
        return []
    from benchmarks.spark.driver_memory import driver_memory

    return driver_memory(setting)


def _can_run(setting: Setting) -> bool:
    try:
        import adbc_driver_postgresql  # noqa: F401
        import pyspark  # noqa: F401

        from jmsql.spark.session import find_java

        find_java()
    except (ImportError, ResourceAllocationException) as error:
        setting.skip("spark", str(error))
        return False
    return True
