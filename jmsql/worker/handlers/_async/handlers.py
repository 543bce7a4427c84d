"""The tasks that handle the messages of an application's listeners: receive one, call the handler, commit."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar

from jmsql.client._async.connection.connection import Connection
from jmsql.client._async.connection.context import JMSContext
from jmsql.client._async.connection.factory import ConnectionFactory
from jmsql.client._async.session.consumer import MessageConsumer
from jmsql.client._async.session.session import HandlerSession, Session
from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.concurrency import ASYNC
from jmsql.concurrency.tasks import BackgroundTask, Lock, Notifications, call, is_failure, nobody_cancels
from jmsql.exceptions import IllegalStateException, JMSException
from jmsql.messages import Message
from jmsql.store.destinations.subscriptions import ChangeRefusedException, SubscriptionChange
from jmsql.values.destinations import Queue
from jmsql.worker.handlers.listener import DEFAULT_REDELIVERY, Handling, Listener, way_out
from jmsql.worker.reports import HandlerCounters
from jmsql.worker.settings import HandlerSettings
from jmsql.worker.timings import WorkerTimings

if TYPE_CHECKING:
    if ASYNC:
        from sqlalchemy.ext.asyncio import AsyncConnection as DatabaseConnection
        from sqlalchemy.ext.asyncio import AsyncSession as DatabaseSession
    else:
        from sqlalchemy import Connection as DatabaseConnection
        from sqlalchemy.orm import Session as DatabaseSession


AnySession = TypeVar("AnySession", bound="DatabaseSession")


class HandlerCall:
    """A message on its way to a handler.

    Args:
        message: The message.
        session: The session that has received it.
        exits: Ends what was made for the handler, when it has returned or failed.
    """

    def __init__(self, message: Message, session: Session, exits: AsyncExitStack) -> None:
        self.message = message
        self.session = session
        self._exits = exits

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


@asynccontextmanager
async def _orm_session(kind: type[AnySession], connection: DatabaseConnection) -> AsyncIterator[AnySession]:
    # Its commit and rollback end at a savepoint: a handler that calls them does not touch the message.
    async with kind(bind=connection, join_transaction_mode="create_savepoint") as database:
        yield database
        await database.commit()


logger = logging.getLogger("jmsql.worker")


class HandlerTask:
    """Calls the handler of one listener with one message after the other, in a session of its own.

    Args:
        listener: The listener.
        number: Which of the listener's tasks it is.
        session: Its session.
        consumer: The session's consumer of the listener's messages.
        timings: How long it pauses after a failure.
        turn: Held while it waits for a message; the listener's tasks share it.
        on_end: Called when it has ended.
    """

    def __init__(
        self,
        listener: Listener,
        number: int,
        session: HandlerSession,
        consumer: MessageConsumer,
        timings: WorkerTimings,
        turn: Lock,
        on_end: Callable[[], None],
    ) -> None:
        self.listener = listener
        self.counters = HandlerCounters()
        self.handling: Handling | None = None
        self.has_ended = False
        self.failure: Exception | None = None
        """Why it takes no more messages, if that was not wanted."""
        self._session = session
        self._consumer = consumer
        self._timings = timings
        self._turn = turn
        self._has_handled = False
        self._on_end = on_end
        self._is_stopping = False
        self._stopped = Notifications()
        self._task = BackgroundTask(self._run, f"{listener.name} {number}")
        if ASYNC:
            self._called: asyncio.Task[BaseException | None] | None = None

    @classmethod
    async def open(
        cls,
        connection: Connection,
        listener: Listener,
        number: int,
        settings: HandlerSettings,
        turn: Lock,
        on_end: Callable[[], None],
    ) -> Self:
        """Make the session, from the connection, and its consumer; the other arguments are those of the class.

        Raises:
            JMSException: The session or its consumer cannot be made.
        """
        session = connection.open_session(HandlerSession, listener.transacted, AcknowledgeMode.CLIENT)
        consumer = await _create_consumer(listener, session, settings.changed_subscriptions)
        await consumer.set_redelivery_policy(listener.redelivery)
        await consumer.set_default_redelivery_policy(DEFAULT_REDELIVERY)
        consumer.visibility_timeout = listener.visibility_timeout
        return cls(listener, number, session, consumer, settings.timings, turn, on_end)

    def start(self) -> None:
        """Handle messages until `stop`."""
        self._task.start()

    async def stop(self) -> None:
        """Take no more messages. The connection is stopped already, so that none comes meanwhile."""
        self._is_stopping = True
        self._stopped.notify()
        if self.handling is None or not self.listener.transacted:
            # A transaction that is open may hold what closing a subscription waits for; its task closes it later.
            await self._consumer.close()

    async def interrupt(self) -> None:
        """Interrupt the handler that runs, or in a thread the statement that it runs in the session's transaction."""
        if ASYNC:
            if self._called is not None:
                self._called.cancel()  # and with it the statement
        else:
            if self.handling is not None and self.listener.shares_transaction:
                try:
                    await self._session.interrupt(self._timings.cancel_timeout)
                except JMSException as error:
                    logger.warning("%s: its statement cannot be interrupted: %s", self.listener, error)

    async def _run(self) -> None:
        if ASYNC:
            nobody_cancels()  # the handler has a task of its own
        try:
            while not self._is_stopping:
                message = await self._receive()
                if message is not None:
                    await self._handle(message)
            await self._close()
        except Exception as error:
            self.failure = error
            logger.exception("%s takes no more messages.", self.listener)
        finally:
            self.has_ended = True
            self._on_end()

    async def _pause(self, seconds: float) -> None:
        """Wait, unless it is to stop."""
        await self._stopped.wait(0, seconds)

    async def _receive(self) -> Message | None:
        try:
            if self._has_handled:  # where there was one message, there may be more
                self._has_handled = False
                message = await self._consumer.receive_no_wait()
                if message is not None:
                    return message
            # One of the listener's tasks waits for all. As it gets a message, the next one takes its place.
            async with self._turn:
                return None if self._is_stopping else await self._consumer.receive()
        except JMSException as error:
            if not self._is_stopping:
                logger.warning("%s: no message can be received: %s", self.listener, error)
                await self._release()
                await self._pause(self._timings.reconnect_pause)
            return None

    async def _handle(self, message: Message) -> None:
        self._has_handled = True
        try:
            self.handling = Handling(message.jms_message_id, time.monotonic(), message.delivery_count)
            with self._session.processing(message):
                with self._session.extend_claims():
                    await self._call(message)
                if self.listener.transacted:
                    await self._session.commit()
                else:
                    await self._session.acknowledge()
            self._succeed(message)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises, sys.exit() too, is its failure
            await self._fail(message, error)
            if ASYNC:
                if not (is_failure(error) or isinstance(error, GeneratorExit)):  # it is by who ends the event loop
                    raise
        finally:
            self.handling = None

    async def _call(self, message: Message) -> None:
        async with AsyncExitStack() as exits:
            delivery = HandlerCall(message, self._session, exits)
            arguments = {
                parameter.name: await call(parameter.value, delivery) for parameter in self.listener.parameters
            }
            if ASYNC:
                # In a task that can be cancelled without the commit, and in a context of its own.
                self._called = asyncio.get_running_loop().create_task(
                    _outcome(call(self.listener.handler, **arguments))
                )
                try:
                    error = await self._called
                finally:
                    self._called = None
                if error is not None:
                    raise error
            else:
                self.listener.handler(**arguments)

    def _succeed(self, message: Message) -> None:
        seconds = self._end(succeeded=True)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(
                "%s has handled the message %s in %.3f s.",
                self.listener,
                message.jms_message_id,
                seconds,
                extra=self._facts(message, seconds),
            )

    def _end(self, *, succeeded: bool) -> float:
        """Note that the call has ended, and return how many seconds it took."""
        assert self.handling is not None
        seconds = time.monotonic() - self.handling.started
        self.counters.ended(seconds, succeeded=succeeded)
        return seconds

    def _facts(self, message: Message, seconds: float) -> dict[str, object]:
        """Return what the log tells of a call beside its text."""
        assert self.handling is not None
        return {
            "listener": self.listener.name,
            "destination": str(self.listener.destination),
            "message_id": message.jms_message_id,
            "delivery_count": self.handling.delivery_count,
            "seconds": round(seconds, 6),
        }

    async def _fail(self, message: Message, error: BaseException) -> None:
        assert self.handling is not None
        seconds = self._end(succeeded=False)
        logger.error(
            "%s failed in delivery %s of the message %s with %s: %s",
            self.listener,
            self.handling.delivery_count,
            message.jms_message_id,
            type(error).__name__,
            str(error).partition("\n")[0],
            exc_info=error,
            extra=self._facts(message, seconds),
        )
        await self._release(error)
        self.handling = None
        await self._pause(self._timings.failure_pause)

    async def _release(self, reason: BaseException | None = None) -> None:
        try:
            if self.listener.transacted:
                await self._session.rollback(reason)
            else:
                await self._session.recover(reason)
        except JMSException as error:  # also where the session was closed from outside, at the deadline
            logger.warning("%s: %s", self.listener, error)

    async def _close(self) -> None:
        try:
            await self._session.close()
        except JMSException as error:
            logger.warning("%s: %s", self.listener, error)


