"""What identifies a message in the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from jmsql.store.rows.arrays import integers_literal

if TYPE_CHECKING:
    from jmsql.store.rows.message_rows import MessageRow

__all__ = ["GroupKey", "MessageKey", "key_of", "key_parameters"]


class MessageKey(NamedTuple):
    """What identifies a message in the store, and its group if it is in one.

    With the sequence 0, which none has: all that are in the queue.
    """

    queue_id: int
    inverse_priority: int
    sequence: int
    group_hash: int | None = None


class GroupKey(NamedTuple):
    """What identifies a message group in the store."""

    queue_id: int
    group_hash: int


def key_of(queue_id: int, row: MessageRow) -> MessageKey:
    """Return the key of a message in a queue."""
    # Measured: the constructor of a named tuple takes twice as long.
    return tuple.__new__(MessageKey, (queue_id, row.inverse_priority, row.sequence, row.group_hash))


def key_parameters(keys: Sequence[MessageKey]) -> dict[str, str]:
    """Turn keys into the parameters that statements on many messages have."""
    queue_ids, inverse_priorities, sequences, _ = zip(*keys, strict=True)
    return {
        "queue_ids": integers_literal(queue_ids),
        "inverse_priorities": integers_literal(inverse_priorities),
        "sequences": integers_literal(sequences),
    }
