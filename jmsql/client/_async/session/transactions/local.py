"""Transacted sessions: one transaction of PostgreSQL after another."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from jmsql.client import instrumentation
from jmsql.client._async.session.asynchronous_sender import AsynchronousSender
from jmsql.client._async.session.locks import Locks
from jmsql.client._async.session.transactions.transaction import OwnTransaction, session_lease
from jmsql.client._async.shared.redelivery import Failure, failure_of, failure_of_commit
from jmsql.client.send_buffer import SendBuffer
from jmsql.concurrency.tasks import RLock, run_to_completion, shielded, taken_within, try_acquire
from jmsql.exceptions import (
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    TransactionRolledBackException,
)
from jmsql.store.receiving.receive import browse
from jmsql.store.sending.send import misses_queues, queues_are_missing
from jmsql.store.wire.application_sql import COMMIT, COMMITTED, SavepointCommand, SavepointStep

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from jmsql.client._async.link.lease import Lease
    from jmsql.client._async.link.lent import LentLink
    from jmsql.client._async.session.session_state import SessionState
    from jmsql.client._async.shared.client_context import ClientContext
    from jmsql.client.consumer_state import ConsumerState
    from jmsql.client.listeners import AsynchronousSend, MessageCheck
    from jmsql.client.receiving.fetching import PrefetchBuffer
    from jmsql.messages import Message
    from jmsql.selectors import Selector
    from jmsql.store.rows.message_rows import MessageRow, OutgoingMessage
    from jmsql.store.statement import Query, Steps
    from jmsql.values.destinations import Destination


T = TypeVar("T")

logger = logging.getLogger("jmsql")

_LONGEST_TURN = 0.05
"""How many seconds a fetch waits for that of another consumer, whose connection may hang."""


# The session runs ahead of the store: messages that it sends are collected in a `SendBuffer`, and messages that it
# delivers are deleted later, by `Locks`. Both catch up before anything that must see them, such as one of the
# application's statements, and with the commit.
#
# Invariants:
#
# 1. Sends and receipts that `commit` reports as done are in one transaction of PostgreSQL. If one part fails, all of it
#    is rolled back, and `commit` raises TransactionRolledBackException. Error 08007 is the exception: the outcome is
#    not known, since the connection broke while the server committed, or the application ended the transaction as text.
# 2. Collected messages are inserted, and delivered ones deleted, before the application's next statement. So each
#    belongs to the savepoint in which it was sent or received.
# 3. A transaction in which nothing has happened does not stay open while the session waits for messages
#    (`_end_unused`).
# 4. A caller that is cancelled while `commit` waits for its connection leaves the transaction as it is. Once `commit`
#    has the connection, it runs to its end.
#
# Three locks are taken in this order: the session's (`state.lock`), which a listener holds while it runs, `_sending`,
# and the queue's turn (`ClientContext.turns`), for which a fetch waits 50 ms at most, and then goes without. The sender
# of asynchronous sends, and a `send` that inserts, take the second one alone: a listener may wait for its own
# asynchronous sends (decision 15).


def local_transaction(state: SessionState, client: ClientContext) -> LocalTransaction:
    """Return how a transacted session works."""
    database = session_lease(client, transacted=True)
    return LocalTransaction(state, client, database, Locks(database, client.redelivery))


class LocalTransaction(OwnTransaction):
    """The session's messages are collected, inserted together, and sent by the commit.

    Received messages are locked, and deleted with the commit.

    Args:
        state: The session's.
        client: The session's connection.
        database: The lease of the session's connection to the server.
        locks: The messages that the transactions receive, by the same lease.
    """

    def __init__(self, state: SessionState, client: ClientContext, database: Lease, locks: Locks) -> None:
        super().__init__(state, client, database, locks)
        self._locks = locks
        self._sending = RLock()
        """Held while messages are collected or inserted, which the asynchronous sender does in another thread, while
        others are fetched, and, if there is such a sender, while they are handed out. Not the session's, which a
        listener holds while it runs."""
        self._send_buffer = SendBuffer()
        """Written with `_sending` held."""
        self._is_shared = False
        """True if the application has asked for the connection in the open transaction. Written with the session's lock
        held, by `_share` and where a transaction ends; without it where the application commits."""
        self._has_run = False
        """True if `run` has done something in the open transaction. Written with `_sending` held, and where a
        transaction ends."""
        self._lent: LentLink | None = None
        """The connection as the application got it last. Written by `_share`, with the session's lock held."""
        client.pool.add_transacted(self)

    @property
    def is_used(self) -> bool:
        """True if the transaction has sent or received something, or the application has asked for it."""
        return self._locks.has_delivered or self._send_buffer.is_used or self._is_shared or self._has_run

    @property
    def has_open_transaction(self) -> bool:
        """True if a transaction is open at the server, or prepared."""
        return not self.database.link.is_idle

    # Sending

    async def send(self, destination: Destination, message: OutgoingMessage, size: int) -> None:
        self.check_usable()
        async with self._sending:
            if self.database.link.begins_early:
                await self.database.begin(joins=True)
            if self._send_buffer.is_full:  # before the message is added: a caller that is cancelled has not sent it
                await self._insert()
            self._send_buffer.add(destination, message, size)

    async def settle_sends(self) -> None:
        await self._insert()

    async def send_asynchronously(self, send: AsynchronousSend) -> None:
        self.check_usable()
        await self.database.begin()  # so that the sender finds the transaction
        await self.send(send.destination, send.outgoing, send.size)
        await super().send_asynchronously(send)

    def _create_sender(self) -> AsynchronousSender:
        return AsynchronousSender(self._insert_collected)

    async def _insert_collected(self, batch: Sequence[AsynchronousSend]) -> list[JMSException | None]:
        """Insert the collected messages, or leave them to the application's next statement and to the commit."""
        try:
            async with self._sending:
                if self.database.link.allows_other_threads:
                    await self._insert()
        except JMSException as error:
            return [error] * len(batch)
        return [None] * len(batch)

    async def _insert(self) -> None:
        """Insert the collected messages in the open transaction."""
        if not self._send_buffer.is_used:
            return
        async with self._sending:
            if self._send_buffer:  # else there need not even be a connection
                publisher = self._client.publisher
                if self._send_buffer.has_conditional:
                    await self._locks.prepare_conditional(replaces=self._send_buffer.has_replacing)
                try:
                    await self.database.attempt(self._send_buffer.flush(publisher))
                except InvalidDestinationException:
                    await self._client.destinations.make_again(self._send_buffer.destinations)
                    await self.database.run(self._send_buffer.flush(publisher))

    async def run(self, work: Query[T] | Steps[T]) -> T:
        self.check_usable()
        async with self._sending:
            self._has_run = True
            with shielded():
                return await self.database.attempt(work)

    # Receiving

    async def next(self, consumer: ConsumerState, check: MessageCheck | None = None) -> Message | None:
        message: Message | None = None
        async with self._sending:  # the asynchronous sender inserts on the same connection, from another thread
            try:
                buffer = consumer.buffer
                if buffer.rows or not buffer.source.shares_position:
                    row = await self._locks.next(buffer)
                else:
                    row = await self._next_in_turn(buffer)
                if row is not None:
                    message = row.message(consumer.destination, self.acknowledge)
                    if check is not None:
                        check(message)
            finally:
                if message is None:
                    await self._end_unused()
        return message

    def pop_buffered(self, consumer: ConsumerState) -> Message | None:
        if self._sender is None:
            return super().pop_buffered(consumer)
        # The sender may be deleting the messages delivered so far, for a send under conditions.
        with try_acquire(self._sending) as is_free:
            return super().pop_buffered(consumer) if is_free else None

    async def _next_in_turn(self, buffer: PrefetchBuffer) -> MessageRow | None:
        """Fetch after the other consumers of the client that fetch from the same queue.

        Each scan then begins behind the rows that the last one has locked. Scans at the same time pass over each
        other's rows: with 64 consumers that took most of the server's time.
        """
        turns = self._client.turns
        turn = turns[buffer.source.queue_id % len(turns)]
        is_taken = await taken_within(turn, _LONGEST_TURN)
        try:
            return await self._locks.next(buffer)
        finally:
            if is_taken:
                await turn.__aexit__(None, None, None)

    async def browse(
        self, queue_id: int, selector: Selector | None, after: tuple[int, int], limit: int
    ) -> list[MessageRow]:
        self.check_usable()
        async with self.state, self._sending:
            with shielded():
                await self._locks.flush()
                return await self.database.attempt(browse(queue_id, selector, after, limit))

    async def closed(self, consumer: ConsumerState) -> None:
        """Release the consumer's messages, unless the transaction has done something that has to stay."""
        if not consumer.buffer.rows:
            return
        async with self._sending:
            if not self.is_used:
                await self._end_unused()
                return
            if self._is_shared or self._has_run or self.database.link.has_foreign_work:
                return  # it would have to end, and that part with it
            if not self._send_buffer.has_inserted:
                self._client.returned(await run_to_completion(self._locks.give_back_held()))

    async def load(self, buffer: PrefetchBuffer, limit: int) -> None:
        async with self._sending:  # as in `next`: an earlier run may have sent asynchronously
            await super().load(buffer, limit)

    async def next_loaded(self, buffer: PrefetchBuffer) -> MessageRow | None:
        async with self._sending:
            return await super().next_loaded(buffer)

    async def unloaded(self, buffer: PrefetchBuffer) -> None:  # noqa: ARG002 - its messages go back when the transaction ends
        async with self._sending:
            await self._end_unused()

    async def failed(self, error: JMSException) -> JMSException:
        is_lost = self.database.is_lost
        if is_lost or isinstance(error, TransactionRolledBackException):
            async with self.state.lock:
                with shielded():
                    await self._undo()
        if not is_lost:
            return error
        lost = TransactionRolledBackException(
            "The connection to PostgreSQL was lost, and with it the transaction; its messages are delivered again.",
            error.error_code,
        )
        lost.__cause__ = error
        return lost

    async def _end_unused(self) -> None:
        """Keep no transaction open, while the session waits, in which nothing has happened."""
        if not self.is_used and not self.database.link.has_foreign_work:
            await self.database.end_unused()
            self._client.returned(await self._locks.committed())

    # Committing

    async def commit(self) -> None:
        if self._sender is not None:
            await self.complete("commit")
        state = self.state
        async with state.lock if state.listener is None else state:
            await self._hold(needed=self._send_buffer.is_used)
            try:
                await run_to_completion(self._commit())
            finally:
                self.database.release()

    @asynccontextmanager
    async def _connected(self, *, needed: bool) -> AsyncIterator[None]:
        """Have the connection by which the transaction ends, for as long as a block runs.

        A caller that is cancelled while it waits for that leaves the transaction as it is.

        Args:
            needed: Whether there has to be one; False: the transaction has none, if it has done nothing.
        """
        await self._hold(needed=needed)
        try:
            yield
        finally:
            self.database.release()

    async def _hold(self, *, needed: bool) -> None:
        """Begin as `_connected` does; `Lease.release` is the end."""
        self.state.check_open()  # once more: it may have been closed while the caller waited for its use
        try:
            await self.database.acquire(needed=needed)
        except JMSException as error:
            await run_to_completion(self._roll_back_after(error))

    async def _commit(self) -> None:
        """Insert the collected messages, then commit; roll back if anything fails."""
        if instrumentation.active is None:
            await self._commit_at_server()
            return
        with instrumentation.settling(self.state.facts, "commit"):
            await self._commit_at_server()

    async def _commit_at_server(self) -> None:
        try:
            self.database.link.require_transaction()
            last: list[Query[Any]] = []
            question: Query[list[int]] | None = None
            if self._send_buffer.is_used:
                last += await self._last_insertions()
                question = self._client.waited_for(self._send_buffer.destinations)
            elif not (self._is_shared or self._has_run or self.database.link.has_foreign_work):
                self._locks.sent_nothing()
            last += await self._locks.before_commit()
            waited_for = await self.database.commit(last, question)
        except JMSException as error:
            await self._roll_back_after(error)
        await self._committed(waited_for)

    async def _last_insertions(self) -> list[Query[Any]]:
        """Insert the collected messages, or return the statements that do it together with the commit.

        If one of those fails, `_missing_queue` tells whether it is for a queue that does not exist.
        """
        async with self._sending:
            if self._send_buffer.can_go_with_commit:
                return self._send_buffer.last_insertions()
            await self._insert()
        return []

    async def _roll_back_after(self, error: JMSException) -> NoReturn:
        """Roll back, and raise the exception for an error that has kept the transaction from its end."""
        destinations = self._send_buffer.destinations  # before the sends are forgotten
        if misses_queues(error):
            missing_queue = queues_are_missing(destination.name for destination in destinations)
            missing_queue.__cause__ = error
            error = missing_queue
        await self._undo(failure_of_commit(error))
        if isinstance(error, InvalidDestinationException):
            with contextlib.suppress(JMSException):  # the next attempt says why it cannot be made
                self.missing = await self._client.destinations.make_again_or_name(destinations)
        if isinstance(error, TransactionRolledBackException):
            raise error
        if error.error_code == "08007":
            raise error
        raise TransactionRolledBackException(f"The transaction was rolled back: {error}", error.error_code) from error

    async def _committed(self, waited_for: Collection[int] | None = None) -> None:
        freed = await self._locks.committed()
        if freed:
            self._client.returned(freed)
        self._is_shared = self._has_run = False
        if self._send_buffer.is_used:
            async with self._sending:
                news = self._send_buffer.ended()
            await self._client.sent(news, waited_for)

    # Rolling back

    async def rollback(self, error: BaseException | str | None) -> None:
        await self.complete("rollback")
        async with self.state:
            await run_to_completion(self._rollback(failure_of(error)))

    async def _rollback(self, failure: Failure | None) -> None:
        with instrumentation.settling(self.state.facts, "rollback"):
            await self._undo(failure)

    async def _undo(self, failure: Failure | None = None) -> None:
        """Roll back, with the session's lock held.

        Args:
            failure: The failure that is kept with the received messages.
        """
        try:
            await self._locks.before_rollback(failure)
        except JMSException as error:
            logger.info("Deliveries are counted after the rollback, and could not be before: %s", error)
        await self._end_rollback()

    async def _end_rollback(self) -> None:
        async with self._sending:
            await self.database.rollback()
            self._is_shared = self._has_run = False
            self._send_buffer.ended()
            returned = await self._locks.rolled_back()
        self._client.returned(returned)

    async def recover(self, error: BaseException | str | None) -> NoReturn:  # noqa: ARG002 - refused
        raise IllegalStateException("A transacted session cannot recover; call rollback() instead.")

    async def close(self) -> None:
        await self._undo(self.failure_at_close)

    # Shared with the application

    async def share(self) -> AsyncConnection:
        return await self._share(lambda link: link.for_sqlalchemy(self._before_statement))

    async def _share(self, take: Callable[[LentLink], Awaitable[T]]) -> T:
        """Lend the connection, once the store is where the session is, and return the application's view of it."""
        self.check_usable()
        async with self.state:
            await self.database.acquire()
            try:
                with shielded():
                    async with self._sending:  # since the flush: the listener of an asynchronous send may send, too
                        if self._is_ahead and not self.database.link.has_failed:
                            # A connection that is lost raises here; later, the application's own statement says so.
                            await self._flush()
                        self._is_shared = True
                        self._lent = link = await self.database.lend(self._before_statement)
                        return await take(link)
            finally:
                self.database.release()

    @property
    def _is_ahead(self) -> bool:
        """True if the session has sent or received messages of which the store does not know."""
        return self._send_buffer.is_used or self._locks.has_undeleted

    async def _flush(self) -> None:
        """Bring the store, in the open transaction, to where the session is."""
        if self._send_buffer.is_used:
            await self._insert()
        await self._locks.flush()

    async def _before_statement(self, step: SavepointStep | None) -> None:
        """Bring the store to where the session is, before the application runs a statement, and around its commit."""
        lent = self._lent
        assert lent is not None  # the listener of its statements
        if step is COMMIT:
            if self._is_ahead or not lent.has_lost_work():
                await self._join_commit()
            return
        if step is COMMITTED:
            if not lent.has_lost_work():
                await run_to_completion(self._committed())
            return
        if step is not None or self._is_ahead:
            await self._catch_up(step)
        # Last, since the statement runs only if nothing was raised.
        lent.used_by_application(is_awaited=self._relies_on_application)

    @property
    def _relies_on_application(self) -> bool:
        """True if the commit stands for the application's statements, though the session may have run none."""
        return False

    async def _join_commit(self) -> None:
        """Do the session's part of the application's commit, which is about to run."""
        if self._sender is not None:
            await self.complete("commit")  # the listener of a send may send another, until the commit
        try:
            await self._insert()
            for query in await self._locks.before_commit():
                await self.database.attempt(query)
        except JMSException:
            if not self.database.is_lost:
                raise  # else the application's own commit says so

    async def _catch_up(self, step: SavepointStep | None) -> None:
        if not self.database.link.has_failed:
            try:
                await self._flush()
            except JMSException:
                if not self.database.is_lost:
                    raise  # else the application's own statement says so
        elif step is not None and step.command is SavepointCommand.ROLLBACK:
            async with self._sending:
                self._send_buffer.clear()  # it was sent after the failure, and so after the savepoint
        if step is not None:
            await self._locks.heed(step)
