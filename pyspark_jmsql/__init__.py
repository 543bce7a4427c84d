"""What Spark looks for: it imports every package whose name begins with ``pyspark_``, and takes its data source."""

from __future__ import annotations

from jmsql.spark.source import MessageSource as DefaultSource

__all__ = ["DefaultSource"]
