"""How messages come to a session and leave the store: one strategy for each way to acknowledge."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import psycopg

from jmsql.client.prefetch_buffer import PrefetchBuffer
from jmsql.store.control.counters import Counts
from jmsql.store.errors import translate
from jmsql.store.receiving.receive import Fetch
from jmsql.store.rows.message_rows import MessageKey, MessageRow

if TYPE_CHECKING:
    from jmsql.client._async.database.session_connection import SessionConnection
    from jmsql.selectors import Selector
    from jmsql.store.receiving.dequeue import GroupScan
    from jmsql.store.statement import Query
    from jmsql.store.wire._async.wire_runner import WireRunner


logger = logging.getLogger("jmsql")

Accept = Callable[[MessageRow], object]
"""Raises an exception if a message is not wanted as it is, which then stays where it was."""

Announce = Callable[[Sequence[MessageKey]], None]
"""Tells consumers of messages and groups that are free again."""


class Delivery(Protocol):
    """A way to fetch messages from the store."""

    @property
    def operation(self) -> Fetch:
        """The store's operation that hands out messages."""

    async def next(self, buffer: PrefetchBuffer) -> MessageRow | None:
        """Return the next message, now delivered, or None. Callers run it to its end, though cancelled (`finished`)."""

    async def closed(self, buffer: PrefetchBuffer) -> list[MessageKey]:
        """End the deliveries to a prefetch buffer, and return the messages released."""


class HeldDelivery(Delivery, Protocol):
    """A way to fetch messages from the store in batches."""

    def take_held(self, buffer: PrefetchBuffer, /) -> MessageRow | None:
        """Return the next message that was fetched before, now delivered, if that takes no statement."""

    async def fetch(self, buffer: PrefetchBuffer, limit: int) -> bool:
        """Fetch up to `limit` messages; return whether there are any."""

    async def next_held(self, buffer: PrefetchBuffer) -> MessageRow | None:
        """Return the next message that was fetched before, now delivered, or None if there is none."""


class AcceptingDelivery(Delivery, Protocol):
    """A way to fetch messages from the store that can leave them there after a look."""

    async def next(self, buffer: PrefetchBuffer, accept: Accept | None = None) -> MessageRow | None:
        """Return the next message, now delivered, or None if there is none.

        Args:
            buffer: Where it comes to.
            accept: Called with the message, which is not delivered if it is refused; None: any is delivered.
        """


class ImmediateDelivery:
    """For `receive` in AUTO sessions: each message is dequeued before it is returned.

    Args:
        connection: The session's connection.
        announce: Tells consumers of messages and groups that are free again.
    """

    def __init__(self, connection: SessionConnection, announce: Announce) -> None:
        self._connection = connection
        self._announce = announce
        self._asks = False
        self.operation: Fetch = self._dequeue

    async def next(self, buffer: PrefetchBuffer, accept: Accept | None = None) -> MessageRow | None:
        row: MessageRow | None = None
        transaction = await self._connection.begin_implicitly()
        try:
            self._asks = buffer.asks_for_end
            rows = await transaction.run(buffer.fetch(1))
            row = rows[0] if rows else None
            if row is not None and accept is not None:
                try:
                    accept(row)
                except BaseException:
                    await transaction.rollback()
                    raise
            await self._commit(transaction, buffer, row)
        except BaseException:
            if row is not None:  # it is on its queue again, and others have passed over it
                self._tell_of_return(buffer, row)
            raise
        finally:
            self._connection.ended_implicitly()
        if row is not None:
            buffer.count(Counts(acknowledged=1, redelivered=1 if row.delivery_count else 0))
            if row.group_hash is not None:
                self._tell_of_return(buffer, row)
        return row

    def _dequeue(
        self,
        queue_id: int,
        selector: Selector | None,
        lowest: Sequence[int],
        limit: int,
        groups: GroupScan | None = None,
    ) -> Query[list[MessageRow]]:
        return self._connection.recipient.dequeue(queue_id, selector, lowest, limit, groups, asks=self._asks)

    async def _commit(self, transaction: WireRunner, buffer: PrefetchBuffer, row: MessageRow | None) -> None:
        """Have the server commit; if the connection breaks then, nobody knows the outcome: better twice than lost."""

        def failed(error: psycopg.Error) -> None:
            if row is not None:
                logger.warning("%s The message is delivered, and may come again.", translate(error, "receiving"))
                self._tell_of_return(buffer, row)

        await transaction.leave_commit(failed)
        # Those who wait for a group are told, and look at once; who is about to wait has it written down before.
        if row is None or row.group_hash is not None:
            await self._connection.settle()

    def _tell_of_return(self, buffer: PrefetchBuffer, row: MessageRow) -> None:
        key = buffer.key(row)
        buffer.returned(key)
        self._announce([key])

    async def closed(self, buffer: PrefetchBuffer) -> list[MessageKey]:  # noqa: ARG002 - it is the other strategy's concern
        """End the deliveries to a prefetch buffer, which holds nothing: the last one is over then."""
        await self._connection.settle()
        return []


def count_outcome(delivered: Iterable[tuple[PrefetchBuffer, MessageRow]], outcome: str) -> None:
    """Count deliveries that have ended."""
    counts: dict[PrefetchBuffer, list[int | None]] = {}
    for buffer, row in delivered:
        if buffer in counts:
            counts[buffer].append(row.delivery_count)
        else:
            counts[buffer] = [row.delivery_count]
    for buffer, numbers in counts.items():
        redelivered = len(numbers) - numbers.count(None) - numbers.count(0)
        buffer.count(Counts(redelivered=redelivered, **{outcome: len(numbers)}))
