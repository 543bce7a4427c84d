"""The streaming reads of the history: each has passed the history before its place, and retention keeps the rest."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Self, TypeVar

from jmsql import JMSException, Topic
from jmsql.extension.scanning import Selector, and_chosen
from jmsql.extension.statements import (
    Query,
    Result,
    Runner,
    SqlFile,
    Statement,
    Steps,
    fill,
    first_value,
    in_transaction,
    nothing,
    rows,
    value,
)
from jmsql.extension.values import optional_to_postgresql
from jmsql.spark.columns.expressions import HISTORY_EXPRESSIONS, select_list
from jmsql.spark.reading.history import HistoryOrigin
from jmsql.spark.streaming.queue_stream import Backlog, BatchLimits, check_epoch

T = TypeVar("T")

_FIRST_WINDOW = 256
"""Transactions that are looked at first, when a batch has a limit; then four times as many, and so on."""

_NOTE_INTERVAL = 10.0
"""Seconds between two times that it is written down that a stream has passed all there is."""

_SWEEP_INTERVAL = 60.0
"""Seconds between two looks for days that the stream has left behind."""

_BEYOND = 2**63 - 1


class HistoryPosition(NamedTuple):
    """A place in the history, before the row with this transaction and sequence, and after all that are less."""

    transaction: int
    sequence: int = 0

    def __str__(self) -> str:
        return f"{self.transaction}/{self.sequence}"


class HistoryBatch(NamedTuple):
    """A part of the history, or of a batch of it: from a place to another, with so many rows."""

    first: HistoryPosition
    end: HistoryPosition
    messages: int


class _Filled(NamedTuple):
    """How much a batch takes of a range of places, and the place at which it is full; None: it is not."""

    messages: int
    size: int
    end: HistoryPosition | None


class Lost(NamedTuple):
    """A stream's loss, in words, and the place where it can go on; None: where it is."""

    reason: str
    place: HistoryPosition | None = None


def _place(result: Result) -> HistoryPosition | None:
    return HistoryPosition(*result.rows[0]) if result.rows else None


_sql = SqlFile("history_stream", "jmsql.spark")
end_of_history = _sql.statement(
    "end", "looking for the end of the history", lambda result: HistoryPosition(int(result.rows[0][0]))
).bind()
"""The place that all transactions have passed: nothing will be added before it.

An open or prepared transaction in any of the server's databases holds it back.
"""

_forget_unused = _sql.statement("forget_unused", "beginning a stream", nothing)
_create = _sql.statement("create", "beginning a stream", value(str))
_adopt = _sql.statement("adopt", "starting a stream again", nothing)
_origin = _sql.statement("origin", "starting a stream", rows)
_begin_epoch = _sql.statement("begin_epoch", "starting a stream", rows)
_lock = _sql.statement("lock", "going on with a stream", rows)
_hold = _sql.statement("hold", "dividing a batch", nothing)
_forgive_loss = _sql.statement("forgive_loss", "going on", nothing)
_pass_to = _sql.statement("pass_to", "noting what is done", nothing)
_give_out = _sql.statement("give_out", "finding a batch", nothing)
_note_all_passed = _sql.statement("note_all_passed", "finding a batch", nothing)
_clock: Statement[dt.datetime] = _sql.statement("clock", "finding a batch", first_value)
_days = _sql.statement("days", "looking at the history", rows)


def create_cursor(
    origin: HistoryOrigin, first: HistoryPosition, since: dt.datetime | None, source_id: str | None = None
) -> Steps[str]:
    """Note a new streaming read, from a place and a time on, and return its number: a new one, if none is given."""
    parameters = {
        "source_id": source_id,
        **_columns(origin),
        "since": since,
        "transaction": str(first.transaction),
        "sequence": first.sequence,
    }
    if source_id is not None:
        yield from _adopt.bind(parameters)
        return source_id
    yield from _forget_unused.bind()
    return (yield from _create.bind(parameters))


def _columns(origin: HistoryOrigin) -> dict[str, object]:
    destination = origin.destination
    return {
        "destination": None if destination is None else destination.name,
        "is_topic": None if destination is None else isinstance(destination, Topic),
        "subscription": optional_to_postgresql(origin.subscription),
        "client": optional_to_postgresql(origin.client_id),
    }


