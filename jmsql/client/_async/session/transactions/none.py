"""Sessions without transactions, with a class for each acknowledge mode: their sends take effect at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TypeVar

import psycopg

from jmsql.client._async.session.asynchronous_sender import AsynchronousSender, BatchInsertion
from jmsql.client._async.session.claims import Claims
from jmsql.client._async.session.transactions.transaction import OwnTransaction, session_lease
from jmsql.client._async.shared.redelivery import Failure, failure_of
from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.instrumentation import settling
from jmsql.client.send_buffer import News, SendBuffer
from jmsql.concurrency.tasks import BackgroundTask, Notifications, run_to_completion, shielded
from jmsql.exceptions import IllegalStateException, InvalidDestinationException, JMSException
from jmsql.logs import contained_logger
from jmsql.messages import DeliveryMode
from jmsql.store.errors import translate, with_unknown_outcome
from jmsql.store.receiving.receive import browse, dequeue
from jmsql.store.sending.conditional import ConditionalMessage
from jmsql.store.sending.send import publish, send
from jmsql.store.statement import in_transaction
from jmsql.values.clock import monotonic
from jmsql.values.destinations import Topic

if TYPE_CHECKING:
    from jmsql.client._async.link.lease import Lease
    from jmsql.client._async.session.delivery import Accept
    from jmsql.client._async.session.session_state import SessionState
    from jmsql.client._async.shared.client_context import ClientContext
    from jmsql.client.consumer_state import ConsumerState
    from jmsql.client.listeners import MessageCheck
    from jmsql.client.receiving.fetching import PrefetchBuffer
    from jmsql.client.throttle import Throttle
    from jmsql.messages import Message
    from jmsql.selectors import Selector
    from jmsql.store.receiving.late_messages import ScanStart
    from jmsql.store.receiving.receive import Fetch, GroupScan
    from jmsql.store.rows.message_rows import Claim, MessageKey, MessageRow, OutgoingMessage
    from jmsql.store.statement import Query, Steps
    from jmsql.values.destinations import Destination


logger = contained_logger("jmsql")

T = TypeVar("T")

_SENT_TWICE = "Sent again, it may come twice; with a deduplication_id it does not."


# A further acknowledge mode is a member of `AcknowledgeMode`, a class here, and an entry in `_MODES`;
# CONTRIBUTING.md lists the other places. The class says when it acknowledges: `_next` comes before another message is
# delivered, `handled` after a listener has returned, `paused` when a loaded session has run and as the session closes,
# `settle` before a consumer closes and before a subscription ends. Messages that are held already are delivered by
# `pop_buffered`, without a call of `_next`: a class that acknowledges then, or never fetches ahead, overrides it.
#
# The modes differ in the place of the acknowledgement, and so in the messages that a crash repeats:
#
# - AUTO dequeues for `receive`: delete, hand over, commit. The row is in the client's hands before the server is asked
#   to commit. So a connection that breaks delivers it twice at worst, and loses nothing (decision 39).
# - AUTO with a listener, CLIENT and DUPS_OK claim, and delete behind the claim later. A crash in between repeats the
#   message, with its redelivered flag.
# - DUPS_OK acknowledges late: at a hundred messages, when no other one comes, or once the first has waited for
#   `acknowledgement_delay`. A crash repeats all of them.
#
# A send that raises InvalidDestinationException has inserted nothing: the queue was deleted since it was looked up. It
# is made again, once, and the send is repeated.


class NoTransaction(OwnTransaction):
    """Messages are inserted as they are sent. They are claimed, and deleted when they are acknowledged.

    An AUTO `receive` dequeues instead.
    """

    delivery: Claims

    def __init__(self, state: SessionState, client: ClientContext, database: Lease) -> None:
        claims = Claims(database, client.control, client.redelivery, client.returned)
        super().__init__(state, client, database, claims)

    # Sending

    async def send(self, destination: Destination, message: OutgoingMessage, size: int) -> None:  # noqa: ARG002 - one message is a batch of its own
        if isinstance(message, ConditionalMessage):
            await self._send_conditionally(destination, [message])
        else:
            await self._send(destination, [message])

    async def send_batch(self, destination: Destination, messages: list[tuple[OutgoingMessage, int]]) -> None:
        outgoing = [message for message, _ in messages]
        if any(isinstance(message, ConditionalMessage) for message in outgoing):
            await self._send_conditionally(destination, outgoing)
        else:
            await self._send(destination, outgoing)

    async def _send(self, destination: Destination, messages: Sequence[OutgoingMessage]) -> None:
        if self._sender is not None:
            await self._sender.wait_until_sent()
        client, database, state = self._client, self.database, self.state
        async with state.lock if state.listener is None else state:
            await database.acquire()
            try:
                with shielded():
                    try:
                        question = client.waited_for([destination])
                        await database.attempt(self._insertion(destination, messages), question)
                        waited_for = database.link.answer
                    except InvalidDestinationException:
                        await self._send_again(destination, lambda: self._insertion(destination, messages))
                        waited_for = None
                    except JMSException as error:
                        raise with_unknown_outcome(error, _SENT_TWICE) from error.__cause__
                    news = News({destination: len(messages)}, messages[0].jms_delivery_time is not None)
                    await client.sent(news, waited_for)
            finally:
                database.release()

    async def _send_conditionally(self, destination: Destination, messages: Sequence[OutgoingMessage]) -> None:
        if self._sender is not None:
            await self._sender.wait_until_sent()
        client, state = self._client, self.state
        send_buffer = SendBuffer()
        for message in messages:
            send_buffer.add(destination, message, 0)
        flush = messages[0].jms_delivery_mode == DeliveryMode.PERSISTENT

        def insertion() -> Steps[None]:
            return in_transaction(send_buffer.flush(client.publisher, flush=flush))

        async with state.lock if state.listener is None else state, self.database.connected():
            with shielded():
                try:
                    await self.database.attempt(insertion())
                except InvalidDestinationException:
                    await self._send_again(destination, insertion)
                except JMSException as error:
                    raise with_unknown_outcome(error, _SENT_TWICE) from error.__cause__
                await client.sent(send_buffer.ended())

    async def _send_again(self, destination: Destination, insertion: Callable[[], Steps[None]]) -> None:
        """Make a destination again that was deleted, and repeat the send to it, which has inserted nothing.

        A connection that is lost while it makes the destination leaves no doubt: the message was not sent.
        """
        await self._client.destinations.make_again([destination])
        try:
            await self.database.run(insertion())
        except JMSException as error:
            raise with_unknown_outcome(error, _SENT_TWICE) from error.__cause__

    async def run(self, work: Query[T] | Steps[T]) -> T:
        state = self.state
        async with state.lock if state.listener is None else state, self.database.connected():
            with shielded():
                try:
                    return await self.database.attempt(in_transaction(work))
                except JMSException as error:
                    raise with_unknown_outcome(
                        error, "Look for its effects before it is done again."
                    ) from error.__cause__

    def _insertion(self, destination: Destination, messages: Sequence[OutgoingMessage]) -> Steps[None]:
        flush = messages[0].jms_delivery_mode == DeliveryMode.PERSISTENT
        if isinstance(destination, Topic):
            return publish(destination, messages, self._client.publisher, flush=flush)
        return send(messages, flush=flush, copies=False)

    def _create_sender(self) -> AsynchronousSender:
        insertion = BatchInsertion(self._client)
        return AsynchronousSender(insertion.insert, insertion.close)

    # Receiving

    async def browse(
        self, queue_id: int, selector: Selector | None, after: tuple[int, int], limit: int
    ) -> list[MessageRow]:
        async with self.state:
            with shielded():
                return await self.database.attempt(browse(queue_id, selector, after, limit))

    async def closed(self, consumer: ConsumerState) -> None:
        await self.unloaded(consumer.buffer)

    @property
    def last_claim(self) -> tuple[MessageKey, Claim] | None:
        return self.delivery.last_claim

    async def unloaded(self, buffer: PrefetchBuffer) -> None:
        self._client.returned(await self.delivery.closed(buffer))

    # Acknowledging

    def extend_claims(self) -> AbstractContextManager[None]:
        return self._client.control.extending(self.delivery.extended_claims)

    # Ending

    async def commit(self) -> NoReturn:
        self._refuse("commit")

    async def rollback(self, error: BaseException | str | None) -> NoReturn:  # noqa: ARG002 - refused
        self._refuse("rollback")

    def _refuse(self, method: str) -> NoReturn:
        raise IllegalStateException(
            f"{method}() is for transacted sessions; this one is {self.state.acknowledge_mode.name}."
        )

    async def recover(self, error: BaseException | str | None) -> None:
        async with self.state:
            await run_to_completion(self._recover(failure_of(error)))

    async def _recover(self, failure: Failure | None) -> None:
        with settling(self.state.facts, "recover"):
            await self._release(failure)

    async def _release(self, failure: Failure | None = None) -> None:
        """Release claimed messages that are not acknowledged."""
        released = await self.delivery.release(failure)
        for consumer in self.state.consumers:
            released += await self.delivery.closed(consumer.buffer)
        self._client.returned(released)

    async def share(self) -> NoReturn:
        raise IllegalStateException("Only a transacted session has a transaction to share.")

    async def close(self) -> None:
        try:
            await self.paused()
        finally:  # what is neither acknowledged nor released stays with the client until that ends
            await self._release(self.failure_at_close)


class ClientAcknowledge(NoTransaction):
    """CLIENT: the application acknowledges all that the session has received so far."""

    _result: Query[None] | None = None
    """Stores the result of a handler's message with its acknowledgement; None: no result is kept."""
    _is_released = False
    """True if the last delivery was released, and not acknowledged."""

    async def next(self, consumer: ConsumerState, check: MessageCheck | None = None) -> Message | None:
        row = await self.delivery.next(consumer.buffer)
        if row is None:
            return None
        message = row.message(consumer.destination, self.acknowledge)
        if check is not None:
            check(message)
        return message

    async def acknowledge(self) -> None:
        state = self.state
        state.check_open()
        async with (
            state.lock if state.listener is None else state,
            self.database.connected(needed=self.delivery.has_delivered or self._result is not None),
        ):
            await run_to_completion(self._acknowledge())

    async def _acknowledge(self) -> None:
        result, self._result = self._result, None
        self._is_released = False
        with settling(self.state.facts, "acknowledge"):
            await self.delivery.acknowledge(result)
        if result is not None:
            self._client.redelivery.result_kept(result)

    async def _release(self, failure: Failure | None = None) -> None:
        self._result = None
        self._is_released = True
        await super()._release(failure)

    def limit_by(self, throttle: Throttle, consumer: ConsumerState) -> None:
        """Claim a consumer's messages within a limit over all workers."""
        self.delivery.limit_by(throttle, consumer.buffer)

    def keep_result(self, result: Query[None]) -> None:
        """Store the result of a handler's message with its acknowledgement, unless the handler has released it.

        Args:
            result: The statement that stores it.
        """
        if self.delivery.has_delivered or not self._is_released:
            self._result = result


