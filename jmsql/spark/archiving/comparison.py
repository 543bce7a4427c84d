"""The history of a day beside the archive of the same day, message by message."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all who use Spark know it

from jmsql.spark.archiving.formats import KEY

__all__ = ["ArchiveComparison", "compare"]


class ArchiveComparison(NamedTuple):
    """How many messages there are, how many the archive lacks, and how many it has too often."""

    in_history: int = 0
    in_archive: int = 0
    missing: int = 0
    doubled: int = 0


def compare(history: DataFrame, archive: DataFrame | None) -> ArchiveComparison:
    """Compare what tells the rows apart, all of it.

    The archive may have more than the history, from which some destinations' messages may have been removed.

    Args:
        history: What PostgreSQL has, with the columns `KEY`.
        archive: What the archive has; None: nothing.
    """
    rows = history.select(*KEY, F.lit(1).alias("in_history"), F.lit(0).alias("in_archive"))
    if archive is not None:
        rows = rows.unionAll(archive.select(*KEY, F.lit(0).alias("in_history"), F.lit(1).alias("in_archive")))
    counted = rows.groupBy(*KEY).agg(F.sum("in_history").alias("in_history"), F.sum("in_archive").alias("in_archive"))
    found = counted.agg(
        F.sum("in_history"),
        F.sum("in_archive"),
        F.sum(F.greatest(F.col("in_history") - F.col("in_archive"), F.lit(0))),
        F.sum(F.greatest(F.col("in_archive") - F.greatest(F.col("in_history"), F.lit(1)), F.lit(0))),
    ).first()
    assert found is not None
    return ArchiveComparison(*(int(number or 0) for number in found))