class _Scan:
    """The conditions on the rows of an origin in a range of places."""

    def __init__(self, origin: HistoryOrigin) -> None:
        self._origin = origin
        by_place = "order by m.transaction_id, m.sequence limit "
        keys = "m.transaction_id, m.sequence"
        self.first = self._statement("first", _place, keys, f"{by_place}1")
        self.end_of_batch = self._statement(
            "end_of_batch", rows, f"{keys}, pg_catalog.pg_column_size(m.*) as size", f"{by_place}%(messages)s"
        )
        self.end_of_messages = self._statement(
            "end_of_messages", rows, keys, f"{by_place}%(messages)s", "limit %(messages)s + 1", only_keys=True
        )
        self.count = self._statement("count", value(int), "m.sequence", only_keys=True)
        self.backlog = self._statement(
            "backlog",
            lambda result: Backlog._make(result.rows[0]),
            "pg_catalog.pg_column_size(m.*) as size, m.acknowledged_at",
        )
        self.parts = self._statement("parts", rows, keys, only_keys=True)

    def read(
        self, columns: Sequence[str], selector: Selector | None, rare: Collection[str]
    ) -> Statement[list[tuple[Any, ...]]]:
        """Read the columns of the rows that the selector chooses."""
        chosen = and_chosen(selector)
        found = self._found(select_list(HISTORY_EXPRESSIONS, columns, rare), chosen=chosen.condition)
        parameters = {**self._origin.condition().parameters, **chosen.parameters}
        return Statement("read", found, "reading the history", rows, parameters)

    def _statement(
        self,
        name: str,
        decode: Callable[[Result], T],
        wanted: str,
        order: str = "",
        order_to_count: str = "",
        *,
        only_keys: bool = False,
    ) -> Statement[T]:
        # The names stand in front of the statement, which finds rows in a part of it.
        found, counted = (
            self._found(wanted, each, only_keys=only_keys, with_names=False) for each in (order, order_to_count)
        )
        text = fill(_sql[name], found=found, counted=counted)
        if self._origin.destination is None:
            text = f"{self._names(only_keys=only_keys)} {text}"
        return Statement(name, text, "looking at the history", decode, self._origin.condition().parameters)

    def _found(
        self, wanted: str, order: str = "", *, chosen: str = "", only_keys: bool = False, with_names: bool = True
    ) -> str:
        scan = fill(
            _sql["scan"],
            wanted=wanted,
            of_days=_of_days("m", only_keys=only_keys),
            of_origin=self._origin.condition().text,
            chosen=chosen,
        )
        if self._origin.destination is not None:
            return f"{scan} {order}"
        each = fill(_sql["scan_each"], scan=scan, order=order)
        return f"{self._names(only_keys=only_keys)} {each}" if with_names else each

    @staticmethod
    def _names(*, only_keys: bool) -> str:
        return fill(_sql["known"], of_days=_of_days("h", only_keys=only_keys))


def _of_days(row: str, *, only_keys: bool) -> str:
    return "true" if only_keys else fill(_sql["of_days"], row=row)


