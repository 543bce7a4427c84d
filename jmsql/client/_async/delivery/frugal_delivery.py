"""How messages come to a transaction that is going to be prepared."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from jmsql.client._async.delivery.locked_delivery import LockedDelivery

if TYPE_CHECKING:
    from jmsql.client._async.database.session_runner import SessionRunner
    from jmsql.client._async.shared.redelivery import Redelivery
    from jmsql.client.receiving.prefetch_buffer import PrefetchBuffer
    from jmsql.store.rows.message_rows import MessageRow

__all__ = ["FrugalDelivery"]


class FrugalDelivery(LockedDelivery):
    """Locks what it delivers and nothing else: a prepared transaction may hold its locks for long.

    Args:
        database: The transaction.
        sending: Held by the thread that inserts messages in the transaction meanwhile.
        redelivery: Records deliveries outside of it.
    """

    def __init__(
        self, database: SessionRunner, sending: AbstractAsyncContextManager[bool], redelivery: Redelivery
    ) -> None:
        super().__init__(database, redelivery)
        self._sending = sending

    async def next(self, buffer: PrefetchBuffer) -> MessageRow | None:
        row = await self.next_held(buffer)
        if row is not None:
            return row
        await self.flush()  # not within the savepoint, which may be undone
        async with self._sending, self._database.savepoint() as undo:
            await self.fetch(buffer, 1)
            row = await self.next_held(buffer)
            if row is None:
                await undo()  # with the lock of a message that another client had just claimed
            return row
