"""The tasks that handle the messages of an application's listeners: receive one, call the handler, commit."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Self

from jmsql.client._async.connection.connection import Connection
from jmsql.client._async.connection.factory import ConnectionFactory
from jmsql.client._async.session.consumer import MessageConsumer
from jmsql.client._async.session.session import HandlerSession
from jmsql.client._async.session.transactions.handler import HandlerClaims
from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.throttle import Throttle
from jmsql.concurrency import ASYNC
from jmsql.concurrency.tasks import BackgroundTask, Lock, Notifications
from jmsql.exceptions import IllegalStateException, JMSException
from jmsql.logs import contained_logger
from jmsql.messages import Message
from jmsql.store.destinations.subscriptions import ChangeRefusedException, SubscriptionChange
from jmsql.values.clock import monotonic
from jmsql.values.destinations import Queue
from jmsql.worker.handlers._async.call import HandlerCall, release
from jmsql.worker.handlers._async.chunks import ChunkCall
from jmsql.worker.handlers.listener import DEFAULT_REDELIVERY, Handling, Listener, way_out
from jmsql.worker.limits import MessageQuota
from jmsql.worker.reports import HandlerCounters
from jmsql.worker.settings import HandlerSettings
from jmsql.worker.timings import WorkerTimings

logger = contained_logger("jmsql.worker")


# A process has one client for all its listeners, and for each listener a number of tasks: threads for plain functions,
# tasks of an event loop for coroutine functions. Each has a session and a consumer of its own.
#
# How a message is taken:
#
# - The tasks of a listener share a turn. The task that has it waits for a message; when it gets one, the next task
#   takes its place. A task that has just handled a message fetches once without the turn, so that a backlog is handled
#   in parallel (decision 36).
# - Transacted tasks share claims (`HandlerClaims`). One exchange claims the messages that the handlers take in a tenth
#   of a second, and each task takes one from there without a statement (decision 51).
#
# Other threads touch a `HandlerTask`, too. `stop` sets `_is_stopping` from the thread that ends the process.
# `has_ended` and `failure` are written by the task itself, or, where its handler does not end, by a watcher's thread in
# its place (`replace_process`); `is_lost` is written by that thread, and by the task's own as it ends late.
#
# Invariants:
#
# 1. A message that has failed is released before the task takes another one. If the server cannot be told, `_settle`
#    tries again until it can, or the session closes.
# 2. A lost thread takes no further message. Its call tells it that a watcher has settled the message, which may still
#    call dead-letter hooks then. So it leaves the session's close to the watcher, too.
# 3. Nothing is claimed after `stop_receiving`: the connection is stopped first, then claims ahead are released, then
#    the tasks are told.
#
# Things that do not work:
#
# - A connection consumer, which loads sessions from a pool. A slow handler would hold up the consumer, and stopping
#   would find messages between it and a session (decision 16).
# - Killing a thread. Python has no such call, so an overdue thread gets an exception, then is replaced by another
#   thread, and in the end by another process.


class HandlerTask:
    """Calls the handler of one listener with one message after the other, in a session of its own.

    Args:
        listener: The listener.
        number: Its number among the listener's tasks.
        session: Its session.
        consumer: The session's consumer of the listener's messages.
        timings: The worker's timings, with its pause after a failure.
        open_another: Opens another task in its place.
        turn: Held while it waits for a message; the listener's tasks share it.
        claims: The claims that its session shares with the listener's other tasks; None: it is not transacted.
        on_end: Called when it has ended.
        on_lost: Called when its handler does not end at its time-out, in a thread.
        quota: The number of messages that its process receives; None: no limit.
        counters: Its outcomes, and the outcomes of the task whose place it takes.
    """

    def __init__(
        self,
        listener: Listener,
        number: int,
        session: HandlerSession,
        consumer: MessageConsumer,
        timings: WorkerTimings,
        open_another: Callable[[HandlerClaims | None, HandlerCounters], Awaitable[HandlerTask]],
        turn: Lock,
        claims: HandlerClaims | None,
        on_end: Callable[[], None],
        on_lost: Callable[[HandlerTask, Exception], object],
        quota: MessageQuota | None,
        counters: HandlerCounters,
    ) -> None:
        self.listener = listener
        self.claims = claims
        self.counters = counters
        # Written by the task itself; read by the watcher, which ends overdue handlers, and for reports.
        self.handling: HandlerCall | None = None
        # The watcher's thread writes these, too: see above.
        self.has_ended = False
        self.is_lost = False
        self.failure: BaseException | None = None
        """The error for which it takes no more messages; None while it runs, and after an orderly end."""
        self._session = session
        self._consumer = consumer
        self._timings = timings
        self._open_another = open_another
        self._turn = turn
        self._has_handled = False
        self._has_failed_to_receive = False
        self._on_end = on_end
        self._on_lost = on_lost
        self._quota = quota
        # Written by `stop`, in another thread; the task reads it between messages.
        self._is_stopping = False
        self._stopped = Notifications()
        self._task = BackgroundTask(self._run, f"{listener.name} {number}")

    @classmethod
    async def open(
        cls,
        connection: Connection,
        listener: Listener,
        number: int,
        settings: HandlerSettings,
        turn: Lock,
        on_end: Callable[[], None],
        on_lost: Callable[[HandlerTask, Exception], object],
        quota: MessageQuota | None,
        throttle: Throttle | None,
        claims: HandlerClaims | None,
        counters: HandlerCounters | None = None,
    ) -> Self:
        """Make the session, from the connection, and its consumer; most other arguments are the class's.

        Of the listener's first task `claims` is None. Its tasks share the `throttle`; None: there is no limit. A task
        in the place of another one has the `counters` of that one.

        Raises:
            JMSException: The session or its consumer cannot be made.
        """
        session = connection.open_session(
            HandlerSession, AcknowledgeMode.TRANSACTED if listener.transacted else AcknowledgeMode.CLIENT
        )
        consumer = await _create_consumer(listener, session, settings.on_subscription_change)
        session.name_consumer(listener.name)
        await consumer.set_redelivery_policy(listener.redelivery)
        await consumer.set_default_redelivery_policy(DEFAULT_REDELIVERY)
        consumer.visibility_timeout = listener.visibility_timeout
        claims = session.claim_together(claims, listener.chunk)
        if throttle is not None:
            await session.limit_by(throttle, replaces=settings.declares)
        if listener.keep_result is not None:
            await session.keep_results(listener.keep_result)
        opened = (connection, listener, number, settings, turn, on_end, on_lost, quota, throttle)
        open_another = partial(cls.open, *opened)
        return cls(
            *(listener, number, session, consumer, settings.timings, open_another, turn, claims),
            *(on_end, on_lost, quota, HandlerCounters() if counters is None else counters),
        )

    async def open_another(self) -> HandlerTask:
        """Open another task in its place, with the same counters.

        Raises:
            JMSException: That is not possible.
        """
        return await self._open_another(self.claims, self.counters)

    @property
    def can_receive(self) -> bool:
        """True unless the server is lost, or refuses its messages."""
        return self.is_lost or (self._session.is_connected and not self._has_failed_to_receive)

    @property
    def has_open_transaction(self) -> bool:
        """True if a transaction is open at the server in which its handler works."""
        return self._session.has_open_transaction

    def start(self) -> None:
        """Handle messages until `stop`."""
        self._task.start()

    async def stop(self) -> None:
        """Take no more messages. The connection is stopped already, so that none comes meanwhile."""
        self._is_stopping = True
        self._stopped.notify()
        if self._is_idle or not self.listener.transacted:
            # Closing a subscription may wait for an open transaction's lock; the transaction's task closes it later.
            await self._consumer.close()

    @property
    def _is_idle(self) -> bool:
        """True while it has no message."""
        return self.handling is None

    async def cut_off(self) -> bool:
        """Interrupt the handler that runs, or in a thread the statement that it runs in the session's transaction.

        May be called again, for a statement that has begun since.

        Returns:
            True if the task ends soon; False: its thread runs code of the handler, which cannot be interrupted.
        """
        if self.is_lost:
            return False
        self._session.will_be_interrupted()
        handling = self.handling
        return handling is None or await handling.cut_off(self._timings.cancel_timeout)

    def end_overdue(self, handling: Handling) -> None:
        """End a handler that has taken too long; if that is not possible, this thread or task is lost."""
        # A thread cannot be killed. An exception raised in it, or a cancelled statement, ends most handlers; a handler
        # that blocks in C code keeps its thread, so another thread takes its place, or the process.
        deadline = handling.deadline
        assert deadline is not None
        if ASYNC:
            # The event loop has cancelled the handler, which has not ended; or it blocks the event loop. The commit and
            # the callbacks after it have no deadline.
            is_late = not deadline.is_over and deadline.overdue(monotonic()) > self._timings.cancel_timeout
            if is_late and self.handling is handling and not self.has_ended:
                self.replace_process(deadline.error)
        else:
            # The thread may have gone on to its next message meanwhile, which this deadline must not end.
            is_late = self.handling is handling and self.handling.expire(self._timings.cancel_timeout)
            # A lost thread that has ended meanwhile is replaced as well, unless it had to stop or has failed.
            if is_late and not (self.has_ended and (self._is_stopping or self.failure is not None)):
                self._on_lost(self, deadline.error)

    def replace_process(self, error: Exception) -> None:
        """Have the process replaced, since the handler does not end.

        Args:
            error: The error with which its message has failed.
        """
        self.failure = error
        logger.error(
            "%s does not end, and takes no more messages. Its process is replaced when the other handlers have "
            "finished.",
            self.listener,
        )
        self.is_lost = False
        self.has_ended = True
        self._on_end()

    async def _run(self) -> None:
        try:
            while not (self._is_stopping or self.is_lost):
                if not await self._handle_next():
                    # Before `has_ended`: the process goes on, as the watcher replaces the thread. With a failure the
                    # watcher has had the process replaced.
                    self.is_lost = self.failure is None
                    return
            await self._close()
        except BaseException as error:
            is_failure = isinstance(error, Exception) or not self._is_stopping
            if is_failure and not self.has_ended:  # else it is lost, and has come back
                self.failure = error
                logger.exception("%s takes no more messages.", self.listener)
            if not isinstance(error, Exception):
                raise
        finally:
            self.has_ended = True
            self._on_end()

    async def _pause(self, seconds: float) -> None:
        """Wait, unless it is to stop."""
        await self._stopped.wait(0, seconds)

    async def _receive(self) -> Message | None:
        quota = self._quota
        if quota is not None and quota.is_used_up:
            await self._stopped.wait(0, None)
            return None
        try:
            # Without the turn: a task that has just handled a message fetches the next one itself. Only idle tasks wait
            # in turn.
            if self._has_handled:  # where there was one message, there may be more
                self._has_handled = False
                message = await self._consumer.receive_no_wait()
                if message is not None:
                    return message
            # One of the listener's tasks waits for all. As it gets a message, the next one takes its place.
            async with self._turn:
                if self._is_stopping or (quota is not None and quota.is_used_up):
                    return None
                return await self._consumer.receive()
        except JMSException as error:
            await self._pause_after(error)
            return None

    async def _pause_after(self, error: JMSException) -> None:
        """Wait for a while, since no message can be received."""
        if not self._is_stopping:
            if self._session.closed:
                raise error  # nothing would end that
            logger.warning("%s cannot receive messages, and tries again: %s", self.listener, error)
            self._has_failed_to_receive = True
            await release(self.listener, self._session)
            await self._pause(self._timings.reconnect_pause)
            self._has_failed_to_receive = False

    async def _handle_next(self) -> bool:
        """Wait for a message, and handle it; return False if a watcher has given up the call, and the thread."""
        message = await self._receive()
        if message is None:
            return True
        self._has_handled = True
        if self._quota is not None:
            self._quota.take()
        self.handling = handling = HandlerCall(self.listener, message, self._session, self._timings.cancel_timeout)
        try:
            error = await handling.run()
        finally:
            self.handling = None
            self.counters.ended(handling.seconds, handling.outcome)
        if error is not None:
            if handling.is_abandoned:
                return False
            await self._pause(self._timings.failure_pause)
            await self._settle(handling)
        return True

    async def _settle(self, handling: HandlerCall) -> None:
        """Release the message of a call that has failed, if the server could not be told before."""
        while not (self._session.is_settled or self._is_stopping or self.is_lost):
            await self._pause(self._timings.reconnect_pause)
            await release(self.listener, self._session, handling.verdict)
            await handling.call_dead_letter_hooks()

    async def _close(self) -> None:
        try:
            await self._session.close()
        except JMSException as error:
            logger.warning("%s could not close its session: %s", self.listener, error)


# A chunk that fails is halved until the message that fails is alone. The messages stay claimed by this session
# meanwhile (`Chunk`), so nothing is fetched twice. A half is a transaction of its own, and each half is checked again:
# messages that have expired are put back, and if the claims may be lost, all of the rest is.
#
# Two errors do not halve: `RetryAfter`, since a service that is closed is closed for all messages of the chunk, and an
# interruption, which says nothing about them. `Reject` with an index takes that message out, and calls the handler
# again with the others.
#
# One task fills its chunk at a time, with the listener's turn: tasks that filled theirs together would split the
# messages, and each would wait. It gives up its connection before it waits for the turn, or those that wait could have
# all of them (decision 75).


_SETTLING = 0.05
"""Seconds between two fetches for one chunk, so that messages that come one by one take few."""
_LONGEST_SILENCE = 0.25
"""After so many seconds a task that waits for its chunk heeds the end of the worker."""

_NEXT_INTERRUPTION = 0.1
"""Seconds after which a handler that is cut off and goes on is interrupted again."""


class ChunkTask(HandlerTask):
    """Calls the handler of one listener with one chunk of messages after the other.

    A chunk whose call fails is halved until the message that fails is alone: its delivery has failed, and no other.
    """

    _is_cut_off = False
    _has_received = False

    @property
    def _is_idle(self) -> bool:
        return self.handling is None and not self._has_received

    @property
    def _is_used_up(self) -> bool:
        """True if the process has received all the messages that it may."""
        return self._quota is not None and self._quota.is_used_up

    async def cut_off(self) -> bool:
        self._is_cut_off = True
        return await super().cut_off()

    async def _handle_next(self) -> bool:
        if self._is_used_up:
            await self._stopped.wait(0, None)
            return True
        messages = await self._receive_chunk()
        if self._quota is not None:
            for _ in messages:
                self._quota.take()
        is_whole = await self._handle_chunk(messages)
        self._has_received = False
        return is_whole

    async def _receive_chunk(self) -> list[Message]:
        """Wait for a message, and then for more; the listener's other tasks wait meanwhile."""
        chunk, messages = self._session.chunk, list[Message]()
        try:
            await self._session.pause()  # else those that wait for their turn could have all connections
            async with self._turn:
                if self._is_stopping or self._is_used_up:
                    return messages
                chunk.start_chunk()
                first = await self._consumer.receive()
                if first is None:
                    return messages
                self._has_received = True
                messages.append(first)
                wait = self.listener.chunk_wait
                deadline = monotonic() + (wait if chunk.longest_wait is None else min(wait, chunk.longest_wait))
                while True:
                    while chunk.has_held and (message := await self._consumer.receive_no_wait()) is not None:
                        messages.append(message)
                    remaining = deadline - monotonic()
                    if chunk.is_full or remaining <= 0 or self._is_stopping:
                        return messages
                    await self._pause(min(_SETTLING, remaining))
                    remaining = max(deadline - monotonic(), 0.0)
                    message = await self._consumer.receive(min(remaining, _LONGEST_SILENCE))
                    if message is not None:
                        messages.append(message)
        except JMSException as error:
            await chunk.put_back(chunk.holds(messages))
            await self._pause_after(error)
            return []

    async def _handle_chunk(self, messages: list[Message]) -> bool:
        """Handle messages, in parts if that fails; return False as `_handle_next` does."""
        chunk, was_called, has_failed = self._session.chunk, False, False
        parts = deque([messages] if messages else [])
        while parts and not self.is_lost:
            if self._is_cut_off and was_called:
                break  # The handler has seen all of them: closing the session counts that, also if it has begun.
            if self._is_cut_off or not await self._is_claimed():
                await chunk.put_back([message for part in parts for message in chunk.holds(part)])
                break
            await chunk.put_back_expired()
            part = chunk.holds(parts.popleft())
            if not part:
                continue
            chunk.select(part)
            was_called = True
            self.handling = handling = ChunkCall(self.listener, part, self._session, self._timings.cancel_timeout)
            try:
                error = await handling.run()
            finally:
                self.handling = None
                self.counters.ended(handling.seconds, handling.outcome, handling.settled)
            if error is None or self.is_lost:
                continue
            if handling.is_abandoned:
                return False
            has_failed = True
            left = chunk.holds(part)
            if len(left) > 1 and handling.verdict is not None and handling.is_divided(handling.verdict):
                rejected = handling.rejected(handling.verdict)
                if rejected is None:
                    middle = len(left) // 2
                    parts.extendleft([left[middle:], left[:middle]])
                    continue
                await chunk.fail(rejected, handling.verdict)
                await handling.call_dead_letter_hooks()
                left.remove(rejected)
                parts.appendleft(left)
            await self._settle(handling)
            held = chunk.holds(part)  # after that: a release may have failed before
            await chunk.put_back_groups([message for message in part if message not in held])
        if has_failed:
            await self._pause(self._timings.failure_pause)
        return True

    async def _is_claimed(self) -> bool:
        """Tell whether the chunk is still this process's, once the server can be asked; False as well at the end."""
        while True:
            try:
                return await self._session.chunk.is_claimed()
            except JMSException as error:
                logger.warning("%s waits with the rest of a chunk: %s", self.listener, error)
            await self._pause(self._timings.reconnect_pause)
            if self._is_stopping:
                return False


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


