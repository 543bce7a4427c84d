"""Transactions of handlers: their messages are claimed, some ahead for whichever handler is free next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from jmsql.client._async.session.claiming import Claiming, before_lone
from jmsql.client._async.session.locks import Locks
from jmsql.client._async.session.transactions.local import LocalTransaction
from jmsql.client._async.session.transactions.transaction import session_lease
from jmsql.client._async.shared.redelivery import FailedDelivery, Failure, failure_of
from jmsql.client.receiving.fetching import MOST_BYTES, PrefetchBuffer, claims_of_groups
from jmsql.concurrency.tasks import RLock, run_to_completion, try_acquire
from jmsql.exceptions import JMSException
from jmsql.logs import contained_logger
from jmsql.store.control.liveness import is_connected
from jmsql.store.receiving.progress import ClaimedMessage
from jmsql.store.receiving.redelivery import ExtendedClaim, Release
from jmsql.store.rows.message_rows import ClaimedRow, MessageRow, size_of
from jmsql.values.clock import monotonic

if TYPE_CHECKING:
    import psycopg

    from jmsql.client._async.link.lease import Lease
    from jmsql.client._async.session.session_state import SessionState
    from jmsql.client._async.shared.client_context import ClientContext
    from jmsql.client._async.shared.redelivery import Redelivery
    from jmsql.client.consumer_state import ConsumerState
    from jmsql.client.listeners import MessageCheck
    from jmsql.client.throttle import Throttle
    from jmsql.messages import Message
    from jmsql.store.receiving.redelivery import Rules
    from jmsql.store.rows.message_rows import Claim, MessageKey
    from jmsql.store.statement import Query


T = TypeVar("T")

logger = contained_logger("jmsql")

# A lock lives and dies with its transaction, so each transaction has to fetch for itself, and whether its client has
# died with a message has to be recorded beside it. A claim is that record, and one commit claims the messages of
# several transactions. The transaction has only to delete the message with its commit, if the claim still
# holds then: else others may have handled it.

# The steps of a message, and the state in which a kill -9 leaves it:
#
# - Claimed: its row in `delivery` is committed. Once the server takes the client for dead, others release the claim,
#   and the delivery counts, as for the messages that were claimed ahead.
# - Handled: the handler's statements are in an open transaction, which PostgreSQL rolls back. The claim is released as
#   before.
# - Committing: one exchange has the collected sends, the result, the deletion behind the claim, and COMMIT. All of it
#   has taken effect, or nothing. If the claim is lost, the deletion fails, and with it the transaction.
#
# A rollback ends the transaction first, and releases the claim after that, in the statement that counts the failure. So
# no other consumer gets the message before the failure is counted.


_nothing = nullcontext()
_GROUP_ID = "JMSXGroupID"
_AHEAD = 0.1
"""The messages of so many seconds are claimed ahead: for others, and for a message of a higher priority, that is the
longest wait while all goes as before."""
_LONGEST = 2 * _AHEAD
"""After so many seconds messages that were claimed ahead are released: the handlers have become slow."""


class HandlerClaims:
    """The messages of a listener's handlers in a process: one session claims, and any of them delivers.

    Claimed ahead are messages that were not delivered before and are of no group. The others are claimed one by one: so
    that of messages that were delivered before only the guilty one is blamed if the process dies, and that the order of
    a group is kept, since no other message of a group is claimed while one is.

    Its methods may be called from any thread.

    Args:
        client: The connection of the sessions.
        buffer: The messages that are claimed, and not delivered.
        extends_all: True if all of them are delivered together, and their claims extended meanwhile.
    """

    def __init__(self, client: ClientContext, buffer: PrefetchBuffer, *, extends_all: bool = False) -> None:
        self.buffer = buffer
        """Its messages are written with `_lock` held; its settings without, before the first fetch."""
        self.on_held: Callable[[], object] = lambda: None
        """Called when something is claimed ahead, which `release_overdue` is to release in time. Set once."""
        self._client = client
        self._claiming = Claiming(
            client.control, client.redelivery, client.returned, is_shared=True, extends_all=extends_all
        )
        self._lock = RLock()
        self._claimed_at = 0.0
        """When messages were claimed last, on the monotonic clock. Written with `_lock` held."""
        buffer.hold_for(min(_AHEAD, client.timings.prefetch_duration))
        buffer.source.fetch_by(self._claiming.operation)

    def limit_by(self, throttle: Throttle, buffer: PrefetchBuffer) -> None:
        """Claim the messages of a prefetch buffer within a limit over all workers."""
        self._claiming.limit_by(throttle, buffer)

    def take(self) -> MessageRow | None:
        """Return the message as `next_on` does if it was claimed before, which takes no statement."""
        # A task that waits with the lock held may have a message that it puts back: a later one must not overtake it.
        with try_acquire(self._lock) as is_free:
            return self._claiming.pop_buffered(self.buffer) if is_free else None

    async def next_on(self, database: Lease) -> MessageRow | None:
        """Return the next message, which the caller settles; None: the queue has no message now.

        Args:
            database: The connection of the caller's session, where no transaction is open.
        """
        claiming, buffer = self._claiming, self.buffer
        async with self._lock:
            while True:
                row = None
                if buffer.held.rows:
                    row = claiming.pop_buffered(buffer) or await claiming.next_held(database, buffer)
                if row is not None or not await self._fetch(database, buffer.next_limit()):
                    break
        if buffer.held.rows:
            self.on_held()
        return row

    async def release_overdue(self) -> float | None:
        """Release messages that were claimed ahead for too long.

        Returns:
            After how many seconds to do so again; None: nothing is held.
        """
        async with self._lock:
            remaining = self._claimed_at + _LONGEST - monotonic()
            if self.buffer.held.rows and remaining <= 0:
                await run_to_completion(self._release_held())
                remaining = self._client.timings.maintenance_retry_delay  # it has failed if they are held still
            return remaining if self.buffer.held.rows else None

    async def release_held(self) -> None:
        """Release the messages that were claimed ahead."""
        async with self._lock:
            await run_to_completion(self._release_held())

    async def _release_held(self) -> None:
        buffer = self.buffer
        held = len(buffer.held.rows)
        try:
            self._client.returned(await self._claiming.release_rows(None, buffer, buffer.discard_rows()))
        except JMSException as error:
            logger.warning("Messages claimed ahead could not be released, and come later to other consumers: %s", error)
        else:
            buffer.slow_down(held)

    async def _fetch(self, database: Lease, limit: int) -> bool:
        """Claim up to `limit` messages by the connection of the caller's session; return True if there are any."""
        claiming, buffer = self._claiming, self.buffer
        claimed = await claiming.claim(database, buffer, 1 if buffer.source.has_groups else limit, buffer.held.claims)
        self._claimed_at = monotonic()
        if claimed is None:
            return False
        rows, rules = claimed
        is_counted = rules is not None
        count = before_lone(rows, lambda row: row.group_hash is not None or (is_counted and bool(row.delivery_count)))
        return await claiming.keep(database, buffer, rows, count)


