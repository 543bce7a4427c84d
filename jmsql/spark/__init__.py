"""Spark: messages as a data source for batch and streaming reads and writes, named ``jmsql``, and jobs built on it.

`register` makes it known to a session; where jmsql is installed, Spark also finds it by itself. It needs the extra
``spark`` and Java 17 or newer.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from jmsql.extension.maintenance import register_task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jmsql.spark.archiving.days import ArchivedDay
    from jmsql.spark.archiving.job import ArchiveReport, archive
    from jmsql.spark.archiving.manifest import ArchivedFile, archived_files

__all__ = ["ArchiveReport", "ArchivedDay", "ArchivedFile", "archive", "archived_files", "register"]

_PLACES = {
    "ArchiveReport": "jmsql.spark.archiving.job",
    "ArchivedDay": "jmsql.spark.archiving.days",
    "ArchivedFile": "jmsql.spark.archiving.manifest",
    "archive": "jmsql.spark.archiving.job",
    "archived_files": "jmsql.spark.archiving.manifest",
}
"""Where the names are that are loaded when they are asked for: Spark's tasks need none of them."""

# As the entry points of the installed package do, which a copy brought along by ``--py-files`` does not have.
register_task("spark-attempts", "jmsql.spark.writing.maintenance:attempts_task")


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)


def register(spark: SparkSession) -> None:
    """Make the data source ``jmsql`` known to a session, also to one of Spark Connect.

    Spark does not find it by itself when jmsql was brought along by ``--py-files``. Where jmsql is installed, Spark
    looks for it once, in a process of its own. If that process is killed or fails, also because of another package,
    the session has no format ``jmsql`` until this is called.

    Args:
        spark: The session.
    """
    from pyspark_jmsql import DefaultSource

    spark.dataSource.register(DefaultSource)
