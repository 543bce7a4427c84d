"""What a transaction has sent and not inserted yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jmsql.store.message_store import MessageStore
    from jmsql.store.rows import OutgoingMessage

__all__ = ["Outbox"]

_MOST_MESSAGES = 500
_MOST_BYTES = 4 * 1024 * 1024


class Outbox:
    """Collects a transaction's messages, so that they travel in batches."""

    def __init__(self) -> None:
        self._messages: list[OutgoingMessage] = []
        self._bytes = 0
        self._queues: set[str] = set()

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def is_full(self) -> bool:
        """Whether enough is collected for a batch."""
        return len(self._messages) >= _MOST_MESSAGES or self._bytes >= _MOST_BYTES

    @property
    def queues(self) -> set[str]:
        """The names of the queues that the transaction has sent to."""
        return set(self._queues)

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` of the messages that are collected."""
        del self._messages[length:]

    def add(self, message: OutgoingMessage) -> None:
        """Collect a message."""
        self._messages.append(message)
        self._bytes += message.size
        self._queues.add(message.queue)

    def flush(self, store: MessageStore) -> None:
        """Insert what is collected, in the open transaction."""
        if self._messages:
            store.send(self._messages)
            self._messages.clear()
            self._bytes = 0

    def ended(self) -> set[str]:
        """Forget the transaction, and return the names of the queues that it has sent to."""
        queues, self._queues = self._queues, set()
        self._messages.clear()
        self._bytes = 0
        return queues
