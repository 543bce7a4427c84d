"""What waits in queues and subscriptions now, as it is, without consuming it."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all who use Spark know it

from jmsql.client._sync.administration.administration import Administration
from jmsql.destinations import Queue, Topic
from jmsql.spark.archiving.settings import ArchiveSettings
from jmsql.spark.archiving.target import Target
from jmsql.spark.session import spark_errors

__all__ = ["LIVE", "count_live", "write_live"]

LIVE = "_live"
"""The directory of what waits, within the target. Spark does not look into it when it reads the target."""

_NEW = "_live.new"


def _sources(administration: Administration, settings: ArchiveSettings) -> list[tuple[dict[str, str], int]]:
    """Return the options that tell each queue and subscription where something waits, and how much about."""
    wanted = settings.uris
    found = [
        ({"queue": each.queue}, each.ready + each.waiting + each.delayed)
        for each in administration.queues()
        if wanted is None or Queue(each.queue).uri in wanted
    ]
    for each in administration.subscriptions():
        if each.subscription is not None and (wanted is None or Topic(each.topic).uri in wanted):
            client = {} if each.client_id is None else {"clientId": each.client_id}
            options = {"topic": each.topic, "subscription": each.subscription, **client}
            found.append((options, each.ready + each.waiting))
    return [(options, count) for options, count in found if count]


def count_live(administration: Administration, settings: ArchiveSettings) -> int:
    """Return how many messages wait."""
    return sum(count for _, count in _sources(administration, settings))


def write_live(spark: SparkSession, administration: Administration, settings: ArchiveSettings, target: Target) -> int:
    """Write what waits to a directory of its own, in the place of what an earlier run has written there.

    Returns:
        How many messages they are.
    """
    sources = _sources(administration, settings)
    with spark_errors("archiving what waits"):
        if not sources:
            target.delete(LIVE)
            return 0
        rows = reduce(DataFrame.unionAll, [_read(spark, settings, options) for options, _ in sources])
        written = Observation()
        rows = rows.observe(written, F.count(F.lit(1)).alias("messages"))
        target.delete(_NEW)
        rows.write.partitionBy("destination").option("compression", "zstd").parquet(target / _NEW)
        target.replace(_NEW, LIVE)
        return int(written.get["messages"])


def _read(spark: SparkSession, settings: ArchiveSettings, options: dict[str, str]) -> DataFrame:
    rows = spark.read.format("jmsql").options(**settings.connection_options(), **options).load()
    return rows.withColumns(
        {
            "subscription": F.lit(options.get("subscription")).cast("string"),
            "subscription_client_id": F.lit(options.get("clientId")).cast("string"),
        }
    )