def _acceptance(consumer: ConsumerState, check: MessageCheck) -> Accept:
    """Return a function that refuses a row by its message."""
    return lambda row: check(row.message(consumer.destination))


class OwnAcknowledge(NoTransaction):
    """The session acknowledges by itself."""

    def __init__(self, state: SessionState, client: ClientContext, database: Lease) -> None:
        super().__init__(state, client, database)
        self._unsettled: Callable[[], Awaitable[None]] | None = None
        """Acknowledges or releases the message of the last listener's call, which has failed to; None: nothing has.
        Written under the session's lock."""

    async def next(self, consumer: ConsumerState, check: MessageCheck | None = None) -> Message | None:
        if self._unsettled is not None:
            await self._settle(self._unsettled)
        row = await self._next(consumer, None if check is None else _acceptance(consumer, check))
        return None if row is None else row.message(consumer.destination, self.acknowledge)

    @abstractmethod
    async def _next(self, consumer: ConsumerState, accept: Accept | None) -> MessageRow | None:
        """Return the next message, now delivered, unless it is refused."""

    async def handled(self, failure: Failure | None) -> None:
        if failure is not None:
            await self._settle(partial(self._release_failed, failure))

    async def _settle(self, settle: Callable[[], Awaitable[None]]) -> None:
        """Acknowledge or release a listener's message; if that fails, try again before the next delivery."""
        self._unsettled = settle
        await settle()
        self._unsettled = None

    async def _release_failed(self, failure: Failure) -> None:
        with settling(self.state.facts, "release"):
            self._client.returned(await self.delivery.release(failure))


