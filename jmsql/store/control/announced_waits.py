"""What clients tell senders of their consumers that wait, so that nobody is told of messages that none waits for.

A client holds a shared lock for what its consumers wait for, and has them look once more when it has got it. A sender
tries the exclusive lock after its commit. With it, nobody waits; who begins to later finds the message by that look.
"""

from __future__ import annotations

from collections.abc import Collection

from jmsql.store.rows.arrays import integers_literal
from jmsql.store.statement import Query, SqlFile, column, fill, first_value, nothing

__all__ = ["BUCKETS", "announce_waits", "bucket_of", "end_waits", "notify_where_waited_for", "waited_for"]

BUCKETS = 32
"""How many locks there are for all queues and topics: a client with a thousand queues must not fill the server's table.
A power of two; clients have to agree on it."""

_sql = SqlFile("control")
_announce = _sql.statement("announce_waits", "announcing what is waited for", column)
_end = _sql.statement("end_waits", "announcing what is waited for", nothing)
_parts = {"may_be_waited_for": fill(_sql["may_be_waited_for"], last_bucket=str(BUCKETS - 1))}
_waited_for = _sql.statement("waited_for", "looking for those that wait", first_value, _parts)
_notify = _sql.statement("notify_where_waited_for", "notifying", nothing, _parts)


def bucket_of(channel: int) -> int:
    """Return the number of the lock for a queue, or for what stands for a topic."""
    return channel & (BUCKETS - 1)


def announce_waits(buckets: Collection[int]) -> Query[list[int]]:
    """Announce, on the control connection, that somebody waits; return where that could be done."""
    return _announce.bind(buckets=integers_literal(buckets))


def end_waits(buckets: Collection[int]) -> Query[None]:
    """Announce that nobody waits any more."""
    return _end.bind(buckets=integers_literal(buckets))


def waited_for(channels: Collection[int]) -> Query[list[int]]:
    """Return for which queues and topics somebody may wait; it is to run after the commit of their messages."""
    return _waited_for.bind(channels=integers_literal(channels))


def notify_where_waited_for(channels: Collection[int]) -> Query[None]:
    """Notify of new messages of queues and topics for which somebody may wait; they are committed."""
    return _notify.bind(channels=integers_literal(channels))
