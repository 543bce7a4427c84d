"""Whether a session works in transactions, and how they end."""

from __future__ import annotations

import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NoReturn

from jmsql.client._async.delivery.locked_delivery import LockedDelivery
from jmsql.client._async.session.acknowledgement import Acknowledgement, acknowledgement_of
from jmsql.client._async.session.sending import ImmediateSending, Sending, TransactedSending
from jmsql.client._async.shared.redelivery import Failure, failure_of
from jmsql.client.instrumentation import settling
from jmsql.concurrency.tasks import finished, uninterrupted
from jmsql.exceptions import IllegalStateException, JMSException, TransactionRolledBackException
from jmsql.store.receiving.acknowledge import missing_messages
from jmsql.store.wire.application_sql import SavepointCommand, SavepointStep

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from jmsql.client._async.session.session_state import SessionState
    from jmsql.client.consumer_state import ConsumerState
    from jmsql.client.listeners import MessageCheck
    from jmsql.client.prefetch_buffer import PrefetchBuffer
    from jmsql.messages import Message


logger = logging.getLogger("jmsql")


class Transaction(ABC):
    """What a session's transactions are: what it sends and receives takes effect with them, or at once."""

    sending: Sending
    acknowledgement: Acknowledgement

    @abstractmethod
    async def commit(self) -> None:
        """Do what `Session.commit` does."""

    @abstractmethod
    async def rollback(self, error: BaseException | str | None) -> None:
        """Do what `Session.rollback` does."""

    @abstractmethod
    async def recover(self, error: BaseException | str | None) -> None:
        """Do what `Session.recover` does."""

    @abstractmethod
    async def share(self) -> AsyncConnection:
        """Do what `Session.get_database` does."""

    @abstractmethod
    async def close(self) -> None:
        """Undo what the session has not settled."""

    @property
    def is_usable(self) -> bool:
        """Whether messages can be sent and received now."""
        return True

    def check_usable(self) -> None:  # noqa: B027 - most are always usable
        """Raise IllegalStateException if nothing can be sent and received now."""


class NoTransaction(Transaction):
    """What a session sends takes effect at once, and what it receives as it is acknowledged.

    Args:
        state: The session's.
    """

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self.sending = ImmediateSending(state)
        self.acknowledgement = self._claims = acknowledgement_of(state)

    async def commit(self) -> NoReturn:
        self._refuse("commit")

    async def rollback(self, error: BaseException | str | None) -> NoReturn:  # noqa: ARG002 - refused
        self._refuse("rollback")

    def _refuse(self, method: str) -> NoReturn:
        raise IllegalStateException(
            f"{method}() is for transacted sessions; this one is {self._state.acknowledge_mode.name}."
        )

    async def recover(self, error: BaseException | str | None) -> None:
        async with self._state.lock:
            await finished(self._recover(failure_of(error)))

    async def _recover(self, failure: Failure | None) -> None:
        with settling(self._state.facts, "recover"):
            self._state.client.returned(await self._claims.release(failure))

    async def share(self) -> NoReturn:
        raise IllegalStateException("Only a transacted session has a transaction to share.")

    async def close(self) -> None:
        await self._claims.close()


