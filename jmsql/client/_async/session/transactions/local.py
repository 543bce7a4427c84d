"""Transacted sessions: one transaction of PostgreSQL after another."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from jmsql.client import instrumentation
from jmsql.client._async.link.watched_connection import ApplicationListener
from jmsql.client._async.session.asynchronous_sender import AsynchronousSender
from jmsql.client._async.session.locks import Locks
from jmsql.client._async.session.transactions.transaction import OwnTransaction, session_lease
from jmsql.client._async.shared.endings import ClientEndings
from jmsql.client._async.shared.redelivery import Failure, failure_of, failure_of_commit
from jmsql.client.send_buffer import SendBuffer
from jmsql.concurrency import ASYNC
from jmsql.concurrency.tasks import RLock, run_to_completion, shielded, taken_within
from jmsql.exceptions import (
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    TransactionRolledBackException,
)
from jmsql.logs import contained_logger
from jmsql.store.receiving.receive import browse
from jmsql.store.sending.send import misses_queues, queues_are_missing
from jmsql.store.wire.application_sql import SavepointCommand

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy.ext.asyncio import AsyncConnection

    from jmsql.client._async.link.lease import Lease
    from jmsql.client._async.link.lent import LentLink
    from jmsql.client._async.session.session_state import SessionState
    from jmsql.client._async.shared.client_context import ClientContext
    from jmsql.client._async.shared.endings import Endings
    from jmsql.client.consumer_state import ConsumerState
    from jmsql.client.listeners import AsynchronousSend, MessageCheck
    from jmsql.client.receiving.fetching import PrefetchBuffer
    from jmsql.messages import Message
    from jmsql.selectors import Selector
    from jmsql.store.rows.message_rows import MessageRow, OutgoingMessage
    from jmsql.store.statement import Query, Steps
    from jmsql.store.wire.application_sql import SavepointStep
    from jmsql.values.destinations import Destination


T = TypeVar("T")

logger = contained_logger("jmsql")

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
#    (`SessionWork.end_unused`).
# 4. A caller that is cancelled while `commit` waits for its connection leaves the transaction as it is. Once `commit`
#    has the connection, it runs to its end.
#
# Three locks are taken in this order: the session's (`state.lock`), which a listener holds while it runs, that of the
# transaction's work (`SessionWork.lock`), and the queue's turn (`ClientContext.turns`), for which a fetch waits 50 ms
# at most, and then goes without. The sender of asynchronous sends, each `send`, and `SessionWork.run` take the
# second one alone: a listener may wait for its own asynchronous sends (decision 15).


class SessionWork:
    """A session's work in its open transaction: collected sends, deliveries, and other statements.

    Args:
        client: The session's connection.
        database: The lease of the session's connection to the server.
        locks: The messages that the transactions receive, by the same lease.
    """

    def __init__(self, client: ClientContext, database: Lease, locks: Locks) -> None:
        self._client = client
        self._database = database
        self.locks = locks
        self.lock = RLock()
        """Held while messages are collected or inserted, which the asynchronous sender does in another thread, while
        others are fetched, and, if there is such a sender, while they are handed out; also by `run`, a browse and the
        rollback. The commit holds it as it inserts, and no longer. Not the session's, which a listener holds while it
        runs."""
        self.sends = SendBuffer()
        """Written with `lock` held."""
        self._is_shared = False
        """True if the application has asked for the connection in the open transaction. Written with the session's lock
        held, by `share` and where a transaction ends; without it where the application commits."""
        self._has_run = False
        """True if `run` has done something in the open transaction. Written with `lock` held, and where a transaction
        ends."""

    @property
    def is_used(self) -> bool:
        """True if the transaction has sent or received something, or the application has asked for it."""
        return self.locks.has_delivered or self.sends.is_used or self._is_shared or self._has_run

    @property
    def is_ahead(self) -> bool:
        """True if the session has sent or received messages of which the store does not know."""
        return self.sends.is_used or self.locks.has_undeleted

    def share(self) -> None:
        """Note that the application has asked for the connection, and may work in the transaction, too."""
        self._is_shared = True

    async def run(self, work: Query[T] | Steps[T]) -> T:
        """Run statements in the transaction."""
        async with self.lock:
            self._has_run = True
            with shielded():
                return await self._database.attempt(work)

    # Catching up

    async def flush(self) -> None:
        """Bring the store, in the open transaction, to where the session is."""
        if self.sends.is_used:
            await self.insert()
        await self.locks.flush()

    async def insert(self) -> None:
        """Insert the collected messages in the open transaction."""
        if not self.sends.is_used:
            return
        async with self.lock:
            if self.sends:  # else there need not even be a connection
                publisher = self._client.publisher
                if self.sends.has_conditional:
                    await self.locks.prepare_conditional(replaces=self.sends.has_replacing)
                try:
                    await self._database.attempt(self.sends.flush(publisher))
                except InvalidDestinationException:
                    await self._client.destinations.make_again(self.sends.destinations)
                    await self._database.run(self.sends.flush(publisher))

    async def insert_collected(self, batch: Sequence[AsynchronousSend]) -> list[JMSException | None]:
        """Insert the collected messages, or leave them to the application's next statement and to the commit."""
        try:
            async with self.lock:
                if self._database.link.allows_other_threads:
                    await self.insert()
        except JMSException as error:
            return [error] * len(batch)
        return [None] * len(batch)

    async def drop_sends(self) -> None:
        """Forget the collected messages."""
        async with self.lock:
            self.sends.clear()

    # Ending

    async def give_back_held(self) -> None:
        """Release messages that were not delivered, unless the transaction has done something that has to stay."""
        async with self.lock:
            if not self._database.link.allows_other_threads:
                return  # it would have to end, and the application's thread may be about to do something in it
            if not self.is_used:
                await self.end_unused()
                return
            if self._is_shared or self._has_run:
                return  # it would have to end, and that part with it
            if not self.sends.has_inserted:
                self._client.returned(await run_to_completion(self.locks.give_back_held()))

    async def end_unused(self) -> None:
        """Keep no transaction open, while the session waits, in which nothing has happened."""
        if not self.is_used and not self._database.link.has_foreign_work:
            await self._database.end_unused()
            self._client.returned(await self.locks.committed())

    async def commit(self) -> Collection[int] | None:
        """Insert the collected messages, and commit.

        Returns:
            The destinations that are waited for; None: that was not asked.
        """
        database = self._database
        database.link.require_transaction()
        last: list[Query[Any]] = []
        question: Query[list[int]] | None = None
        if self.sends.is_used:
            last += await self._last_insertions()
            question = self._client.waited_for(self.sends.destinations)
        has_sent = self.sends.is_used or self._is_shared or self._has_run or database.link.has_foreign_work
        deletions, freed_queues = await self.locks.before_commit(has_sent=has_sent)
        last += deletions
        if freed_queues and not self.sends.is_used:
            question = self._client.control.notifier.waited_for(freed_queues)
        return await database.commit(last, question)

    async def _last_insertions(self) -> list[Query[Any]]:
        """Insert the collected messages, or return the statements that do it together with the commit.

        If one of those fails, `LocalTransaction._roll_back_after` tells if it is for a queue that does not exist.
        """
        async with self.lock:
            if self.sends.can_go_with_commit:
                return self.sends.last_insertions()
            await self.insert()
        return []

    async def join_commit(self) -> None:
        """Do the session's part of the application's commit, which is about to run."""
        await self.insert()
        deletions, _ = await self.locks.before_commit(has_sent=True)
        for query in deletions:
            await self._database.attempt(query)

    async def committed(self, waited_for: Collection[int] | None = None) -> None:
        """Note that the transaction is committed."""
        are_groups_notified = waited_for is not None and not self.sends.is_used
        freed = await self.locks.committed(are_groups_notified=are_groups_notified)
        if are_groups_notified and waited_for:
            self._client.control.notifier.sent(waited_for)
        if freed:
            self._client.returned(freed)
        self._is_shared = self._has_run = False
        if self.sends.is_used:
            async with self.lock:
                news = self.sends.ended()
            await self._client.sent(news, waited_for)

    async def roll_back(self, failure: Failure | None) -> None:
        """Roll back; the failure is kept with the received messages."""
        async with self.lock:
            await self._database.rollback()
            self._is_shared = self._has_run = False
            self.sends.ended()
            returned = await self.locks.rolled_back(failure)
        self._client.returned(returned)


