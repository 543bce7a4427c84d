"""Sessions inside the caller's own transaction."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeVar

from jmsql.client._async.session.abstract_session import AbstractSession
from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.consumer_state import ConsumerState
from jmsql.client.instrumentation import SessionFacts
from jmsql.client.listeners import MessageCheck, MessageListener
from jmsql.client.pacing import PollInterval, enlisted_notifications
from jmsql.client.prefetch_buffer import PrefetchBuffer
from jmsql.concurrency.tasks import finished, uninterrupted
from jmsql.exceptions import (
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    TransactionInProgressException,
)
from jmsql.messages import Message
from jmsql.selectors import Selector
from jmsql.store.control.counters import Counts, measure, meters
from jmsql.store.control.listening import is_listening, listening_connection
from jmsql.store.control.server import CallersDatabase, ServerClock, callers_database
from jmsql.store.destinations.lookup import find_queue, queue_id, require_access
from jmsql.store.errors import jms_errors
from jmsql.store.receiving.acknowledge import Recipient
from jmsql.store.receiving.receive import browse, require_read_committed
from jmsql.store.sending.notification import notify_sent
from jmsql.store.sending.send import Publisher, publish, send
from jmsql.timings import InternalTimings
from jmsql.values.destinations import Destination, Queue, TemporaryQueue, Topic, require_queue

if TYPE_CHECKING:
    from jmsql.client._async.enlistment.caller_transaction import CallerTransaction
    from jmsql.client.listeners import AsynchronousSend
    from jmsql.store.destinations.access import Action
    from jmsql.store.destinations.subscriptions import SubscriptionDefinition
    from jmsql.store.receiving.dequeue import GroupScan
    from jmsql.store.rows.message_rows import GroupKey, MessageKey, MessageRow, OutgoingMessage
    from jmsql.store.statement import Query, Steps
    from jmsql.store.wire._async.runner import Runner
    from jmsql.values.policies import RedeliveryPolicy


T = TypeVar("T")

_NO_QUEUE = 0
"""The id that no queue has."""

_NOBODY = Publisher()
"""A publisher in the caller's transaction has no connection of jmsql's."""


class EnlistedSession(AbstractSession):
    """A session in the caller's transaction: it never commits, rolls back, or starts a thread.

    Args:
        transaction: The caller's.
        schema: The name of the schema.
        timings: How often it polls and notifies.
    """

    def __init__(self, transaction: CallerTransaction, schema: str, timings: InternalTimings) -> None:
        self._transaction = transaction
        self._schema = schema
        self._timings = timings
        self._is_restricted = False
        self._closed = False
        self._sending = self._receiving = self
        self.facts = self.followed = SessionFacts()
        self._database: CallersDatabase | None = None

    @property
    def transacted(self) -> bool:
        """True: it works in the caller's transaction."""
        return True

    @property
    def acknowledge_mode(self) -> AcknowledgeMode:
        """TRANSACTED: it works in the caller's transaction."""
        return AcknowledgeMode.TRANSACTED

    @property
    def closed(self) -> bool:
        return self._closed

    async def acknowledge(self) -> None:
        """Do nothing: what was received is acknowledged by the caller's commit."""
        self._check_open()

    async def commit(self) -> NoReturn:
        """Refuse: the transaction is the caller's.

        Raises:
            TransactionInProgressException: Always.
        """
        raise TransactionInProgressException("The session is part of your transaction: commit that instead.")

    async def rollback(self, error: BaseException | str | None = None) -> NoReturn:  # noqa: ARG002 - refused
        """Refuse: the transaction is the caller's.

        Raises:
            TransactionInProgressException: Always.
        """
        raise TransactionInProgressException("The session is part of your transaction: roll that back instead.")

    async def recover(self, error: BaseException | str | None = None) -> NoReturn:  # noqa: ARG002 - refused
        """Refuse, as every transacted session does.

        Raises:
            IllegalStateException: Always.
        """
        raise IllegalStateException("A session in a transaction is not recovered; roll your transaction back instead.")

    async def close(self) -> None:
        """End the session; what it has sent and received stays part of the transaction."""
        self._closed = True

    async def _join(self) -> Runner:
        with jms_errors("joining the transaction", OSError):  # asyncpg fails to connect so
            return await self._transaction.runner(self._schema)

    async def _look(self, work: Query[T] | Steps[T]) -> T:
        """Run what changes nothing. A transaction that begins with it ends with it."""
        was_open = self._transaction.is_open
        runner = await self._join()
        with uninterrupted():
            result = await self._run(runner, work, was_open=was_open)
            if not was_open:
                await finished(self._end())
        return result

    async def _run(self, runner: Runner, work: Query[T] | Steps[T], *, was_open: bool) -> T:
        """Run statements. If they fail or are cancelled, a transaction that has begun with them ends."""
        try:
            return await finished(runner.run(work))
        except BaseException:
            if not was_open:
                with contextlib.suppress(JMSException):
                    await finished(self._end())
            raise

    async def _end(self) -> None:
        with jms_errors("ending the transaction"):
            await self._transaction.end()

    def check_open(self) -> None:
        self._check_open()

    async def queue_id(self, queue: Queue, action: Action) -> int:
        """Return the queue's id; 0: there is no such queue."""
        return await self._look(self._find_queue(queue, action))

    def _find_queue(self, queue: Queue, action: Action) -> Steps[int]:
        # Receiving makes no queue: others who need it would have to wait for the caller's transaction to end.
        found = yield from find_queue(queue.name)
        if found is None:
            return _NO_QUEUE
        self._is_restricted = yield from require_access(found, action)
        return found

    async def server_time(self) -> int:
        database = self._database
        if database is None or database.clock.is_due:
            runner = await self._join()
            database = await finished(runner.run(self._find_database()))
        return database.clock.milliseconds()

    def _find_database(self) -> Steps[CallersDatabase]:
        """Learn where the joined connection leads, and the time there."""
        self._database = yield from callers_database(self._transaction.connection, self._timings)
        return self._database

    async def will_send_to(self, destination: Destination) -> None:
        """Do nothing: a queue that is missing is made with the send, and a topic need not be there."""

    async def create_temporary_queue(self) -> NoReturn:
        self._refuse_without_connection()

    async def create_temporary_topic(self) -> NoReturn:
        self._refuse_without_connection()

    async def unsubscribe(self, name: str) -> NoReturn:  # noqa: ARG002 - refused, whatever it is
        self._refuse_without_connection()

    async def subscribe(
        self,
        topic: Topic,  # noqa: ARG002 - refused, whatever they are
        subscription: SubscriptionDefinition,  # noqa: ARG002
    ) -> NoReturn:
        self._refuse_without_connection()

    def _refuse_without_connection(self) -> NoReturn:
        raise IllegalStateException(
            "Subscriptions and temporary destinations belong to a connection of jmsql's, which a session in your "
            "transaction does not have. Make one with ConnectionFactory.create_connection."
        )

    @property
    def client_id(self) -> str | None:
        """Refuse: only subscriptions need it."""
        self._refuse_without_connection()

    async def send(self, destination: Destination, message: OutgoingMessage, size: int) -> None:  # noqa: ARG002 - nothing waits
        """Send a message with the caller's commit."""
        runner = await self._join()
        await finished(runner.run(self._insert(destination, message)))
        if meters:
            measure(destination, Counts(sent=1))

    def _insert(self, destination: Destination, message: OutgoingMessage) -> Steps[None]:
        if isinstance(destination, Topic):
            yield from publish(destination, [message], _NOBODY)
        else:
            try:
                yield from send([message])
            except InvalidDestinationException:
                if isinstance(destination, TemporaryQueue):
                    raise
                yield from queue_id(destination.name)
                yield from send([message])
        database = yield from self._find_database()
        is_due = enlisted_notifications.is_due(
            (database.identity, self._schema, destination), self._timings.notification_interval
        )
        due = [destination.name] if is_due else []
        queues, topics = ([], due) if isinstance(destination, Topic) else (due, [])
        yield from notify_sent(queues, topics, delayed=message.jms_delivery_time is not None)

    async def send_asynchronously(self, send: AsynchronousSend) -> NoReturn:  # noqa: ARG002 - refused, whatever it is
        raise IllegalStateException(
            "A session in your transaction tells no completion listener; its sends take effect with your commit."
        )

    async def complete(self, method: str) -> None:
        """Do nothing: none is asynchronous."""

    async def open_buffer(self, queue: Queue, selector: Selector | None) -> PrefetchBuffer:
        return self._buffer(await self.queue_id(queue, "receive"), queue, selector)

    def _buffer(self, queue_id: int, queue: Queue, selector: Selector | None) -> PrefetchBuffer:
        clock = ServerClock(self._timings)  # not asked: nothing is fetched ahead, and could expire here
        return PrefetchBuffer(queue_id, selector, self._dequeue, queue, clock=clock, timings=self._timings)

    def _dequeue(
        self,
        queue_id: int,
        selector: Selector | None,
        lowest: Sequence[int],
        limit: int,
        groups: GroupScan | None = None,
    ) -> Query[list[MessageRow]]:
        return Recipient(restricted=self._is_restricted).dequeue(queue_id, selector, lowest, limit, groups)

    async def receive(
        self, consumer: ConsumerState, timeout: float | None, check: MessageCheck | None
    ) -> Message | None:
        """Return the consumer's next message, or None after `timeout` seconds; it counts as received anyway.

        Between two looks at the queue the transaction ends, unless the caller has begun it.
        """
        self.check_open()
        deadline = None if timeout is None else time.monotonic() + timeout
        poll = PollInterval(self._timings)
        news = self._transaction.news()
        is_first = True
        with contextlib.ExitStack() as exits:
            while not (self._closed or consumer.closed):
                count = news.count
                row = await self._receive(consumer, is_first=is_first)
                if row is not None:
                    message = row.message(consumer.destination)
                    if check is not None:
                        check(message)
                    return message
                remaining = None if deadline is None else deadline - time.monotonic()
                if remaining is not None and remaining <= 0:
                    break
                has_begun_to_listen = is_first and await self._listen(consumer.buffer, news.notify, exits)
                is_first = False
                if not has_begun_to_listen:  # else something may have come in between
                    await news.wait(count, poll.next() if remaining is None else min(poll.next(), remaining))
        return None

    async def _listen(self, buffer: PrefetchBuffer, wake: Callable[[], None], exits: contextlib.ExitStack) -> bool:
        """Be woken by a connection of jmsql's that this process has to the same database; return whether it has one.

        In the caller's transaction PostgreSQL notifies of nothing.
        """
        if buffer.queue_id == _NO_QUEUE or not is_listening(self._schema):
            return False
        if self._database is None:
            await self._look(self._find_database())
        assert self._database is not None
        connection = listening_connection(self._database.identity, self._schema)
        if connection is None:
            return False

        def handle(key: MessageKey | GroupKey | None) -> None:
            buffer.notify(key)
            wake()

        connection.begin_waiting(buffer.queue_id, handle)
        exits.callback(connection.end_waiting, buffer.queue_id, handle)
        return True

    async def _receive(self, consumer: ConsumerState, *, is_first: bool) -> MessageRow | None:
        was_open = self._transaction.is_open
        runner = await self._join()
        # A message that has come is returned, even if the task is cancelled meanwhile: its commit loses none.
        with uninterrupted():
            rows = await self._run(runner, self._fetch(consumer, is_first=is_first), was_open=was_open)
            if not rows and not was_open:
                await finished(self._end())
        return rows[0] if rows else None

    def _fetch(self, consumer: ConsumerState, *, is_first: bool) -> Steps[list[MessageRow]]:
        if consumer.buffer.queue_id == _NO_QUEUE:
            queue = require_queue(consumer.destination)
            consumer.buffer = self._buffer((yield from self._find_queue(queue, "receive")), queue, consumer.selector)
        # The end of the caller's transaction may go unnoticed, so nothing is fetched ahead of its delivery.
        rows = yield from consumer.buffer.fetch(1)
        if not rows and is_first:
            yield from require_read_committed()
            rows = yield from consumer.buffer.fetch_again(1)
        return rows

    async def browse(
        self, queue_id: int, selector: Selector | None, after: tuple[int, int], limit: int
    ) -> list[MessageRow]:
        return await self._look(browse(queue_id, selector, after, limit))

    async def set_listener(
        self,
        consumer: ConsumerState,  # noqa: ARG002 - refused, whatever they are
        listener: MessageListener | None,  # noqa: ARG002
    ) -> None:
        raise IllegalStateException("A session in your transaction has no listeners; call receive() instead.")

    async def redelivery_rules(self, policy: RedeliveryPolicy) -> NoReturn:  # noqa: ARG002 - refused, whatever it is
        raise IllegalStateException(
            "A session in your transaction counts no deliveries: how that ends, it need not learn. Make a connection "
            "with ConnectionFactory.create_connection."
        )

    async def consumer_opened(self, consumer: ConsumerState) -> None:  # noqa: ARG002 - it holds nothing
        """Make sure that the consumer will see what others commit."""
        await self._look(require_read_committed())

    async def consumer_closed(self, consumer: ConsumerState) -> None:
        """Do nothing: it holds nothing."""
