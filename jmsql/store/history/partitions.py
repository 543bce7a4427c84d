"""The partitions of the history, one a day: made ahead, emptied and dropped when no destination keeps them."""

from collections.abc import Callable
from datetime import date
from typing import NamedTuple, TypeVar

from jmsql.exceptions import IllegalStateException
from jmsql.public_names import set_module
from jmsql.store.saying import Saying, say
from jmsql.store.statement import (
    Item,
    Items,
    Query,
    Result,
    SqlFile,
    Statement,
    Steps,
    column,
    fill,
    first_value,
    in_transaction,
    nothing,
    records,
    row_count,
    rows,
)
from jmsql.values.destinations import Destination, Topic

T = TypeVar("T")

_DAYS_AHEAD = 3
_DELETED_AT_ONCE = 5000


@set_module("jmsql.admin")
class HistoryDay(NamedTuple):
    """A row of the view ``history_days``.

    `estimated_messages` is PostgreSQL's estimate from the last vacuum or analyze. A settled day is over, and so is
    every transaction that has acknowledged something in it: nothing will be added to it.
    """

    day: date
    partition: str
    estimated_messages: int
    bytes: int
    settled: bool


@set_module("jmsql.admin")
class PruneStep(NamedTuple):
    """The messages that a step removed from a day: some, or the whole day, with about so many."""

    day: date
    messages: int
    dropped: bool


_LOOKING = "looking at the history"
_PRUNING = "pruning the history"

_sql = SqlFile("history")
days = _sql.statement("days", _LOOKING, records(HistoryDay._make)).bind()
"""The days that have a partition, the first one first."""
today: Query[date] = _sql.statement("today", _LOOKING, first_value).bind()
"""The day in UTC whose partition receives the messages that leave their destinations now."""
_missing_days = _sql.statement("missing_days", _LOOKING, column)
_make_partition = _sql.statement("make_partition", "making a partition of the history", nothing)
_oldest_wanted: Statement[date | None] = _sql.statement("oldest_wanted", _LOOKING, first_value)
_cursors_before = _sql.statement("cursors_before", _LOOKING, column)
_note_loss = _sql.statement("note_loss", _PRUNING, nothing)
_partitions_to_drop = _sql.statement("partitions_to_drop", _PRUNING, rows)
_lock = _sql.statement("lock", _PRUNING, nothing)
_note_pruned = _sql.statement("note_pruned", _PRUNING, nothing)
_limit_patience = _sql.statement("limit_patience", _PRUNING, nothing)
_patience: Statement[str] = _sql.statement("patience", _PRUNING, first_value)


def _of_partition(name: str, partition: str, decode: Callable[[Result], T]) -> Statement[T]:
    """Return a statement on a partition, which is named as SQL writes it."""
    return Statement(name, fill(_sql[name], partition=partition), _PRUNING, decode)