# The session runs ahead of the store. So before each of the application's statements the store catches up, and an
# error in that keeps the statement from running. The application's commit is the session's, too: its work is done
# before, and counts as committed after. If the connection is lost meanwhile, the application's own statement or commit
# says so.


class Lender(ApplicationListener):
    """Lends a session's connection to the application, and brings the store to where the session is.

    The connection calls it before each of the application's statements and around its commits, in the thread or task
    that runs them.

    Args:
        transaction: The session's transaction.
    """

    def __init__(self, transaction: LocalTransaction) -> None:
        self._transaction = transaction
        self._link: LentLink | None = None
        """The connection as the application got it last. Written by `_lend`, with the session's lock held."""

    @property
    def ends_in_two_phases(self) -> bool:
        """True if the session's transaction is part of a global one: PostgreSQL prepares none that has notified."""
        return self._transaction.ends_in_two_phases

    async def share(self) -> AsyncConnection:
        """Lend the connection as SQLAlchemy's."""
        return await self._lend(lambda link: link.for_sqlalchemy(self))

    async def share_driver(self) -> psycopg.AsyncConnection[Any]:
        """Lend the connection as psycopg's own, which refuses to end the transaction."""
        return await self._lend(lambda link: link.for_driver())

    async def _lend(self, take: Callable[[LentLink], Awaitable[T]]) -> T:
        """Lend the connection, once the store is where the session is, and return the application's view of it."""
        transaction, work, database = self._transaction, self._transaction.work, self._transaction.database
        transaction.check_usable()
        async with transaction.state:
            await database.acquire()
            try:
                with shielded():
                    async with work.lock:  # since the flush: the listener of an asynchronous send may send, too
                        if work.is_ahead and not database.link.has_failed:
                            # A connection that is lost raises here; later, the application's own statement says so.
                            await work.flush()
                        work.share()
                        self._link = link = await database.lend(self)
                        return await take(link)
            finally:
                database.release()

    async def before_statement(self, step: SavepointStep | None) -> None:
        if step is None or step.command is not SavepointCommand.ROLLBACK:
            self._check_not_ending()
        if step is not None or self._transaction.work.is_ahead:
            await self._catch_up(step)
        assert self._link is not None  # through which the statement comes
        # Last, since the statement runs only if nothing was raised. A handler's message is claimed, not in the
        # transaction: but it is handled only if the handler's statements are committed.
        self._link.used_by_application(is_awaited=self._transaction.delivery.claimed is not None)

    async def _catch_up(self, step: SavepointStep | None) -> None:
        work, database = self._transaction.work, self._transaction.database
        if not database.link.has_failed:
            try:
                await work.flush()
            except JMSException:
                if not database.link.is_lost:
                    raise
        elif step is not None and step.command is SavepointCommand.ROLLBACK:
            await work.drop_sends()  # they were sent after the failure, and so after the savepoint
        if step is not None:
            await work.locks.heed(step)

    async def before_commit(self) -> None:
        self._check_not_ending()
        assert self._link is not None
        if not self._transaction.work.is_ahead and self._link.has_lost_work():
            return
        await self._transaction.complete("commit")  # the listener of a send may send another, until the commit
        try:
            await self._transaction.work.join_commit()
        except JMSException:
            if not self._transaction.database.link.is_lost:
                raise

    async def after_commit(self) -> None:
        assert self._link is not None
        if not self._link.has_lost_work():
            await run_to_completion(self._transaction.work.committed())

    def _check_not_ending(self) -> None:
        """Refuse further statements of a handler that its worker ends, where it cannot be interrupted itself."""
        # In a thread, the statement that ran was interrupted. A coroutine function was cancelled, and may go on from
        # there.
        if not ASYNC:
            if self._transaction.failure_at_close is not None:
                raise TransactionRolledBackException(
                    "The worker is ending, and rolls the transaction back; the message is delivered again."
                )


