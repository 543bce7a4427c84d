"""Messages that travel together."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from jmsql.concurrency.tasks import CancelledError

if TYPE_CHECKING:
    from jmsql.client._async.session.transactions.transaction import Transaction
    from jmsql.store.rows.message_rows import OutgoingMessage
    from jmsql.values.destinations import Destination

# For the time of a block this object takes the place of the producer's transaction, so that each send passes the same
# code as alone. Messages leave when a hundred or 4 MiB are collected, when the destination changes or delayed messages
# follow others, and at the end of the block: one exchange has messages for one place.


_MOST_MESSAGES = 100
_MOST_BYTES = 4 * 1024 * 1024


class SendBatch:
    """Stands between a producer and its session's transaction, and hands over up to a hundred messages at a time.

    Args:
        transaction: The session's transaction, which does everything else.
    """

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._place: tuple[Destination, bool] | None = None
        """The destination of the collected messages, and True if they have a delivery time to wait for."""
        self._messages: list[tuple[OutgoingMessage, int]] = []
        self._bytes = 0
        # Batches that are to be handed over: the one whose hand-over was cancelled stays the first. Written by `flush`.
        self._full: deque[tuple[Destination, list[tuple[OutgoingMessage, int]]]] = deque()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)

    async def send(self, destination: Destination, message: OutgoingMessage, size: int) -> None:
        """Collect a message."""
        place = destination, message.jms_delivery_time is not None
        if len(self._messages) >= _MOST_MESSAGES or self._bytes + size > _MOST_BYTES or self._place != place:
            await self.flush()
        self._place = place
        self._messages.append((message, size))
        self._bytes += size

    async def flush(self) -> None:
        """Send the messages that are collected; those that a cancelled call has not sent leave with the next."""
        if self._messages:
            assert self._place is not None
            self._full.append((self._place[0], self._messages))
            self._messages, self._bytes = [], 0
        while self._full:
            destination, messages = self._full.popleft()
            try:
                await self._transaction.send_batch(destination, messages)
            except CancelledError:
                self._full.appendleft((destination, messages))
                raise