class HistoryPartitions:
    """Decides how the partitions are made and removed.

    Each statement has to commit by itself: a partition is detached in two transactions. Removing anything takes the
    rights of the schema's owner.

    Nothing here holds up those who acknowledge. A partition is attached and detached under locks that do not conflict
    with theirs; those who read the history are waited for.

    Args:
        patience: Seconds to wait for a lock. Locks not obtained by then are retried later.
        on_held: Called with each day that stays, all of it or some, though no destination keeps it any longer, and
            with the numbers of the streaming reads of Spark that have not passed it.
        said: The administrator's words about a removal, which leaves a line in the activity; None: it leaves none.
    """

    def __init__(
        self,
        *,
        patience: float,
        on_held: Callable[[date, list[str]], None] = lambda _day, _sources: None,
        said: Saying | None = None,
    ) -> None:
        self._said = said
        self._on_held = on_held
        self._patience = f"{round(patience * 1000)}ms"

    def make_ahead(self) -> Steps[None]:
        """Make the partitions of today and the next days, if there is a queue that keeps history."""
        for day in (yield from _missing_days.bind(days_ahead=_DAYS_AHEAD)):
            yield from in_transaction(self._make(day))

    def _make(self, day: date) -> Steps[None]:
        yield from _limit_patience.bind(timeout=self._patience, local=True)
        yield from _make_partition.bind(day=day)

    def apply_retention(self) -> Items[PruneStep]:
        """Remove messages past their retention: whole days where possible, else the messages of some destinations.

        Yields:
            The removed messages of each step, which commits.
        """
        yield from self._with_patience(_finish_drops())
        before = yield from _oldest_wanted.bind()
        if before is None:
            return
        for day in (yield from days):
            if day.day >= before:
                break
            outdated, wanted = yield from self._destinations(day)
            if outdated and (sources := (yield from self.cursors_before(day, outdated))):
                self._on_held(day.day, sources)
                held = yield from self._held(day, outdated)
                outdated, wanted = [name for name in outdated if name not in held], [*wanted, *held]
            if not wanted and day.settled:
                yield Item((yield from self.drop(day)))
            elif outdated:
                yield from self.delete(day, outdated)

    def remove(self, before: date, destination: Destination | None) -> Items[PruneStep]:
        """Remove messages older than a day, however long they were to be kept.

        Yields:
            The removed messages of each step, which commits.

        Raises:
            IllegalStateException: A transaction that is still open has acknowledged something in one of the days.
        """
        yield from self._with_patience(_finish_drops())
        for day in (yield from days):
            if day.day >= before:
                break
            names = None if destination is None else [destination.name]
            # Streaming reads learn that they lose the messages that they have not passed.
            yield from _note_loss.bind(partition=day.partition, destinations=names)
            if destination is None:
                yield Item((yield from self.drop(day)))
            else:
                yield from self.delete(day, [destination.name], destination=destination)

    def drop(self, day: HistoryDay) -> Steps[PruneStep]:
        """Remove a day with all its messages.

        Raises:
            IllegalStateException: It is not settled.
        """
        if not day.settled:
            raise IllegalStateException(f"The history of {day.day} may still grow; only settled days can be dropped.")
        details = f"history of {day.day}, with about so many messages"
        # The removal takes three transactions. If the connection is lost between them, the next pruning completes it,
        # perhaps another role's: this line says then who began.
        if self._said is not None:
            yield from in_transaction(self._note(details, None, outcome="begun"))
        note = self._note(details, day.estimated_messages or None)
        yield from self._with_patience(_detach_and_drop(day.partition, note))
        return PruneStep(day.day, day.estimated_messages, dropped=True)

    def delete(
        self, day: HistoryDay, destinations: list[str], *, destination: Destination | None = None
    ) -> Items[PruneStep]:
        """Remove the messages of some destinations from a day.

        Args:
            day: The day.
            destinations: Their names.
            destination: The queue or topic of the only name; None: topics and queues with these names.

        Yields:
            The removed messages of each step, which commits.
        """
        is_topic = None if destination is None else isinstance(destination, Topic)
        deletion = _of_partition("delete", day.partition, row_count).bind(
            destinations=destinations, is_topic=is_topic, limit=_DELETED_AT_ONCE
        )
        names = "" if destination is not None else f": {', '.join(destinations)}"

        def step() -> Steps[int]:
            number = yield from deletion
            yield from self._note(f"history of {day.day}{names}", number, destination)
            return number

        while deleted := (yield from in_transaction(step())):
            yield Item(PruneStep(day.day, deleted, dropped=False))

    def _note(
        self, details: str, messages: int | None, destination: Destination | None = None, outcome: str = "done"
    ) -> Steps[None]:
        """Leave a line in the activity, with the transaction that removes the messages."""
        if self._said is not None:
            yield from say(self._said)
            uri = None if destination is None else destination.uri
            yield from _note_pruned.bind(messages=messages, outcome=outcome, destination=uri, details=details)

    def _destinations(self, day: HistoryDay) -> Steps[tuple[list[str], list[str]]]:
        """Return the destinations with messages in a day: those that keep them no longer, and the others."""
        found = yield from _of_partition("destinations", day.partition, rows).bind(day=day.day)
        return [name for name, outdated in found if outdated], [name for name, outdated in found if not outdated]

    def cursors_before(self, day: HistoryDay, destinations: list[str] | None) -> Query[list[str]]:
        """Return the streaming reads that have not passed all of the destinations' history in a day."""
        return _cursors_before.bind(partition=day.partition, destinations=destinations)

    def _held(self, day: HistoryDay, destinations: list[str]) -> Steps[set[str]]:
        """Return those of some destinations whose history in a day has streaming reads that have not passed it."""
        held = set()
        for name in destinations:
            if (yield from self.cursors_before(day, [name])):
                held.add(name)
        return held

    def _with_patience(self, work: Steps[None]) -> Steps[None]:
        """Limit how long statements, which commit each, wait for locks."""
        before = yield from _patience.bind()
        yield from _limit_patience.bind(timeout=self._patience, local=False)
        try:
            yield from work
        finally:
            yield from _limit_patience.bind(timeout=before, local=False)


def _detach_and_drop(partition: str, note: Steps[None]) -> Steps[None]:
    yield from _of_partition("detach", partition, nothing).bind()
    yield from in_transaction(_alone(_of_partition("drop", partition, nothing).bind(), note))


def _finish_drops() -> Steps[None]:
    """Drop partitions whose detachment was interrupted."""
    for partition, is_pending in (yield from _partitions_to_drop.bind()):
        if is_pending:
            yield from _of_partition("finish_detaching", partition, nothing).bind()
        yield from in_transaction(_alone(_of_partition("drop", partition, nothing).bind()))


def _alone(work: Query[None], note: Steps[None] | None = None) -> Steps[None]:
    yield from _lock.bind()
    yield from work
    if note is not None:
        yield from note


def held_message(day: date, sources: list[str]) -> str:
    """Return the reason why a day without a destination that keeps it still exists."""
    return (
        f"History of {day} stays longer than history_days says: streaming reads of Spark have not passed it "
        f"({', '.join(sources)}). The view spark_sources shows them; forget_spark_source() ends one that will not come "
        "back."
    )
