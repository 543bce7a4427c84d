"""A run of the archive."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jmsql import Destination, IllegalStateException
from jmsql.admin import Administration
from jmsql.extension.statements import PsycopgRunner
from jmsql.spark.archiving.contents import ArchiveSettings, HistoryArchiver, count_live, write_live
from jmsql.spark.archiving.days import ArchivedDay, Days
from jmsql.spark.archiving.manifest import Manifest
from jmsql.spark.archiving.parquet_files import Unloading, compact
from jmsql.spark.archiving.target import ArchiveLock, Target
from jmsql.spark.connection import DatabaseReference
from jmsql.spark.options import PropertyFormat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_FILE_SIZE = 256 * 2**20


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """The result of a run.

    Args:
        target: Where the archive is: a path without symbolic links, or a URL.
        batches: How many batches were written.
        messages: How many messages of the history were written; in a dry run, how many would be.
        live_messages: How many messages were written that wait in queues and subscriptions; None: none were asked for.
        merged_files: How many small files were merged to larger ones.
        days: The days that were compared: those that were to be dropped; in a dry run, all.
        dry_run: Whether nothing was done.
    """

    target: str
    batches: int
    messages: int
    live_messages: int | None
    merged_files: int
    days: tuple[ArchivedDay, ...]
    dry_run: bool

    @property
    def is_safe(self) -> bool:
        """True if no settled day was kept because the archive does not have all of it."""
        return self.dry_run or all(day.is_safe for day in self.days if day.settled)


def archive(
    target: str | os.PathLike[str],
    *,
    destinations: Sequence[Destination | str] = (),
    connection: str | None = None,
    url: str | None = None,
    schema: str = "jmsql",
    properties: PropertyFormat | str = PropertyFormat.json,
    live: bool = False,
    drop: bool = False,
    keep_days: int = 0,
    merge: bool = False,
    dry_run: bool = False,
    partitions: int = 1,
    max_messages_per_batch: int = 1_000_000,
    file_size: int = _FILE_SIZE,
    spark: SparkSession | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> ArchiveReport:
    """Write the history since the last run to a directory of Parquet files, each message once.

    A run may end at any moment, for any reason: the next one repairs its leftovers. The database is found as the data
    source finds it. It takes no Spark.

    Args:
        target: The directory: a local path, or a URL such as ``s3://bucket/archive``.
        destinations: The destinations; empty: all of them. It stays the same for a target.
        connection: The name of a connection.
        url: The URL of the database, without a password.
        schema: The PostgreSQL schema of jmsql.
        properties: How the properties of messages are stored: "json", as text, or "map", as typed values. It stays
            the same for a target.
        live: True to write the messages that wait in queues and subscriptions, too, to ``_live`` in the target.
        drop: Whether to remove settled days from the history of which the archive has all messages.
        keep_days: How many days before today are not removed.
        merge: Whether to merge the small files of each destination and day, of the days before today.
        dry_run: True to return, without changes, the numbers that a run would archive and remove.
        partitions: Over how many connections each batch is read at the same time.
        max_messages_per_batch: The most messages in a batch. A run that is killed repeats one batch at most.
        file_size: The bytes from which on a file takes no more messages.
        spark: The session whose tasks read and write, not one of Spark Connect; None: this process does.
        progress: Called with the current step, and with the number of archived messages.

    Raises:
        IllegalStateException: Another run writes to the target, or something else is in it.
        InvalidDestinationException: One of them is not a destination.
        JMSException: PostgreSQL, the file system or Spark has failed, or an argument makes no sense.
    """
    database = DatabaseReference(connection, url, query_timeout=0)  # as pg_dump does: a run reads for long
    settings = ArchiveSettings.check(
        database,
        schema,
        destinations,
        properties,
        partitions=partitions,
        max_messages_per_batch=max_messages_per_batch,
        keep_days=keep_days,
        file_size=file_size,
    )
    report = progress or (lambda _doing, _messages: None)
    place = Target(target)
    manifest = Manifest(place, schema, settings.uris, settings.properties)
    with Administration(database.resolve().text(), schema=schema) as administration:
        days = Days(administration, settings, place, manifest)
        if dry_run:
            manifest.read()
            planned = days.plan(drop=drop, progress=lambda day: report(f"Comparing {day}", 0))
            waiting = count_live(administration, settings) if live else None
            lacking = sum(day.missing for day in planned)
            return ArchiveReport(place.url, 0, lacking, waiting, 0, tuple(planned), dry_run=True)
        with _locked(database, schema, place) as lock:
            unloading = Unloading(database, place.url, file_size, partitions, spark)
            manifest.read()
            manifest.finish()
            manifest.close()
            report("Archiving", 0)
            archiver = HistoryArchiver(settings, manifest, lock, unloading, lambda count: report("Archiving", count))
            archiver.run()
            waiting = None
            if live:
                report("Archiving what waits", archiver.messages)
                waiting = write_live(administration, settings, place, manifest, lock, unloading)
            merged = 0
            if merge:
                merged = compact(
                    place,
                    manifest,
                    lock,
                    before=administration.history.today(),
                    file_size=file_size,
                    progress=lambda directory: report(f"Merging {directory}", archiver.messages),
                )
            dropped = days.drop(lambda day: report(f"Comparing {day}", archiver.messages)) if drop else []
            manifest.close()
        return ArchiveReport(
            place.url, archiver.batches, archiver.messages, waiting, merged, tuple(dropped), dry_run=False
        )


@contextmanager
def _locked(database: DatabaseReference, schema: str, target: Target) -> Iterator[ArchiveLock]:
    with database.connect("archiving") as connection:
        lock = ArchiveLock(PsycopgRunner(connection, schema), target.lock_name)
        if not lock.acquire():
            raise IllegalStateException(f"Another run writes to the archive in {target.url}: wait until it has ended.")
        yield lock
