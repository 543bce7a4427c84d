"""Messages for tests of handlers: the open transaction's own ones, or all committed ones."""

from __future__ import annotations

from collections.abc import Collection

from jmsql.selectors import Selector
from jmsql.store.destinations.lookup import find_queue
from jmsql.store.destinations.subscriptions import find_named
from jmsql.store.receiving.candidates import HAS_NOT_EXPIRED
from jmsql.store.rows.columns import SHARED_BODY, and_chosen, message_columns
from jmsql.store.rows.message_rows import MessageRow
from jmsql.store.statement import SqlFile, Statement, Steps, fill, first_value, integers_literal, nothing, records
from jmsql.values.postgresql_text import to_postgresql

# These statements serve `drain`, which handles a test's messages in the test's transaction. They choose messages by the
# number of the transaction that has sent them, and delete them as they are taken. In autocommit mode there is no such
# transaction, and they take committed messages.


_sql = SqlFile("own_messages")
_CHOICES = {False: _sql["sent_by_transaction"], True: _sql["committed"]}
"""The messages of a queue: the transaction's own, or all."""
_rows = records(MessageRow._make)

_reads = {
    committed: [
        _sql.statement(
            name, "reading", _rows, {"columns": message_columns(joined=True), "shared_body": SHARED_BODY, "own": own}
        )
        for name in ("read", "read_delayed")
    ]
    for committed, own in _CHOICES.items()
}

_decide_batches = _sql.statement("decide_batches", "ending batches", nothing).bind()
_defer_batches = _sql.statement("defer_batches", "ending batches", nothing).bind()
set_savepoint = _sql.statement("set_savepoint", "setting a savepoint", nothing).bind()
release_savepoint = _sql.statement("release_savepoint", "releasing a savepoint", nothing).bind()
undo_savepoint = _sql.statement("undo_savepoint", "rolling back to a savepoint", nothing).bind()

empty = _sql.statement("empty", "deleting all messages", nothing).bind()
"""Deletes all messages of all queues, with their history."""


def end_batches() -> Steps[None]:
    """End the batches whose last message the transaction has ended, as its commit would."""
    yield from _decide_batches
    yield from _defer_batches


def queue_of(name: str) -> Steps[int | None]:
    """Return the id of a queue, None if it is not there."""
    return (yield from find_queue(name))


def queue_of_subscription(name: str, *, durable: bool) -> Steps[int | None]:
    """Return the id of the queue behind a shared subscription, None if it is not there."""
    found = yield from find_named.bind(durable=durable, client_id=None, name=to_postgresql(name), connection_id=0)
    return found[0].queue_id if found else None


def take(
    queue_id: int, selector: Selector | None, excluded: Collection[int], *, committed: bool
) -> Steps[MessageRow | None]:
    """Take the next message of a queue.

    Args:
        queue_id: The queue.
        selector: Selects the messages; None: all.
        excluded: The sequences of messages to leave.
        committed: True takes any committed message; False only messages that the transaction has sent.
    """
    return (yield from _take("take", queue_id, selector, excluded, committed=committed))


def take_delayed(
    queue_id: int, selector: Selector | None, excluded: Collection[int], *, committed: bool
) -> Steps[MessageRow | None]:
    """Take the delayed message that is due first, without waiting for its time; arguments as for `take`."""
    return (yield from _take("take_delayed", queue_id, selector, excluded, committed=committed))


def due(queue_id: int, selector: Selector | None, excluded: Collection[int], *, committed: bool) -> Steps[int | None]:
    """Return when the first delayed message would be due, in milliseconds since the epoch; arguments as for `take`."""
    chosen, parameters = and_chosen(selector)
    text = fill(_sql["due"], chosen=chosen, own=_CHOICES[committed])
    statement = Statement("due", text, "looking for messages", first_value, parameters)
    found: int | None = yield from statement.bind(queue_id=queue_id, excluded=integers_literal(excluded))
    return found


def read(queue_id: int, *, committed: bool) -> Steps[list[MessageRow]]:
    """Return the messages of a queue in the order of delivery, the delayed ones last; `committed` as for `take`."""
    found: list[MessageRow] = []
    for statement in _reads[committed]:
        found += yield from statement.bind(queue_id=queue_id)
    return found


def _take(
    name: str, queue_id: int, selector: Selector | None, excluded: Collection[int], *, committed: bool
) -> Steps[MessageRow | None]:
    chosen, parameters = and_chosen(selector)
    text = fill(
        _sql[name],
        columns=message_columns(),
        has_not_expired=HAS_NOT_EXPIRED,
        chosen=chosen,
        own=_CHOICES[committed],
    )
    statement = Statement(name, text, "receiving", _rows, parameters)
    found = yield from statement.bind(queue_id=queue_id, excluded=integers_literal(excluded))
    return found[0] if found else None