class ChunkClaims(HandlerClaims):
    """The claims of handlers of chunks: one session claims a chunk, and delivers all of it.

    A chunk has messages of the same group in their order: nothing else of the group is claimed until they are settled.
    A message with which a handler or its process has failed is a chunk of its own, so that it alone is blamed for the
    next failure; one that was put off or interrupted is not.

    Args:
        client: The connection of the sessions.
        buffer: The claimed messages of the chunk that are not delivered.
        size: The most messages of a chunk.
    """

    def __init__(self, client: ClientContext, buffer: PrefetchBuffer, size: int) -> None:
        super().__init__(client, buffer, extends_all=True)
        self._size = size
        # Of the chunk that is being filled. Written by the task that fills it, which has the listener's turn.
        self._room = 0
        """How many more messages it takes."""
        self._room_in_bytes = 0
        """How many bytes of bodies it takes besides."""
        self._is_empty = True
        """True if it has no message yet."""
        self._groups: set[Claim] = set()
        """The claims by which it holds groups."""

    def start_chunk(self) -> None:
        """Begin another chunk."""
        self._room = self._size - len(self.buffer.held.rows)
        self._room_in_bytes = MOST_BYTES - size_of(self.buffer.held.rows)
        self._is_empty = not self.buffer.held.rows
        self._groups = self.buffer.held.claims

    @property
    def is_full(self) -> bool:
        """True if nothing more is claimed for the chunk."""
        return self._room <= 0

    async def _fetch(self, database: Lease, limit: int) -> bool:  # noqa: ARG002 - the chunk says how many
        claiming, buffer = self._claiming, self.buffer
        if self.is_full:
            return False
        claimed = await claiming.claim(database, buffer, buffer.within_size(self._room), self._groups)
        if claimed is None:
            return False
        rows, rules = claimed
        try:
            count = await self._fill(rows, rules)
        except BaseException:
            buffer.held.put_back(*rows)
            await run_to_completion(self._release_held())
            raise
        return await claiming.keep(database, buffer, rows, count)

    async def release_overdue(self) -> None:
        """Release nothing: the session is about to deliver its messages, and would get a part of its chunk."""

    async def _fill(self, rows: list[MessageRow], rules: Rules | None) -> int:
        """Return how many of the messages that were claimed the chunk takes, and note them."""
        count = len(rows)
        if not count:
            return 0
        is_complete = rules is not None and rules.policy.maximum_deliveries == 1
        if any(row.delivery_count for row in rows):
            have_failed = await self._client.redelivery.have_failed(self.buffer, rows)
            if any(have_failed):
                is_complete = True
                count = max(have_failed.index(True), int(self._is_empty))
        for number, row in enumerate(rows[:count]):
            self._room_in_bytes -= size_of([row])
            if self._room_in_bytes < 0 and (number or not self._is_empty):
                is_complete, count = True, number
                break
        self._is_empty = False
        self._room = 0 if is_complete else self._room - count
        self._groups |= claims_of_groups(rows[:count])
        return count


