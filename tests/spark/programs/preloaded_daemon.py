"""Spark's Python daemon, which loads the data source before it forks workers, so that they need not."""

from __future__ import annotations

from pyspark.daemon import manager

import jmsql.spark.reading.batch_reader
import jmsql.spark.streaming.queue_stream_reader
import jmsql.spark.writing.writer  # noqa: F401

if __name__ == "__main__":
    manager()
