"""Sending the messages that the tasks of a write have committed: once, and all at one instant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Self

from jmsql import InvalidDestinationException, JMSException, Queue, Topic
from jmsql.extension.scanning import find_queue, find_topic
from jmsql.extension.sending import Counts, add_counters, notify_sent, pending_transactions
from jmsql.extension.statements import Query, SqlFile, Steps, as_setting, nothing, records, row_count
from jmsql.extension.values import parse_destination, to_postgresql

_KEPT_BATCHES = 100
"""How many batches of a streaming query stay in the ledger. Spark repeats the last one alone."""

_LONGEST_IDLENESS = 10.0
"""Seconds for which a driver that is frozen in its transaction holds up others: drivers of the same write, and clients
that count their messages to the same destinations."""


class _Known(NamedTuple):
    """A batch as the ledger knows it.

    Args:
        messages: Its number of messages.
        written_at: When it was written, as text.
        last_batch: The last batch of the write.
        other_query: Another query that has written under the name; None: there is none.
        table: The ledger's name in SQL.
    """

    messages: int
    written_at: str
    last_batch: int
    other_query: str | None
    table: str


_QUERY = "query "
"""The beginning of each name of a query's write."""

_sql = SqlFile("writing", "jmsql.spark")
_limit_idleness = SqlFile("maintenance").statement("limit_idleness", "writing messages", nothing)
_enter = _sql.statement("enter", "writing messages", row_count)
_known = _sql.statement("known", "writing messages", records(_Known._make))
_note_query = _sql.statement("note_query", "writing messages", nothing)
_forget_batches = _sql.statement("forget_batches", "writing messages", nothing)
forget_writes = _sql.statement("forget_writes", "forgetting writes", nothing).bind()
"""Forgets the writes that were done so long ago that they do not come again."""


class Attempt(NamedTuple):
    """The messages that a task has committed.

    Args:
        transaction_id: The number of its transaction.
        messages: How many messages there are, by the URI of where they go.
        delayed: How many of them are delivered later.
        queue_ids: The numbers of the queues that they are in, by the URIs of those that rows name.
    """

    transaction_id: str
    messages: Mapping[str, int]
    delayed: int
    queue_ids: Mapping[str, int]


class WriteName(NamedTuple):
    """The names of a write.

    Args:
        ledger: The name under which the ledger keeps it.
        tasks: The name under which its tasks commit.
        query: The streaming query that writes; None: a batch write.
    """

    ledger: str
    tasks: str
    query: str | None = None

    @classmethod
    def of_query(cls, query: str, write_id: str | None) -> Self:
        """Return the names of a streaming query's write, which option 'writeId' may name.

        Its tasks keep the query's own name: a query that is refused discards nothing of the one that has the name.
        """
        return cls(_QUERY + (write_id or query), _QUERY + query, query)


def names_of(kind: type[Queue | Topic], destinations: Iterable[str]) -> list[str]:
    """Return the names of the queues, or the topics, among destinations, which are given as URIs."""
    parsed = map(parse_destination, sorted(destinations))
    return [destination.name for destination in parsed if isinstance(destination, kind)]


def send_once(
    attempts: Sequence[Attempt],
    name: WriteName,
    batch_id: int | None,
    *,
    days: float | None,
    idleness: float = _LONGEST_IDLENESS,
) -> Steps[bool]:
    """Send the tasks' messages with the commit of the open transaction, unless the same write was done before.

    Args:
        attempts: The committed attempts that Spark counts.
        name: The names of the write.
        batch_id: Which batch of it this is; None: no other transaction does this write.
        days: For how many days to know that it was done; None: for ever.
        idleness: Seconds after which the server ends the transaction if nothing comes from the driver.

    Returns:
        Whether it was sent now.

    Raises:
        InvalidDestinationException: A queue was deleted since a task has written to it.
        JMSException: Something that was committed is gone, or the ledger knows another write or another query by the
            same name.
    """
    yield from _limit_idleness.bind(timeout=as_setting(idleness))
    messages: Counter[str] = Counter()
    for attempt in attempts:
        messages.update(attempt.messages)
    ledger = to_postgresql(name.ledger)
    is_new = batch_id is None
    if batch_id is not None:
        # Another driver that writes the same waits here until this transaction ends.
        is_new = (yield from _enter.bind(write_id=ledger, batch_id=batch_id, messages=messages.total(), days=days)) == 1
        yield from _require_same_write(name, batch_id, messages.total(), is_new=is_new)
        if is_new and name.query is not None:
            yield from _forget_batches.bind(write_id=ledger, batch_id=batch_id - _KEPT_BATCHES)
    if is_new:
        yield from _send_all(attempts)
    yield from abandon(attempts, name.tasks if is_new else None)
    if is_new and messages:
        queues, topics = names_of(Queue, messages), names_of(Topic, messages)
        yield from notify_sent(queues, topics, delayed=any(attempt.delayed for attempt in attempts))
        yield from _count(messages)  # last: its rows are shared by all who send
    return is_new