class AutoAcknowledge(OwnAcknowledge):
    """AUTO: each message is acknowledged as `receive` returns it, or when its listener has returned.

    For `receive` it is dequeued, and nothing is fetched ahead.
    """

    def __init__(self, state: SessionState, client: ClientContext, database: Lease) -> None:
        super().__init__(state, client, database)
        self._asks = False
        """True if the statement of the current call asks for the end of the queue as well. `_next` writes it for
        `_dequeue`, with the session's lock held."""

    def fetch_for(self, consumer: ConsumerState | None) -> Fetch:
        return self._dequeue if consumer is None or consumer.listener is None else self.delivery.operation

    def pop_buffered(self, consumer: ConsumerState) -> None:
        """Return None: nothing is fetched before it is received."""

    async def _next(self, consumer: ConsumerState, accept: Accept | None) -> MessageRow | None:
        buffer = consumer.buffer
        if consumer.listener is not None:
            return await self.delivery.next_accepted(buffer, accept)
        row: MessageRow | None = None
        transaction = await self.database.begin_implicitly()
        try:
            self._asks = buffer.asks_for_end
            rows = await transaction.run(buffer.fetch_if_any(1, asks=self._asks))
            row = rows[0] if rows else None
            if row is not None and accept is not None:
                try:
                    accept(row)
                except BaseException:
                    await transaction.rollback()
                    raise

            # If the connection breaks then, the outcome is unknown: better twice than lost.
            await transaction.connection.leave_commit(partial(self._commit_failed, buffer, row))
            # The commit is answered before others hear that the group is free, and before the caller waits.
            if row is None or row.group_hash is not None:
                await self.database.settle()
        except BaseException:
            if row is not None:  # it is on its queue again, and others have passed over it
                self._tell_of_return(buffer, row)
            raise
        if row is not None:
            buffer.count("acknowledged", [row])
            if row.group_hash is not None:
                self._tell_of_return(buffer, row)
        return row

    def _dequeue(
        self,
        queue_id: int,
        selector: Selector | None,
        start: ScanStart,
        limit: int,
        groups: GroupScan | None = None,
    ) -> Query[list[MessageRow]]:
        recipient, asks = self.database.recipient, self._asks
        return dequeue(
            queue_id,
            selector,
            start,
            limit,
            groups,
            client=recipient.client,
            restricted=recipient.is_restricted,
            asks=asks,
        )

    def _commit_failed(self, buffer: PrefetchBuffer, row: MessageRow | None, error: psycopg.Error) -> None:
        if row is not None:
            logger.warning("The message was delivered, and may come again: %s", translate(error, "receiving"))
            self._tell_of_return(buffer, row)

    def _tell_of_return(self, buffer: PrefetchBuffer, row: MessageRow) -> None:
        key = buffer.held.key(row)
        buffer.source.returned(key)
        self._client.returned([key])

    async def closed(self, consumer: ConsumerState) -> None:
        if consumer.listener is None:
            await self.database.settle()  # it holds nothing; its last delivery is over then
        else:
            await super().closed(consumer)

    async def handled(self, failure: Failure | None) -> None:
        await super().handled(failure)
        if failure is None:
            try:
                with settling(self.state.facts, "acknowledge"):
                    await self.delivery.acknowledge()
            except JMSException:
                self._unsettled = self._acknowledge_again
                raise

    async def _acknowledge_again(self) -> None:
        try:
            with settling(self.state.facts, "acknowledge"):
                await self.delivery.acknowledge()
        except JMSException as error:
            if self.delivery.has_delivered:
                raise
            logger.info("The first acknowledgement may have taken effect: %s", error)


