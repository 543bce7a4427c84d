"""Transactions of handlers: their messages are claimed, some ahead for whichever handler is free next."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from jmsql.client._async.link.lease import Holding
from jmsql.client._async.session.claims import Claims, comes_alone
from jmsql.client._async.session.locks import Locks
from jmsql.client._async.session.transactions.local import LocalTransaction
from jmsql.client._async.shared.redelivery import FailedDelivery, Failure
from jmsql.client.prefetch_buffer import Prefetch
from jmsql.concurrency.tasks import RLock, at_once, finished
from jmsql.exceptions import JMSException
from jmsql.store.receiving.redelivery import ExtendedClaim
from jmsql.values.clock import monotonic

if TYPE_CHECKING:
    import psycopg

    from jmsql.client._async.link.lease import Lease
    from jmsql.client._async.session.session_state import SessionState
    from jmsql.client._async.shared.client_context import ClientContext
    from jmsql.client._async.shared.redelivery import Redelivery
    from jmsql.client.consumer_state import ConsumerState
    from jmsql.client.listeners import MessageCheck
    from jmsql.client.prefetch_buffer import PrefetchBuffer
    from jmsql.messages import Message
    from jmsql.store.receiving.redelivery import Release, Rules
    from jmsql.store.rows.message_rows import MessageKey, MessageRow
    from jmsql.store.statement import Query, Steps
    from jmsql.store.wire.application_sql import SavepointStep


T = TypeVar("T")

logger = logging.getLogger("jmsql")

# A lock lives and dies with its transaction, so each transaction has to fetch for itself, and whether its client has
# died with a message has to be recorded beside it. A claim is that record, and one commit claims the messages of
# several transactions. What is left for the transaction is to delete the message with its commit, if the claim still
# holds then: else others may have handled it.

_AHEAD = 0.1
"""What the handlers take in so many seconds is claimed ahead: for others, and for a message of a higher priority, that
is the longest wait while all goes as before."""
_LONGEST = 2 * _AHEAD
"""After so many seconds what was claimed ahead, and is still there, is released: the handlers have become slow."""


class HandlerClaims(Claims):
    """What the handlers of one listener receive in a process: one session claims, and any of them delivers.

    Claimed ahead are messages that were not delivered before and are of no group. The others are claimed one by one: so
    that of messages that were delivered before only the guilty one is blamed if the process dies, and that the order of
    a group is kept, since no other message of a group is claimed while one is.

    Its methods may be called from any thread.

    Args:
        client: The connection of the sessions.
        database: The connection to the server of the session that has made it.
        buffer: What is claimed, and not delivered.
    """

    def __init__(self, client: ClientContext, database: Lease, buffer: PrefetchBuffer) -> None:
        super().__init__(database, client.control, client.redelivery, client.returned)
        self.buffer = buffer
        self.on_held: Callable[[], object] = lambda: None
        """Called when something is claimed ahead, which `release_overdue` is to release in time."""
        self._client = client
        self._lock = RLock()
        self._claimed_at = 0.0
        buffer.prefetch = Prefetch(min(_AHEAD, client.timings.prefetch_duration))
        buffer.source.fetch_by(self.operation)

    def take(self) -> MessageRow | None:
        """Do what `next_on` does if the message was claimed before, and that takes no statement."""
        with at_once(self._lock):
            return self.take_held(self.buffer)

    async def next_on(self, database: Lease) -> MessageRow | None:
        """Return the next message, which the caller settles; None: the queue has no message now.

        Args:
            database: The connection of the caller's session, where no transaction is open.
        """
        async with self._lock:
            self._connection = database
            row = await self.next(self.buffer)
        if self.buffer.rows:
            self.on_held()
        return row

    async def release_overdue(self) -> float | None:
        """Release what was claimed ahead for too long.

        Returns:
            After how many seconds to do so again; None: nothing is held.
        """
        async with self._lock:
            if not self.buffer.rows:
                return None
            remaining = self._claimed_at + _LONGEST - monotonic()
            if remaining <= 0:
                await finished(self._release_held())
        return remaining if remaining > 0 else None

    async def release_held(self) -> None:
        """Release what was claimed ahead."""
        async with self._lock:
            await finished(self._release_held())

    async def _release_held(self) -> None:
        buffer = self.buffer
        held = len(buffer.rows)
        try:
            self._client.returned(await self.closed(buffer))
        except JMSException as error:
            logger.warning("Messages that were claimed ahead come late to other consumers: %s", error)
        else:
            buffer.prefetch.gave_up(held)

    async def fetch(self, buffer: PrefetchBuffer, limit: int) -> bool:
        found = await super().fetch(buffer, 1 if buffer.source.has_groups else limit)
        self._claimed_at = monotonic()
        return found

    @staticmethod
    def _comes_alone(row: MessageRow, rules: Rules | None) -> bool:
        return row.group_hash is not None or comes_alone(row, rules)

    def _note(self, buffer: PrefetchBuffer, row: MessageRow) -> None:
        """Note nothing: the transaction does that delivers it."""

    async def _run(self, work: Query[T] | Steps[T]) -> T:
        return await self._connection.run_alone(work)

    async def _has_given_up(self, releases: list[Release]) -> bool:  # noqa: ARG002 - it is done beside the session
        """Return False: another session may have the connection by now."""
        return False


class _Claimed(NamedTuple):
    """A message that is being handled."""

    buffer: PrefetchBuffer
    key: MessageKey
    row: MessageRow
    claimed_for: float | None
    """For how many seconds it is claimed, unless that is extended; None: for as long as the client lives."""


class _HandlerLocks(Locks):
    """What a handler's transaction has received: the message that it handles, by its claim, and what else it locks."""

    def __init__(self, database: Lease, redelivery: Redelivery) -> None:
        super().__init__(database, redelivery)
        self.handled: _Claimed | None = None
        self.result: Query[None] | None = None
        """What stores the result of the message with the commit; None: no result is kept."""
        self._handler_failure: Failure | None = None
        """The reason for the last rollback. The base class forgets its own before the message is released."""

    @property
    def has_delivered(self) -> bool:
        return self.handled is not None or super().has_delivered

    @property
    def _has_more(self) -> bool:
        """Whether there may be more in the transaction than the message that is handled."""
        return bool(self._buffers) or self._database.holding is Holding.LENT

    async def before_commit(self) -> Sequence[Query[Any]]:
        last = await super().before_commit() if self._has_more else []
        handled = self.handled
        if self.result is not None:
            last = [*last, self.result]
        if handled is None:
            return last
        return [*last, self._database.recipient.acknowledge_last(handled.key, handled.row.handle)]

    async def committed(self) -> list[MessageKey]:
        handled, self.handled = self.handled, None
        freed = await super().committed() if self._has_more else []
        if self.result is not None:
            self._redelivery.result_kept(self.result)
            self.result = None
        if handled is not None:
            handled.buffer.count("acknowledged", [handled.row.delivery_count])
            if handled.key.group_hash is not None:
                handled.buffer.source.notify(handled.key)
                freed.append(handled.key)
        return freed

    async def before_rollback(self, failure: Failure | None = None) -> None:
        self._handler_failure = failure
        await super().before_rollback(failure)

    async def rolled_back(self) -> list[MessageKey]:
        self.result = None
        returned = await super().rolled_back()
        if self.handled is not None:
            try:
                returned.append(await self._release(self.handled, self._handler_failure))
            except JMSException as error:
                logger.warning("The delivery that is rolled back could not be counted: %s", error)
        return returned

    async def _release(self, handled: _Claimed, failure: Failure | None) -> MessageKey:
        """Release the message, which counts as a failed delivery; until then nobody else could have it."""
        row = handled.row
        failed = FailedDelivery(handled.buffer, handled.key, row.handle, (row.delivery_count or 0) + 1)
        releases = await self._redelivery.failures([failed], failure)
        await self._redelivery.release(releases)
        self.handled = None
        self.has_dead_letter = any(release.dead_letter_queue_id is not None for release in releases)
        if self.has_dead_letter:
            await self._redelivery.bury()
        handled.buffer.count("rolled_back", [row.delivery_count])
        handled.buffer.source.notify(handled.key)
        return handled.key