def abandon(attempts: Sequence[Attempt], write_id: str | None = None) -> Query[None]:
    """Abandon the messages of attempts, and of other tasks of the same write, if one is named."""
    return pending_transactions.abandon([attempt.transaction_id for attempt in attempts], write_id)


def _require_same_write(name: WriteName, batch_id: int, messages: int, *, is_new: bool) -> Steps[None]:
    """Make sure that the ledger does not take a batch for another one; the batch stands in it.

    Spark repeats only the last batch of a query, and with the same rows, unless its checkpoint is an older one. A query
    with another checkpoint counts its batches from 0 again: its batches are others, even with the same numbers.
    """
    ledger = to_postgresql(name.ledger)
    [known] = yield from _known.bind(write_id=ledger, batch_id=batch_id, query_id=name.query)
    if name.query is None:
        if known.messages != messages:
            raise JMSException(
                f"The write {name.ledger!r} was done at {known.written_at} with {known.messages} messages. This one "
                f"has {messages}, so it is another one. Nothing was written; give it another name in option 'writeId'."
            )
        return
    quoted = ledger.replace("'", "''")
    if known.other_query is not None:
        raise JMSException(
            f"Option 'writeId': the name {name.ledger.removeprefix(_QUERY)!r} belongs to the query "
            f"{known.other_query}. This is the query {name.query}, which has another checkpoint, and other batches. "
            "Nothing was written. Give option 'writeId' a new name to write the batch; to take the batches of the "
            f"other query for this one's, update {known.table} set query_id = '{name.query}' "
            f"where write_id = '{quoted}'."
        )
    if is_new and known.last_batch > batch_id:
        found = f"it has written batch {known.last_batch} already, and this is batch {batch_id}"
    elif known.messages != messages:
        found = (
            f"it has written batch {batch_id} at {known.written_at} with {known.messages} messages, and now this has "
            f"{messages}"
        )
    else:
        if is_new:
            yield from _note_query.bind(write_id=ledger, batch_id=batch_id, query_id=name.query)
        return
    # A new checkpoint does not help where the write has a name of its own.
    is_named = name.ledger != name.tasks
    other = (
        "Give option 'writeId' a new name" if is_named else "Start the query with a new checkpoint, or name 'writeId'"
    )
    raise JMSException(
        f"The checkpoint contradicts what the database knows of the {name.ledger}: {found}. The checkpoint was "
        f"restored or copied, or the query does not return the same rows twice. Nothing was written. {other}, to write "
        f"the batch; to take it for written, insert into {known.table} (write_id, batch_id, messages) values "
        f"('{quoted}', {batch_id}, {messages}) on conflict (write_id, batch_id) do update set messages = {messages}."
    )


def _require_queues(attempts: Sequence[Attempt]) -> Steps[None]:
    """Make sure that the queues are still those that tasks have written to, and stay until the transaction ends."""
    written = {queue_id: uri for attempt in attempts for uri, queue_id in attempt.queue_ids.items()}
    there = yield from pending_transactions.hold_queues(written)
    deleted = sorted({written[queue_id] for queue_id in written.keys() - set(there)})
    if deleted:
        raise InvalidDestinationException(
            f"{', '.join(deleted)} was deleted while Spark wrote there. Nothing was written; run the write again."
        )


def _send_all(attempts: Sequence[Attempt]) -> Steps[None]:
    yield from _require_queues(attempts)
    sent = yield from pending_transactions.send(
        [attempt.transaction_id for attempt in attempts],
        [attempt.transaction_id for attempt in attempts if attempt.delayed],
    )
    missing = sum(sum(attempt.messages.values()) for attempt in attempts if attempt.transaction_id not in sent)
    if missing:
        total = sum(sum(attempt.messages.values()) for attempt in attempts)
        raise JMSException(
            f"{missing} of {total} messages that Spark's tasks have written are gone, as a day later, or when another "
            "driver has done the same write. Nothing was written; run the write again."
        )


def _count(messages: Counter[str]) -> Steps[None]:
    sent: dict[int, Counts] = {}
    for uri, count in messages.items():
        destination = parse_destination(uri)
        is_queue = isinstance(destination, Queue)
        number = yield from (find_queue if is_queue else find_topic)(destination.name)
        if number is not None:
            sent[number if is_queue else -number] = Counts(sent=count)
    if sent:
        yield from add_counters(sent)
