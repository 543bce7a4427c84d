"""Spark: messages as a data source for batch and streaming reads and writes, named ``jmsql``.

Spark finds it by itself where jmsql is installed; elsewhere `register` makes it known to a session. It needs the extra
``spark`` and Java 17 or newer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make the data source ``jmsql`` known to a session, also to one of Spark Connect.

    Needed only where Spark does not find it by itself: when jmsql was brought along by ``--py-files``.

    Args:
        spark: The session.
    """
    from pyspark_jmsql import DefaultSource

    spark.dataSource.register(DefaultSource)
