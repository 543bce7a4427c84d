"""The base classes of all transactions: how a session sends, receives, acknowledges and ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, TypeVar

from jmsql.client._async.link.lease import Lease
from jmsql.client._async.session.waiting import Watch
from jmsql.client._async.shared.endings import ClientEndings
from jmsql.client.message_ids import MessageIds
from jmsql.store.destinations.lookup import require_access

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from jmsql.client._async.session.asynchronous_sender import AsynchronousSender
    from jmsql.client._async.session.delivery import Delivery
    from jmsql.client._async.session.session_state import SessionState
    from jmsql.client._async.session.waiting import Waiting
    from jmsql.client._async.shared.client_context import ClientContext
    from jmsql.client._async.shared.endings import Endings
    from jmsql.client._async.shared.redelivery import Failure
    from jmsql.client.consumer_state import ConsumerState
    from jmsql.client.listeners import AsynchronousSend, MessageCheck
    from jmsql.client.receiving.fetching import PrefetchBuffer
    from jmsql.exceptions import JMSException
    from jmsql.messages import Message
    from jmsql.selectors import Selector
    from jmsql.store.control.server import ServerClock
    from jmsql.store.destinations.access import Action
    from jmsql.store.receiving.reader import ScanPositions
    from jmsql.store.receiving.receive import Fetch
    from jmsql.store.receiving.redelivery import Rules
    from jmsql.store.rows.message_rows import Claim, MessageKey, MessageRow, OutgoingMessage
    from jmsql.store.statement import Query, Steps
    from jmsql.values.destinations import Destination, Queue
    from jmsql.values.policies import RedeliveryPolicy


T = TypeVar("T")


# A session has one of these objects, chosen by its class and mode when it is made. Each question that a mode answers in
# its own way is a method here, so that sessions, consumers and producers need not ask for the mode.
#
# - `NoTransaction` (AUTO, CLIENT, DUPS_OK): sends take effect at once, received messages are dequeued or claimed.
# - `LocalTransaction` (TRANSACTED): sends are collected, received messages are locked or claimed, and the commit ends
#   both.
# - `HandlerTransaction` (a worker's session): the same, but the handler's message is claimed, and others are claimed
#   ahead.
# - `GlobalTransaction` (XA): a `LocalTransaction` that ends in two phases.
# - `EnlistedTransaction` (`enlist`): the caller's transaction, which the session never ends. It has no connection of
#   its own and no listeners, and counts no deliveries.
#
# `OwnTransaction` is the part that all but the last share: the lease of a connection, and a delivery.


class Transaction(ABC):
    """A session's way to send, receive, acknowledge, and end its transactions. Each session has one, for its life."""

    database: Lease | None = None
    """The session's connection; None: it works on the caller's."""
    clock: ServerClock | None = None
    """The server's, by which messages expire; None: `server_time` asks for it."""
    missing: Collection[Destination] = ()
    """The destinations that were gone when they were last sent to."""
    is_usable = True
    """True if messages can be sent and received now."""

    def __init__(self, state: SessionState) -> None:
        self.state = state
        self.message_ids = MessageIds()
        """The identifiers of the messages that the session sends."""

    def check_usable(self) -> None:  # noqa: B027 - most are always usable
        """Raise IllegalStateException if nothing can be sent and received now."""

    # Sending

    @abstractmethod
    async def will_send_to(self, destination: Destination) -> None:
        """Make the destination if need be, as messages are going to be sent to it."""

    async def make_queue(self, queue: Queue) -> None:
        """Make a queue if it is missing, beside the transaction if that can be."""
        await self.will_send_to(queue)

    async def server_time(self) -> int:
        """Return the server's time in milliseconds since the epoch."""
        assert self.clock is not None
        return self.clock.milliseconds()

    @abstractmethod
    async def send(self, destination: Destination, message: OutgoingMessage, size: int) -> None:
        """Send a message, now or with the commit."""

    @abstractmethod
    async def send_batch(self, destination: Destination, messages: list[tuple[OutgoingMessage, int]]) -> None:
        """Send messages with their sizes to one destination; all of them have a delivery time to wait for, or none.

        If it is cancelled, the messages that it has not sent are left in the list.
        """

    async def send_settled(self, destination: Destination, message: OutgoingMessage, size: int) -> None:
        """Send a message under conditions, whose outcome is known then."""
        await self.send(destination, message, size)  # most send at once

    @abstractmethod
    async def send_asynchronously(self, send: AsynchronousSend) -> None:
        """Have a message sent, and its listener told, without waiting for it."""

    async def complete(self, method: str) -> None:  # noqa: B027 - there may be none
        """Wait until all listeners of asynchronous sends have returned.

        Raises:
            IllegalStateException: The caller is such a listener.
        """

    # Receiving

    @abstractmethod
    async def queue_id(self, queue: Queue, action: Action) -> int:
        """Return the queue's id, making the queue if need be."""

    @abstractmethod
    async def opened(self, consumer: ConsumerState) -> None:
        """Note that there is a new consumer."""

    @abstractmethod
    async def closed(self, consumer: ConsumerState) -> None:
        """Release the messages of a consumer that is closed or gets messages in another way."""

    @property
    def positions(self) -> ScanPositions | None:
        """The positions in queues that its consumers share with others of the client; None: each has its own."""
        return None

    @abstractmethod
    def fetch_for(self, consumer: ConsumerState | None) -> Fetch:
        """Return the operation that hands out a consumer's messages; None: for one without a listener."""

    @abstractmethod
    def pop_buffered(self, consumer: ConsumerState) -> Message | None:
        """Return a message that was fetched before, as `next` does, if that takes no statement."""

    @abstractmethod
    async def next(self, consumer: ConsumerState, check: MessageCheck | None = None) -> Message | None:
        """Return the consumer's next message as delivered, if there is one now.

        Args:
            consumer: The consumer.
            check: Called with the message; raises an exception if it is not wanted. Its outcome then depends on the
                mode (Jakarta Messaging 3.1, chapter 8.6): where the session acknowledges by itself, the message counts
                as not received; else it counts as received.
        """

    @property
    @abstractmethod
    def is_settled(self) -> bool:
        """True if every received message is acknowledged or committed."""

    @abstractmethod
    async def browse(
        self, queue_id: int, selector: Selector | None, after: tuple[int, int], limit: int
    ) -> list[MessageRow]:
        """Read messages of a queue after a key."""

    @abstractmethod
    def watch(self, consumer: ConsumerState) -> Waiting:
        """Return how a consumer waits for messages."""

    @abstractmethod
    async def run(self, work: Query[T] | Steps[T]) -> T:
        """Run statements in the transaction; without one they take effect together when this returns."""

    @abstractmethod
    def endings(self) -> Endings:
        """Return the reader of messages' ends."""

    @abstractmethod
    async def redelivery_rules(self, policy: RedeliveryPolicy, queue_id: int) -> Rules:
        """Return the rules of a consumer's policy, and make its dead-letter queue if missing."""

    # Acknowledging

    async def acknowledge(self) -> None:
        """Acknowledge messages, as `Message.acknowledge` defines it for the session."""
        self.state.check_open()

    async def settle(self) -> None:  # noqa: B027 - for DUPS_OK
        """Make the session's own late acknowledgements now, except for a running listener's messages."""

    def extend_claims(self) -> AbstractContextManager[None]:
        """Extend the claims on messages that are delivered and not acknowledged for as long as a `with` block runs."""
        return nullcontext()

    # Ending

    @abstractmethod
    async def commit(self) -> None:
        """Commit; see `Session.commit`."""

    @abstractmethod
    async def rollback(self, error: BaseException | str | None) -> None:
        """Roll back; see `Session.rollback`."""

    @abstractmethod
    async def recover(self, error: BaseException | str | None) -> None:
        """Recover; see `Session.recover`."""

    @abstractmethod
    async def share(self) -> AsyncConnection:
        """Share the connection; see `Session.get_database`."""

    async def stop(self) -> None:  # noqa: B027 - nothing may run beside the session
        """Complete the asynchronous sends, and end the session's background tasks, when it closes."""

    @abstractmethod
    async def close(self) -> None:
        """Undo the session's unsettled work, with its lock held."""

    async def release(self) -> None:  # noqa: B027 - it may have none
        """Let go of the session's connection."""


