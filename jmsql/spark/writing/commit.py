"""Sending the messages that the tasks of a write have committed: once, and all at one instant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from jmsql import InvalidDestinationException, JMSException, Queue, Topic
from jmsql.extension.scanning import find_queue, find_topic
from jmsql.extension.sending import Counts, add_counters, notify_sent, pending_transactions
from jmsql.extension.statements import Query, SqlFile, Steps, as_setting, nothing, row_count, rows
from jmsql.extension.values import parse_destination, to_postgresql

_KEPT_BATCHES = 100
"""How many batches of a streaming query stay in the ledger. Spark repeats the last one alone."""

_LONGEST_IDLENESS = 10.0
"""Seconds for which a driver that is frozen in its transaction holds up others: those that do the same write, and all
that count what they have sent to the same destinations."""

_sql = SqlFile("writing", "jmsql.spark")
_limit_idleness = SqlFile("maintenance").statement("limit_idleness", "writing messages", nothing)
_enter = _sql.statement("enter", "writing messages", row_count)
_known = _sql.statement("known", "writing messages", rows)
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


def names_of(kind: type[Queue | Topic], destinations: Iterable[str]) -> list[str]:
    """Return the names of the queues, or the topics, among destinations, which are given as URIs."""
    parsed = map(parse_destination, sorted(destinations))
    return [destination.name for destination in parsed if isinstance(destination, kind)]


def send_once(
    attempts: Sequence[Attempt],
    write_id: str,
    batch_id: int | None,
    *,
    days: float | None,
    is_stream: bool,
    idleness: float = _LONGEST_IDLENESS,
) -> Steps[bool]:
    """Send, with the commit of the open transaction, what tasks have committed, unless the same write was done before.

    Args:
        attempts: What the tasks have committed that Spark counts.
        write_id: What the write is known by.
        batch_id: Which batch of it this is; None: no other transaction does this write.
        days: For how many days to know that it was done; None: for ever.
        is_stream: Whether only the last batches can come again.
        idleness: Seconds after which the server ends the transaction if nothing comes from the driver.

    Returns:
        Whether it was sent now.

    Raises:
        InvalidDestinationException: A queue was deleted since a task has written to it.
        JMSException: Something that was committed is gone, or the ledger knows another write by the same name.
    """
    yield from _limit_idleness.bind(timeout=as_setting(idleness))
    messages: Counter[str] = Counter()
    for attempt in attempts:
        messages.update(attempt.messages)
    name = to_postgresql(write_id)
    is_new = batch_id is None
    if batch_id is not None:
        # Another driver that writes the same waits here until this transaction ends.
        is_new = (yield from _enter.bind(write_id=name, batch_id=batch_id, messages=messages.total(), days=days)) == 1
        yield from _require_same_write(write_id, batch_id, messages.total(), is_new=is_new, is_stream=is_stream)
        if is_new and is_stream:
            yield from _forget_batches.bind(write_id=name, batch_id=batch_id - _KEPT_BATCHES)
    if is_new:
        yield from _send_all(attempts)
    yield from abandon(attempts, write_id if is_new else None)
    if is_new and messages:
        queues, topics = names_of(Queue, messages), names_of(Topic, messages)
        yield from notify_sent(queues, topics, delayed=any(attempt.delayed for attempt in attempts))
        yield from _count(messages)  # last: its rows are shared by all who send
    return is_new


def abandon(attempts: Sequence[Attempt], write_id: str | None = None) -> Query[None]:
    """Have what tasks have committed never be sent, nor what other tasks of the same write have, if one is named."""
    return pending_transactions.abandon([attempt.transaction_id for attempt in attempts], write_id)


def _require_same_write(write_id: str, batch_id: int, messages: int, *, is_new: bool, is_stream: bool) -> Steps[None]:
    """Make sure that the ledger does not take a batch for another one; the batch stands in it.

    Spark repeats only the last batch of a query, and with the same rows, unless its checkpoint is an older one.
    """
    name = to_postgresql(write_id)
    [(known, written_at, last)] = yield from _known.bind(write_id=name, batch_id=batch_id)
    if not is_stream:
        if known != messages:
            raise JMSException(
                f"The write {write_id!r} was done at {written_at} with {known} messages. This one has {messages}, so "
                "it is another one. Nothing was written; give it another name in option 'writeId'."
            )
        return
    if is_new and last > batch_id:
        found = f"it has written batch {last} already, and this is batch {batch_id}"
    elif known != messages:
        found = f"it has written batch {batch_id} at {written_at} with {known} messages, and now this has {messages}"
    else:
        return
    quoted = name.replace("'", "''")
    raise JMSException(
        f"The checkpoint contradicts what the database knows of the {write_id}: {found}. The checkpoint was "
        "restored or copied, or the query does not return the same rows twice. Nothing was written. Start the query "
        "with a new checkpoint, or give option 'writeId' a new name, to write the batch; to take it for written, "
        f"insert into jmsql_internal.spark_write (write_id, batch_id, messages) values ('{quoted}', {batch_id}, "
        f"{messages}) on conflict (write_id, batch_id) do update set messages = {messages}."
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