class HandlerTransaction(LocalTransaction):
    """The transaction of a handler's session: it deletes with its commit what is claimed, if the claim still holds.

    What the handler receives by other consumers of the session is locked, as in every transaction.
    """

    def __init__(self, state: SessionState, client: ClientContext) -> None:
        super().__init__(state, client)
        self._claims: HandlerClaims | None = None
        self._consumer: ConsumerState | None = None

    def _create_locks(self, database: Lease, redelivery: Redelivery) -> _HandlerLocks:
        self._received = _HandlerLocks(database, redelivery)
        return self._received

    def claim_together(self, consumer: ConsumerState, claims: HandlerClaims | None) -> HandlerClaims:
        """Have a consumer's messages claimed.

        Args:
            consumer: The consumer.
            claims: What another session claims for the same listener; None: this is the first one.
        """
        self._consumer = consumer
        if claims is None:
            claims = HandlerClaims(self._client, self.database, consumer.buffer)
        consumer.buffer = claims.buffer
        self._client.subscription_registry.listen(claims.buffer)  # the session that did so may be closed
        self._claims = claims
        return claims

    @property
    def result(self) -> Query[None] | None:
        """What stores the result of the message with the commit; None: no result is kept."""
        return self._received.result

    @result.setter
    def result(self, result: Query[None] | None) -> None:
        self._received.result = result

    async def share_driver(self) -> psycopg.AsyncConnection[Any]:
        """Return psycopg's own connection for the handler to use in the transaction, which it is not let end."""
        return await self._share(self.database.lend_driver)

    async def _before_statement(self, step: SavepointStep | None) -> None:
        # The message is not in the transaction. But it is handled only if what the handler does in it is committed.
        if self._received.handled is not None:
            self.database.used_by_application(is_awaited=True)
        await super()._before_statement(step)

    # Receiving

    def take_held(self, consumer: ConsumerState) -> Message | None:
        if self._claims is None or consumer is not self._consumer:
            return super().take_held(consumer)
        row = self._claims.take()
        return None if row is None else self._deliver(consumer, row)

    async def closed(self, consumer: ConsumerState) -> None:
        """Do nothing: what the consumer holds is claimed, by all tasks of its listener."""

    async def next(self, consumer: ConsumerState, check: MessageCheck | None = None) -> Message | None:
        if self._claims is None or consumer is not self._consumer:
            return await super().next(consumer, check)
        row = await self._claims.next_on(self.database)
        return None if row is None else self._deliver(consumer, row)

    def _deliver(self, consumer: ConsumerState, row: MessageRow) -> Message:
        buffer = consumer.buffer
        self._received.handled = _Claimed(buffer, buffer.key(row), row, buffer.claimed_for)
        return row.message(consumer.destination, self.acknowledge)

    def extend_claims(self) -> AbstractContextManager[None]:
        handled = self._received.handled
        if handled is None or handled.claimed_for is None:
            return nullcontext()  # it is locked
        return self._client.control.extending([ExtendedClaim(handled.key, handled.row.handle, handled.claimed_for)])