class LocalTransaction(Transaction):
    """One transaction of PostgreSQL after another, which the session ends.

    Args:
        state: The session's.
    """

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._client = state.client
        self._database = state.database
        self.sending = self._sending = TransactedSending(state, self.check_usable)
        self._locked = self._delivery()
        self.acknowledgement = TransactedAcknowledgement(state, self._locked, self)

    def _delivery(self) -> LockedDelivery:
        """Make what delivers messages in the transactions."""
        return LockedDelivery(self._database, self._client.redelivery)

    async def commit(self) -> None:
        await self._sending.complete("commit")
        async with self._state.lock, self._connected(needed=self._sending.has_collected):
            await finished(self._commit())

    @asynccontextmanager
    async def _connected(self, *, needed: bool) -> AsyncIterator[None]:
        """Have the connection by which the transaction ends, for as long as a block runs.

        A caller that is cancelled while it waits for that leaves the transaction as it is.

        Args:
            needed: Whether there has to be one; False: the transaction has none, if it has done nothing.
        """
        self._state.check_open()  # once more: it may have been closed while the caller waited for its use
        try:
            await self._database.hold(needed=needed)
        except JMSException as error:
            await finished(self._roll_back_after(error))
        try:
            yield
        finally:
            self._database.let_go()

    async def _commit(self) -> None:
        """Insert what is to be sent, then commit; roll back if anything fails."""
        with settling(self._state.facts, "commit"):
            try:
                self._database.require_transaction()
                insertions = await self._sending.before_commit()
                deletions = await self._locked.before_commit()
                question = self._client.waited_for(self._sending.destinations)
                waited_for = await self._database.commit([*insertions, *deletions], question)
            except JMSException as error:
                await self._roll_back_after(error)
            await self._committed(waited_for)

    async def _roll_back_after(self, error: JMSException) -> NoReturn:
        """Roll back, and raise what the caller is told of an error that has kept the transaction from its end."""
        missing_queue = self._sending.missing_queue(error)  # before it is forgotten what was sent
        destinations = self._sending.destinations
        await self.roll_back()
        if missing_queue is not None:
            with contextlib.suppress(JMSException):  # the next attempt says what keeps it from being made
                await self._client.destinations.make_again(destinations)
            missing_queue.__cause__ = error
            error = missing_queue
        if isinstance(error, TransactionRolledBackException):
            missing = missing_messages(error)
            if missing is not None:
                raise missing from error
            raise error
        if error.error_code == "08007":
            raise error
        raise TransactionRolledBackException(f"The transaction was rolled back: {error}", error.error_code) from error

    async def _committed(self, waited_for: Collection[int] | None = None) -> None:
        self._client.returned(await self._locked.committed())
        await self._client.sent(await self._sending.transaction_ended(), waited_for)

    async def rollback(self, error: BaseException | str | None) -> None:
        await self._sending.complete("rollback")
        async with self._state.lock:
            await finished(self._rollback(failure_of(error)))

    async def _rollback(self, failure: Failure | None) -> None:
        with settling(self._state.facts, "rollback"):
            await self.roll_back(failure)

    async def roll_back(self, failure: Failure | None = None) -> None:
        """Roll back, with the session's lock held.

        Args:
            failure: What is kept with the messages that were received.
        """
        try:
            await self._locked.before_rollback(failure)
        except JMSException as error:
            logger.warning("The deliveries that are rolled back could not be counted: %s", error)
        await self._end_rollback()

    async def _end_rollback(self) -> None:
        async with self._sending.lock:
            await self._database.rollback()
            await self._sending.transaction_ended()
        self._client.returned(await self._locked.rolled_back())

    async def recover(self, error: BaseException | str | None) -> NoReturn:  # noqa: ARG002 - refused
        raise IllegalStateException("A transacted session is not recovered; call rollback() instead.")

    async def close(self) -> None:
        await self.roll_back()

    @property
    def is_used(self) -> bool:
        """Whether the transaction has sent or received something, or the application has asked for it."""
        return self._locked.has_delivered or self._sending.has_part_in_transaction

    async def end_unused(self) -> None:
        """Keep no transaction open, while the session waits, in which nothing has happened."""
        database = self._database
        if database.is_lent and not database.is_ours:
            return  # the application may have done something in it
        if not self.is_used:
            await database.end_unused()
            self._client.returned(await self._locked.committed())

    # Shared with the application

    async def share(self) -> AsyncConnection:
        async with self._state.lock, self._database.connected():
            with uninterrupted():
                if not self._database.has_failed:
                    # A connection that is lost raises here; later, the application's own statement says so.
                    await self._flush()
                return await self._sending.share(self._before_statement)

    async def _flush(self) -> None:
        """Bring the store, in the open transaction, to where the session is."""
        await self._sending.flush()
        await self._locked.flush()

    async def _before_statement(self, step: SavepointStep | None) -> None:
        """Bring the store to where the session is, before the application runs a statement."""
        if not self._database.has_failed:
            try:
                await self._flush()
            except JMSException:
                if not self._database.is_lost:
                    raise  # else the application's own statement says so
        elif step is not None and step.command is SavepointCommand.ROLLBACK:
            await self._sending.forget_collected()  # it was sent after the failure, and so after the savepoint
        if step is not None:
            await self._locked.heed(step)


class TransactedAcknowledgement(Acknowledgement):
    """TRANSACTED: what is received is locked in the transaction, whose commit acknowledges it.

    Args:
        state: The session's.
        locked: How messages come to it.
        transaction: Its transaction.
    """

    def __init__(self, state: SessionState, locked: LockedDelivery, transaction: LocalTransaction) -> None:
        super().__init__(state, locked)
        self._locked = locked
        self._transaction = transaction

    @property
    def is_settled(self) -> bool:
        return not self._locked.has_delivered

    async def next(self, consumer: ConsumerState, check: MessageCheck | None = None) -> Message | None:
        message: Message | None = None
        try:
            is_shared = self._state.database.is_lent
            row = await (self._locked.next_in_shared_transaction if is_shared else self._locked.next)(consumer.buffer)
            if row is not None:
                message = self.message(consumer, row)
                if check is not None:
                    check(message)
        finally:
            if message is None:
                await self._transaction.end_unused()
        return message

    async def flush(self) -> None:
        await self._locked.flush()

    async def unloaded(self, buffer: PrefetchBuffer) -> None:  # noqa: ARG002 - what it holds goes back when the transaction ends
        await self._transaction.end_unused()

    async def failed(self, error: JMSException) -> JMSException:
        is_lost = self._state.database.is_lost
        if is_lost or isinstance(error, TransactionRolledBackException):
            async with self._state.lock:
                with uninterrupted():
                    await self._transaction.roll_back()
        if not is_lost:
            return error
        lost = TransactionRolledBackException(
            "The connection to PostgreSQL was lost, and with it the transaction; its messages are delivered again.",
            error.error_code,
        )
        lost.__cause__ = error
        return lost