def local_transaction(state: SessionState, client: ClientContext) -> LocalTransaction:
    """Return how a transacted session works."""
    database = session_lease(client, transacted=True)
    return LocalTransaction(state, client, database, Locks(database, client.redelivery))


class _TransactedEndings(ClientEndings):
    """Reads beside a session's transaction.

    Args:
        client: The session's connection.
        work: The session's work, which would wait for the end of a wait.
    """

    def __init__(self, client: ClientContext, work: SessionWork) -> None:
        super().__init__(client)
        self._work = work

    @property
    def transaction(self) -> str | None:
        return super().transaction or ("the session's transaction" if self._work.is_used else None)


class LocalTransaction(OwnTransaction):
    """The session's messages are collected, inserted together, and sent by the commit.

    Received messages are locked, or claimed where a policy counts deliveries, and deleted with the commit, or before
    the application's next statement in the transaction.

    Args:
        state: The session's.
        client: The session's connection.
        database: The lease of the session's connection to the server.
        locks: The messages that the transactions receive, by the same lease.
    """

    def __init__(self, state: SessionState, client: ClientContext, database: Lease, locks: Locks) -> None:
        super().__init__(state, client, database, locks)
        self.work = SessionWork(client, database, locks)
        self._lender = Lender(self)
        client.pool.add_transacted(self)

    @property
    def has_open_transaction(self) -> bool:
        """True if a transaction is open at the server, or prepared."""
        return not self.database.link.is_idle

    @property
    def ends_in_two_phases(self) -> bool:
        """True if the open transaction is part of a global one."""
        return False

    # Sending

    async def send(self, destination: Destination, message: OutgoingMessage, size: int) -> None:
        self.check_usable()
        work = self.work
        async with work.lock:
            if self.database.link.begins_early:
                await self.database.begin(joins=True)
            if work.sends.is_full:  # before the message is added: a caller that is cancelled has not sent it
                await work.insert()
            work.sends.add(destination, message, size)

    async def send_batch(self, destination: Destination, messages: list[tuple[OutgoingMessage, int]]) -> None:
        while messages:
            await self.send(destination, *messages[0])
            del messages[0]

    async def send_settled(self, destination: Destination, message: OutgoingMessage, size: int) -> None:
        self.check_usable()
        await self.database.begin()  # may wait for a connection; a caller that is cancelled then has not sent it
        # In one block: else a cancellation that `send` keeps away would take effect once the message is collected.
        with shielded():
            await self.send(destination, message, size)
            await run_to_completion(self.work.insert())

    async def send_asynchronously(self, send: AsynchronousSend) -> None:
        self.check_usable()
        sender = self._started_sender()  # before the message is collected, since it may raise
        await self.database.begin()  # so that the sender finds the transaction
        await sender.wait_for_room()  # before the message is collected, as well; then in one block, as above
        with shielded():
            await self.send(send.destination, send.outgoing, send.size)
            await run_to_completion(sender.submit(send))

    def _create_sender(self) -> AsynchronousSender:
        return AsynchronousSender(self.work.insert_collected)

    async def run(self, work: Query[T] | Steps[T]) -> T:
        self.check_usable()
        return await self.work.run(work)

    # Receiving

    async def next(self, consumer: ConsumerState, check: MessageCheck | None = None) -> Message | None:
        message: Message | None = None
        work = self.work
        async with work.lock:  # the asynchronous sender inserts on the same connection, from another thread
            try:
                buffer = consumer.buffer
                if buffer.held.rows or not buffer.source.shares_position:
                    row = await work.locks.next(buffer)
                else:
                    row = await self._next_in_turn(buffer)
                if row is not None:
                    message = row.message(consumer.destination, self.acknowledge)
                    if check is not None:
                        check(message)
            finally:
                if message is None:
                    await work.end_unused()
        return message

    async def _next_in_turn(self, buffer: PrefetchBuffer) -> MessageRow | None:
        """Fetch after the other consumers of the client that fetch from the same queue.

        Each scan then begins behind the rows that the last one has locked. Scans at the same time pass over each
        other's rows: with 64 consumers that took most of the server's time.
        """
        turns = self._client.turns
        turn = turns[buffer.source.queue_id % len(turns)]
        is_taken = await taken_within(turn, _LONGEST_TURN)
        try:
            return await self.work.locks.next(buffer)
        finally:
            if is_taken:
                await turn.__aexit__(None, None, None)

    def endings(self) -> Endings:
        return _TransactedEndings(self._client, self.work)

    async def browse(
        self, queue_id: int, selector: Selector | None, after: tuple[int, int], limit: int
    ) -> list[MessageRow]:
        self.check_usable()
        async with self.state, self.work.lock:
            try:
                with shielded():
                    await self.work.locks.flush()
                    return await self.database.attempt(browse(queue_id, selector, after, limit))
            finally:
                await self.work.end_unused()  # else a page alone holds back vacuum until the session commits

    async def closed(self, consumer: ConsumerState) -> None:
        if consumer.buffer.held.rows:
            await self.work.give_back_held()

    async def load(self, buffer: PrefetchBuffer, limit: int) -> None:
        async with self.work.lock:  # as in `next`: an earlier run may have sent asynchronously
            await super().load(buffer, limit)

    async def next_loaded(self, buffer: PrefetchBuffer) -> MessageRow | None:
        async with self.work.lock:
            return await super().next_loaded(buffer)

    async def unloaded(self, buffer: PrefetchBuffer) -> None:  # noqa: ARG002 - its messages go back when the transaction ends
        async with self.work.lock:
            await self.work.end_unused()

    async def failed(self, error: JMSException) -> JMSException:
        is_lost = self.database.link.is_lost
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

    # Committing

    async def commit(self) -> None:
        if self._sender is not None:
            await self.complete("commit")
        state = self.state
        async with state.lock if state.listener is None else state:
            await self._hold(needed=self.work.sends.is_used)
            try:
                await run_to_completion(self._commit())
            finally:
                self.database.release()

    async def _hold(self, *, needed: bool) -> None:
        """Have the connection by which the transaction ends, until `Lease.release`.

        A caller that is cancelled while it waits for that leaves the transaction as it is.

        Args:
            needed: Whether there has to be one; False: the transaction has none, if it has done nothing.
        """
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
            waited_for = await self.work.commit()
        except JMSException as error:
            await self._roll_back_after(error)
        await self.work.committed(waited_for)

    async def _roll_back_after(self, error: JMSException) -> NoReturn:
        """Roll back, and raise the exception for an error that has kept the transaction from its end."""
        destinations = self.work.sends.destinations  # before the sends are forgotten
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
            await self.work.locks.before_rollback(failure)
        except JMSException as error:
            logger.info("Deliveries are counted after the rollback, and could not be before: %s", error)
        await self._end_rollback(failure)

    async def _end_rollback(self, failure: Failure | None = None) -> None:
        await self.work.roll_back(failure)

    async def recover(self, error: BaseException | str | None) -> NoReturn:  # noqa: ARG002 - refused
        raise IllegalStateException("A transacted session cannot recover; call rollback() instead.")

    async def close(self) -> None:
        await self._undo(self.failure_at_close)

    async def share(self) -> AsyncConnection:
        return await self._lender.share()