class _Claimed(NamedTuple):
    """A message that is being handled."""

    buffer: PrefetchBuffer
    key: MessageKey
    row: ClaimedRow
    claimed_for: float | None
    """For how many seconds it is claimed, unless that is extended; None: for as long as the client lives."""
    message: Message
    delivered_at: float
    """When the handler got it, on the monotonic clock."""


class _HandlerLocks(Locks):
    """The messages of a handler's transaction: those that it handles, by claims, and others that it locks."""

    def __init__(self, database: Lease, redelivery: Redelivery) -> None:
        super().__init__(database, redelivery)
        # The session's thread or task writes all fields; in its place, once its handler does not end, the thread that
        # settles the message (`HandlerCall.expire`), with the session's lock from the rollback on, or the one that
        # closes the connection as the worker ends, with that lock.
        self.handled: list[_Claimed] = []
        """The message, or the chunk or a part of it."""
        self.result: Query[None] | None = None
        """Stores the result of the message with the commit; None: no result is kept."""
        self.set_aside: dict[int, _Claimed] = {}
        """The other claimed messages of the chunk, by the identities of the messages."""
        self.dead_letters: list[Message] = []
        """The messages that the last release has made dead letters."""
        self.divides = False
        """True if several messages that fail together stay claimed, so that they can be handled in parts."""

    @property
    def has_delivered(self) -> bool:
        return bool(self.handled) or super().has_delivered

    @property
    def claimed(self) -> ClaimedMessage | None:
        return ClaimedMessage(self.handled[0].key, self.handled[0].row.handle) if self.handled else None

    @property
    def _has_more(self) -> bool:
        """True if there may be more in the transaction than the message that is handled."""
        return bool(self._buffers) or self._savepoints is not None

    async def before_commit(self, *, has_sent: bool) -> tuple[Sequence[Query[Any]], Collection[int]]:
        deletions, freed_queues = await super().before_commit(has_sent=has_sent) if self._has_more else ((), ())
        last: list[Query[Any]] = [*deletions]
        if self.result is not None:
            last.append(self.result)
        handled, recipient = self.handled, self._database.recipient
        if handled and handled[0].claimed_for is not None:
            await self._redelivery.wait_for_extension()
        if len(handled) == 1:
            last.append(recipient.acknowledge_last_one(handled[0].key, handled[0].row.handle))
        elif handled:
            last.append(recipient.acknowledge_last([(each.key, each.row.handle) for each in handled]))
        return last, freed_queues

    async def committed(self, *, are_groups_notified: bool = False) -> list[MessageKey]:
        handled, self.handled = self.handled, []
        freed = await super().committed(are_groups_notified=are_groups_notified) if self._has_more else []
        if self.result is not None:
            self._redelivery.result_kept(self.result)
            self.result = None
        if handled:
            rows: list[MessageRow] = []
            for each in handled:
                rows.append(each.row)
                if each.key.group_hash is not None:
                    each.buffer.source.notify(each.key)
                    freed.append(each.key)
            handled[0].buffer.count("acknowledged", rows, handled[0].delivered_at)
        return freed

    async def rolled_back(self, failure: Failure | None = None) -> list[MessageKey]:
        self.result = None
        returned = await super().rolled_back(failure)
        if self.divides and len(self.handled) > 1 and (failure is None or failure.is_of_message):
            self.set_aside = {id(each.message): each for each in self.handled} | self.set_aside
            self.handled = []
        elif self.handled:
            returned += await self.settle(failure)
        return returned

    async def settle(self, failure: Failure | None) -> list[MessageKey]:
        """Release the messages of a failed delivery, if the server can be told; return those that were released."""
        try:
            return await self._release(failure)
        except JMSException as error:
            logger.warning("The delivery that was rolled back could not be counted: %s", error)
            return []

    async def _release(self, failure: Failure | None) -> list[MessageKey]:
        """Release the messages, which counts as a failed delivery; until then no other consumer could have them."""
        handled = self.handled
        failed = [
            FailedDelivery(
                each.buffer, each.key, each.row.handle, (each.row.delivery_count or 0) + 1, each.row.jms_message_id
            )
            for each in handled
        ]
        releases = await self._redelivery.failures(failed, failure)
        released = await self._redelivery.release(releases)
        self.handled = []
        self.dead_letters = [
            each.message
            for each, release in zip(handled, releases, strict=True)
            if release.dead_letter_queue_id is not None and release.key.sequence in released
        ]
        if self.dead_letters:
            await self._redelivery.bury()
        handled[0].buffer.count("rolled_back", [each.row for each in handled], handled[0].delivered_at)
        for each in handled:
            each.buffer.source.notify(each.key)
        return [each.key for each in handled]

    def divide(self) -> None:
        """Let several messages that fail together stay claimed."""
        self.divides = True

    def keep_result(self, result: Query[None]) -> None:
        """Store the result of the message with the commit."""
        self.result = result

    def select(self, messages: Sequence[Message]) -> None:
        """Have the next transaction settle these messages, which are held, and no others."""
        self.set_aside = {id(each.message): each for each in self.handled} | self.set_aside
        self.handled = [self.set_aside.pop(id(message)) for message in messages]

    def pop_handled(self) -> list[_Claimed]:
        """Return the messages that the next transaction was to settle, and have it settle none."""
        handled, self.handled = self.handled, []
        return handled

    def pop_dead_letters(self) -> list[Message]:
        """Return the messages that have become dead letters since the last call."""
        dead_letters, self.dead_letters = self.dead_letters, []
        return dead_letters

    def pop_dead_letter(self) -> bool:
        return bool(self.pop_dead_letters())

    def join(self) -> None:
        """Have all claimed messages released together, for any reason."""
        self.divides = False
        self.handled += self.set_aside.values()
        self.set_aside = {}


