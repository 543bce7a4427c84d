"""The stream of the history into an archive."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import reduce

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all who use Spark know it

from jmsql.spark.archiving.formats import PARTITIONS, Sink
from jmsql.spark.archiving.lock import ArchiveLock
from jmsql.spark.archiving.settings import ArchiveSettings
from jmsql.spark.session import spark_errors

__all__ = ["ArchiveStream", "place"]

logger = logging.getLogger("jmsql")

_ATTEMPTS = 5
_WORKER_WAS_SLOW = "failed to connect back"
_INTERVAL = 1
_MICROSECONDS_A_DAY = 86_400_000_000


def place(rows: DataFrame, batch: int, *, gather: bool) -> DataFrame:
    """Give the rows of a batch the columns that tell their directory, in the order in which they are written.

    Args:
        rows: The rows, with the columns of the history.
        batch: The number of the batch.
        gather: Whether to bring the rows of each directory together, which several tasks have read, so that there are
            few files.
    """
    # Whatever the time zone of the session.
    day = F.expr(f"date_from_unix_date(cast(unix_micros(acknowledged_at) div {_MICROSECONDS_A_DAY} as int))")
    placed = rows.withColumn("day", day).withColumn("batch", F.lit(batch))
    if gather:
        placed = placed.hint("rebalance", F.col("destination"), F.col("day"))
    return placed.sortWithinPartitions(*PARTITIONS, "transaction_id", "sequence")


class ArchiveStream:
    """Reads the history from where the last run has stopped.

    Args:
        spark: The session.
        settings: What is archived.
        sink: Where to.
        checkpoint: Where Spark keeps the progress.
        lock: What keeps others from writing there.
        progress: Called with the number of messages, after each batch.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: ArchiveSettings,
        sink: Sink,
        checkpoint: str,
        lock: ArchiveLock,
        progress: Callable[[int], None],
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._sink = sink
        self._checkpoint = checkpoint
        self._lock = lock
        self._progress = progress
        self.batches = 0
        """How many batches were written."""
        self.messages = 0
        """How many messages they had."""

    def run(self) -> None:
        """Archive what is there now.

        Raises:
            JMSException: It failed. What was written stays, and the next run goes on from there.
        """
        with spark_errors("archiving"):
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    self._run_once()
                except PySparkException as error:
                    # On a busy machine the ten seconds that Spark gives its Python processes may be too short.
                    if attempt == _ATTEMPTS or _WORKER_WAS_SLOW not in str(error):
                        raise
                    logger.warning("A process of Spark's was slow to start; the archive goes on from where it was.")
                else:
                    return

    def _run_once(self) -> None:
        limit = str(self._settings.max_messages_per_batch)
        streams = [
            self._spark.readStream.format("jmsql").options(**options, maxMessagesPerTrigger=limit).load()
            for options in self._settings.reads()
        ]
        query = (
            reduce(DataFrame.unionAll, streams)
            .writeStream.foreachBatch(self._write)
            .option("checkpointLocation", self._checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        try:
            while not query.awaitTermination(_INTERVAL):
                pass
        finally:
            query.stop()

    def _write(self, rows: DataFrame, batch: int) -> None:
        self._lock.check()
        written = Observation()
        gather = self._settings.partitions > 1 or len(self._settings.destinations) > 1
        placed = place(rows, batch, gather=gather)
        self._sink.write(placed.observe(written, F.count(F.lit(1)).alias("messages")), batch)
        self.batches += 1
        self.messages += written.get["messages"]
        self._progress(self.messages)
