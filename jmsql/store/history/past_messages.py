"""Messages that have left their destinations: which ones are meant, a look at them, and their way back to a queue."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from jmsql.messages import Message
from jmsql.public_names import set_module
from jmsql.selectors import Selector, SelectorSQL
from jmsql.store.destinations.lookup import existing_queue
from jmsql.store.rows.columns import and_chosen, message_columns
from jmsql.store.rows.message_rows import MessageRow
from jmsql.store.saying import Saying, say
from jmsql.store.statement import (
    Item,
    Items,
    Query,
    SqlFile,
    Statement,
    Steps,
    fill,
    in_transaction,
    nothing,
    records,
    row_count,
    rows,
    value,
)
from jmsql.values.destinations import Destination, Queue, Topic
from jmsql.values.postgresql_text import optional_to_postgresql

_READ_AT_ONCE = 100
_MOST_ENTRIES = 1000
_NEWEST = {"transaction": str(2**64 - 1), "sequence": 0}
"""The place before the last message to leave."""


@set_module("jmsql.admin")
class HistoryEntry(NamedTuple):
    """How a message left its destination, as the view ``history`` says it."""

    destination: str
    destination_type: str
    subscription: str | None
    acknowledged_at: datetime
    outcome: str
    delivery_count: int
    time_in_queue: timedelta | None
    consumed_by: int | None
    client_id: str | None
    user_name: str


@set_module("jmsql.admin")
class PastMessage(NamedTuple):
    """A message, and how it left its destination."""

    message: Message
    entry: HistoryEntry


@dataclass(frozen=True, slots=True)
class HistoryRange:
    """Chooses messages of the history, those that left from `since` on and before `until`. None chooses all."""

    destination: Destination | None = None
    since: datetime | None = None
    until: datetime | None = None
    selector: Selector | None = None
    outcomes: Sequence[str] | None = None
    subscription: str | None = None
    message_id: str | None = None

    def condition(self) -> SelectorSQL:
        """Return the condition on a row `m` of the history, and its parameters."""
        chosen, parameters = and_chosen(self.selector)
        conditions = {
            "m.destination = %(destination)s": None if self.destination is None else self.destination.name,
            "m.is_topic = %(is_topic)s": None if self.destination is None else isinstance(self.destination, Topic),
            "m.acknowledged_at >= %(since)s": self.since,
            "m.acknowledged_at < %(until)s": self.until,
            "m.outcome::text = any(%(outcomes)s::text[])": None if self.outcomes is None else list(self.outcomes),
            "m.subscription = %(subscription)s": optional_to_postgresql(self.subscription),
            "m.jms_message_id::text = %(message_id)s": self.message_id and self.message_id.removeprefix("ID:"),
        }
        given = {condition: value for condition, value in conditions.items() if value is not None}
        parameters |= {condition.partition("%(")[2].partition(")")[0]: value for condition, value in given.items()}
        return SelectorSQL(f"{' and '.join(['true', *given])} {chosen}", parameters)


_WIDTH = len(MessageRow._fields) - 1  # without the snapshot, which scans alone return

_sql = SqlFile("history")
_columns = message_columns()
_see_no_changes = _sql.statement("see_no_changes", "replaying", nothing)
_count_replayed = _sql.statement("count_replayed", "replaying", row_count)
_rewind_replayed = _sql.statement("rewind_replayed", "replaying", nothing)
_next_replayed = _sql.statement("next_replayed", "replaying", rows)
_replay = _sql.statement("replay", "replaying", value(int))
_note_replayed = _sql.statement("note_replayed", "replaying", nothing)
_notify = _sql.statement("notify", "replaying", nothing)


class _Row(NamedTuple):
    message: MessageRow
    transaction: str
    entry: HistoryEntry

    def past_message(self) -> PastMessage:
        is_topic = self.entry.destination_type == "topic"
        origin = Topic(self.entry.destination) if is_topic else Queue(self.entry.destination)
        return PastMessage(self.message.message(origin), self.entry)


def _to_row(row: tuple[Any, ...]) -> _Row:
    return _Row(MessageRow(*row[:_WIDTH]), row[_WIDTH], HistoryEntry._make(row[_WIDTH + 1 :]))


def count(which: HistoryRange) -> Query[int]:
    """Return how many there are."""
    chosen, parameters = which.condition()
    text = fill(_sql["count"], chosen=chosen)
    return Statement("count", text, "counting the history", value(int), parameters).bind()


def read(which: HistoryRange, limit: int) -> Items[PastMessage]:
    """Return up to `limit` of them, the last one to leave first."""
    statement, place = _reading(which), _NEWEST
    while limit > 0:
        wanted = min(limit, _READ_AT_ONCE)
        found = yield from statement.bind(place, limit=wanted)
        for row in found:
            place = {"transaction": row.transaction, "sequence": row.message.sequence}
            yield Item(row.past_message())
        limit = limit - wanted if len(found) == wanted else 0


def entries(message_id: str) -> Steps[list[PastMessage]]:
    """Return all entries for a message, the last one to leave first. All of the history is read for it."""
    found = yield from _reading(HistoryRange(message_id=message_id)).bind(_NEWEST, limit=_MOST_ENTRIES)
    return [row.past_message() for row in found]


def _reading(which: HistoryRange) -> Statement[list[_Row]]:
    chosen, parameters = which.condition()
    text = fill(_sql["read"], columns=_columns, chosen=chosen)
    return Statement("read", text, "reading the history", records(_to_row), parameters)


def replay(
    which: HistoryRange, target: str, *, keep_ids: bool, progress: Callable[[int, int], None] | None, said: Saying
) -> Steps[int]:
    """Send messages to a queue again, each once, in the order in which they were sent, in one transaction.

    Returns:
        How many were sent.

    Raises:
        InvalidDestinationException: There is no such queue.
    """
    assert which.destination is not None
    parameters: dict[str, object] = {
        "source": which.destination.name,
        "since": which.since or "-infinity",
        "until": which.until or "infinity",
        "target": (yield from existing_queue(target)),
        "keep_ids": keep_ids,
    }
    return (yield from in_transaction(_replay_each(which, parameters, progress, said)))


def _replay_each(
    which: HistoryRange, parameters: dict[str, object], progress: Callable[[int, int], None] | None, said: Saying
) -> Steps[int]:
    assert which.destination is not None
    chosen, choosing = which.condition()
    text = fill(_sql["find_replayed"], identity=_sql["identity"], chosen=chosen)
    yield from _see_no_changes.bind()
    yield from Statement("find_replayed", text, "replaying", nothing, choosing).bind()
    total = yield from _count_replayed.bind()
    yield from _rewind_replayed.bind()
    sent = 0
    while found := (yield from _next_replayed.bind()):
        transactions, sequences = zip(*found, strict=True)
        sent += yield from _replay.bind(parameters, transactions=list(transactions), sequences=list(sequences))
        if progress is not None:
            progress(sent, total)
    yield from say(said)
    yield from _note_replayed.bind(sent=sent, target=parameters["target"], destination=which.destination.uri)
    yield from _notify.bind(queue=str(parameters["target"]))
    return sent
