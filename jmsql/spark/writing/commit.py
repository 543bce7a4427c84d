"""Committing a write of Spark: once, from what its tasks have staged, or by deciding on what they have prepared."""

from __future__ import annotations

from collections.abc import Sequence

from jmsql.exceptions import JMSException, JMSSecurityException
from jmsql.postgresql_text import to_postgresql
from jmsql.spark.writing.prepared import PreparedTransaction, find_transactions
from jmsql.spark.writing.staging import Attempt, forget_attempts, notify_places, send_staged, sent_counts, total
from jmsql.store.counters import add_counters
from jmsql.store.statement import Query, SqlFile, Steps, column, nothing, row_count

__all__ = ["decide", "forget_write", "send_once"]

_KEPT_BATCHES = 100
"""How many batches of a streaming query stay in the ledger. Spark repeats the last one alone."""

_sql = SqlFile("writing", "jmsql.spark")
_enter = _sql.statement("enter", "writing messages", row_count)
_forget_writes = _sql.statement("forget_writes", "writing messages", nothing)
_decide = _sql.statement("decide", "writing messages", nothing)
_forget_write = _sql.statement("forget_write", "discarding prepared messages", column)


def send_once(attempts: Sequence[Attempt], write_id: str, batch_id: int, *, is_stream: bool) -> Steps[bool]:
    """Send what was staged, unless the same write was done before; return whether it was sent now.

    Args:
        attempts: Those that succeeded, one for each task.
        write_id: What the write is known by.
        batch_id: Which batch of it this is.
        is_stream: Whether only the last batches can come again.

    Raises:
        JMSException: Something that was staged is gone.
    """
    attempts = sorted(attempts, key=lambda attempt: attempt.partition)
    messages = total(attempts)
    is_new = yield from _enter_write(write_id, batch_id, messages.total(), is_stream=is_stream)
    if is_new:
        yield from send_staged(attempts)
    # What is there now was there to be sent: nobody adds to what an attempt has staged.
    missing = messages.total() - (yield from forget_attempts(attempts))
    if is_new and missing:
        raise JMSException(
            f"{missing} of {messages.total()} messages that Spark's tasks have staged are gone, as after a "
            "crash of the server. Nothing was written; run the write again."
        )
    if is_new:
        sent = yield from sent_counts(messages)
        if sent:
            yield from notify_places(messages)
            yield from add_counters(sent)  # last: its rows are shared by all who send
    return is_new


def decide(attempts: Sequence[Attempt], write_id: str, batch_id: int, *, is_stream: bool) -> Steps[bool]:
    """Decide, with the commit of the open transaction, that the write is done; return whether it was not before.

    Args:
        attempts: Those that succeeded and have prepared their transactions, one for each task.
        write_id: What the write is known by.
        batch_id: Which batch of it this is.
        is_stream: Whether only the last batches can come again.

    Raises:
        JMSSecurityException: Another role has prepared them.
        JMSException: Something that was prepared is gone.
    """
    messages = total(attempts)
    is_new = yield from _enter_write(write_id, batch_id, messages.total(), is_stream=is_stream)
    known = yield from forget_write(attempts, write_id)
    if is_new:
        prepared = [attempt for attempt in attempts if attempt.staged]
        _require(prepared, set(known), (yield from find_transactions()))
        yield from _decide.bind(
            attempts=[attempt.attempt_id for attempt in prepared], write_id=to_postgresql(write_id), batch_id=batch_id
        )
        sent = yield from sent_counts(messages)
        if sent:
            yield from add_counters(sent)  # last: its rows are shared by all who send
    return is_new


def forget_write(attempts: Sequence[Attempt], write_id: str) -> Query[list[int]]:
    """Have nobody count on attempts, and all others of the same write, and return which were known.

    What of them was not decided is rolled back from then on.
    """
    return _forget_write.bind(attempts=[attempt.attempt_id for attempt in attempts], write_id=to_postgresql(write_id))


def _enter_write(write_id: str, batch_id: int, messages: int, *, is_stream: bool) -> Steps[bool]:
    """Note in the ledger that a write is done; return whether it was not before.

    Another driver that writes the same waits here until this transaction ends.
    """
    name = to_postgresql(write_id)
    is_new = (yield from _enter.bind(write_id=name, batch_id=batch_id, messages=messages)) == 1
    if is_new and is_stream:
        yield from _forget_writes.bind(write_id=name, batch_id=batch_id - _KEPT_BATCHES)
    return is_new


def _require(attempts: Sequence[Attempt], known: set[int], found: Sequence[PreparedTransaction]) -> None:
    """Make sure that attempts are prepared, for this role to commit."""
    prepared = {each.attempt_id: each for each in found}
    missing = sum(each.messages for each in attempts if each.attempt_id not in known & prepared.keys())
    if missing:
        raise JMSException(
            f"{missing} of {total(attempts).total()} messages that Spark's tasks have prepared are gone, as a day "
            "later, or if somebody has rolled them back, or when the database had no connection of this driver for ten "
            "seconds. Nothing was written; run the write again."
        )
    for attempt in attempts:
        transaction = prepared[attempt.attempt_id]
        if not transaction.may_finish:
            raise JMSSecurityException(
                f"Spark's tasks have prepared messages as the role {transaction.owner!r}, and the driver has another, "
                "which cannot commit them. Let it connect as the executors do.",
                "42501",
            )