class DupsOkAcknowledge(OwnAcknowledge):
    """DUPS_OK: messages are acknowledged together: once there are many, no other comes, or the first waits for long.

    For the last of these, which may come while the application does not call the session, there is a thread. Messages
    of a connection consumer do without it: `run` acknowledges the last of them as it ends.
    """

    def __init__(self, state: SessionState, client: ClientContext, database: Lease) -> None:
        super().__init__(state, client, database)
        self._thread: BackgroundTask | None = None
        """Acknowledges in time; None: no message was asked for. Written by the first fetch."""
        # The thread sets `_is_idle` before it looks for deliveries, and a delivery clears it and notifies. So a
        # delivery that comes between the look and the wait ends the wait; at worst the thread looks once too often.
        self._changed = Notifications()
        self._is_idle = False
        """True if the thread waits for a delivery. The thread writes it, without a lock, and a delivery, with the
        session's."""

    def pop_buffered(self, consumer: ConsumerState) -> Message | None:
        if self._is_due or self._thread is None:
            return None  # `_next` starts the thread
        message = super().pop_buffered(consumer)
        self._wake()
        return message

    async def _next(self, consumer: ConsumerState, accept: Accept | None) -> MessageRow | None:
        self._start_thread()  # before a delivery, which is lost if the thread cannot start
        if self._is_due:
            await self.delivery.acknowledge()
        row = await self.delivery.next_accepted(consumer.buffer, accept)
        if row is None:
            await self.delivery.acknowledge()
        else:
            self._wake()
        return row

    @property
    def _is_due(self) -> bool:
        return self.delivery.acknowledgement_due(self._client.timings.acknowledgement_delay)

    async def handled(self, failure: Failure | None) -> None:
        await super().handled(failure)
        if failure is None and self._is_due:
            await self.delivery.acknowledge()

    async def _release_failed(self, failure: Failure) -> None:
        # The listener has not failed with the messages before, which wait for their acknowledgement.
        with settling(self.state.facts, "acknowledge"):
            await self.delivery.acknowledge_earlier()
        await super()._release_failed(failure)

    async def paused(self) -> None:
        await self.delivery.acknowledge()

    async def settle(self) -> None:
        if not self.state.is_called_by_listener:
            async with self.state.lock:
                await self.delivery.acknowledge()

    async def stop(self) -> None:
        await super().stop()
        self._changed.notify()
        if self._thread is not None:
            await self._thread.join()

    def _start_thread(self) -> None:
        if self._thread is None:
            thread = BackgroundTask(self._acknowledge_in_time, "jmsql-acknowledging")
            thread.start()
            self._thread = thread

    def _wake(self) -> None:
        """Have the thread acknowledge delivered messages in time."""
        if self._is_idle:
            self._is_idle = False
            self._changed.notify()

    async def _acknowledge_in_time(self) -> None:
        while not self.state.closed:
            count = self._changed.count
            self._is_idle = True  # before the look, so that later deliveries wake it
            since = self.delivery.delivered_since
            if since is None:
                await self._changed.wait(count, None)
                continue
            self._is_idle = False
            remaining = since + self._client.timings.acknowledgement_delay - monotonic()
            if remaining <= 0:
                async with self.state.lock:
                    remaining = await self._acknowledge_what_is_due()
            await self._changed.wait(count, remaining)

    async def _acknowledge_what_is_due(self) -> float:
        """Acknowledge messages that wait for too long, and return the seconds until there is something to do again."""
        try:
            if self._is_due and not self.state.closed:
                await self.delivery.acknowledge()
        except JMSException as error:
            logger.warning("%r could not acknowledge in time, and tries again: %s", self.state, error)
            return self._client.timings.acknowledgement_delay
        return 0.0


_MODES: dict[AcknowledgeMode, type[NoTransaction]] = {
    AcknowledgeMode.AUTO: AutoAcknowledge,
    AcknowledgeMode.CLIENT: ClientAcknowledge,
    AcknowledgeMode.DUPS_OK: DupsOkAcknowledge,
}


def no_transaction(state: SessionState, client: ClientContext, *, shares_connections: bool = False) -> NoTransaction:
    """Return how a session that is not transacted works, by its acknowledge mode."""
    database = session_lease(client, transacted=False, shares_connections=shares_connections)
    return _MODES[state.acknowledge_mode](state, client, database)