class HistoryStream:
    """A streaming read of the history, in the hands of one driver. Each method is one transaction.

    Made by `open`.
    """

    def __init__(self, runner: Runner, source_id: str, origin: HistoryOrigin, epoch: int) -> None:
        self._runner = runner
        self._source = {"source_id": source_id}
        self._epoch = epoch
        self._scan = _Scan(origin)
        self._oldest_day: dt.datetime | None = None
        self._window = _FIRST_WINDOW
        self._next_note = self._next_sweep = 0.0
        self._all_there_was: tuple[HistoryPosition, dt.datetime] | None = None

    @classmethod
    def open(cls, runner: Runner, source_id: str, origin: HistoryOrigin) -> Self:
        """Take a read from the driver before, which can do nothing more.

        Raises:
            LookupError: The read is not known.
            JMSException: It is one of another history.
        """
        known = runner.run(_origin.bind(source_id=source_id))
        if known and known != [tuple(_columns(origin).values())]:
            raise JMSException(
                "The checkpoint belongs to a stream of another history than the options name. Give each query a "
                "checkpoint of its own."
            )
        found = runner.run(_begin_epoch.bind(source_id=source_id))
        if not found:
            raise LookupError(source_id)
        epoch, since = found[0]
        return cls(runner, source_id, origin._replace(since=since), epoch)

    def check(self, start: HistoryPosition, *, is_done: bool) -> Lost | None:
        """Return the loss of history after a place that Spark has noted, if any."""
        position, last, lost_at = self._runner.run(in_transaction(self._lock()))
        if start > last:
            return Lost(
                f"The checkpoint is at {start}, beyond {last}, up to where the database knows this streaming read: "
                "it was restored, or is another",
                position,
            )
        if is_done and start < position:
            # Spark tells a source that a batch is done after it has noted it.
            return Lost(
                f"The checkpoint is at {start}, and the stream has passed {position}: the checkpoint was restored or "
                "copied, and what was removed from the history meanwhile is not read"
            )
        if lost_at is not None:
            return Lost(f"History that the stream had not read was removed (jmsql history prune) at {lost_at}")
        return None

    def forgive_loss(self, place: HistoryPosition) -> None:
        """Go on at a place without the removed history."""
        self._runner.run(in_transaction(self._forgive_loss(place)))

    def _forgive_loss(self, place: HistoryPosition) -> Steps[None]:
        position, _, _ = yield from self._lock()
        yield from _forgive_loss.bind(self._source)
        if place < position:
            yield from _pass_to.bind(self._at(place), passed_at=None)

    def next_batch(
        self, start: HistoryPosition, limits: BatchLimits, bound: HistoryPosition | None
    ) -> HistoryBatch | None:
        """Find the next batch after a place, and note that it is given out; None if there is nothing.

        All before the place is done. The batch ends at `bound` at the latest; None: where the history does.
        """
        return self._runner.run(in_transaction(self._next_batch(start, limits, bound)))

    def _next_batch(
        self, start: HistoryPosition, limits: BatchLimits, bound: HistoryPosition | None
    ) -> Steps[HistoryBatch | None]:
        yield from self._pass(start)
        now = yield from _clock.bind()
        end = yield from end_of_history
        if bound is not None:
            end = min(end, bound)
        yield from self._leave_days_behind(start)
        batch = None if end <= start else (yield from self._fill(start, end, limits))
        if batch is None:
            yield from self._note_all_passed(now)
            return None
        if batch.end == end:
            self._all_there_was = end, now
        yield from _give_out.bind(self._at(batch.end))
        return batch

    def divide(
        self, first: HistoryPosition, end: HistoryPosition, partitions: int, messages: int | None = None
    ) -> list[HistoryBatch]:
        """Divide a batch that Spark has noted into parts for its tasks; retention keeps unpassed history.

        If `messages`, their number, is given, one part is not counted again.
        """
        return self._runner.run(in_transaction(self._divide(first, end, partitions, messages)))

    def _divide(
        self, first: HistoryPosition, end: HistoryPosition, partitions: int, messages: int | None
    ) -> Steps[list[HistoryBatch]]:
        yield from self._lock()
        yield from _hold.bind(self._source)
        if partitions == 1:
            if messages is not None:
                return [HistoryBatch(first, end, messages)]
            messages = yield from self._count(first, end)
            return [HistoryBatch(first, end, messages)] if messages else []
        found = yield from self._scan.parts.bind(self._range(first, end), partitions=partitions)
        places = [HistoryPosition(transaction, sequence) for _, transaction, sequence in found]
        ends = [*places[1:], end]
        return [HistoryBatch(place, stop, row[0]) for row, place, stop in zip(found, places, ends, strict=True)]

    def pass_to(self, place: HistoryPosition) -> None:
        """Note that all before a place is done."""
        self._runner.run(in_transaction(self._pass(place)))

    def backlog(self, start: HistoryPosition) -> Backlog:
        """Count the messages since a place, also the ones that open transactions hold back."""
        return self._runner.run(self._scan.backlog.bind(self._range(start, HistoryPosition(_BEYOND))))

    def read(
        self, part: HistoryBatch, columns: Sequence[str], selector: Selector | None, rare: Collection[str] = ()
    ) -> Query[list[tuple[Any, ...]]]:
        """Return the query that reads a part of a batch."""
        return self._scan.read(columns, selector, rare).bind(self._range(part.first, part.end))

    def _fill(self, start: HistoryPosition, end: HistoryPosition, limits: BatchLimits) -> Steps[HistoryBatch | None]:
        if limits == BatchLimits():
            messages = yield from self._count(start, end)
            return HistoryBatch(start, end, messages) if messages else None
        messages = size = 0
        low = start
        while low < end:
            first = yield from self._scan.first.bind(self._range(low, end))
            if first is None:
                break
            high = min(HistoryPosition(first.transaction + self._window), end)
            remaining = BatchLimits(limits.messages - messages, limits.size - size)
            found = yield from self._end_of_batch(first, high, remaining)
            messages += found.messages
            size += found.size
            if found.end is not None:
                self._window = max(_FIRST_WINDOW, (found.end.transaction - first.transaction + 1) * 2)
                return HistoryBatch(start, found.end, messages)
            low = high
            self._window *= 4
        return HistoryBatch(start, end, messages) if messages else None

    def _end_of_batch(self, first: HistoryPosition, end: HistoryPosition, limits: BatchLimits) -> Steps[_Filled]:
        between = self._range(first, end)
        if limits.size < BatchLimits().size:
            found = yield from self._scan.end_of_batch.bind(between, messages=limits.messages, size=limits.size)
            if not found:
                return _Filled(0, 0, None)
            count, size, transaction, sequence, is_full = found[0]
            return _Filled(count, size, HistoryPosition(transaction, sequence + 1) if is_full else None)
        [(count, transaction, sequence)] = yield from self._scan.end_of_messages.bind(between, messages=limits.messages)
        if count <= limits.messages:
            return _Filled(count, 0, end if count == limits.messages else None)
        return _Filled(limits.messages, 0, HistoryPosition(transaction, sequence + 1))

    def _count(self, first: HistoryPosition, end: HistoryPosition) -> Query[int]:
        return self._scan.count.bind(self._range(first, end))

    def _leave_days_behind(self, start: HistoryPosition) -> Steps[None]:
        """Look no more at days that will not change, and have nothing from a place on."""
        if time.monotonic() < self._next_sweep:
            return
        self._next_sweep = time.monotonic() + _SWEEP_INTERVAL
        days = yield from _days.bind(oldest_day=self._oldest_day)
        for (_, is_settled), (next_day, _) in pairwise(days):
            if not is_settled:
                break
            left = yield from self._scan.first.bind(self._range(start, HistoryPosition(_BEYOND)), until=next_day)
            if left is not None:
                break
            self._oldest_day = next_day

    def _pass(self, place: HistoryPosition) -> Steps[None]:
        position, _, _ = yield from self._lock()
        if place > position:
            place_then, checked_at = self._all_there_was or (None, None)
            passed_at = checked_at if place_then == place else None
            yield from _pass_to.bind(self._at(place), passed_at=passed_at)

    def _note_all_passed(self, now: dt.datetime) -> Steps[None]:
        if time.monotonic() >= self._next_note:
            self._next_note = time.monotonic() + _NOTE_INTERVAL
            yield from _note_all_passed.bind(self._source, passed_at=now)

    def _lock(self) -> Steps[tuple[HistoryPosition, HistoryPosition, dt.datetime | None]]:
        """Lock the read until the transaction ends; return its place, its last batch, and the time of a loss."""
        found = yield from _lock.bind(self._source)
        transaction, sequence, last_transaction, last_sequence, lost_at = check_epoch(found, self._epoch)
        return HistoryPosition(transaction, sequence), HistoryPosition(last_transaction, last_sequence), lost_at

    def _at(self, place: HistoryPosition) -> dict[str, object]:
        return {**self._source, "transaction": str(place.transaction), "sequence": place.sequence}

    def _range(self, first: HistoryPosition, end: HistoryPosition) -> dict[str, object]:
        return {
            "first_transaction": str(first.transaction),
            "first_sequence": first.sequence,
            "end_transaction": str(end.transaction),
            "end_sequence": end.sequence,
            "oldest_day": self._oldest_day,
            "until": None,
        }
