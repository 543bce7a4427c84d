"""A run of the archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date

from pyspark.sql import SparkSession

from jmsql.client._sync.administration.administration import Administration
from jmsql.destinations import Destination
from jmsql.exceptions import IllegalStateException
from jmsql.spark.archiving.archive_format import ArchiveFormat
from jmsql.spark.archiving.archive_stream import ArchiveStream
from jmsql.spark.archiving.days import Days
from jmsql.spark.archiving.formats import open_sink
from jmsql.spark.archiving.live import count_live, write_live
from jmsql.spark.archiving.lock import ArchiveLock
from jmsql.spark.archiving.manifest import Manifest
from jmsql.spark.archiving.report import ArchiveReport
from jmsql.spark.archiving.settings import ArchiveSettings
from jmsql.spark.archiving.target import Target
from jmsql.spark.connection import DatabaseReference
from jmsql.store._sync.runner import PsycopgRunner

__all__ = ["archive"]


def archive(
    spark: SparkSession,
    target: str,
    *,
    destinations: Sequence[Destination | str] = (),
    connection: str | None = None,
    url: str | None = None,
    schema: str = "jmsql",
    format: ArchiveFormat | str = ArchiveFormat.parquet,  # noqa: A002 - as Spark calls it
    live: bool = False,
    drop: bool = False,
    keep_days: int = 0,
    dry_run: bool = False,
    partitions: int = 1,
    max_messages_per_batch: int = 500_000,
    checkpoint: str | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> ArchiveReport:
    """Write what has been added to the history since the last run to a directory of Parquet files, each message once.

    Whatever ends a run, at any moment: what it has left is put right by the next one. The database is found as the
    data source finds it.

    Args:
        spark: The session; not one of Spark Connect.
        target: The directory: a local path, or a URL such as ``s3a://bucket/archive``.
        destinations: Whose history; none named: that of all. It stays the same for a target.
        connection: The name of a connection.
        url: The URL of the database, without a password.
        schema: The PostgreSQL schema of jmsql.
        format: "parquet"; or "delta" or "iceberg", if their jars are there.
        live: Whether to write, too, what waits in the queues and subscriptions now, to ``_live`` in the target.
        drop: Whether to remove settled days from the history of which the archive has all messages.
        keep_days: How many days before today are not removed.
        dry_run: Whether only to tell what would be archived and removed.
        partitions: In how many tasks each batch is read.
        max_messages_per_batch: The most messages in a batch. A run that is killed repeats one batch at most.
        checkpoint: Where Spark keeps how far the archive goes; None: ``_checkpoint`` in the target.
        progress: Called with what is being done, and with how many messages were archived.

    Raises:
        IllegalStateException: Another run writes to the target, or something else is in it.
        InvalidDestinationException: One of them is not a destination.
        JMSException: Spark, Java or PostgreSQL has failed, or an argument makes no sense.
    """
    database = DatabaseReference(connection, url)
    settings = ArchiveSettings.check(
        database, schema, destinations, format, partitions, max_messages_per_batch, keep_days
    )
    tell = progress or _ignore
    place = Target(spark, target)
    sink = open_sink(spark, place, settings.format)
    manifest = Manifest(spark, place, settings, checkpoint)
    address = database.resolve().text()
    with Administration(address, schema=schema) as administration:
        days = Days(spark, administration, settings, sink)
        if dry_run:
            manifest.check()
            planned = days.plan(drop=drop, progress=lambda day: tell(f"Comparing {day}", 0))
            waiting = count_live(administration, settings) if live else None
            lacking = sum(day.missing for day in planned)
            return ArchiveReport(place.url, 0, lacking, waiting, tuple(planned), dry_run=True)
        with _locked(database, schema, place) as lock:
            manifest.check()
            manifest.write()
            sink.clean()
            tell("Archiving", 0)
            stream = ArchiveStream(
                spark, settings, sink, manifest.checkpoint, lock, lambda messages: tell("Archiving", messages)
            )
            stream.run()
            waiting = None
            if live:
                tell("Archiving what waits", stream.messages)
                waiting = write_live(spark, administration, settings, place)

            def tell_day(day: date) -> None:
                tell(f"Comparing {day}", stream.messages)

            dropped = days.drop(tell_day) if drop else []
        return ArchiveReport(place.url, stream.batches, stream.messages, waiting, tuple(dropped), dry_run=False)


@contextmanager
def _locked(database: DatabaseReference, schema: str, target: Target) -> Iterator[ArchiveLock]:
    with database.connect("archiving", autocommit=True) as connection:
        lock = ArchiveLock(PsycopgRunner(connection, schema), target.url)
        if not lock.acquire():
            raise IllegalStateException(f"Another run writes to the archive in {target.url}: wait until it has ended.")
        yield lock


def _ignore(doing: str, messages: int) -> None:
    pass
