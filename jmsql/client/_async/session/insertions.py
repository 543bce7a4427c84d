"""How the messages of an asynchronous sender come into the store: each batch by itself, or with a transaction."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from jmsql.client._async.database.session_runner import SessionRunner
from jmsql.client.sending.send_buffer import SendBuffer
from jmsql.exceptions import InvalidDestinationException, JMSException
from jmsql.messages import DeliveryMode

if TYPE_CHECKING:
    from jmsql.client._async.shared.client_context import ClientContext
    from jmsql.client.sending.completion import AsynchronousSend

__all__ = ["BatchInsertion", "TransactionInsertion"]

logger = logging.getLogger("jmsql")

_UNREACHABLE = ("08", "28", "3D", "53", "57P")
"""Classes of SQLSTATE with which every message of a batch would fail."""


class TransactionInsertion:
    """For transacted sessions, where messages wait with those that are sent synchronously for the next flush.

    Args:
        flush: Inserts what waits, in the session's transaction.
    """

    def __init__(self, flush: Callable[[], Awaitable[None]]) -> None:
        self._flush = flush

    async def insert(self, batch: Sequence[AsynchronousSend]) -> list[JMSException | None]:
        """Insert what waits, and return what went wrong with it."""
        try:
            await self._flush()
        except JMSException as error:
            return [error] * len(batch)
        return [None] * len(batch)

    async def close(self) -> None:
        """Do nothing: the transaction is the session's."""


class BatchInsertion:
    """For sessions without transactions: each batch is one transaction, on a connection of its own.

    Args:
        client: The session's connection.
    """

    def __init__(self, client: ClientContext) -> None:
        self._client = client
        self._database = SessionRunner(client.pool, client.schema, transacted=True)

    async def insert(self, batch: Sequence[AsynchronousSend]) -> list[JMSException | None]:
        """Insert messages and commit, and return what went wrong with each.

        If one of them is refused, each is sent by itself, so that the others go out.
        """
        error = await self._try(batch)
        if error is None or len(batch) == 1 or _fails_all(error):
            return [error] * len(batch)
        outcomes: list[JMSException | None] = []
        for send in batch:
            if error is None or not _fails_all(error):
                error = await self._try([send])
            outcomes.append(error)
        return outcomes

    async def close(self) -> None:
        """Release the connection."""
        await self._database.close()

    async def _try(self, batch: Sequence[AsynchronousSend]) -> JMSException | None:
        """Insert messages and commit; once more if the connection was lost before that, while it was idle, say."""
        try:
            await self._insert(batch)
        except JMSException as error:
            was_lost = self._database.is_lost
            await self._database.rollback()
            if not was_lost:
                return error
            try:
                await self._insert(batch)
            except JMSException as again:
                await self._database.rollback()
                return again
        return None

    async def _insert(self, batch: Sequence[AsynchronousSend]) -> None:
        send_buffer = SendBuffer()
        for send in batch:
            send_buffer.add(send.destination, send.outgoing, send.size)
        flush = any(send.outgoing.jms_delivery_mode == DeliveryMode.PERSISTENT for send in batch)
        try:
            await self._database.run(send_buffer.flush(self._client.publisher, flush=flush))
        except InvalidDestinationException:
            self._client.destinations.forget(send_buffer.destinations)
            raise
        waited_for = await self._database.commit(question=self._client.waited_for(send_buffer.destinations))
        try:
            await self._client.sent(send_buffer.ended(), waited_for)
        except JMSException as error:
            logger.info("Consumers hear of what was sent a little later: %s", error)


def _fails_all(error: JMSException) -> bool:
    return (error.error_code or "").startswith(_UNREACHABLE)