def session_lease(client: ClientContext, *, transacted: bool, shares_connections: bool = False) -> Lease:
    """Make the lease by which a session of a client has its connection."""
    return Lease(
        client.pool,
        transacted=transacted,
        client=client.control,
        restricted=client.is_restricted,
        shares_connections=shares_connections,
    )


class OwnTransaction(Transaction):
    """How a session of a connection of jmsql's does it, which has a connection to the server of its own."""

    database: Lease

    def __init__(self, state: SessionState, client: ClientContext, database: Lease, delivery: Delivery) -> None:
        super().__init__(state)
        self.database = database
        self.delivery = delivery
        self.clock = client.clock
        self._client = client
        self._sender: AsynchronousSender | None = None
        """Sends asynchronously; None: nothing was sent so. The session's thread or task writes it, once."""
        self.failure_at_close: Failure | None = None
        """The reason for which closing the session ends deliveries; None: no failure. Written by `fail_at_close`."""

    async def will_send_to(self, destination: Destination) -> None:
        await self._client.destinations.find(destination)

    async def send_asynchronously(self, send: AsynchronousSend) -> None:
        await self._started_sender().submit(send)

    def _started_sender(self) -> AsynchronousSender:
        """Return the sender of asynchronous sends, which the first one starts.

        Raises:
            ResourceAllocationException: It has no thread. The next send tries to start it again.
        """
        if self._sender is None:
            sender = self._create_sender()
            sender.start()
            self._sender = sender
            self.state.complete_in(sender.identity)
        return self._sender

    @abstractmethod
    def _create_sender(self) -> AsynchronousSender:
        """Make the sender of asynchronous sends."""

    async def complete(self, method: str) -> None:
        if self._sender is not None:
            self.state.check_no_completion(method)
            await self._sender.wait_until_told()

    async def queue_id(self, queue: Queue, action: Action) -> int:
        destinations, side = self._client.destinations, self._client.side
        destinations.require_own(queue)
        queue_id = await destinations.look_up(queue)
        if self._client.is_restricted:  # else it would wait for rows that policies hide
            await side.run(require_access, queue_id, action)
        return queue_id

    async def opened(self, consumer: ConsumerState) -> None:
        self._client.subscription_registry.listen(consumer.buffer.source)

    @property
    def positions(self) -> ScanPositions | None:
        return self._client.positions if self.delivery.shares_position else None

    def fetch_for(self, consumer: ConsumerState | None) -> Fetch:  # noqa: ARG002 - most have one way
        return self.delivery.operation

    def pop_buffered(self, consumer: ConsumerState) -> Message | None:
        if self._sender is not None:
            return None  # it may be deleting messages, for a send under conditions: `next` waits for it
        row = self.delivery.pop_buffered(consumer.buffer)
        return None if row is None else row.message(consumer.destination, self.acknowledge)

    @property
    def is_settled(self) -> bool:
        return not self.delivery.has_delivered

    @property
    def last_claim(self) -> tuple[MessageKey, Claim] | None:
        """The message that was delivered, with its claim; None: it has none, or there are several messages."""
        return None

    def watch(self, consumer: ConsumerState) -> Watch:
        return Watch(self.state, self._client, consumer.buffer.poll, self.database, self.delivery)

    def endings(self) -> Endings:
        return ClientEndings(self._client)

    async def redelivery_rules(self, policy: RedeliveryPolicy, queue_id: int) -> Rules:
        return await self._client.redelivery.rules_of(policy, queue_id)

    # For listeners

    async def handled(self, failure: Failure | None) -> None:
        """Settle a listener's message, in the modes where the session does that: AUTO and DUPS_OK."""

    async def paused(self) -> None:
        """Settle acknowledgements that wait for more, since no message comes next."""

    async def failed(self, error: JMSException) -> JMSException:
        """Begin again after an error between listeners, and return the error for their connection."""
        return error

    async def load(self, buffer: PrefetchBuffer, limit: int) -> None:
        """Fetch up to `limit` messages for a connection consumer, in place of those that the prefetch buffer holds."""
        buffer.discard_rows()  # leftovers of an earlier run, which the open transaction holds
        await self.delivery.fetch(buffer, limit)

    async def next_loaded(self, buffer: PrefetchBuffer) -> MessageRow | None:
        """Return the next message that was loaded, now delivered, or None if there is none."""
        return await self.delivery.next_held(buffer)

    @abstractmethod
    async def unloaded(self, buffer: PrefetchBuffer) -> None:
        """Release the messages of a prefetch buffer that a connection consumer has filled."""

    # Ending

    def fail_at_close(self, failure: Failure | None) -> None:
        """Have closing the session end its deliveries for this reason, or for none; any thread may call it."""
        self.failure_at_close = failure

    async def stop(self) -> None:
        if self._sender is not None:
            await self._sender.close()

    async def release(self) -> None:
        await self.database.close()
