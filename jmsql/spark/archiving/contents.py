"""The contents of an archive: the history, from where the last run has stopped, and messages that wait now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from jmsql import Destination, IllegalStateException, JMSException, Queue, Topic
from jmsql.admin import Administration
from jmsql.extension.statements import PsycopgRunner, SqlFile, Statement, fill, rows
from jmsql.extension.values import optional_to_postgresql, require_destination
from jmsql.spark.archiving.manifest import Manifest, NewFile, Progress
from jmsql.spark.archiving.parquet_files import Unloading, history_schema, waiting_schema
from jmsql.spark.archiving.target import ArchiveLock, Target
from jmsql.spark.columns.arrow import Shaper
from jmsql.spark.columns.expressions import rare_columns_of_history, rare_columns_of_messages
from jmsql.spark.connection import DatabaseReference, inlined
from jmsql.spark.database import check_rights
from jmsql.spark.options import Options, PropertyFormat
from jmsql.spark.reading.browse import WHOLE_QUEUE, queue_of, read_queue, source_of
from jmsql.spark.reading.history import HistoryOrigin, find_origin
from jmsql.spark.streaming.history_stream import (
    HistoryBatch,
    HistoryPosition,
    HistoryStream,
    create_cursor,
    end_of_history,
)
from jmsql.spark.streaming.queue_stream import BatchLimits


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """The checked settings of a run of `archive`. No destinations: all of them."""

    database: DatabaseReference
    schema: str
    destinations: tuple[Destination, ...]
    properties: PropertyFormat
    partitions: int
    max_messages_per_batch: int
    keep_days: int
    file_size: int

    @classmethod
    def check(
        cls,
        database: DatabaseReference,
        schema: str,
        destinations: Sequence[Destination | str],
        properties: PropertyFormat | str,
        **numbers: int,
    ) -> ArchiveSettings:
        """Check the settings.

        Raises:
            InvalidDestinationException: One of them is not a destination.
            JMSException: A number is too small, or properties are not stored so.
        """
        for name, number in numbers.items():
            least = 0 if name == "keep_days" else 1
            if number < least:
                raise JMSException(f"{name} is a whole number from {least} on, not {number}.")
        if properties not in list(PropertyFormat):
            raise JMSException(f"Properties are stored as {' or as '.join(PropertyFormat)}, not as {properties!r}.")
        chosen = {named.uri: named for named in map(require_destination, destinations)}
        ordered = tuple(chosen[uri] for uri in sorted(chosen))
        return cls(database, schema, ordered, PropertyFormat(properties), **numbers)

    @property
    def uris(self) -> list[str] | None:
        """The destinations as text; None: all."""
        return [destination.uri for destination in self.destinations] or None

    def origins(self) -> list[Options]:
        """Return the options of the reads that together bring the history."""
        return [self.source(destination) for destination in self.destinations] or [self.source(None)]

    def source(self, destination: Destination | None, **more: Any) -> Options:
        """Return the options of a read."""
        queue = destination if isinstance(destination, Queue) else None
        topic = destination if isinstance(destination, Topic) else None
        return Options(self.database, self.schema, queue=queue, topic=topic, **more)


_DOING = "archiving"


@dataclass
class HistoryArchiver:
    """Follows the history in batches, each of which becomes part of the archive as a whole.

    A batch is part of it, and passed, as soon as the manifest says so; the database is told afterwards. `progress` is
    called with the number of messages, after each batch.
    """

    settings: ArchiveSettings
    manifest: Manifest
    lock: ArchiveLock
    unloading: Unloading
    progress: Callable[[int], None]
    batches: int = 0
    """How many batches were written."""
    messages: int = 0
    """How many messages they had."""

    def run(self) -> None:
        """Archive the current history.

        Raises:
            InvalidDestinationException: There is no such destination.
            IllegalStateException: The archive and the database do not belong together.
            JMSException: It failed. The written files stay, and the next run goes on from there.
        """
        if not self.manifest.progress:
            self._begin()
        with self.settings.database.connect(_DOING, autocommit=True) as connection:
            runner = PsycopgRunner(connection, self.settings.schema)
            end = runner.run(end_of_history)
            rare = runner.run(rare_columns_of_history)
            schema = history_schema(self.settings.properties)
            columns = Shaper(schema).columns
            limits = BatchLimits(self.settings.max_messages_per_batch)
            for progress, options in zip(self.manifest.progress, self.settings.origins(), strict=True):
                stream = _open(runner, progress, HistoryOrigin(options.destination))
                first = HistoryPosition(progress.transaction, progress.sequence)
                stream.pass_to(first)
                while (batch := stream.next_batch(first, limits, None)) is not None:
                    parts = stream.divide(batch.first, batch.end, self.settings.partitions, batch.messages)
                    reads = [stream.read(part, columns, None, rare) for part in parts]
                    statements = [inlined(connection, self.settings.schema, read) for read in reads]
                    self._add(batch, progress, self.unloading.run(statements, schema))
                    first = batch.end
                    stream.pass_to(first)
                    if first >= end:
                        break  # Messages that have come meanwhile are left to the next run.

    def _begin(self) -> None:
        with self.settings.database.connect(_DOING) as connection:
            runner = PsycopgRunner(connection, self.settings.schema)
            check_rights(runner)
            begun = []
            for options in self.settings.origins():
                origin = find_origin(runner, options)
                source = runner.run(create_cursor(origin, HistoryPosition(0), None))
                begun.append(Progress(source, None if options.destination is None else options.destination.uri))
        self.manifest.record_next(begun)

    def _add(self, batch: HistoryBatch, progress: Progress, files: list[NewFile]) -> None:
        messages = sum(file.messages for file in files)
        if messages != batch.messages:
            raise JMSException(
                f"{messages:,} messages of a batch of {batch.messages:,} were read: history was removed that "
                "was not archived."
            )
        self.lock.check()
        progress.transaction, progress.sequence = batch.end
        self.manifest.commit(files)
        self.batches += 1
        self.messages += messages
        self.progress(self.messages)


def _open(runner: PsycopgRunner, progress: Progress, origin: HistoryOrigin) -> HistoryStream:
    try:
        stream = HistoryStream.open(runner, progress.source, origin)
    except LookupError as error:
        raise IllegalStateException(
            f"The database does not know the streaming read {progress.source} of this archive: it was ended by "
            "forget_spark_source(), or the database was restored or is another. Name another target for what follows."
        ) from error
    place = HistoryPosition(progress.transaction, progress.sequence)
    lost = stream.check(place, is_done=True)
    if lost is None:
        return stream
    if lost.place is not None:
        raise IllegalStateException(f"{lost.reason}. Name another target for what follows.")
    stream.forgive_loss(place)
    raise JMSException(f"{lost.reason}. The next run goes on without it.")


LIVE = "_live"
"""The directory of waiting messages, within the target. Spark does not look into it when it reads the target."""

_ARCHIVING_LIVE = "archiving what waits"
_sql = SqlFile("archive", "jmsql.spark")


def _sources(administration: Administration, settings: ArchiveSettings) -> list[tuple[Options, int]]:
    """Return the options that tell each queue and subscription where something waits, and how much about."""
    wanted = settings.uris
    found = [
        (settings.source(Queue(each.queue)), each.ready + each.waiting + each.delayed)
        for each in administration.queues()
        if wanted is None or Queue(each.queue).uri in wanted
    ]
    for each in administration.subscriptions():
        if each.subscription is not None and (wanted is None or Topic(each.topic).uri in wanted):
            source = settings.source(Topic(each.topic), subscription=each.subscription, client_id=each.client_id)
            found.append((source, each.ready + each.waiting))
    return [(options, count) for options, count in found if count]


def count_live(administration: Administration, settings: ArchiveSettings) -> int:
    """Return how many messages wait."""
    return sum(count for _, count in _sources(administration, settings))


def write_live(
    administration: Administration,
    settings: ArchiveSettings,
    target: Target,
    manifest: Manifest,
    lock: ArchiveLock,
    unloading: Unloading,
) -> int:
    """Write the waiting messages to a directory of their own, replacing an earlier run's files.

    Returns:
        How many messages they are.
    """
    schema = waiting_schema(settings.properties)
    with settings.database.connect(_ARCHIVING_LIVE) as connection:
        statements = [
            _read_waiting(connection, options, Shaper(schema).columns)
            for options, _ in _sources(administration, settings)
        ]
    files = unloading.run(statements, schema)
    lock.check()
    placed = [replace(file, directory=f"{LIVE}/{file.directory}") for file in files]
    manifest.commit(placed, [name for name, _ in target.files(LIVE)])
    return sum(file.messages for file in files)


def _read_waiting(connection: psycopg.Connection[Any], options: Options, columns: Sequence[str]) -> str:
    runner = PsycopgRunner(connection, options.schema)
    queue_id = queue_of(runner, options)
    rare = runner.run(rare_columns_of_messages)
    subscription = {
        "subscription": optional_to_postgresql(options.subscription),
        "client_id": optional_to_postgresql(options.client_id),
    }
    read = read_queue([name for name in columns if not name.startswith("subscription")], None, rare)
    waiting = Statement("waiting", fill(_sql["waiting"], read=read.text), _ARCHIVING_LIVE, rows)
    parameters = {"queue_id": queue_id, "destination": source_of(options).uri, **WHOLE_QUEUE, **subscription}
    return inlined(connection, options.schema, waiting.bind(parameters))