# A chunk is settled in parts, each in a transaction of its own. `handled` has the messages of the part that the next
# transaction settles, `set_aside` the other claimed messages of the chunk. `select` moves messages from one to the
# other before the next transaction.
#
# - A commit ends the messages of `handled`, behind their claims.
# - A rollback of several messages puts them aside, still claimed: the worker calls the handler again with each half.
#   Nothing is fetched twice, and no other consumer sees them meanwhile (decision 75).
# - A rollback of a single message releases it as failed. So does one of a part that was put off or interrupted, which
#   says nothing about its messages.
# - `join` takes all of it together, so that the last rollback, when the session closes, releases it.


class Chunk:
    """The chunk of messages that a handler's session has received, and the parts in which it is settled.

    A part that fails with its call stays claimed, unless it is a single message, or was put off or interrupted.

    Args:
        locks: The messages that the session has received.
        claims: The claims of the messages.
        client: The session's connection.
        redelivery: Releases messages.
    """

    def __init__(
        self, locks: _HandlerLocks, claims: ChunkClaims, client: ClientContext, redelivery: Redelivery
    ) -> None:
        self._locks = locks
        self._claims = claims
        self._client = client
        self._redelivery = redelivery

    def start_chunk(self) -> None:
        """Begin to receive a chunk; no other task of the listener receives until it is full."""
        self._claims.start_chunk()

    @property
    def is_full(self) -> bool:
        """True if nothing more can be received for the chunk."""
        return self._claims.is_full and not self.has_held

    @property
    def has_held(self) -> bool:
        """True if messages of the chunk are here that were not received."""
        return bool(self._claims.buffer.held.rows)

    @property
    def longest_wait(self) -> float | None:
        """For how many seconds the chunk may wait, so that its claims do not run out; None: without a limit."""
        claimed_for = self._claims.buffer.held.claimed_for
        return None if claimed_for is None else claimed_for / 2

    async def is_claimed(self) -> bool:
        """Tell whether the messages are certain to be claimed still.

        Raises:
            JMSException: The server cannot be asked.
        """
        control = self._client.control
        return control.is_certain or await self._client.side.run(is_connected, control.connection_id)

    def holds(self, messages: Sequence[Message]) -> list[Message]:
        """Return the given messages that are claimed and not settled."""
        held = {id(each.message) for each in self._locks.handled} | self._locks.set_aside.keys()
        return [message for message in messages if id(message) in held]

    def select(self, messages: Sequence[Message]) -> None:
        """Have the next transaction settle these messages, which are held, and no others."""
        self._locks.select(messages)

    async def fail(self, message: Message, error: BaseException) -> None:
        """Settle a message that has failed, where no transaction is open."""
        self.select([message])
        self._client.returned(await self._locks.settle(failure_of(error)))

    async def put_back(self, messages: Sequence[Message]) -> None:
        """Release messages, which are held, as if they had not been received."""
        self._locks.select(messages)
        released = self._locks.pop_handled()
        if released:
            await self._redelivery.release_in_any_case([Release(each.key, each.row.handle) for each in released])
            for each in released:
                each.buffer.source.notify(each.key)
            self._client.returned([each.key for each in released])

    async def put_back_expired(self) -> None:
        """Release the messages that have expired since they were fetched."""
        now = self._client.clock.milliseconds()
        held = [*self._locks.handled, *self._locks.set_aside.values()]
        expired = [each.message for each in held if (each.row.jms_expiration or now + 1) <= now]
        if expired:
            await self.put_back(expired)

    async def put_back_groups(self, failed: Sequence[Message]) -> None:
        """Release the messages of groups of which others have failed, which come before them."""
        groups = {message.get_string_property(_GROUP_ID) for message in failed} - {None}
        if groups:
            held = [each.message for each in (*self._locks.handled, *self._locks.set_aside.values())]
            await self.put_back([each for each in held if each.get_string_property(_GROUP_ID) in groups])

    def pop_dead_letters(self) -> list[Message]:
        """Return the messages that have become dead letters since the last call."""
        return self._locks.pop_dead_letters()

    def join(self) -> None:
        """Have the next rollback release all that is held."""
        self._locks.join()


