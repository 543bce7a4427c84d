"""Statistics of messages that have left destinations: a Spark job over the history, an archive of it, or both.

It needs the extra ``statistics``. `jmsql statistics` is the command.
"""

from __future__ import annotations

from jmsql.spark.statistics.reading import Source
from jmsql.spark.statistics.results import Results, compute_statistics, write_statistics

__all__ = ["Results", "Source", "compute_statistics", "write_statistics"]
