"""The days of the history: compared with the archive, message by message, and removed once it has all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from jmsql.admin import Administration, HistoryDay
from jmsql.extension.statements import SqlFile, rows
from jmsql.spark.archiving.contents import ArchiveSettings
from jmsql.spark.archiving.manifest import ArchivedFile, Manifest
from jmsql.spark.archiving.parquet_files import KEY
from jmsql.spark.archiving.target import Target
from jmsql.spark.columns.arrow import Shaper
from jmsql.spark.columns.expressions import HISTORY_EXPRESSIONS, select_list
from jmsql.spark.connection import execute_arrow, inlined

_CHUNK = 1_000_000
"""About so many messages are compared at once."""

_NAMES = KEY.names


class _Comparison(NamedTuple):
    """How many messages there are, how many the archive lacks, and how many it has too often."""

    in_history: int = 0
    in_archive: int = 0
    missing: int = 0
    doubled: int = 0


@dataclass(frozen=True, slots=True)
class ArchivedDay:
    """A day of the history beside the same day in the archive.

    Args:
        day: The day, in UTC, on which the messages left their destinations.
        in_history: How many messages the history has.
        in_archive: How many the archive has.
        missing: How many of the history the archive has not.
        doubled: How many the archive has too often.
        settled: Whether nothing will be added to the history of the day any more.
        dropped: Whether it was removed from the history; in a dry run, whether it would be.
        kept_because: Why it stays, if it was to go.
    """

    day: date
    in_history: int
    in_archive: int
    missing: int
    doubled: int
    settled: bool
    dropped: bool = False
    kept_because: str | None = None

    @property
    def is_safe(self) -> bool:
        """True if the archive has all of it, each message once."""
        return not self.missing and not self.doubled


def _archived_keys(target: Target, files: Iterable[ArchivedFile]) -> ds.Dataset:
    """Return the columns `KEY` of files, as they are read when they are wanted."""
    parquet = ds.ParquetFileFormat()
    fragments = [
        parquet.make_fragment(
            target / file.name, target.file_system, partition_expression=pc.field("destination") == file.destination
        )
        for file in files
    ]
    return ds.FileSystemDataset(fragments, KEY, parquet, target.file_system)


def _compare(history: Iterator[pa.RecordBatch], archive: ds.Dataset) -> _Comparison:
    """Compare all columns that identify the rows.

    The archive may have more than the history, from which some destinations' messages may have been removed. The
    history has the columns `KEY`, in the order of its transactions.
    """
    total = _Comparison()
    place = pc.field("transaction_id")
    bound = 0
    for part, end in _chunks(history):
        wanted = place >= bound
        if end is not None:
            wanted &= place < end
        found = _compare_part(part, archive.to_table(columns=_NAMES, filter=wanted))
        total = _Comparison(*map(sum, zip(total, found, strict=True)))
        bound = end or 0
    return total


def _chunks(history: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.Table, int | None]]:
    """Return parts of the history, each with the first transaction that comes after it, if one does."""
    kept = KEY.empty_table()
    for batch in history:
        kept = pa.concat_tables([kept, pa.Table.from_batches([batch]).cast(KEY)])
        if kept.num_rows >= _CHUNK:
            transactions = kept.column("transaction_id")
            last = transactions[-1].as_py()
            # The rest of a transaction may come with the next batch.
            complete = pc.less(transactions, last)
            part = kept.filter(complete)
            if part.num_rows:
                yield part, last
                kept = kept.filter(pc.invert(complete))
    yield kept, None


def _compare_part(history: pa.Table, archive: pa.Table) -> _Comparison:
    rows = pa.concat_tables([_counted(history, 1, 0), _counted(archive.cast(KEY), 0, 1)])
    counted = rows.group_by(_NAMES).aggregate([("in_history", "sum"), ("in_archive", "sum")])
    in_history, in_archive = counted["in_history_sum"], counted["in_archive_sum"]
    missing = pc.max_element_wise(pc.subtract(in_history, in_archive), 0)
    doubled = pc.max_element_wise(pc.subtract(in_archive, pc.max_element_wise(in_history, 1)), 0)
    return _Comparison(history.num_rows, archive.num_rows, pc.sum(missing).as_py() or 0, pc.sum(doubled).as_py() or 0)


def _counted(rows: pa.Table, in_history: int, in_archive: int) -> pa.Table:
    for name, number in (("in_history", in_history), ("in_archive", in_archive)):
        rows = rows.append_column(name, pa.repeat(pa.scalar(number, pa.int64()), rows.num_rows))
    return rows


_COMPARING = "comparing the history with the archive"

_keys = SqlFile("archive", "jmsql.spark").statement(
    "keys", _COMPARING, rows, {"columns": select_list(HISTORY_EXPRESSIONS, KEY.names)}
)

_ONE_DAY = timedelta(days=1)


class Days:
    """The days of the history that is archived."""

    def __init__(
        self, administration: Administration, settings: ArchiveSettings, target: Target, manifest: Manifest
    ) -> None:
        self._history = administration.history
        self._settings = settings
        self._target = target
        self._manifest = manifest

    def plan(self, *, drop: bool, progress: Callable[[date], None]) -> list[ArchivedDay]:
        """Compare all days, and tell which would be dropped once the archive has them."""
        days = []
        kept: date | None = None
        for day in self._days():
            progress(day.day)
            compared = self._compare(day)
            reason = None
            if drop:
                # A run archives what is missing before it removes anything.
                reason = self._kept_because(day, compared._replace(missing=0))
                if reason is None and kept is not None:
                    reason = f"{kept}, before it, is kept"
                elif kept is None and reason is not None:
                    kept = day.day
            if compared.in_history:
                days.append(_archived(day, compared, dropped=drop and reason is None, kept_because=reason))
        return days

    def drop(self, progress: Callable[[date], None]) -> list[ArchivedDay]:
        """Remove the days that are settled, old enough, and in the archive; from the first one that is not on, none.

        Raises:
            JMSException: The role may not do that, or those who read the history did not end in time.
        """
        days = []
        for day in self._days():
            if self._is_kept(day):
                break
            progress(day.day)
            compared = self._compare(day)
            reason = self._kept_because(day, compared)
            if reason is None:
                self._remove(day.day)
            if compared.in_history or reason is not None:
                days.append(_archived(day, compared, dropped=reason is None, kept_because=reason))
            if reason is not None:
                break
        return days

    def _days(self) -> list[HistoryDay]:
        today = self._history.today()
        return [day for day in self._history.days() if day.day <= today]

    def _is_kept(self, day: HistoryDay) -> bool:
        return day.day >= self._history.today() - timedelta(days=self._settings.keep_days)

    def _kept_because(self, day: HistoryDay, compared: _Comparison) -> str | None:
        if self._is_kept(day):
            return "it is to be kept"
        if not day.settled:
            return "it is not settled yet"
        return _difference(compared) or self._readers(day)

    def _readers(self, day: HistoryDay) -> str | None:
        # This archive's own places are passed once a run has archived the current history.
        own = {progress.source for progress in self._manifest.progress}
        readers = [each for each in self._history.readers(day, self._settings.destinations) if each not in own]
        if not readers:
            return None
        return (
            f"streaming reads of Spark, or other archives, have not passed it: {', '.join(readers)}. "
            "jmsql.forget_spark_source() ends one that is gone for good"
        )

    def _compare(self, day: HistoryDay) -> _Comparison:
        bounds = {"since": _midnight(day.day), "until": _midnight(day.day + _ONE_DAY)}
        archive = _archived_keys(self._target, (file for file in self._manifest.files() if file.day == day.day))
        with self._settings.database.connect(_COMPARING) as connection:
            query = _keys.bind(bounds, destinations=self._settings.uris)
            statement = inlined(connection, self._settings.schema, query)
        with (
            self._target.errors(f"comparing {day.day}"),
            self._settings.database.connect_arrow(_COMPARING) as reader,
        ):
            return _compare(Shaper(KEY).shape(execute_arrow(reader, statement)), archive)

    def _remove(self, day: date) -> None:
        # None of the days before is there any more, unless for other destinations.
        for destination in self._settings.destinations or (None,):
            for _ in self._history.prune(before=day + _ONE_DAY, destination=destination):
                pass


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _difference(compared: _Comparison) -> str | None:
    if compared.missing:
        return f"the archive lacks {compared.missing:,} of its messages"
    if compared.doubled:
        return f"the archive has {compared.doubled:,} of its messages too often"
    return None


def _archived(day: HistoryDay, compared: _Comparison, *, dropped: bool, kept_because: str | None) -> ArchivedDay:
    return ArchivedDay(day.day, *compared, day.settled, dropped, kept_because)
