"""Calling message listeners: one at a time in a session, while its connection is started."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from jmsql.client._async.session.session_state import SessionState
from jmsql.client._async.session.transactions.transaction import OwnTransaction
from jmsql.client._async.session.waiting import Watch
from jmsql.client._async.shared.client_context import ClientContext
from jmsql.client._async.shared.redelivery import Failure, failure_of
from jmsql.client.instrumentation import processing
from jmsql.client.listened_queues import ListenedQueues
from jmsql.client.listeners import MessageListener, function_of
from jmsql.client.pacing import PollInterval
from jmsql.client.receiving.fetching import PrefetchBuffer
from jmsql.concurrency.tasks import BackgroundTask, Event, call_isolated, calling, current, is_failure
from jmsql.exceptions import IllegalStateException, JMSException
from jmsql.logs import contained_logger
from jmsql.messages import Message

if TYPE_CHECKING:
    from jmsql.client.consumer_state import ConsumerState


logger = contained_logger("jmsql")


# Invariants:
#
# 1. One listener of a session runs at a time, on one thread or task, with the session's lock held (JMS 1.1, chapter
#    4.4.6).
# 2. `handled` runs before the next message is fetched, in any case, also if the listener's thread was ended. It is
#    prepared with a failure, which a normal return replaces. In AUTO and DUPS_OK it releases the message of a listener
#    that has failed. In the other modes it does nothing: the listener settles its messages itself.
# 3. `stop` and `close` set a flag, and then wait for the lock. The dispatcher reads the flags with the lock held, so no
#    listener begins after `stop` has returned.
# 4. A session closed by its own listener closes when that listener returns (`_at_end`): it cannot wait for itself.


async def dispatch(
    state: SessionState,
    watch: Watch,
    buffers: Callable[[], Sequence[PrefetchBuffer]],
    deliver: Callable[[], Awaitable[bool]],
    waiting: Callable[[], object | None],
    failed: Callable[[JMSException], Awaitable[None]],
) -> None:
    """Deliver messages until a session is closed.

    Args:
        state: The session's.
        watch: How it waits.
        buffers: Returns where messages come to that can be delivered now.
        deliver: Delivers something, if there is something and the connection is started; returns whether it did.
        waiting: Returns the waiting consumers, for the reminder that the connection is not started.
        failed: Is told of an error between deliveries.
    """
    client = state.client
    try:
        while not state.closed:
            watch.before_fetch(state.notifications.count, buffers() if client.started else [])
            try:
                delivered = await deliver()
            except JMSException as error:
                await failed(error)
                delivered = False
            if delivered:
                continue
            who = None if client.started else waiting()
            await watch.wait(None if who is None else client.start_reminder.remind(who))
    finally:
        watch.close()


async def _nothing() -> None:
    """Do nothing, as nothing runs."""


class Dispatcher:
    """Gives messages to the listeners of one session, and settles them.

    Its consumers' listeners are called on a thread of its own, begun by `start`. Its `message_listener` is called by
    `run`, with the messages that a connection consumer has loaded: they are locked in the session's transaction, or
    claimed, as those for the listener of any consumer.
    """

    def __init__(self, state: SessionState, client: ClientContext, transaction: OwnTransaction) -> None:
        self.state = state
        self._client = client
        self._transaction = transaction
        self._loaded: ConsumerState | None = None
        """The messages for the next `run`, by their consumer; None: there is no load. Written under the session's
        lock."""
        self._join: Callable[[], Awaitable[object]] = _nothing
        """Waits for the listeners' thread, or for the end of `run`. Written by `start`, under the session's lock, and
        by `run` without it, in the thread that delivers a load."""
        self._at_end: Callable[[], Awaitable[None]] = _nothing
        """Closes the session when its listener returns, if that has called `close`. The listener writes it, and its own
        thread calls it."""

    def start(self) -> None:
        """Begin to call the listeners of the consumers, unless that has begun."""
        state = self.state
        if state.listener is None:
            task = BackgroundTask(self._run, "jmsql-listener")
            task.start()
            self._join = task.join
            state.call_in(task.identity)

    async def end(self, then: Callable[[], Awaitable[None]]) -> None:
        """Call `then` when no listener runs any more, which none does soon once the session is closed.

        That is before this returns, unless it is called from a listener: then when that one returns.
        """
        if self.state.is_called_by_listener:
            self.state.close_by_listener()
            self._at_end = then
        else:
            await self._join()
            await then()

    async def _run(self) -> None:
        client, transaction = self._client, self._transaction
        wake_ups, wake = client.control.wake_ups, self.state.notifications.notify
        queues = ListenedQueues(wake_ups, wake, client.timings.shared_poll_interval)
        poll = PollInterval(client.timings)
        watch = Watch(self.state, client, poll, transaction.database, transaction.delivery, queues)
        try:
            await dispatch(
                self.state,
                watch,
                lambda: self._buffers(queues),
                lambda: self._deliver_round(watch, queues),
                self._waiting,
                self._failed,
            )
        finally:
            queues.close()
        await self._at_end()

    def _buffers(self, queues: ListenedQueues) -> Sequence[PrefetchBuffer]:
        queues.use(self.state.listening_consumers)
        return queues.buffers if self._transaction.is_usable else []

    async def _deliver_round(self, watch: Watch, queues: ListenedQueues) -> bool:
        """Deliver one message to each listener that may have one, and return whether there was any."""
        delivered = False
        queues.use(self.state.listening_consumers)
        queues.begin_round(is_settled=self._transaction.is_settled)
        while (consumer := queues.next()) is not None:
            async with self.state.lock:
                listener = consumer.listener  # which may have been unset while this waited, or by another one
                is_listening = listener is not None and not consumer.closed
                if not is_listening:
                    queues.drop(consumer)
                elif self._may_deliver and self._transaction.is_usable:
                    queues.begin_look(consumer)
                    async with self._transaction.database.connected():
                        message = await self._transaction.next(consumer)
                    watch.after_fetch(found=message is not None)
                    queues.end_look(consumer, found=message is not None)
                    delivered |= await self._deliver(listener, message)
        return delivered

    @property
    def _may_deliver(self) -> bool:
        # The flags are read under the lock: stopping and closing set them first, and then wait for the lock.
        return self._client.started and not self.state.closed

    def _waiting(self) -> ConsumerState | None:
        return next(iter(self.state.listening_consumers), None)

    async def _deliver(self, listener: MessageListener | None, message: Message | None) -> bool:
        """Give a listener a message, if there are both, and settle it."""
        if listener is None or message is None:
            return False
        failure = failure_of("The listener's thread was ended.")
        try:
            with self._transaction.extend_claims():
                failure = await self._failure(listener, message)
        finally:
            await self._transaction.handled(failure)
        return True

    async def _failure(self, listener: MessageListener, message: Message) -> Failure | None:
        """Call a listener; return why it fails if it does."""
        try:
            with processing(self.state.facts, message), calling():
                await call_isolated(function_of(listener), message)
        except BaseException as error:
            if not is_failure(error):
                raise
            logger.exception("The listener %r failed with %r.", listener, message)
            return failure_of(error)
        return None

    async def _failed(self, error: JMSException) -> None:
        """Tell of an error between listeners."""
        error = await self._transaction.failed(error)
        logger.warning("Delivery to the listeners of %r is paused: %s", self.state, error)
        await self._client.failed(error)

    # For connection consumers

    def buffer_like(self, buffer: PrefetchBuffer) -> PrefetchBuffer:
        """Make a prefetch buffer for the same messages, by which this session fetches them from the store."""
        return buffer.copy(self._transaction.delivery.operation, self._client.timings)

    async def load(self, consumer: ConsumerState, limit: int) -> int:
        """Fetch up to `limit` messages for the next `run`, and return how many there were.

        Raises:
            IllegalStateException: The session is closed, has no listener, or waits to run already.
        """
        state = self.state
        async with state.lock:
            state.check_open()
            if state.message_listener is None:
                raise IllegalStateException("The session has no message_listener; set it before the pool hands it out.")
            if self._loaded is not None:
                raise IllegalStateException("The session was handed out again before it had run its messages.")
            if not self._client.started:
                return 0
            self._loaded = consumer
            state.consumers.add(consumer)
            await self._transaction.load(consumer.buffer, limit)
            return len(consumer.buffer.held.rows)

    async def run(self) -> None:
        """Deliver the loaded messages.

        Raises:
            IllegalStateException: The session has consumers with listeners, or runs already.
        """
        state = self.state
        if state.listener is not None:
            raise IllegalStateException("Consumers of the session have listeners, or it runs already.")
        ended = Event()
        self._join = ended.wait
        state.call_in(current())
        try:
            while await self._deliver_loaded():
                pass
            async with state.lock:  # a consumer that another thread closes acknowledges, too
                await self._transaction.paused()
        except JMSException as error:
            await self._failed(error)
            async with state.lock:
                await self._transaction.handled(failure_of(f"The message could not be acknowledged: {error}"))
        finally:
            state.call_in(None)
            try:
                await self.unload()
            finally:
                await self._at_end()
                ended.set()

    async def _deliver_loaded(self) -> bool:
        async with self.state.lock:
            consumer, listener = self._loaded, self.state.message_listener
            if consumer is None or listener is None or not self._may_deliver:
                return False
            row = await self._transaction.next_loaded(consumer.buffer)
            return await self._deliver(
                listener, None if row is None else row.message(consumer.destination, self._transaction.acknowledge)
            )

    async def unload(self) -> None:
        """Release loaded messages that are not delivered."""
        async with self.state.lock:
            consumer, self._loaded = self._loaded, None
            if consumer is not None:
                self.state.consumers.discard(consumer)
                await self._transaction.unloaded(consumer.buffer)
