"""The streaming reads of the history: each has passed what comes before its place, and retention keeps the rest."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import psycopg

from jmsql.destinations import Topic
from jmsql.postgresql_text import optional_to_postgresql
from jmsql.selectors import Selector
from jmsql.spark.reading.history_statements import HistoryOrigin
from jmsql.spark.streaming.fence import check_epoch
from jmsql.spark.streaming.history_stream_statements import history_stream_statements
from jmsql.spark.streaming.queue_stream import Backlog, Limits
from jmsql.store.driver import PsycopgDriver
from jmsql.store.selected_statement import SelectedStatement

__all__ = ["HistoryBatch", "HistoryPart", "HistoryStream", "Lost", "Place", "create_cursor", "end_of_history"]

_FIRST_WINDOW = 256
"""Transactions that are looked at first, when a batch has a limit; then four times as many, and so on."""

_NOTE_INTERVAL = 10.0
"""Seconds between two times that it is written down that a stream has passed all there is."""

_SWEEP_INTERVAL = 60.0
"""Seconds between two looks for days that the stream has left behind."""

_BEYOND = 2**63 - 1


class Place(NamedTuple):
    """A place in the history, before the row with this transaction and sequence, and after all that are less."""

    transaction: int
    sequence: int = 0

    def __str__(self) -> str:
        return f"{self.transaction}/{self.sequence}"


class HistoryBatch(NamedTuple):
    """A part of the history, from a place to another, and how many rows there are in it."""

    first: Place
    end: Place
    messages: int


class HistoryPart(NamedTuple):
    """What a task reads: the rows between two places, and how many they are."""

    first: Place
    end: Place
    messages: int


class Lost(NamedTuple):
    """What a stream has lost, in words, and where it can go on; None: where it is."""

    reason: str
    place: Place | None = None


def end_of_history(driver: PsycopgDriver, schema: str) -> Place:
    """Return the place that all transactions have passed: nothing will be added before it.

    A transaction that is open, or prepared, holds it back, on whatever database of the server.
    """
    return Place(int(driver.execute(history_stream_statements(schema).end).rows[0][0]))


def create_cursor(
    driver: PsycopgDriver,
    schema: str,
    origin: HistoryOrigin,
    first: Place,
    since: dt.datetime | None,
    source_id: str | None = None,
) -> str:
    """Note a new streaming read, and return its number.

    Args:
        driver: Where to note it.
        schema: The name of the schema.
        origin: Whose history it reads.
        first: Where it begins.
        since: What left its destination before is left out.
        source_id: The number that it is to have; None: a new one.
    """
    statements = history_stream_statements(schema)
    destination = origin.destination
    parameters = {
        "source_id": source_id,
        "destination": None if destination is None else destination.name,
        "is_topic": None if destination is None else isinstance(destination, Topic),
        "subscription": optional_to_postgresql(origin.subscription),
        "client": optional_to_postgresql(origin.client_id),
        "since": since,
        "transaction": str(first.transaction),
        "sequence": first.sequence,
    }
    if source_id is not None:
        driver.execute(statements.adopt, parameters)
        return source_id
    driver.execute(statements.forget_unused)
    number: str = driver.execute(statements.create, parameters).rows[0][0]
    return number


class HistoryStream:
    """A streaming read of the history, in the hands of one driver.

    The driver that opens it takes it from the driver before, which can do nothing more. Each method is one transaction.

    Args:
        connection: A connection of its own, in autocommit mode.
        schema: The name of the schema.
        source_id: The number of the read.
        origin: Whose history it reads.

    Raises:
        LookupError: The read is not known.
    """

    def __init__(
        self, connection: psycopg.Connection[object], schema: str, source_id: str, origin: HistoryOrigin
    ) -> None:
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # whatever the database's default is
        self._connection = connection
        self._driver = PsycopgDriver(connection)
        self._schema = schema
        self._statements = history_stream_statements(schema)
        self._source = {"source_id": source_id}
        self._oldest_day: dt.datetime | None = None
        self._window = _FIRST_WINDOW
        self._next_note = self._next_sweep = 0.0
        self._all_there_was: tuple[Place, dt.datetime] | None = None
        found = self._driver.execute(self._statements.begin_epoch, self._source).rows
        if not found:
            raise LookupError(source_id)
        self._epoch, since = found[0]
        self._origin = origin._replace(since=since)

    def check(self, start: Place) -> Lost | None:
        """Tell what is lost of the history after a place that Spark has noted, if something is."""
        with self._connection.transaction():
            position, last, lost_at = self._lock()
            if start > last:
                return Lost(
                    f"The checkpoint is at {start}, beyond {last}, up to where the database knows this streaming read: "
                    "it was restored, or is another",
                    position,
                )
            if lost_at is not None:
                return Lost(f"History that the stream had not read was removed (jmsql history prune) at {lost_at}")
            return None

    def forgive_loss(self) -> None:
        """Go on without what was removed."""
        with self._connection.transaction():
            self._lock()
            self._driver.execute(self._statements.forgive_loss, self._source)

    def next_batch(self, start: Place, limits: Limits, bound: Place | None) -> HistoryBatch | None:
        """Find the next batch after a place, and note that it is given out; None if there is nothing.

        Args:
            start: Where it begins. All before is done.
            limits: How much it takes.
            bound: Where the last batch ends; None: where the history does.
        """
        with self._connection.transaction():
            self._pass(start)
            now: dt.datetime = self._driver.execute(self._statements.clock).rows[0][0]
            end = end_of_history(self._driver, self._schema)
            if bound is not None:
                end = min(end, bound)
            self._leave_days_behind(start)
            batch = None if end <= start else self._fill(start, end, limits)
            if batch is None:
                self._note_all_passed(now)
                return None
            if batch.end == end:
                self._all_there_was = end, now
            self._driver.execute(self._statements.give_out, self._at(batch.end))
            return batch

    def divide(self, first: Place, end: Place, partitions: int) -> list[HistoryPart]:
        """Divide a batch that Spark has noted into parts for its tasks; retention now keeps what is not passed."""
        with self._connection.transaction():
            self._lock()
            self._driver.execute(self._statements.hold, self._source)
            if partitions == 1:
                messages = self._count(first, end)
                return [HistoryPart(first, end, messages)] if messages else []
            statement = self._statements.parts(self._origin)
            parameters = {**self._range(first, end), **statement.parameters, "partitions": partitions}
            rows = self._driver.execute(statement.text, parameters).rows
        places = [Place(transaction, sequence) for _, transaction, sequence in rows]
        ends = [*places[1:], end]
        return [HistoryPart(place, stop, row[0]) for row, place, stop in zip(rows, places, ends, strict=True)]

    def pass_to(self, place: Place) -> None:
        """Note that all before a place is done."""
        with self._connection.transaction():
            self._pass(place)

    def backlog(self, start: Place) -> Backlog:
        """Count what has come since a place, also what open transactions still hold back."""
        statement = self._statements.backlog(self._origin)
        parameters = {**self._range(start, Place(_BEYOND)), **statement.parameters}
        return Backlog._make(self._driver.execute(statement.text, parameters).rows[0])

    def read(self, part: HistoryPart, columns: Sequence[str], selector: Selector | None) -> SelectedStatement:
        """Return the statement that reads a part of a batch."""
        statement = self._statements.read(columns, self._origin, selector)
        return SelectedStatement(statement.text, {**self._range(part.first, part.end), **statement.parameters})

    def _fill(self, start: Place, end: Place, limits: Limits) -> HistoryBatch | None:
        if limits == Limits():
            messages = self._count(start, end)
            return HistoryBatch(start, end, messages) if messages else None
        statement = self._statements.end_of_batch(self._origin, with_size=limits.size < Limits().size)
        messages = size = 0
        low = start
        while low < end:
            first = self._first(low, end)
            if first is None:
                break
            high = min(Place(first.transaction + self._window), end)
            remaining = {"messages": limits.messages - messages, "size": limits.size - size}
            parameters = {**self._range(first, high), **statement.parameters, **remaining}
            low = high
            self._window *= 4
            rows = self._driver.execute(statement.text, parameters).rows
            if not rows:
                continue
            count, total, transaction, sequence, is_full = rows[0]
            messages += count
            size += total
            if is_full:
                self._window = max(_FIRST_WINDOW, (transaction - first.transaction + 1) * 2)
                return HistoryBatch(start, Place(transaction, sequence + 1), messages)
        return HistoryBatch(start, end, messages) if messages else None

    def _first(self, low: Place, end: Place, until: dt.datetime | None = None) -> Place | None:
        statement = self._statements.first(self._origin)
        parameters = {**self._range(low, end), **statement.parameters, "until": until}
        rows = self._driver.execute(statement.text, parameters).rows
        return Place(*rows[0]) if rows else None

    def _count(self, first: Place, end: Place) -> int:
        statement = self._statements.count(self._origin)
        return int(self._driver.execute(statement.text, {**self._range(first, end), **statement.parameters}).rows[0][0])

    def _leave_days_behind(self, start: Place) -> None:
        """Look no more at days that will not change, and have nothing from a place on."""
        if time.monotonic() < self._next_sweep:
            return
        self._next_sweep = time.monotonic() + _SWEEP_INTERVAL
        days = self._driver.execute(self._statements.days, {"oldest_day": self._oldest_day}).rows
        for (_, is_settled), (next_day, _) in pairwise(days):
            if not is_settled or self._first(start, Place(_BEYOND), next_day) is not None:
                break
            self._oldest_day = next_day

    def _pass(self, place: Place) -> None:
        position, _, _ = self._lock()
        if place > position:
            place_then, moment = self._all_there_was or (None, None)
            passed_at = moment if place_then == place else None
            self._driver.execute(self._statements.pass_to, {**self._at(place), "passed_at": passed_at})

    def _note_all_passed(self, now: dt.datetime) -> None:
        if time.monotonic() >= self._next_note:
            self._next_note = time.monotonic() + _NOTE_INTERVAL
            self._driver.execute(self._statements.note_all_passed, {**self._source, "passed_at": now})

    def _lock(self) -> tuple[Place, Place, dt.datetime | None]:
        """Lock the read until the transaction ends; return what is passed, what was given out, when it lost some."""
        found = self._driver.execute(self._statements.lock, self._source).rows
        transaction, sequence, last_transaction, last_sequence, lost_at = check_epoch(found, self._epoch)
        return Place(transaction, sequence), Place(last_transaction, last_sequence), lost_at

    def _at(self, place: Place) -> dict[str, object]:
        return {**self._source, "transaction": str(place.transaction), "sequence": place.sequence}

    def _range(self, first: Place, end: Place) -> dict[str, object]:
        return {
            "first_transaction": str(first.transaction),
            "first_sequence": first.sequence,
            "end_transaction": str(end.transaction),
            "end_sequence": end.sequence,
            "oldest_day": self._oldest_day,
            "until": None,
        }