class HandlerTransaction(LocalTransaction):
    """The transaction of a handler's session: its commit deletes the claimed messages, if the claim still holds.

    Messages that the handler receives by other consumers of the session are locked, as in every transaction.
    """

    delivery: _HandlerLocks

    def __init__(self, state: SessionState, client: ClientContext) -> None:
        database = session_lease(client, transacted=True, shares_connections=True)
        received = _HandlerLocks(database, client.redelivery)
        super().__init__(state, client, database, received)
        # `claim_together` writes this and `chunk` once, before the first message.
        self._claims: HandlerClaims | None = None
        """The claims of the listener's handlers; None: the session has no consumer of the listener. That one shares
        their prefetch buffer."""
        self._is_released = False
        """True once the message was rolled back: a handler that returns nevertheless has given it back itself."""
        self.chunk: Chunk
        """The chunk that the session has received, where the listener takes chunks."""

    def claim_together(self, consumer: ConsumerState, claims: HandlerClaims | None, chunk: int | None) -> HandlerClaims:
        """Have a consumer's messages claimed.

        Args:
            consumer: The consumer.
            claims: The claims of another session for the same listener; None: this is the first one.
            chunk: The most messages of a chunk; None: they are handled one by one.
        """
        if claims is None and chunk is None:
            claims = HandlerClaims(self._client, consumer.buffer)
        elif claims is None:
            assert chunk is not None
            claims = ChunkClaims(self._client, consumer.buffer, chunk)
        if isinstance(claims, ChunkClaims):
            self.delivery.divide()
            self.chunk = Chunk(self.delivery, claims, self._client, self._client.redelivery)
        consumer.share(claims.buffer)
        self._client.subscription_registry.listen(claims.buffer.source)  # the session that did so may be closed
        self._claims = claims
        return claims

    def limit_by(self, throttle: Throttle, consumer: ConsumerState) -> None:
        """Claim a consumer's messages within a limit over all workers."""
        assert self._claims is not None
        self._claims.limit_by(throttle, consumer.buffer)

    def keep_result(self, result: Query[None]) -> None:
        """Store the result of the message with the commit, unless the handler has rolled back its delivery.

        Args:
            result: The statement that stores it.
        """
        if not self._is_released:
            self.delivery.keep_result(result)

    async def _end_rollback(self, failure: Failure | None = None) -> None:
        self._is_released = True
        await super()._end_rollback(failure)

    @property
    def last_claim(self) -> tuple[MessageKey, Claim] | None:
        handled = self.delivery.handled
        return (handled[0].key, handled[0].row.handle) if len(handled) == 1 else None

    async def share_driver(self) -> psycopg.AsyncConnection[Any]:
        """Return psycopg's own connection for the handler to use in the transaction, which it is not let end."""
        return await self._lender.share_driver()

    # Receiving

    def pop_buffered(self, consumer: ConsumerState) -> Message | None:
        if self._claims is None or consumer.buffer is not self._claims.buffer:
            return super().pop_buffered(consumer)
        row = self._claims.take()
        return None if row is None else self._deliver(consumer, row)

    async def closed(self, consumer: ConsumerState) -> None:
        """Do nothing.

        All tasks of the listener have its claimed messages. Those that another consumer of the handler's session has
        locked are free again when the handler's transaction ends.
        """

    async def next(self, consumer: ConsumerState, check: MessageCheck | None = None) -> Message | None:
        if self._claims is None or consumer.buffer is not self._claims.buffer:
            return await super().next(consumer, check)
        row = await self._claims.next_on(self.database)
        return None if row is None else self._deliver(consumer, row)

    def _deliver(self, consumer: ConsumerState, row: MessageRow) -> Message:
        assert isinstance(row, ClaimedRow)
        buffer = consumer.buffer
        message = row.message(consumer.destination, self.acknowledge)
        self._is_released = False
        self.delivery.handled.append(
            _Claimed(buffer, buffer.held.key(row), row, buffer.held.claimed_for, message, monotonic())
        )
        return message

    async def close(self) -> None:
        self.delivery.join()
        await super().close()

    def extend_claims(self) -> AbstractContextManager[None]:
        handled = self.delivery.handled
        if not handled or handled[0].claimed_for is None:
            return _nothing  # it is locked
        return self._client.control.extending(
            [
                ExtendedClaim(each.key, each.row.handle, each.claimed_for, each.delivered_at)
                for each in (*handled, *self.delivery.set_aside.values())
                if each.claimed_for is not None
            ]
        )