logger = contained_logger("jmsql.worker")


# How a process ends its handlers, in three stages: `stop_receiving`, after which no message comes; then the drain
# timeout, in which running handlers finish; then `cut_off`, which interrupts them, and the close of the connection,
# which rolls back the rest.
#
# `_cut_off` asks again and again for a while. A thread may have been between two statements as it was first
# interrupted, and closing its session would wait for the next one.


class Handlers:
    """Handles the messages of listeners, on a connection of its own.

    Args:
        connection: The connection.
        settings: How they are called.
        quota: The number of messages that the process receives; None: no limit.
    """

    def __init__(self, connection: Connection, settings: HandlerSettings, quota: MessageQuota | None) -> None:
        self._connection = connection
        self._settings = settings
        self._quota = quota
        self._timings = settings.timings
        self._ended = Notifications()
        # One for each transacted listener. Complete before `start`: the successor of a lost thread shares them.
        self._claims: list[HandlerClaims] = []
        self._held = Notifications()
        self._is_watching = False
        # Set once, by `stop_receiving`. `_replace` reads it after a successor has begun, and stops that.
        self._is_ending = False
        self.members: list[HandlerTask] = []
        """Each handles one message at a time."""

    @classmethod
    async def open(
        cls,
        factory: ConnectionFactory,
        listeners: Sequence[Listener],
        settings: HandlerSettings,
        quota: MessageQuota | None = None,
    ) -> Self:
        """Connect, and make the consumers.

        Args:
            factory: Makes the connection.
            listeners: The listeners.
            settings: How they are called.
            quota: The number of messages that the process receives; None: no limit.

        Raises:
            JMSException: The server cannot be reached, or refuses; or a durable subscription has another topic or
                selector, and is not changed.
        """
        # One connection for all listeners: their sessions share its database connections and its control connection.
        connection = await factory.create_connection()
        handlers = cls(connection, settings, quota)
        try:
            for listener in listeners:
                await handlers._open_tasks(listener)
        except BaseException:
            await connection.close()
            raise
        return handlers

    async def _open_tasks(self, listener: Listener) -> None:
        settings, turn, claims = self._settings, Lock(), None
        throttle = None if listener.limit is None else Throttle(listener.limit)
        on_end, on_lost = self._ended.notify, self._replace
        for number in range(1, (listener.concurrency or settings.concurrency) + 1):
            try:
                kind = HandlerTask if listener.chunk is None else ChunkTask
                task = await kind.open(
                    self._connection, listener, number, settings, turn, on_end, on_lost, self._quota, throttle, claims
                )
            except ChangeRefusedException as error:
                raise IllegalStateException(f"{listener}: {error} {way_out(error, listener)}") from error
            claims = task.claims
            self.members.append(task)
        if claims is not None:
            self._claims.append(claims)
            if listener.chunk is None:
                claims.on_held = self._note_held

    async def start(self) -> None:
        """Handle messages until `end`."""
        for task in self.members:
            task.start()
        if self._claims:
            BackgroundTask(self._release_overdue, "messages claimed ahead").start()
        await self._connection.start()

    async def _replace(self, task: HandlerTask, error: Exception) -> None:
        """Replace a thread whose handler does not end; called in another thread.

        The handler has the drain timeout to end by itself. If it does not, the process is replaced.

        Args:
            task: The thread.
            error: The error with which its message has failed.
        """
        deadline = monotonic() + self._settings.drain_timeout
        logger.warning("%s has not ended at its time-out; another thread takes its place.", task.listener)
        # The lost thread takes no further message, even if its handler returns while the successor opens.
        task.is_lost = True
        try:
            successor = await task.open_another()
            successor.start()
        except JMSException as problem:
            logger.warning("%s could not be given another thread: %s", task.listener, problem)
            task.replace_process(error)
            return
        self.members.append(successor)
        if self._is_ending:  # it may have been too late to be stopped with the others
            await successor.stop()
        if await self._wait_until(deadline, [task]):
            task.replace_process(error)
        else:
            self.members.remove(task)

    def _note_held(self) -> None:
        if not self._is_watching:
            self._held.notify()

    async def _release_overdue(self) -> None:
        """Release messages that were claimed ahead and are handled later than expected."""
        while not self._is_ending:
            # Read before the check: a claim that comes during the check ends the wait below immediately.
            count = self._held.count
            self._is_watching = False  # reset before the check, so that a change after it is reported
            pauses = [pause for claims in self._claims if (pause := await claims.release_overdue()) is not None]
            self._is_watching = bool(pauses)
            await self._held.wait(count, min(pauses, default=None))

    async def stop_receiving(self) -> None:
        """Take no more messages, and release those that were claimed ahead."""
        # In this order. Stopped consumers fetch nothing; then the claims ahead can be released, and no task claims them
        # again. Tasks are told last, as they close their consumers.
        await self._connection.stop()
        self._is_ending = True
        self._held.notify()
        for claims in self._claims:
            await claims.release_held()
        for task in list(self.members):
            await task.stop()

    async def end(self, drain_timeout: float) -> int:
        """Take no more messages, let the handlers that run finish until the deadline, and close the connection.

        Args:
            drain_timeout: How many seconds they have. A running handler is then interrupted and rolled back.

        Returns:
            How many have not finished.
        """
        deadline = monotonic() + drain_timeout
        if not self._is_ending:
            await self.stop_receiving()
        logger.debug("Waiting for %d handlers to finish.", len(self.members))
        left = await self._wait_until(deadline, self.members)
        for task in left:
            logger.warning(
                "%s has not finished within %g s; %s, and the message is delivered again.",
                task.listener,
                drain_timeout,
                "its transaction is rolled back" if task.listener.transacted else "it is given up",
                extra={"listener": task.listener.name, "destination": str(task.listener.destination)},
            )
        await self._cut_off(left)
        await self._connection.close()
        return len(left)

    async def _cut_off(self, tasks: Sequence[HandlerTask]) -> None:
        """Interrupt the handlers of tasks, and wait until those have ended whose code can be interrupted.

        They release their messages themselves. If their sessions closed meanwhile, that would be refused, and the code
        around a handler would find its connection closed.
        """
        deadline = monotonic() + self._timings.cancel_timeout
        interrupted = {task for task in tasks if await task.cut_off()}
        # A thread may have been about to send its statement, or the server may not have begun it: it begins after the
        # interruption then, and closing the session would wait for it.
        left = list(tasks)
        while left and monotonic() < deadline:
            left = await self._wait_until(min(deadline, monotonic() + _NEXT_INTERRUPTION), left)
            interrupted |= {task for task in left if await task.cut_off()}
            left = [task for task in left if task in interrupted]

    async def close(self) -> None:
        """Close the connection of handlers that were not started."""
        await self._connection.close()

    async def _wait_until(self, deadline: float, tasks: Sequence[HandlerTask]) -> list[HandlerTask]:
        """Wait until tasks have ended, or the deadline; return those that have not."""
        while True:
            news = self._ended.count
            running = [task for task in list(tasks) if not task.has_ended]
            remaining = deadline - monotonic()
            if not running or remaining <= 0:
                return running
            await self._ended.wait(news, remaining)
