"""How messages come to sessions without transactions: they are claimed, and deleted when they are acknowledged."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from jmsql.client._async.session.delivery import Accept, Delivery, NotifyReleased
from jmsql.client._async.shared.redelivery import FailedDelivery, Failure, Redelivery
from jmsql.client.receiving.fetching import PrefetchBuffer, claims_of_groups
from jmsql.client.throttle import LimitReachedError, Throttle
from jmsql.exceptions import JMSException
from jmsql.store.control.liveness import is_connected
from jmsql.store.receiving.progress import ClaimedMessage
from jmsql.store.receiving.receive import claim, claim_within_limit
from jmsql.store.receiving.redelivery import ExtendedClaim, Release
from jmsql.store.receiving.results import acknowledged_with
from jmsql.store.receiving.throttling import declare
from jmsql.store.rows.message_rows import Claim, ClaimedRow, MessageKey, MessageRow, claim_of, key_of
from jmsql.store.statement import in_transaction
from jmsql.values.clock import monotonic

if TYPE_CHECKING:
    from jmsql.client._async.link.lease import Lease
    from jmsql.selectors import Selector
    from jmsql.store.control.control import ControlConnection
    from jmsql.store.receiving.late_messages import ScanStart
    from jmsql.store.receiving.receive import GroupScan
    from jmsql.store.receiving.redelivery import Rules
    from jmsql.store.statement import Query, Steps


T = TypeVar("T")

logger = logging.getLogger("jmsql")

# A claim is a row of the table `delivery` with the number of the client's connection. It is committed before the
# message is handed out, and outlives every transaction. That makes it the record of the delivery, too: if the client
# dies, others release its claims, and each counts as a delivery.
#
# Invariants:
#
# 1. A message is delivered only while its claim certainly holds. For a while `is_certain` says so without a statement;
#    after that the session asks the server (`_lives`), and releases the fetched messages if the server took the client
#    for dead.
# 2. Nothing is released twice: a release names the claim by its number, and finds nothing if the message has another
#    holder by then.
# 3. A row leaves `_delivered` by an acknowledgement, a release, or as it is put back. A statement that fails leaves it
#    there, so that the next call tries again.
# 4. A claim whose answer was lost is known to the server alone. `claim_failed` has the control connection take another
#    number then, and its former claims are released like a dead client's.
# 5. The messages of a group stay in order: with a failed one the session releases the other messages of its group that
#    it holds, since they come after it.
#
# Things that do not work:
#
# - Claiming a batch with a visibility timeout: the messages behind a long delivery run out of their time while they
#   wait. They are claimed one by one, unless all of them are delivered together and extended meanwhile.
# - One row for the claim of a batch: with eight consumers it was no faster, since each fetch reads the sequences that
#   others hold, and without a second look under the lock it handed messages out twice (decision 53).


_Delivered: TypeAlias = tuple[PrefetchBuffer, int, ClaimedRow]
"""A message, with where it came to and the queue that it is in."""

_LAZY_ACKNOWLEDGEMENTS = 100


def comes_alone(row: MessageRow, rules: Rules | None) -> bool:
    """Tell whether a message is not to be claimed together with those before it."""
    return rules is not None and bool(row.delivery_count)


def count_outcome(
    delivered: Iterable[tuple[PrefetchBuffer, MessageRow]], outcome: str, delivered_at: float | None = None
) -> None:
    """Count deliveries that have ended; they were given to a handler at `delivered_at`, or to none."""
    ended: dict[PrefetchBuffer, list[MessageRow]] = {}
    for buffer, row in delivered:
        if buffer in ended:
            ended[buffer].append(row)
        else:
            ended[buffer] = [row]
    for buffer, rows in ended.items():
        buffer.count(outcome, rows, delivered_at)


class Claims(Delivery):
    """For CLIENT and DUPS_OK sessions and AUTO listeners: no transaction stays open while user code runs.

    Messages are claimed in batches, and deleted when they are acknowledged, if the claim still holds by then. If the
    client dies, the whole batch counts as delivered. Where there is a redelivery policy, a message that was delivered
    before is claimed for itself, so that it alone is blamed if its delivery fails once more.

    A client that was suspended, or cut off, may have been taken for dead, and its claims given to others. While that is
    possible, it asks the server before it claims messages, or delivers claimed ones.
    """

    _extends_all = False
    """True if all that is claimed is delivered together, and its claims extended meanwhile."""
    _is_shared = False
    """True if several sessions deliver the claimed messages: none holds what another one could handle."""
    is_of_handler = False
    """True if a worker's handler has the messages, whose calls are counted."""
    _throttle: Throttle | None = None
    _is_cut = False
    """True if the limit has allowed the last claim fewer messages than it asked for."""
    _passes_over = False
    """True if the last claim has passed over messages for a limit."""

    def __init__(
        self,
        connection: Lease,
        control: ControlConnection,
        redelivery: Redelivery,
        notify_released: NotifyReleased,
    ) -> None:
        self.operation = self._claim
        self._connection = connection
        self._control = control
        self._redelivery = redelivery
        self._notify_released = notify_released
        self._visibility_timeout: float | None = None
        self._buffers: set[PrefetchBuffer] = set()
        # Deliveries that are neither acknowledged nor released. Written with the session's lock held.
        self._delivered: list[_Delivered] = []
        self._delivered_at = 0.0
        # The claims among them with a visibility timeout, which `extend_claims` extends.
        self._extended: list[ExtendedClaim] = []

    def _claim(
        self,
        queue_id: int,
        selector: Selector | None,
        start: ScanStart,
        limit: int,
        groups: GroupScan | None = None,
    ) -> Query[list[MessageRow]]:
        """Claim messages in the name of the client's connection."""
        return claim(queue_id, selector, start, limit, self._control.connection_id, self._visibility_timeout, groups)

    def limit_by(self, throttle: Throttle, buffer: PrefetchBuffer) -> None:
        """Claim the messages of a prefetch buffer within a limit over all workers."""
        if self._throttle is throttle:
            return  # another session of the listener has done so
        self._throttle = throttle
        buffer.use(buffer.policy._replace(throttle=throttle))
        self.operation = self._claim_within_limit
        buffer.source.fetch_by(self.operation)

    def _claim_within_limit(
        self,
        queue_id: int,
        selector: Selector | None,
        start: ScanStart,
        limit: int,
        groups: GroupScan | None = None,
    ) -> Steps[list[MessageRow]]:
        """Claim messages as `_claim` does, as many as the limit allows.

        Raises:
            LimitReachedError: It allows none of those that are there.
        """
        throttle, slots = self._throttle, self._control.slots
        assert throttle is not None
        yield from slots.use()
        while True:
            found = yield from claim_within_limit(
                *(queue_id, selector, start, limit, self._control.connection_id, slots.holder_id),
                *(self._visibility_timeout, groups),
                counts_values=throttle.counts_values,
            )
            if not found.allowance.is_declared:  # the queue was made again
                yield from declare(queue_id, "" if selector is None else selector.text, throttle.limit, replaces=False)
            elif found.allowance.counts_values and not throttle.counts_values:  # another release has declared it
                throttle.counts_values = True
            else:
                break
        throttle.learn(found.allowance, len(found.rows))
        self._is_cut = found.allowance.granted < limit
        is_partial = self._is_cut and (selector is not None or groups is not None)
        self._passes_over = found.allowance.passes_over or is_partial
        if not found.rows and (found.allowance.passes_over or not found.allowance.granted):
            raise LimitReachedError
        return found.rows

    def pop_buffered(self, buffer: PrefetchBuffer) -> MessageRow | None:
        if not self._control.is_certain:
            return None
        if not buffer.rows:
            return None
        cancelled = self._control.cancellations.heard
        if cancelled and buffer.rows[0].sequence in cancelled:
            return None
        if buffer.rows[0].delivery_count and monotonic() >= self._redelivery.free_until(buffer):
            return None  # it may be exhausted
        row = buffer.next_fresh()
        if row is not None:
            self._note(buffer, row)
        return row

    def _note(self, buffer: PrefetchBuffer, row: MessageRow) -> None:
        assert isinstance(row, ClaimedRow)
        if not self._delivered:
            self._delivered_at = monotonic()
        self._delivered.append((buffer, buffer.source.queue_id, row))
        if buffer.claimed_for is not None:
            self._extended.append(ExtendedClaim(buffer.key(row), row.handle, buffer.claimed_for))

    async def next_accepted(self, buffer: PrefetchBuffer, accept: Accept | None) -> MessageRow | None:
        """Return the next message, now delivered, or None if there is none.

        A message is not delivered if `accept` refuses it by an exception.
        """
        row = await self.next(buffer)
        if row is not None and accept is not None:
            try:
                accept(row)
            except BaseException:
                await self._take_back(buffer)
                raise
        return row

    async def next_held(self, buffer: PrefetchBuffer) -> MessageRow | None:
        if buffer.rows and not await self._lives():
            await self._release_rows(buffer, buffer.discard_rows())
        await self._release_rows(buffer, buffer.drop_stale())
        if self._control.cancellations.heard:
            await self._drop_cancelled(buffer)
        rules = await self._redelivery.rules(buffer) if buffer.rows else None
        while (row := buffer.next()) is not None:
            key = buffer.key(row)
            if rules is not None and row.delivery_count:
                try:
                    if await self._redelivery.is_exhausted(rules, key, row.delivery_count):
                        await self._give_up(
                            [Release(key, claim_of(row), dead_letter_queue_id=rules.dead_letter_queue_id)]
                        )
                        continue
                except BaseException:
                    buffer.keep_first(row)
                    raise
            self._note(buffer, row)
            return row
        return None

    async def _drop_cancelled(self, buffer: PrefetchBuffer) -> None:
        """Drop messages that were cancelled. If one was not, since any role may notify, its claim is released."""
        cancellations = self._control.cancellations
        dropped = buffer.drop(cancellations.heard)
        if dropped:
            self._notify_released(await self._release_rows(buffer, dropped))
            for row in dropped:
                cancellations.forget(row.sequence)

    @property
    def last_claim(self) -> tuple[MessageKey, Claim] | None:
        """The message that was delivered and is not acknowledged, with its claim; None: there is none, or several."""
        if len(self._delivered) != 1:
            return None
        [(_, queue_id, row)] = self._delivered
        return key_of(queue_id, row), row.handle

    async def _take_back(self, buffer: PrefetchBuffer) -> None:
        """Undo the last delivery, which was to this prefetch buffer, as if nobody had asked for the message."""
        _, _, row = self._delivered.pop()
        buffer.keep_first(row)
        if buffer.claimed_for is not None:  # its time would run out while it waits
            self._extended.pop()
            self._notify_released(await self._release_rows(buffer, buffer.discard_rows()))

    async def fetch(self, buffer: PrefetchBuffer, limit: int) -> bool:
        throttle = self._throttle
        if throttle is not None and throttle.is_closed and buffer.source.is_unchanged:
            return False
        if not await self._lives():
            return False
        rules = await self._redelivery.rules(buffer)
        self._visibility_timeout = await self._redelivery.visibility_timeout(buffer)
        buffer.claim_for(self._visibility_timeout)
        # Messages behind a long delivery would run out of their time too.
        is_timed = self._visibility_timeout is not None and not self._extends_all
        is_single = is_timed or (rules is not None and rules.policy.maximum_deliveries == 1)
        if throttle is not None and throttle.limit.at_most is not None:
            is_single |= not self._is_shared
        self._buffers.add(buffer)
        connection_id = self._control.connection_id
        async with self._connection.connected():  # perhaps by one from the pool, where it may have been ended as well
            was_ended = self._connection.link.was_ended
            try:
                rows = await self._run(buffer.fetch_if_any(1 if is_single else limit, self._claims_of_groups(buffer)))
            except LimitReachedError:
                buffer.learn([])
                return False
            except (JMSException, KeyboardInterrupt) as error:
                if not was_ended:  # else the server has never seen the claim
                    self._control.claim_failed(connection_id, error)
                raise
        if throttle is not None:
            self._heed_limit(buffer, rows)
        count = await self._together(buffer, rows, rules)
        rows, rest = rows[:count], rows[count:]
        buffer.learn(rows)
        try:
            for key in await self._release_rows(buffer, rest):
                buffer.source.returned(key)
        finally:
            buffer.keep_first(*rows)
        return bool(rows)

    def _heed_limit(self, buffer: PrefetchBuffer, rows: list[MessageRow]) -> None:
        """Have the next fetch find the messages that the last one has left for the limit."""
        if rows and self._is_cut:
            buffer.expect_more()
        if self._passes_over:
            buffer.source.begin_again()

    async def _together(self, buffer: PrefetchBuffer, rows: list[MessageRow], rules: Rules | None) -> int:  # noqa: ARG002
        """Return how many of the messages that were claimed to keep; the others are released."""
        alone = next((number for number, row in enumerate(rows) if self._comes_alone(row, rules)), len(rows))
        return max(alone, 1)

    _comes_alone = staticmethod(comes_alone)

    async def _run(self, work: Query[T] | Steps[T]) -> T:
        """Run statements each of which commits by itself."""
        return await self._connection.attempt(work)

    async def _lives(self) -> bool:
        return self._control.is_certain or await self._run(is_connected(self._control.connection_id))

    def _claims_of_groups(self, buffer: PrefetchBuffer) -> set[Claim]:
        """Return the claims by which the session holds groups, of which more may come to a prefetch buffer.

        Not of those whose messages another buffer holds for delivery: they come first.
        """
        own = claims_of_groups(row for _, _, row in self._delivered) | buffer.claims
        return own.difference(*(other.claims for other in self._buffers if other is not buffer))

    @property
    def has_delivered(self) -> bool:
        return bool(self._delivered)

    @property
    def claimed(self) -> ClaimedMessage | None:
        if not self._delivered:
            return None
        _, queue_id, row = self._delivered[-1]
        return ClaimedMessage(key_of(queue_id, row), row.handle)

    @property
    def delivered_since(self) -> float | None:
        """When the first message was delivered that is not acknowledged, on the monotonic clock."""
        return self._delivered_at if self._delivered else None

    def acknowledgement_due(self, delay: float) -> bool:
        """Whether so many messages wait, or one for so many seconds, that even a lazy session acknowledges them."""
        waiting = len(self._delivered)
        return waiting >= _LAZY_ACKNOWLEDGEMENTS or (waiting > 0 and monotonic() >= self._delivered_at + delay)

    @property
    def extended_claims(self) -> list[ExtendedClaim]:
        """The claims on delivered messages, as far as they have visibility timeouts."""
        return list(self._extended)

    async def acknowledge(self, result: Query[None] | None = None) -> None:
        """Acknowledge all that was delivered.

        Args:
            result: The statement that stores the message's result in the same transaction, unless its claim was lost.

        Raises:
            JMSException: Some of the claims were lost; those messages are delivered again.
        """
        if not self._delivered:
            if result is not None:  # the handler has acknowledged its message itself
                await self._connection.attempt(result)
            return
        delivered = list(self._delivered)
        claimed = [(key_of(queue_id, row), row.handle) for _, queue_id, row in delivered]
        acknowledging: Query[int] | Steps[int] = self._connection.recipient.acknowledge(claimed)
        if result is not None:
            acknowledging = in_transaction(acknowledged_with(result, acknowledging, len(claimed)))
        acknowledged = await self._connection.attempt(acknowledging)
        self._delivered.clear()
        self._extended.clear()
        since = self._delivered_at if self.is_of_handler else None
        count_outcome([(buffer, row) for buffer, _, row in delivered], "acknowledged", since)
        self._free_groups(delivered)
        if acknowledged < len(delivered):
            raise JMSException(
                f"{len(delivered) - acknowledged} of {len(delivered)} messages could not be acknowledged, and are "
                "delivered again: they were held for longer than their visibility timeout, or the server took this "
                "client for gone."
            )

    async def release(self, failure: Failure | None = None) -> list[MessageKey]:
        """Release all that was delivered and return it.

        A message with which a listener has failed waits before its next delivery.
        """
        if not self._delivered:
            return []
        delivered = list(self._delivered)
        # The session's other messages of the same groups come after these.
        groups = {row.group_hash for _, _, row in delivered if row.group_hash is not None}
        held = [(buffer, row) for buffer in self._buffers for row in buffer.held_of(groups)] if groups else []
        failed = [
            FailedDelivery(buffer, key_of(queue_id, row), row.handle, (row.delivery_count or 0) + 1)
            for buffer, queue_id, row in delivered
        ]
        releases = await self._redelivery.failures(failed, failure)
        await self._give_up(releases + [Release(buffer.key(row), claim_of(row)) for buffer, row in held])
        self.has_dead_letter = any(release.dead_letter_queue_id is not None for release in releases)
        self._delivered.clear()
        self._extended.clear()
        for buffer, _ in held:
            buffer.discard_groups(groups)
        since = self._delivered_at if self.is_of_handler else None
        count_outcome([(buffer, row) for buffer, _, row in delivered], "rolled_back", since)
        for each in failed:
            each.buffer.source.returned(each.key)
        return [each.key for each in failed]

    async def closed(self, buffer: PrefetchBuffer) -> list[MessageKey]:
        """End the deliveries to a prefetch buffer: release its messages, and return them."""
        self._buffers.discard(buffer)
        return await self._release_rows(buffer, buffer.discard_rows())

    def _free_groups(self, acknowledged: Sequence[_Delivered]) -> None:
        """Tell of the groups of acknowledged messages that the session does not hold any more."""
        keys = [(buffer, key_of(queue_id, row)) for buffer, queue_id, row in acknowledged if row.group_hash is not None]
        if keys:
            held = set[int]().union(*(buffer.groups for buffer in self._buffers))
            free = [(buffer, key) for buffer, key in keys if key.group_hash not in held]
            for buffer, key in free:
                buffer.source.returned(key)
            self._notify_released([key for _, key in free])

    async def _release_rows(self, buffer: PrefetchBuffer, rows: list[MessageRow]) -> list[MessageKey]:
        """Give up the claims on messages that a prefetch buffer holds no more, and return those.

        If that cannot be done now, it holds them again.
        """
        if not rows:
            return []
        releases = [Release(buffer.key(row), claim_of(row)) for row in rows]
        try:
            await self._give_up(releases)
        except BaseException:
            buffer.keep_first(*rows)
            raise
        return [release.key for release in releases]

    async def _has_given_up(self, releases: list[Release]) -> bool:
        """Give claims up on the session's own connection, and return whether that was possible.

        It may have none, for which it would have to wait, or may have lost it while it was idle. As claims have
        numbers, nothing is given up twice.
        """
        if not self._connection.link.is_connected:
            return False
        try:
            await self._connection.run(self._connection.recipient.release(releases))
        except JMSException as error:
            logger.info("Claims are given up beside the session: %s", error)
            return False
        return True

    async def _give_up(self, releases: list[Release]) -> None:
        if not await self._has_given_up(releases):
            await self._redelivery.release(releases)
        if any(release.dead_letter_queue_id is not None for release in releases):
            await self._redelivery.bury()
