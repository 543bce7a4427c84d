"""The application's own transaction, as a session works in it: the transaction of an enlisted session."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TypeVar

from jmsql.client._async.session.transactions.transaction import Transaction
from jmsql.client._async.session.waiting import Waiting
from jmsql.client._async.shared.endings import Endings
from jmsql.client.creation_beside import Place, make_queue_beside
from jmsql.client.pacing import PollInterval, enlisted_notifications
from jmsql.concurrency.tasks import in_thread, run_to_completion, shielded
from jmsql.exceptions import (
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    TransactionInProgressException,
)
from jmsql.store.control.counters import Counts, measure, meters
from jmsql.store.control.listening import is_listening, listening_connection
from jmsql.store.control.server import CallersDatabase, callers_database
from jmsql.store.destinations.lookup import circumstances, find_queue, queue_id_in_transaction, require_access
from jmsql.store.errors import jms_errors
from jmsql.store.receiving.receive import browse, dequeue, require_read_committed
from jmsql.store.sending.conditional import ConditionalMessage, ConditionalSends, outcomes
from jmsql.store.sending.notification import Notification, notify, notify_sent
from jmsql.store.sending.send import Publisher, publish, send
from jmsql.store.statement import in_transaction
from jmsql.values.destinations import Destination, Queue, TemporaryQueue, Topic, require_queue

if TYPE_CHECKING:
    from jmsql.client._async.session.session_state import SessionState
    from jmsql.client._async.session.transactions.caller import CallerTransaction
    from jmsql.client.consumer_state import ConsumerState
    from jmsql.client.listeners import AsynchronousSend, MessageCheck
    from jmsql.client.receiving.fetching import PrefetchBuffer, QueueSource
    from jmsql.concurrency.tasks import Notifications
    from jmsql.messages import Message
    from jmsql.selectors import Selector
    from jmsql.store.control.listening import ListeningConnection
    from jmsql.store.control.wake_ups import Look
    from jmsql.store.destinations.access import Action
    from jmsql.store.receiving.late_messages import ScanStart
    from jmsql.store.receiving.receive import Fetch, GroupScan
    from jmsql.store.rows.message_rows import GroupKey, MessageKey, MessageRow, OutgoingMessage
    from jmsql.store.statement import Query, Steps
    from jmsql.store.wire._async.runner import Runner
    from jmsql.values.policies import RedeliveryPolicy


T = TypeVar("T")

_NO_QUEUE = 0
"""The id that no queue has."""

_NOBODY = Publisher()
"""A publisher in the caller's transaction has no jmsql connection."""


# The caller ends the transaction, and jmsql may not notice how. So this class relies on nothing that a rollback could
# undo behind its back:
#
# 1. Nothing is fetched ahead of its delivery, or collected until the commit. Each send and each receipt is a statement
#    that runs at once.
# 2. A message that a rollback has released lies behind the place from which the consumer fetches next. So the consumer
#    goes back to the first message of each former transaction (`_look_again`), and a call that found nothing looks once
#    more from the front (`fetch_again`). SQLAlchemy has an object for each transaction. With psycopg a former one is
#    known to have ended only if none is open: if the caller has begun the next one, later messages may come first.
# 3. A transaction that has begun with jmsql's own query, which found nothing or failed, is ended again: the caller had
#    none open.
# 4. Only READ COMMITTED receives. In a stricter transaction the snapshot hides the claims that others make, and it
#    would receive their messages.
#
# Notifications take effect with the commit, and notifying commits wait for each other. So a process does not notify
# with every transaction: see `NotificationPacing`.


