"""The Java behind a Spark session. PySpark has no public way to it; what it keeps private is read here alone."""

from __future__ import annotations

from pyspark import SparkContext
from pyspark.sql import SparkSession

__all__ = ["stop_with_java"]


def stop_with_java(spark: SparkSession) -> None:
    """Stop a session, and end its Java, so that the next one starts with settings of its own."""
    gateway = SparkContext._gateway
    spark.stop()
    if gateway is not None:
        gateway.shutdown()
        process = gateway.proc
        if process is not None:
            process.stdin.close()
            process.wait()
        SparkContext._gateway = SparkContext._jvm = None
