"""What a transaction has sent and not inserted yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from jmsql.destinations import Destination, Topic
from jmsql.store.send import publish, send

if TYPE_CHECKING:
    from jmsql.store.rows import OutgoingMessage
    from jmsql.store.send import Publisher
    from jmsql.store.statement import Steps

__all__ = ["News", "SendBuffer"]

_MOST_MESSAGES = 500
_MOST_BYTES = 4 * 1024 * 1024


class News(NamedTuple):
    """What others should hear of.

    Args:
        destinations: Where something was sent to, and how many messages.
        delayed: Whether some of it is delivered later.
    """

    destinations: dict[Destination, int]
    delayed: bool


class SendBuffer:
    """Collects a transaction's messages, so that they travel in batches."""

    def __init__(self) -> None:
        self._messages: list[tuple[Destination, OutgoingMessage]] = []
        self._bytes = 0
        self._destinations: dict[Destination, int] = {}
        self._has_delayed = False

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def is_full(self) -> bool:
        """Whether enough is collected for a batch."""
        return len(self._messages) >= _MOST_MESSAGES or self._bytes >= _MOST_BYTES

    @property
    def destinations(self) -> dict[Destination, int]:
        """The destinations that the transaction has sent to, and how many messages."""
        return self._destinations

    def clear(self) -> None:
        """Forget the messages that are collected."""
        for destination, _ in self._messages:
            self._destinations[destination] -= 1
            if not self._destinations[destination]:
                del self._destinations[destination]
        self._messages.clear()
        self._bytes = 0

    def add(self, destination: Destination, message: OutgoingMessage) -> None:
        """Collect a message."""
        self._messages.append((destination, message))
        self._bytes += message.size
        self._destinations[destination] = self._destinations.get(destination, 0) + 1
        if message.jms_delivery_time is not None:
            self._has_delayed = True

    def flush(self, publisher: Publisher, *, flush: bool = True) -> Steps[None]:
        """Insert what is collected, in the open transaction. Each destination gets its messages in their order.

        After an error only what was not inserted is still collected, for another attempt.

        Args:
            publisher: Who sends.
            flush: False lets the transaction commit without waiting for the disk.
        """
        batches: dict[tuple[Topic | None, bool], list[OutgoingMessage]] = {}
        for destination, message in self._messages:
            batches.setdefault(_batch(destination, message), []).append(message)
        try:
            for batch in list(batches):
                topic, _ = batch
                if topic is None:
                    yield from send(batches[batch], flush=flush)
                else:
                    yield from publish(topic, batches[batch], publisher, flush=flush)
                del batches[batch]
        finally:
            self._messages = [each for each in self._messages if _batch(*each) in batches] if batches else []
            self._bytes = sum(message.size for _, message in self._messages)

    def ended(self) -> News:
        """Forget the transaction, and return what it has sent."""
        news = News(self._destinations, self._has_delayed)
        self._destinations = {}
        self._has_delayed = False
        self._messages.clear()
        self._bytes = 0
        return news


def _batch(destination: Destination, message: OutgoingMessage) -> tuple[Topic | None, bool]:
    """Tell which messages go to the server together: those to queues, or those to one topic; delayed ones apart."""
    return destination if isinstance(destination, Topic) else None, message.jms_delivery_time is not None