class EnlistedTransaction(Transaction):
    """The session's work becomes part of the caller's transaction, which it never ends.

    But for one that has begun with a look at a queue which has found nothing.
    """

    def __init__(self, state: SessionState, caller: CallerTransaction) -> None:
        super().__init__(state)
        self._caller = caller
        self._schema = state.client.schema
        self._timings = state.client.timings
        self._is_restricted = False
        self._waiting: _EnlistedWaiting | None = None
        self._database: CallersDatabase | None = None
        self._received: dict[tuple[QueueSource, int, int | None], MessageKey] = {}
        """The first message of each place that `next` received in the transaction, while that is open."""

    # Running statements

    async def _join(self) -> Runner:
        with jms_errors("joining the transaction", OSError):  # asyncpg fails to connect so
            return await self._caller.runner(self._schema)

    async def read(self, work: Query[T] | Steps[T]) -> T:
        """Run a read-only statement. A transaction that begins with it ends with it."""
        was_open = self._caller.is_open
        runner = await self._join()
        with shielded():
            result = await self._run(runner, work, was_open=was_open)
            if not was_open:
                await run_to_completion(self._end())
        return result

    async def run(self, work: Query[T] | Steps[T]) -> T:
        runner = await self._join()
        return await run_to_completion(runner.run(in_transaction(work) if runner.is_idle else work))

    async def _run(self, runner: Runner, work: Query[T] | Steps[T], *, was_open: bool) -> T:
        """Run statements. If they fail or are cancelled, a transaction that has begun with them ends."""
        try:
            return await run_to_completion(runner.run(work))
        except BaseException:
            if not was_open:
                with contextlib.suppress(JMSException):
                    await run_to_completion(self._end())
            raise

    async def _end(self) -> None:
        with jms_errors("ending the transaction"):
            await self._caller.end()

    def _find_database(self) -> Steps[CallersDatabase]:
        """Learn where the joined connection leads, and the time there."""
        self._database = yield from callers_database(self._caller.connection, self._timings)
        return self._database

    # Sending

    async def will_send_to(self, destination: Destination) -> None:
        """Do nothing: a queue that is missing is made with the send, and a topic need not be there."""

    async def make_queue(self, queue: Queue) -> None:
        runner = await self._join()
        if await run_to_completion(runner.run(find_queue(queue.name))) is None:
            await self._make_queue_beside(runner, queue.name)

    async def server_time(self) -> int:
        database = self._database
        if database is None or database.clock.is_due:
            runner = await self._join()
            database = await run_to_completion(runner.run(self._find_database()))
        return database.clock.milliseconds()

    async def send(self, destination: Destination, message: OutgoingMessage, size: int) -> None:
        await self.send_batch(destination, [(message, size)])

    async def send_batch(self, destination: Destination, messages: list[tuple[OutgoingMessage, int]]) -> None:
        runner = await self._join()
        outgoing = [message for message, _ in messages]
        await run_to_completion(self._send(runner, destination, outgoing))
        if meters:
            duplicates, coalesced = outcomes(outgoing)
            sent = len(outgoing) - duplicates - coalesced
            measure(destination, Counts(sent, duplicates=duplicates, coalesced=coalesced))

    async def _send(self, runner: Runner, destination: Destination, messages: Sequence[OutgoingMessage]) -> None:
        try:
            await runner.run(self._insert(runner, destination, messages))
        except InvalidDestinationException:
            if isinstance(destination, TemporaryQueue | Topic):
                raise
            if await self._make_queue_beside(runner, destination.name):
                # Unless the transaction itself has just deleted the queue, which is there for others.
                with contextlib.suppress(InvalidDestinationException):
                    await runner.run(self._insert(runner, destination, messages))
                    return
            making = queue_id_in_transaction(destination.name, self._timings.lock_timeout)
            await runner.run(in_transaction(making) if runner.is_idle else making)
            await runner.run(self._insert(runner, destination, messages))

    def _insert(self, runner: Runner, destination: Destination, messages: Sequence[OutgoingMessage]) -> Steps[None]:
        if any(isinstance(message, ConditionalMessage) for message in messages):
            if runner.is_idle:
                yield from circumstances()  # with this the driver begins a transaction, unless each statement commits
            sending = self._send_conditionally(destination, messages)
            yield from in_transaction(sending) if runner.is_idle else sending
            return
        if isinstance(destination, Topic):
            yield from publish(destination, messages, _NOBODY)
        else:
            yield from send(messages, copies=False)
        yield from self._notify(destination, messages)

    def _send_conditionally(self, destination: Destination, messages: Sequence[OutgoingMessage]) -> Steps[None]:
        sends = ConditionalSends()
        if isinstance(destination, Topic):
            yield from sends.send(destination, messages, partial(publish, destination, publisher=_NOBODY))
        else:
            yield from sends.send(None, messages, partial(send, copies=False))
        if sends.unsent[destination] < len(messages):
            yield from self._notify(destination, messages)
        if sends.locked and not self._caller.ends_in_two_phases:
            yield from notify([Notification(key.queue_id, key).payload() for key in sends.locked])

    def _notify(self, destination: Destination, messages: Sequence[OutgoingMessage]) -> Steps[None]:
        if self._caller.ends_in_two_phases:
            return  # consumers find the messages when they look again, as if another session had committed them
        database = yield from self._find_database()
        is_due = enlisted_notifications.is_due(
            (database.identity, self._schema, destination), self._timings.notification_interval
        )
        yield from _notify_sent(destination, is_due=is_due, delayed=messages[0].jms_delivery_time is not None)

    async def _make_queue_beside(self, runner: Runner, name: str) -> bool:
        """Make a queue outside of the transaction; return whether that can be."""
        if runner.is_idle:  # each statement commits
            return False
        isolation_level, role = await runner.run(circumstances())
        conninfo = self._caller.conninfo
        if conninfo is None or isolation_level != "read committed":  # a stricter one would not see the queue
            return False
        database = await runner.run(self._find_database())
        place = Place(conninfo, self._schema, database.identity, role)
        return await in_thread(make_queue_beside, place, name, self._timings.lock_timeout)

    async def send_asynchronously(self, send: AsynchronousSend) -> NoReturn:  # noqa: ARG002 - always refused
        raise IllegalStateException(
            "A session in your transaction calls no completion listeners; its sends take effect with your commit."
        )

    # Receiving

    async def queue_id(self, queue: Queue, action: Action) -> int:
        """Return the queue's id; 0: there is no such queue."""
        return await self.read(self._find_queue(queue, action))

    def _find_queue(self, queue: Queue, action: Action) -> Steps[int]:
        # Receiving makes no queue: others who need it would have to wait for the caller's transaction to end.
        found = yield from find_queue(queue.name)
        if found is None:
            return _NO_QUEUE
        self._is_restricted = yield from require_access(found, action)
        return found

    async def opened(self, consumer: ConsumerState) -> None:  # noqa: ARG002 - it holds nothing
        """Make sure that the consumer will see later commits of others."""
        await self.read(require_read_committed())

    async def closed(self, consumer: ConsumerState) -> None:
        """Do nothing: it holds nothing."""

    def fetch_for(self, consumer: ConsumerState | None) -> Fetch:  # noqa: ARG002 - it has no listeners
        return self._dequeue

    def _dequeue(
        self,
        queue_id: int,
        selector: Selector | None,
        start: ScanStart,
        limit: int,
        groups: GroupScan | None = None,
    ) -> Query[list[MessageRow]]:
        return dequeue(queue_id, selector, start, limit, groups, restricted=self._is_restricted)

    def pop_buffered(self, consumer: ConsumerState) -> None:
        """Return None: the end of the transaction may go unnoticed, so nothing is fetched ahead of its delivery."""

    async def next(self, consumer: ConsumerState, check: MessageCheck | None = None) -> Message | None:
        was_open = self._caller.is_open
        if not self._caller.goes_on():
            self._look_again()
        runner = await self._join()
        # A message that has come is returned, even if the task is cancelled meanwhile: its commit loses none.
        with shielded():
            rows = await self._run(runner, self._fetch(consumer), was_open=was_open)
            if not rows and not was_open:
                await run_to_completion(self._end())
        if not rows:
            return None
        self._note_received(consumer.buffer, rows[0])
        message = rows[0].message(consumer.destination)
        if check is not None:
            check(message)
        return message

    def _note_received(self, buffer: PrefetchBuffer, row: MessageRow) -> None:
        key = buffer.held.key(row)
        place = buffer.source, key.inverse_priority, key.group_hash
        self._received[place] = min(self._received.get(place, key), key)
        self._caller.note_receipt()

    def _look_again(self) -> None:
        """Fetch again from the former transaction's messages, which a rollback may have released."""
        for (source, _, _), key in self._received.items():
            source.returned(key)
        self._received.clear()

    def _fetch(self, consumer: ConsumerState) -> Steps[list[MessageRow]]:
        buffer = consumer.buffer
        if buffer.source.next_queue_id == _NO_QUEUE:
            found = yield from self._find_queue(require_queue(consumer.destination), "receive")
            if found == _NO_QUEUE:
                return []
            buffer.source.move(found)
        rows = yield from buffer.fetch(1)
        if not rows and (self._waiting is None or self._waiting.is_over):  # the first look of a call
            yield from require_read_committed()
            rows = yield from buffer.fetch_again(1)
        return rows

    @property
    def is_settled(self) -> bool:
        """False: it is not known when the transaction ends."""
        return False

    async def browse(
        self, queue_id: int, selector: Selector | None, after: tuple[int, int], limit: int
    ) -> list[MessageRow]:
        return await self.read(browse(queue_id, selector, after, limit))

    def watch(self, consumer: ConsumerState) -> Waiting:
        self._waiting = _EnlistedWaiting(self, self._caller.news(), consumer.buffer, PollInterval(self._timings))
        return self._waiting

    async def listening_connection(self) -> ListeningConnection | None:
        """Return a jmsql connection in this process that receives notifications of the database; None: none does."""
        if not is_listening(self._schema):
            return None
        database = self._database if self._database is not None else await self.read(self._find_database())
        return listening_connection(database.identity, self._schema)

    def endings(self) -> Endings:
        return _EnlistedEndings(self, self._caller)

    async def redelivery_rules(self, policy: RedeliveryPolicy, queue_id: int) -> NoReturn:  # noqa: ARG002 - refused
        raise IllegalStateException(
            "A session in your transaction does not count deliveries, since it cannot know how that ends. Make a "
            "connection with ConnectionFactory.create_connection."
        )

    # Ending

    async def commit(self) -> NoReturn:
        raise TransactionInProgressException("The session is part of your transaction: commit that instead.")

    async def rollback(self, error: BaseException | str | None) -> NoReturn:  # noqa: ARG002 - refused
        raise TransactionInProgressException("The session is part of your transaction: roll that back instead.")

    async def recover(self, error: BaseException | str | None) -> NoReturn:  # noqa: ARG002 - refused
        raise IllegalStateException("A session in your transaction cannot recover; roll the transaction back instead.")

    async def share(self) -> NoReturn:
        raise IllegalStateException("The session is part of your transaction, whose connection you have already.")

    async def close(self) -> None:
        """Do nothing: its sent and received messages stay part of the transaction."""


