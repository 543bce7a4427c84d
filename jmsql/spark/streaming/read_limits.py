"""How much a micro-batch takes, by the options and by the trigger."""

from __future__ import annotations

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from jmsql.spark.options import Options
from jmsql.spark.streaming.queue_stream import Limits

__all__ = ["default_read_limit", "limits_of_batch"]


def default_read_limit(options: Options) -> ReadLimit:
    """Return the limit of each micro-batch; if messages and bytes are limited, `limits_of_batch` adds the bytes."""
    if options.maximum_messages is not None:
        return ReadMaxRows(options.maximum_messages)
    if options.maximum_bytes is not None:
        return ReadMaxBytes(options.maximum_bytes)
    return ReadAllAvailable()


def limits_of_batch(limit: ReadLimit, options: Options) -> Limits:
    """Return how much a micro-batch takes."""
    limits = Limits()
    if isinstance(limit, ReadMaxRows):
        limits = limits._replace(messages=limit.max_rows)
    if not isinstance(limit, ReadAllAvailable) and options.maximum_bytes is not None:
        limits = limits._replace(size=options.maximum_bytes)
    return limits
