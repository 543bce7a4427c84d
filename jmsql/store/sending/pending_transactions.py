"""Pending transactions: several connections commit messages, which become visible at one instant.

PostgreSQL shows a transaction's rows when it commits, and a transaction has one connection. An application that writes
over several connections therefore commits its messages as pending: each transaction inserts them where they belong,
calls `hold_back` and commits. Every statement that reads messages leaves them out, by the condition ``{is_sent}``. Then
one transaction sends all of them, or `abandon` discards them.

Messages that were neither sent nor abandoned are discarded after a day. An application that calls
`hold_back` has to call `remove_abandoned` from time to time, best in a maintenance task.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from jmsql.store.rows.columns import DELAYED_COLUMNS
from jmsql.store.statement import Query, SqlFile, Statement, Steps, array_literal, column, nothing, records, value
from jmsql.values.postgresql_text import optional_to_postgresql, to_postgresql

_sql = SqlFile("pending")
_parts = {
    "message_of_t": _sql["message_of_t"],
    "columns": ", ".join(name for name, _ in DELAYED_COLUMNS[1:]),
}
next_sequence = _sql.statement("next_sequence", "planning a write", value(int)).bind()
"""Returns a sequence below every later message's."""

_hold_back = _sql.statement("hold_back", "writing messages", value(str))
_hold_queues: Statement[list[int]] = _sql.statement("hold_queues", "writing messages", column)
_delay = _sql.statement("delay", "writing messages", nothing, _parts)
_send: Statement[list[str]] = _sql.statement("send", "writing messages", column)
_abandon = _sql.statement("abandon", "discarding messages", nothing)
_abandon_before = _sql.statement("abandon_before", "discarding messages", nothing)
_remove_abandoned = _sql.statement("remove_abandoned", "discarding messages", value(bool), _parts)


def hold_back(
    write_id: str, first_sequence: int, queue_ids: Collection[int], topics: Collection[str] = ()
) -> Query[str]:
    """Make the open transaction pending: its messages stay hidden when it commits.

    Args:
        write_id: The identifier of its write.
        first_sequence: A sequence below its messages': `next_sequence` before the first of them.
        queue_ids: The numbers of the queues that it has inserted into.
        topics: The names of the topics that it has published to.

    Returns:
        The number of the transaction, by which `send` and `abandon` know it.
    """
    return _hold_back.bind(
        write_id=to_postgresql(write_id),
        queue_ids=list(queue_ids),
        topics=list(topics),
        first_sequence=first_sequence,
    )


def hold_queues(queue_ids: Collection[int]) -> Query[list[int]]:
    """Return which of the queues exist; none of these is deleted before the open transaction ends."""
    return _hold_queues.bind(queue_ids=list(queue_ids))


def send(transactions: Sequence[str], delayed: Collection[str] = ()) -> Steps[set[str]]:
    """Make the messages of pending transactions visible, with the commit of the open transaction.

    Args:
        transactions: The numbers of the transactions.
        delayed: The transactions that have messages with a delivery delay.

    Returns:
        The numbers of the transactions that were pending. If one is missing, since it was sent before or abandoned, the
        caller rolls back.
    """
    if delayed:
        yield from _delay.bind(transactions=array_literal(delayed))
    return set((yield from _send.bind(transactions=array_literal(transactions))))


def abandon(transactions: Iterable[str], write_id: str | None = None) -> Query[None]:
    """Mark pending transactions, and all others of a write if one is named: their messages are never sent."""
    return _abandon.bind(write_id=optional_to_postgresql(write_id), transactions=array_literal(transactions))


def abandon_before(write_id: str, sequence: int) -> Query[None]:
    """Mark the pending transactions of a write that began before a sequence was taken."""
    return _abandon_before.bind(write_id=to_postgresql(write_id), planned=sequence)


def remove_abandoned(limit: int) -> Query[bool]:
    """Delete up to so many messages of one abandoned transaction; return whether there was one."""
    return _remove_abandoned.bind(limit=limit)


class WaitingWrite(NamedTuple):
    """A write with pending transactions, and its age in seconds by the first of them."""

    write_id: str
    tasks: int
    seconds: float
    messages: int


waiting_writes = _sql.statement("waiting_writes", "examining the server", records(WaitingWrite._make)).bind()
"""The writes with pending transactions, the oldest first."""
