"""The days of the history: compared with the archive, and removed once the archive has all of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta

from jmsql.client._sync.administration.administration import Administration
from jmsql.spark.archiving.comparison import ArchiveComparison, archived_keys, compare
from jmsql.spark.archiving.manifest import Manifest
from jmsql.spark.archiving.parquet_files import KEY
from jmsql.spark.archiving.report import ArchivedDay
from jmsql.spark.archiving.settings import ArchiveSettings
from jmsql.spark.archiving.target import Target
from jmsql.spark.columns.arrow import Shaper
from jmsql.spark.columns.expressions import HISTORY_EXPRESSIONS, select_list
from jmsql.spark.connection import execute_arrow, inlined
from jmsql.store.history.partitions import HistoryDay
from jmsql.store.statement import SqlFile, rows

__all__ = ["Days"]

_COMPARING = "comparing the history with the archive"

_keys = SqlFile("archive", "jmsql.spark").statement(
    "keys", _COMPARING, rows, {"columns": select_list(HISTORY_EXPRESSIONS, KEY.names)}
)

_ONE_DAY = timedelta(days=1)


class Days:
    """The days of the history that is archived.

    Args:
        administration: Where to ask of the history.
        settings: What is archived.
        target: Where the archive is.
        manifest: What says of which files it is.
    """

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
        for day in self._days():
            progress(day.day)
            compared = self._compare(day)
            if compared.in_history:
                reason = self._reason(day) if drop else None
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
            reason = self._reason(day) or _difference(compared) or self._readers(day)
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

    def _reason(self, day: HistoryDay) -> str | None:
        if self._is_kept(day):
            return "it is to be kept"
        return None if day.settled else "it is not settled yet"

    def _readers(self, day: HistoryDay) -> str | None:
        readers = self._history.readers(day, self._settings.destinations)
        return f"streaming reads of Spark have not passed it: {', '.join(readers)}" if readers else None

    def _compare(self, day: HistoryDay) -> ArchiveComparison:
        bounds = {"since": _midnight(day.day), "until": _midnight(day.day + _ONE_DAY)}
        archive = archived_keys(self._target, (file for file in self._manifest.files() if file.day == day.day))
        with self._settings.database.connect(_COMPARING) as connection:
            query = _keys.bind(bounds, destinations=self._settings.uris)
            statement = inlined(connection, self._settings.schema, query)
        with (
            self._target.errors(f"comparing {day.day}"),
            self._settings.database.connect_arrow(_COMPARING) as reader,
            reader.cursor() as cursor,
        ):
            execute_arrow(cursor, statement)
            return compare(Shaper(KEY).shape(cursor.fetch_record_batch()), archive)

    def _remove(self, day: date) -> None:
        # None of the days before is there any more, unless for other destinations.
        for destination in self._settings.destinations or (None,):
            for _ in self._history.prune(before=day + _ONE_DAY, destination=destination):
                pass


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _difference(compared: ArchiveComparison) -> str | None:
    if compared.missing:
        return f"the archive lacks {compared.missing:,} of its messages"
    if compared.doubled:
        return f"the archive has {compared.doubled:,} of its messages too often"
    return None


def _archived(day: HistoryDay, compared: ArchiveComparison, *, dropped: bool, kept_because: str | None) -> ArchivedDay:
    return ArchivedDay(day.day, *compared, day.settled, dropped, kept_because)