if ASYNC:

    async def _outcome(handling: Coroutine[Any, Any, object]) -> BaseException | None:
        """Return what a handler has raised, if asyncio would end the event loop for it, or who awaits it."""
        try:
            await handling
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
            return error
        return None


async def _create_consumer(
    listener: Listener, session: HandlerSession, if_changed: SubscriptionChange
) -> MessageConsumer:
    """Make a consumer of the listener's messages; it competes with all others of this listener."""
    if isinstance(listener.destination, Queue):
        return await session.create_consumer(listener.destination, listener.selector)
    assert listener.subscription is not None
    if not listener.durable:
        return await session.create_shared_consumer(listener.destination, listener.subscription, listener.selector)
    return await session.create_shared_durable_consumer(
        listener.destination, listener.subscription, listener.selector, if_changed=if_changed
    )


logger = logging.getLogger("jmsql.worker")


class Handlers:
    """Handles the messages of listeners, on a connection of its own.

    Args:
        connection: The connection.
        timings: The intervals and time-outs.
    """

    def __init__(self, connection: Connection, timings: WorkerTimings) -> None:
        self._connection = connection
        self._timings = timings
        self._ended = Notifications()
        self.members: list[HandlerTask] = []
        """Each handles one message at a time."""

    @classmethod
    async def open(cls, factory: ConnectionFactory, listeners: Sequence[Listener], settings: HandlerSettings) -> Self:
        """Connect, and make the consumers.

        Args:
            factory: Makes the connection.
            listeners: The listeners.
            settings: How they are called.

        Raises:
            JMSException: The server cannot be reached, or refuses; or a durable subscription has another topic or
                selector, and is not changed.
        """
        connection = await factory.create_connection()
        handlers = cls(connection, settings.timings)
        try:
            for listener in listeners:
                turn = Lock()
                for number in range(1, (listener.concurrency or settings.concurrency) + 1):
                    task = await handlers._open_task(listener, number, turn, settings)
                    handlers.members.append(task)
        except BaseException:
            await connection.close()
            raise
        return handlers

    async def _open_task(self, listener: Listener, number: int, turn: Lock, settings: HandlerSettings) -> HandlerTask:
        try:
            return await HandlerTask.open(self._connection, listener, number, settings, turn, self._ended.notify)
        except ChangeRefusedException as error:
            raise IllegalStateException(f"{listener}: {error} {way_out(error, listener)}") from error

    async def start(self) -> None:
        """Handle messages until `end`."""
        for task in self.members:
            task.start()
        await self._connection.start()

    async def end(self, drain_timeout: float) -> int:
        """Take no more messages, let the handlers that run finish until the deadline, and close the connection.

        Args:
            drain_timeout: How many seconds they have. What runs then is interrupted and rolled back.

        Returns:
            How many have not finished.
        """
        deadline = time.monotonic() + drain_timeout
        await self._connection.stop()
        for task in self.members:
            await task.stop()
        logger.debug("%d handlers finish what they have begun.", len(self.members))
        left = await self._wait_until(deadline)
        for task in left:
            logger.warning(
                "%s has not finished within %g s; its transaction is rolled back, and the message is delivered again.",
                task.listener,
                drain_timeout,
                extra={"listener": task.listener.name, "destination": str(task.listener.destination)},
            )
            await task.interrupt()
        if ASYNC:
            await self._wait_until(time.monotonic() + self._timings.cancel_timeout)
        await self._connection.close()
        return len(left)

    async def close(self) -> None:
        """Close the connection of handlers that were not started."""
        await self._connection.close()

    async def _wait_until(self, deadline: float) -> list[HandlerTask]:
        """Wait until all have ended, or the deadline; return those that have not."""
        while True:
            news = self._ended.count
            running = [task for task in self.members if not task.has_ended]
            remaining = deadline - time.monotonic()
            if not running or remaining <= 0:
                return running
            await self._ended.wait(news, remaining)
