"""What a session sends: at once, with its transaction, or asynchronously."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from jmsql.client._async.exchange.producer import SendOperations
from jmsql.client._async.link.lease import Holding
from jmsql.client._async.session.asynchronous_sender import AsynchronousSender, BatchInsertion
from jmsql.client.send_buffer import News, SendBuffer
from jmsql.concurrency.tasks import RLock, uninterrupted
from jmsql.exceptions import InvalidDestinationException, JMSException
from jmsql.messages import DeliveryMode
from jmsql.store.sending.send import misses_queues, publish, queues_are_missing, send
from jmsql.values.destinations import Destination, Topic

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from jmsql.client._async.link.watched_connection import StatementListener
    from jmsql.client._async.session.session_state import SessionState
    from jmsql.client.listeners import AsynchronousSend
    from jmsql.store.rows.message_rows import OutgoingMessage
    from jmsql.store.statement import Query, Steps


class Sending(SendOperations, ABC):
    """The sends of one session, for its producers.

    Args:
        state: The session's.
    """

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._client = state.client
        self.facts = state.facts
        self._database = state.database
        self._sender: AsynchronousSender | None = None

    def check_open(self) -> None:
        self._state.check_open()

    async def server_time(self) -> int:
        return self._client.clock.milliseconds()

    async def will_send_to(self, destination: Destination) -> None:
        await self._client.destinations.find(destination)

    async def send_asynchronously(self, send: AsynchronousSend) -> None:
        if self._sender is None:
            self._sender = self._create_sender()
            self._sender.start()
            self._state.completion = self._sender.identity
        await self._sender.submit(send)

    @abstractmethod
    def _create_sender(self) -> AsynchronousSender:
        """Make what sends messages that need not be waited for."""

    async def complete(self, method: str) -> None:
        self._state.check_no_completion(method)
        if self._sender is not None:
            await self._sender.wait_until_told()

    async def close(self) -> None:
        """Complete the asynchronous sends, and send no more."""
        if self._sender is not None:
            await self._sender.close()


class ImmediateSending(Sending):
    """For sessions without transactions: each message is sent at once."""

    async def send(self, destination: Destination, message: OutgoingMessage, size: int) -> None:  # noqa: ARG002 - one message is a batch of its own
        if self._sender is not None:
            await self._sender.wait_until_sent()
        async with self._state.lock, self._database.connected():
            with uninterrupted():
                try:
                    question = self._client.waited_for([destination])
                    waited_for = await self._database.run_and_ask(self._insertion(destination, message), question)
                except InvalidDestinationException:
                    await self._client.destinations.make_again([destination])
                    waited_for = None
                    await self._database.run(self._insertion(destination, message))
                await self._client.sent(News({destination: 1}, message.jms_delivery_time is not None), waited_for)

    def _insertion(self, destination: Destination, message: OutgoingMessage) -> Steps[None]:
        flush = message.jms_delivery_mode == DeliveryMode.PERSISTENT
        if isinstance(destination, Topic):
            return publish(destination, [message], self._client.publisher, flush=flush)
        return send([message], flush=flush)

    def _create_sender(self) -> AsynchronousSender:
        insertion = BatchInsertion(self._client)
        return AsynchronousSender(insertion.insert, insertion.close)


class TransactedSending(Sending):
    """For transacted sessions: messages are collected, inserted together, and sent by the commit.

    Args:
        state: The session's.
        check_usable: Raises IllegalStateException if nothing can be sent now.
    """

    def __init__(self, state: SessionState, check_usable: Callable[[], None]) -> None:
        super().__init__(state)
        self._check_usable = check_usable
        self._send_buffer = SendBuffer()
        self._is_shared = False
        self.lock = RLock()
        """Held while messages are collected or inserted. Not the session's, which a listener holds while it runs."""

    @property
    def has_part_in_transaction(self) -> bool:
        """Whether the transaction has sent something, or the application has asked for it."""
        return bool(self._send_buffer.destinations) or self._is_shared

    @property
    def destinations(self) -> Collection[Destination]:
        """Where the transaction has sent to."""
        return self._send_buffer.destinations

    @property
    def has_collected(self) -> bool:
        """Whether something is still to be inserted."""
        return bool(self._send_buffer)

    async def send(self, destination: Destination, message: OutgoingMessage, size: int) -> None:
        self._check_usable()
        async with self.lock:
            if self._database.holding is Holding.LENT:
                await self._database.begin()  # else the application might
            if self._send_buffer.is_full:  # before the message is added: a caller that is cancelled has not sent it
                await self.flush()
            self._send_buffer.add(destination, message, size)

    async def send_asynchronously(self, send: AsynchronousSend) -> None:
        self._check_usable()
        await self._database.begin()  # so that the sender finds the transaction
        await self.send(send.destination, send.outgoing, send.size)
        await super().send_asynchronously(send)

    def _create_sender(self) -> AsynchronousSender:
        return AsynchronousSender(self._insert_collected)

    async def _insert_collected(self, batch: Sequence[AsynchronousSend]) -> list[JMSException | None]:
        """Insert what waits, unless the application shares the transaction, whose statements and commit do it then."""
        try:
            async with self.lock:
                if not self._database.is_lent:
                    await self.flush()
        except JMSException as error:
            return [error] * len(batch)
        return [None] * len(batch)

    async def flush(self) -> None:
        """Insert what is collected, in the open transaction."""
        async with self.lock:
            if self._send_buffer:  # else there need not even be a connection
                try:
                    await self._database.attempt(self._send_buffer.flush(self._client.publisher))
                except InvalidDestinationException:
                    await self._client.destinations.make_again(self._send_buffer.destinations)
                    await self._database.run(self._send_buffer.flush(self._client.publisher))

    async def before_commit(self) -> Sequence[Query[Any]]:
        """Insert what is collected, or return the statements that do it together with the commit.

        If one of those fails, `missing_queue` tells whether it is for a queue that does not exist.
        """
        async with self.lock:
            if not self._database.is_lent and self._send_buffer.can_go_with_commit:
                return self._send_buffer.last_insertions()
            await self.flush()
        return []

    def missing_queue(self, error: JMSException) -> InvalidDestinationException | None:
        """Return what an error of the commit means, if it is that a queue does not exist."""
        if not misses_queues(error):
            return None
        return queues_are_missing(destination.name for destination in self._send_buffer.destinations)

    async def share(self, before_statement: StatementListener) -> AsyncConnection:
        """Return the transaction, for the application to take part in it.

        Args:
            before_statement: Called now, and before each statement of the application's.
        """
        async with self.lock:
            await before_statement(None)
            self._is_shared = True
            return await self._database.lend(before_statement)

    async def forget_collected(self) -> None:
        """Forget what is collected and not inserted."""
        async with self.lock:
            self._send_buffer.clear()

    async def transaction_ended(self) -> News:
        """Forget the transaction, and return what it has sent."""
        async with self.lock:
            self._is_shared = False
            return self._send_buffer.ended()
