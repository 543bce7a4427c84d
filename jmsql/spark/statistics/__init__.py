"""Statistics of what has left destinations: a Spark job over the history, an archive of it, or both.

It needs the extra ``statistics``. `jmsql statistics` is the command.
"""

from __future__ import annotations

from jmsql.spark.statistics.aggregation import aggregate
from jmsql.spark.statistics.reading import Source, read_messages
from jmsql.spark.statistics.results import Results, compute_statistics
from jmsql.spark.statistics.writing import write_statistics

__all__ = ["Results", "Source", "aggregate", "compute_statistics", "read_messages", "write_statistics"]
