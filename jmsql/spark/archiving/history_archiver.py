"""The history goes into an archive, from where the last run has stopped."""

from __future__ import annotations

from collections.abc import Callable

from jmsql.exceptions import IllegalStateException, JMSException
from jmsql.spark.archiving.lock import ArchiveLock
from jmsql.spark.archiving.manifest import Manifest, Progress
from jmsql.spark.archiving.parquet_files import history_schema
from jmsql.spark.archiving.settings import ArchiveSettings
from jmsql.spark.archiving.unloading import Unloading
from jmsql.spark.columns.arrow import Shaper
from jmsql.spark.columns.expressions import rare_columns_of_history
from jmsql.spark.connection import inlined
from jmsql.spark.database import check_rights
from jmsql.spark.reading.history import HistoryOrigin, find_origin
from jmsql.spark.streaming.history_stream import (
    HistoryBatch,
    HistoryPosition,
    HistoryStream,
    create_cursor,
    end_of_history,
)
from jmsql.spark.streaming.queue_stream import BatchLimits
from jmsql.store.runners._sync.runner import PsycopgRunner

__all__ = ["HistoryArchiver"]

_DOING = "archiving"


class HistoryArchiver:
    """Follows the history in batches, each of which becomes part of the archive as a whole.

    A batch is part of it, and passed, as soon as the manifest says so; the database is told afterwards.

    Args:
        settings: What is archived.
        manifest: What says how far the archive goes.
        lock: What keeps others from writing there.
        unloading: Who reads, and where it goes.
        progress: Called with the number of messages, after each batch.
    """

    def __init__(
        self,
        settings: ArchiveSettings,
        manifest: Manifest,
        lock: ArchiveLock,
        unloading: Unloading,
        progress: Callable[[int], None],
    ) -> None:
        self._settings = settings
        self._manifest = manifest
        self._lock = lock
        self._unloading = unloading
        self._progress = progress
        self._schema = history_schema(settings.properties)
        self._columns = Shaper(self._schema).columns
        self.batches = 0
        """How many batches were written."""
        self.messages = 0
        """How many messages they had."""

    def run(self) -> None:
        """Archive what is there now.

        Raises:
            InvalidDestinationException: There is no such destination.
            IllegalStateException: The archive and the database do not belong together.
            JMSException: It failed. What was written stays, and the next run goes on from there.
        """
        if not self._manifest.progress:
            self._begin()
        with self._settings.database.connect(_DOING, autocommit=True) as connection:
            runner = PsycopgRunner(connection, self._settings.schema)
            end = runner.run(end_of_history)
            rare = runner.run(rare_columns_of_history)
            for progress, options in zip(self._manifest.progress, self._settings.origins(), strict=True):
                stream = _open(runner, progress, HistoryOrigin(options.destination))
                first = HistoryPosition(progress.transaction, progress.sequence)
                stream.pass_to(first)
                while (batch := self._next_batch(stream, first)) is not None:
                    parts = stream.divide(batch.first, batch.end, self._settings.partitions, batch.messages)
                    reads = [stream.read(part, self._columns, None, rare) for part in parts]
                    self._write(batch, progress, [inlined(connection, self._settings.schema, read) for read in reads])
                    first = batch.end
                    stream.pass_to(first)
                    if first >= end:
                        break  # What has come meanwhile is for the next run.

    def _begin(self) -> None:
        with self._settings.database.connect(_DOING) as connection:
            runner = PsycopgRunner(connection, self._settings.schema)
            check_rights(runner)
            begun = []
            for options in self._settings.origins():
                origin = find_origin(runner, options)
                source = runner.run(create_cursor(origin, HistoryPosition(0), None))
                begun.append(Progress(source, None if options.destination is None else options.destination.uri))
        self._manifest.begin(begun)

    def _next_batch(self, stream: HistoryStream, first: HistoryPosition) -> HistoryBatch | None:
        return stream.next_batch(first, BatchLimits(self._settings.max_messages_per_batch), None)

    def _write(self, batch: HistoryBatch, progress: Progress, statements: list[str]) -> None:
        files = self._unloading.run(statements, self._schema)
        messages = sum(file.messages for file in files)
        if messages != batch.messages:
            raise JMSException(
                f"{messages:,} messages of a batch of {batch.messages:,} were read: somebody has removed history that "
                "was not archived."
            )
        self._lock.check()
        progress.transaction, progress.sequence = batch.end
        self._manifest.commit(files)
        self.batches += 1
        self.messages += messages
        self._progress(self.messages)


def _open(runner: PsycopgRunner, progress: Progress, origin: HistoryOrigin) -> HistoryStream:
    try:
        stream = HistoryStream.open(runner, progress.source, origin)
    except LookupError as error:
        raise IllegalStateException(
            f"The database does not know the streaming read {progress.source} of this archive: it was ended by "
            "forget_spark_source(), or the database was restored or is another. Name another target for what follows."
        ) from error
    lost = stream.check(HistoryPosition(progress.transaction, progress.sequence))
    if lost is None:
        return stream
    if lost.place is not None:
        raise IllegalStateException(f"{lost.reason}. Name another target for what follows.")
    stream.forgive_loss()
    raise JMSException(f"{lost.reason}. The next run goes on without it.")
