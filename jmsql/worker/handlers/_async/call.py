"""A call of a handler with a message: its parameters, its transaction, and what becomes of the message."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from jmsql.client._async.connection.context import JMSContext
from jmsql.client._async.session.session import HandlerSession
from jmsql.concurrency import ASYNC
from jmsql.concurrency.tasks import call, is_failure
from jmsql.exceptions import JMSException
from jmsql.messages import Message
from jmsql.values.outcomes import Reject, RetryAfter
from jmsql.worker.handlers.listener import Listener

if TYPE_CHECKING:
    if ASYNC:
        from sqlalchemy.ext.asyncio import AsyncConnection as DatabaseConnection
        from sqlalchemy.ext.asyncio import AsyncSession as DatabaseSession
    else:
        from sqlalchemy import Connection as DatabaseConnection
        from sqlalchemy.orm import Session as DatabaseSession


AnySession = TypeVar("AnySession", bound="DatabaseSession")

logger = logging.getLogger("jmsql.worker")


class HandlerCall:
    """A call of a listener's handler with one message, in the session that has received the message.

    Args:
        listener: The listener.
        message: The message.
        session: The session: transacted if the listener is, else one that acknowledges explicitly (CLIENT).
    """

    def __init__(self, listener: Listener, message: Message, session: HandlerSession) -> None:
        self.listener = listener
        self.message = message
        self.session = session
        self.message_id = message.jms_message_id
        self.delivery_count = message.delivery_count
        self.started = time.monotonic()
        self.seconds = 0.0
        """How long the call took, with its commit, once `run` has returned."""
        self.after_commit: list[Callable[[], None]] = []
        """What is called once the message is settled, if nothing has failed."""
        self._exits = AsyncExitStack()
        if ASYNC:
            self._called: asyncio.Task[tuple[object, BaseException | None]] | None = None

    async def run(self) -> BaseException | None:
        """Call the handler, and settle the message.

        If the handler returns, the transaction is committed or the message acknowledged. If anything raises, it is
        rolled back or released, and the message comes again or moves to the dead-letter queue.

        Returns:
            What the handler, or the commit after it, has raised; None: the message was handled.

        Raises:
            BaseException: What ends the program: a cancellation of the task that has called this, for example.
        """
        try:
            with self.session.processing(self.message):
                with self.session.extend_claims():
                    await self._call()
                if self.listener.transacted:
                    await self.session.commit()
                else:
                    await self.session.acknowledge()
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises, sys.exit() too, is its failure
            verdict = self.listener.verdict(error)
            self._tell_failure(verdict)
            await release(self.listener, self.session, verdict)
            if ASYNC:
                if not (is_failure(error) or isinstance(error, GeneratorExit)):  # it is by who ends the event loop
                    raise
            return error
        self._tell_success()
        for callback in self.after_commit:
            callback()
        return None

    async def _call(self) -> object:
        async with self._exits:
            self._exits.enter_context(self.listener.surrounding(self))
            arguments = await self.arguments()
            if ASYNC:
                # In a task that can be cancelled without the commit, and in a context of its own.
                self._called = asyncio.get_running_loop().create_task(
                    _outcome(call(self.listener.handler, **arguments))
                )
                try:
                    result, error = await self._called
                finally:
                    self._called = None
                if error is not None:
                    raise error
            else:
                result = self.listener.handler(**arguments)
            return result

    async def arguments(self) -> dict[str, object]:
        """Return the values of the handler's parameters, by their names.

        Raises:
            Reject: The message is not what the handler takes.
        """
        return {parameter.name: await call(parameter.value, self) for parameter in self.listener.parameters}

    async def interrupt(self, timeout: float) -> None:
        """Interrupt the handler, or in a thread the statement that it runs in the session's transaction.

        Args:
            timeout: How many seconds interrupting a statement may take.
        """
        if ASYNC:
            if self._called is not None:
                self._called.cancel()  # and with it the statement
        else:
            if self.listener.shares_transaction:
                try:
                    await self.session.interrupt(timeout)
                except JMSException as error:
                    logger.warning("%s: its statement cannot be interrupted: %s", self.listener, error)

    # What the handler can ask for

    def context(self) -> JMSContext:
        """Return the session as a context."""
        return JMSContext(self.session)

    async def database(self) -> DatabaseConnection:
        """Return the connection of the message's transaction."""
        return await self.session.get_database()

    async def orm_session(self, kind: type[AnySession]) -> AnySession:
        """Return a session of SQLAlchemy's in the message's transaction, which is flushed when the handler returns.

        Args:
            kind: Its class.
        """
        return await self._exits.enter_async_context(_orm_session(kind, await self.database()))

    # The log

    def _tell_success(self) -> None:
        self.seconds = time.monotonic() - self.started
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(
                "%s has handled the message %s in %.3f s.",
                self.listener,
                self.message_id,
                self.seconds,
                extra=self._facts(),
            )

    def _tell_failure(self, verdict: BaseException) -> None:
        self.seconds = time.monotonic() - self.started
        if isinstance(verdict, RetryAfter):
            logger.info(
                "%s puts the message %s off in delivery %s: %s.",
                self.listener,
                self.message_id,
                self.delivery_count,
                verdict,
                extra=self._facts(),
            )
            return
        error = verdict.error if isinstance(verdict, Reject) else verdict
        logger.error(
            "%s failed in delivery %s of the message %s with %s: %s",
            self.listener,
            self.delivery_count,
            self.message_id,
            type(error).__name__,
            str(error).partition("\n")[0],
            exc_info=error,
            extra=self._facts(),
        )

    def _facts(self) -> dict[str, object]:
        """Return what the log tells of the call beside its text."""
        return {
            "listener": self.listener.name,
            "destination": str(self.listener.destination),
            "message_id": self.message_id,
            "delivery_count": self.delivery_count,
            "seconds": round(self.seconds, 6),
        }


async def release(listener: Listener, session: HandlerSession, error: BaseException | None = None) -> None:
    """Roll back what a handler has done, or release the message if it is not transacted.

    Args:
        listener: The listener.
        session: The session that has received the message.
        error: Why, if the handler has failed.
    """
    try:
        if listener.transacted:
            await session.rollback(error)
        else:
            await session.recover(error)
    except JMSException as problem:  # also where the session was closed from outside, at the deadline
        logger.warning("%s: %s", listener, problem)


@asynccontextmanager
async def _orm_session(kind: type[AnySession], connection: DatabaseConnection) -> AsyncIterator[AnySession]:
    # Its commit and rollback end at a savepoint: a handler that calls them does not touch the message.
    async with kind(bind=connection, join_transaction_mode="create_savepoint") as database:
        yield database
        await database.commit()


if ASYNC:

    async def _outcome(handling: Coroutine[Any, Any, object]) -> tuple[object, BaseException | None]:
        """Return what a handler returns, and what it has raised if asyncio would end the event loop for that."""
        try:
            return await handling, None
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
            return None, error
