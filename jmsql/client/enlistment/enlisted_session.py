"""Sessions inside the caller's own transaction."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from jmsql.client._sync.session.abstract_session import AbstractSession
from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.consumer_state import ConsumerState
from jmsql.client.instrumentation import SessionFacts
from jmsql.client.message_listener import MessageCheck, MessageListener
from jmsql.client.polling import PollInterval
from jmsql.client.prefetch_buffer import PrefetchBuffer
from jmsql.client.send_buffer import SendBuffer
from jmsql.destinations import Destination, Queue, TemporaryQueue, Topic, require_queue
from jmsql.exceptions import IllegalStateException, InvalidDestinationException, TransactionInProgressException
from jmsql.messages import Message
from jmsql.selectors import Selector
from jmsql.store._sync.runner import Runner
from jmsql.store.acknowledge import Recipient
from jmsql.store.counters import Counts, measure, meters
from jmsql.store.errors import jms_errors
from jmsql.store.lookup import find_queue, queue_id, require_access
from jmsql.store.receive import browse, require_read_committed
from jmsql.store.send import Publisher, notify_sent
from jmsql.store.server_clock import ServerClock
from jmsql.timings import Timings

if TYPE_CHECKING:
    from jmsql.client.completion import AsynchronousSend
    from jmsql.policies import RedeliveryPolicy
    from jmsql.store.access import Action
    from jmsql.store.dequeue import GroupScan
    from jmsql.store.rows import MessageRow, OutgoingMessage
    from jmsql.store.statement import Query
    from jmsql.store.subscriptions import SubscriptionDefinition

__all__ = ["CallerTransaction", "EnlistedSession"]

_NO_QUEUE = 0
"""The id that no queue has."""

_NOBODY = Publisher()
"""A publisher in the caller's transaction has no connection of jmsql's."""

_notified: dict[Destination, float] = {}


def _notification_due(destination: Destination, interval: float) -> bool:
    """Tell whether to notify of a destination now, and note that it is done.

    Args:
        destination: What has new messages.
        interval: Seconds between two notifications of it by this process.
    """
    now = time.monotonic()
    if now < _notified.get(destination, 0.0) + interval:
        return False
    _notified[destination] = now
    return True


class CallerTransaction(ABC):
    """A transaction that belongs to the caller, who alone commits it or rolls it back."""

    buffers: bool = False
    """Whether sends wait for the commit, because only then the connection can be used."""

    def begin(self) -> None:  # noqa: B027 - most have one already
        """Make sure that a transaction is open, without talking to the server."""

    @abstractmethod
    def runner(self, schema: str) -> Runner:
        """Return what runs statements in the transaction."""


class EnlistedSession(AbstractSession):
    """A session in the caller's transaction: it never commits, rolls back, or starts a thread.

    Args:
        transaction: The caller's.
        schema: The name of the schema.
        timings: How often it polls and notifies.
    """

    def __init__(self, transaction: CallerTransaction, schema: str, timings: Timings) -> None:
        self._transaction = transaction
        self._schema = schema
        self._timings = timings
        self._is_restricted = False
        self._closed = False
        self._sending = self._receiving = self
        self.send_buffer = SendBuffer()
        self.facts = self.followed = SessionFacts()
        self.clock = ServerClock(timings)

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

    def acknowledge(self) -> None:
        """Do nothing: what was received is acknowledged by the caller's commit."""
        self._check_open()

    def commit(self) -> NoReturn:
        """Refuse: the transaction is the caller's.

        Raises:
            TransactionInProgressException: Always.
        """
        raise TransactionInProgressException("The session is part of your transaction: commit that instead.")

    def rollback(self, error: BaseException | str | None = None) -> NoReturn:  # noqa: ARG002 - refused
        """Refuse: the transaction is the caller's.

        Raises:
            TransactionInProgressException: Always.
        """
        raise TransactionInProgressException("The session is part of your transaction: roll that back instead.")

    def recover(self, error: BaseException | str | None = None) -> NoReturn:  # noqa: ARG002 - refused
        """Refuse, as every transacted session does.

        Raises:
            IllegalStateException: Always.
        """
        raise IllegalStateException("A session in a transaction is not recovered; roll your transaction back instead.")

    def close(self) -> None:
        """End the session; what it has sent and received stays part of the transaction."""
        self._closed = True

    def flush(self) -> None:
        """Insert what waits to be sent, in the caller's transaction."""
        if not self.send_buffer:
            return
        runner = self._runner
        try:
            runner.run(self.send_buffer.flush(_NOBODY))
        except InvalidDestinationException:
            for destination in self.send_buffer.destinations:
                if not isinstance(destination, TemporaryQueue | Topic):
                    runner.run(queue_id(destination.name))
            runner.run(self.send_buffer.flush(_NOBODY))
        news = self.send_buffer.ended()
        interval = self._timings.enlisted_notification_interval
        due = [destination for destination in news.destinations if _notification_due(destination, interval)]
        topics = [destination.name for destination in due if isinstance(destination, Topic)]
        queues = [destination.name for destination in due if not isinstance(destination, Topic)]
        runner.run(notify_sent(queues, topics, delayed=news.delayed))
        if meters:
            for destination, number in news.destinations.items():
                measure(destination, Counts(sent=number))

    @property
    def _runner(self) -> Runner:
        with jms_errors("joining the transaction"):
            return self._transaction.runner(self._schema)

    def check_open(self) -> None:
        self._check_open()

    def queue_id(self, queue: Queue, action: Action) -> int:
        """Return the queue's id; 0: there is no such queue."""
        # Receiving makes no queue: others who need it would have to wait for the caller's transaction to end.
        found = self._runner.run(find_queue(queue.name))
        if found is None:
            return _NO_QUEUE
        self._is_restricted = self._runner.run(require_access(found, action))
        return found

    def will_send_to(self, destination: Destination) -> None:
        """Do nothing: a queue that is missing is made with the send, and a topic need not be there."""

    def create_temporary_queue(self) -> NoReturn:
        self._refuse_without_connection()

    def create_temporary_topic(self) -> NoReturn:
        self._refuse_without_connection()

    def unsubscribe(self, name: str) -> NoReturn:  # noqa: ARG002 - refused, whatever it is
        self._refuse_without_connection()

    def subscribe(
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

    def send(self, destination: Destination, message: OutgoingMessage) -> None:
        """Send a message with the caller's commit."""
        with jms_errors("joining the transaction"):
            self._transaction.begin()
        self.send_buffer.add(destination, message)
        if self._transaction.buffers:
            return
        try:
            self.flush()
        finally:
            self.send_buffer.ended()  # a message that failed does not go out with the next

    def send_asynchronously(self, send: AsynchronousSend) -> NoReturn:  # noqa: ARG002 - refused, whatever it is
        raise IllegalStateException(
            "A session in your transaction tells no completion listener; its sends take effect with your commit."
        )

    def complete(self, method: str) -> None:
        """Do nothing: none is asynchronous."""

    def open_buffer(self, queue: Queue, selector: Selector | None) -> PrefetchBuffer:
        queue_id = self.queue_id(queue, "receive")
        return PrefetchBuffer(
            queue_id, selector, self._dequeue, lambda: None, queue, clock=self.clock, timings=self._timings
        )

    def _dequeue(
        self,
        queue_id: int,
        selector: Selector | None,
        lowest: Sequence[int],
        limit: int,
        groups: GroupScan | None = None,
    ) -> Query[list[MessageRow]]:
        return Recipient(restricted=self._is_restricted).dequeue(queue_id, selector, lowest, limit, groups)

    def receive(self, consumer: ConsumerState, timeout: float | None, check: MessageCheck | None) -> Message | None:
        """Return the consumer's next message, or None after `timeout` seconds; it counts as received anyway."""
        # The end of the caller's transaction may go unnoticed, so nothing is fetched ahead of its delivery.
        deadline = None if timeout is None else time.monotonic() + timeout
        poll = PollInterval(self._timings)
        is_first = True
        while not (self._closed or consumer.closed):
            if consumer.buffer.queue_id == _NO_QUEUE:
                consumer.buffer = self.open_buffer(require_queue(consumer.destination), consumer.selector)
            runner = self._runner
            rows = runner.run(consumer.buffer.fetch(1))
            if not rows and is_first:
                is_first = False
                runner.run(require_read_committed())
                rows = runner.run(consumer.buffer.fetch_again(1))
            if rows:
                message = rows[0].message(consumer.destination)
                if check is not None:
                    check(message)
                return message
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                break
            runner.sleep(poll.next() if remaining is None else min(poll.next(), remaining))
        return None

    def browse(self, queue_id: int, selector: Selector | None, after: tuple[int, int], limit: int) -> list[MessageRow]:
        return self._runner.run(browse(queue_id, selector, after, limit))

    def set_listener(
        self,
        consumer: ConsumerState,  # noqa: ARG002 - refused, whatever they are
        listener: MessageListener | None,  # noqa: ARG002
    ) -> None:
        raise IllegalStateException("A session in your transaction has no listeners; call receive() instead.")

    def redelivery_rules(self, policy: RedeliveryPolicy) -> NoReturn:  # noqa: ARG002 - refused, whatever it is
        raise IllegalStateException(
            "A session in your transaction counts no deliveries: how that ends, it need not learn. Make a connection "
            "with ConnectionFactory.create_connection."
        )

    def consumer_opened(self, consumer: ConsumerState) -> None:  # noqa: ARG002 - it holds nothing
        """Make sure that the consumer will see what others commit."""
        self._runner.run(require_read_committed())

    def consumer_closed(self, consumer: ConsumerState) -> None:
        """Do nothing: it holds nothing."""