def _notify_sent(destination: Destination, *, is_due: bool, delayed: bool) -> Steps[None]:
    names = [destination.name] if is_due else []
    queues, topics = ([], names) if isinstance(destination, Topic) else (names, [])
    yield from notify_sent(queues, topics, delayed=delayed)


class _EnlistedEndings(Endings):
    """Reads in the caller's transaction."""

    def __init__(self, transaction: EnlistedTransaction, caller: CallerTransaction) -> None:
        self._transaction = transaction
        self._caller = caller

    async def read(self, find: Callable[[str], Query[T]] | Callable[[str], Steps[T]], message_uuid: str) -> T:
        return await self._transaction.read(find(message_uuid))

    async def listening_connection(self) -> ListeningConnection | None:
        return await self._transaction.listening_connection()

    @property
    def transaction(self) -> str | None:
        return "the caller's transaction" if self._caller.is_open else super().transaction

    def notifications(self) -> Notifications:
        return self._caller.news()


class _EnlistedWaiting(Waiting):
    """The waits of one call of `receive`.

    In the caller's transaction PostgreSQL notifies of nothing. A jmsql connection of this process to the same database
    wakes it, if there is one. Else it looks now and then, ever more seldom.
    """

    def __init__(
        self, transaction: EnlistedTransaction, news: Notifications, buffer: PrefetchBuffer, poll: PollInterval
    ) -> None:
        self._transaction = transaction
        self._news = news
        self._buffer = buffer
        self._poll = poll
        self._count = news.count
        self._listening: ListeningConnection | None = None
        self._queue_id = _NO_QUEUE
        self._has_looked = False
        self.is_over = False
        """True if the call has ended."""

    def before_fetch(self, news: int, buffers: Sequence[PrefetchBuffer], look: Look | None = None) -> None:
        """Do nothing: news is noted between two looks."""

    def after_fetch(self, *, found: bool) -> None:
        """Do nothing: no other consumer of a client waits for the same."""

    async def wait(self, most: float | None = None) -> None:
        has_looked, self._has_looked = self._has_looked, True
        if has_looked or not await self._listen():  # else something may have come in between
            pause = self._poll.next()
            await self._news.wait(self._count, pause if most is None else min(pause, most))
        self._count = self._news.count

    async def _listen(self) -> bool:
        """Register with a jmsql connection that wakes it; return whether there is one."""
        self._queue_id = self._buffer.source.queue_id
        if self._queue_id != _NO_QUEUE:
            self._listening = await self._transaction.listening_connection()
        if self._listening is None:
            return False
        self._listening.begin_waiting(self._queue_id, self._heard)
        return True

    def _heard(self, key: MessageKey | GroupKey | None) -> None:
        self._buffer.source.notify(key)
        self._news.notify()

    def close(self) -> None:
        self.is_over = True
        if self._listening is not None:
            self._listening.end_waiting(self._queue_id, self._heard)
