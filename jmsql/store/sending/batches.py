"""Batches of messages: opening, adding to and closing one, and its counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jmsql.exceptions import JMSException
from jmsql.messages.encoded_message import EncodedMessage
from jmsql.store.destinations.lookup import queue_id_in_transaction
from jmsql.store.statement import Query, Result, SqlFile, Steps, nothing, row_count, value
from jmsql.values.batches import BatchProgress

_sql = SqlFile("batches")


def _counts(result: Result) -> BatchProgress | None:
    return BatchProgress(*result.rows[0]) if result.rows else None


_open = _sql.statement("open", "opening the batch {name!r}", value(int))
_add_callback = _sql.statement("add_callback", "opening a batch", nothing)
_close = _sql.statement("close", "closing the batch {batch}", row_count)
_hold = _sql.statement("hold", "adding to the batch {batch}", value(bool))
_progress = _sql.statement("progress", "reading the batch {batch}", _counts)

_check = _sql.statement("check", "ending batches", value(int))
_remove = _sql.statement("remove", "removing batches", value(int))


class Callback(NamedTuple):
    """A message that is sent when a batch ends.

    Args:
        event: "end", "success" or "failure".
        queue: The name of the queue that it goes to.
        message: The message; None: a map of the counts.
    """

    event: str
    queue: str
    message: EncodedMessage | None


def open_batch(name: str, keep: float, callbacks: Sequence[Callback], lock_timeout: float) -> Steps[int]:
    """Open a batch in a transaction, make missing queues of its callbacks, and return its number.

    Args:
        name: Its name.
        keep: Seconds for which it is kept after its end.
        callbacks: The messages that are sent then.
        lock_timeout: For how many seconds another transaction that makes such a queue is waited for.

    Raises:
        JMSSecurityException: The role may not send to such a queue.
        JMSException: The server has refused it.
    """
    batch = yield from _open.bind(name=name, keep=keep)
    for callback in callbacks:
        queue_id = yield from queue_id_in_transaction(callback.queue, lock_timeout)
        message = callback.message
        yield from _add_callback.bind(
            batch=batch,
            event=callback.event,
            queue_id=queue_id,
            message_type=None if message is None else message.message_type,
            jms_type=None if message is None else message.type,
            properties=None if message is None else message.properties,
            property_types=None if message is None else message.property_types,
            text_body=None if message is None else message.text_body,
            json_body=None if message is None else message.json_body,
            body_types=None if message is None else message.body_types,
            bytes_body=None if message is None else message.bytes_body,
        )
    return batch


def close_batch(batch: int) -> Query[int]:
    """Close a batch, to which only its handlers add from then on; return 0 if it was closed before, or is gone."""
    return _close.bind(batch=batch)


def hold_batch(batch: int) -> Query[bool]:
    """Keep a batch from its end until the transaction ends, which adds messages; return False if it has ended.

    Raises:
        IllegalStateException: Another transaction is ending the batch.
    """
    return _hold.bind(batch=batch)


def read_progress(batch: int) -> Steps[BatchProgress]:
    """Return the counts of a batch.

    Raises:
        JMSException: There is no such batch.
    """
    found = yield from _progress.bind(batch=batch)
    if found is None:
        raise JMSException(f"There is no batch {batch}. It was rolled back, or its time is over.")
    return found


def check_batches(limit: int) -> Query[int]:
    """End up to `limit` batches whose end no transaction could see; return the number of undecided ones."""
    return _check.bind(limit=limit)


def remove_batches(limit: int) -> Query[int]:
    """Remove so many rows at most of batches that have ended, and return how many."""
    return _remove.bind(limit=limit)
