"""How messages come to sessions without transactions: they are claimed, and deleted when they are acknowledged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from jmsql.client._async.session.claiming import Claiming, before_lone
from jmsql.client._async.session.delivery import Accept, Delivery, NotifyReleased
from jmsql.client._async.shared.redelivery import FailedDelivery, Failure, Redelivery
from jmsql.client.receiving.fetching import PrefetchBuffer, claims_of_groups
from jmsql.client.throttle import Throttle
from jmsql.exceptions import JMSException
from jmsql.store.errors import with_unknown_outcome
from jmsql.store.receiving.acknowledge import CLAIM_LOST
from jmsql.store.receiving.progress import ClaimedMessage
from jmsql.store.receiving.redelivery import ExtendedClaim, Release
from jmsql.store.receiving.results import acknowledged_with
from jmsql.store.rows.message_rows import Claim, ClaimedRow, MessageKey, MessageRow, claim_of, key_of
from jmsql.store.statement import in_transaction
from jmsql.values.clock import monotonic

if TYPE_CHECKING:
    from jmsql.client._async.link.lease import Lease
    from jmsql.store.control.control import ControlConnection
    from jmsql.store.receiving.receive import Fetch
    from jmsql.store.statement import Query, Steps


_Delivered: TypeAlias = tuple[PrefetchBuffer, int, ClaimedRow]
"""A message, with where it came to and the queue that it is in."""

_LAZY_ACKNOWLEDGEMENTS = 100


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
    before is claimed for itself, so that it alone is blamed if its delivery fails once more. With a visibility timeout,
    or a policy of one delivery, each message is claimed for itself.

    A client that was suspended, or cut off, may have been taken for dead, and its claims given to others. While that is
    possible, it asks the server before it claims messages, or delivers claimed ones.

    The holder of the session's lock writes all fields. Only `pop_dead_letter` does without it, in a handler's thread.
    """

    def __init__(
        self, database: Lease, control: ControlConnection, redelivery: Redelivery, notify_released: NotifyReleased
    ) -> None:
        self._database = database
        self._redelivery = redelivery
        self._notify_released = notify_released
        self._claiming = Claiming(control, redelivery, notify_released)
        self._buffers: set[PrefetchBuffer] = set()
        """The prefetch buffers that may hold messages."""
        self._delivered: list[_Delivered] = []
        """Deliveries that are neither acknowledged nor released."""
        self._delivered_at = 0.0
        """When the first of them began, on the monotonic clock."""
        self._has_dead_letter = False
        """True if the last release has made a message a dead letter. `pop_dead_letter` sets it back."""
        self._extended: list[ExtendedClaim] = []
        """The claims among them with a visibility timeout, which `extend_claims` extends."""

    @property
    def operation(self) -> Fetch:
        return self._claiming.operation

    def pop_dead_letter(self) -> bool:
        has_dead_letter, self._has_dead_letter = self._has_dead_letter, False
        return has_dead_letter

    def limit_by(self, throttle: Throttle, buffer: PrefetchBuffer) -> None:
        """Claim the messages of a prefetch buffer within a limit over all workers."""
        self._claiming.limit_by(throttle, buffer)

    def pop_buffered(self, buffer: PrefetchBuffer) -> MessageRow | None:
        row = self._claiming.pop_buffered(buffer)
        if row is not None:
            self._note(buffer, row)
        return row

    async def next_held(self, buffer: PrefetchBuffer) -> MessageRow | None:
        row = await self._claiming.next_held(self._database, buffer)
        if row is not None:
            self._note(buffer, row)
        return row

    async def fetch(self, buffer: PrefetchBuffer, limit: int) -> bool:
        self._buffers.add(buffer)
        claimed = await self._claiming.claim(self._database, buffer, limit, self._claims_of_groups(buffer))
        if claimed is None:
            return False
        rows, rules = claimed
        count = before_lone(rows, lambda row: rules is not None and bool(row.delivery_count))
        return await self._claiming.keep(self._database, buffer, rows, count)

    def _note(self, buffer: PrefetchBuffer, row: MessageRow) -> None:
        assert isinstance(row, ClaimedRow)
        if not self._delivered:
            self._delivered_at = monotonic()
        self._delivered.append((buffer, buffer.source.queue_id, row))
        if buffer.held.claimed_for is not None:
            self._extended.append(ExtendedClaim(buffer.held.key(row), row.handle, buffer.held.claimed_for, monotonic()))

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
        buffer.held.put_back(row)
        if buffer.held.claimed_for is not None:  # its time would run out while it waits
            self._extended.pop()
            self._notify_released(await self._claiming.release_rows(self._database, buffer, buffer.discard_rows()))

    def _claims_of_groups(self, buffer: PrefetchBuffer) -> set[Claim]:
        """Return the claims by which the session holds groups, of which more may come to a prefetch buffer.

        Not of those whose messages another buffer holds for delivery: they come first.
        """
        own = claims_of_groups(row for _, _, row in self._delivered) | buffer.held.claims
        if not own:  # as without groups: a session may have hundreds of buffers
            return own
        return own.difference(*(other.held.claims for other in self._buffers if other is not buffer))

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
        """True if so many messages wait, or one for so many seconds, that even a lazy session acknowledges them."""
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
            JMSException: Some of the claims were lost; those messages are delivered again. With the code 08007, the
                connection broke, and may have done so after the acknowledgement.
        """
        if not self._delivered:
            if result is not None:  # the handler has acknowledged its message itself
                await self._database.attempt(result)
            return
        if self._extended:
            await self._redelivery.wait_for_extension()
        delivered = list(self._delivered)
        claimed = [(key_of(queue_id, row), row.handle) for _, queue_id, row in delivered]
        acknowledging: Query[int] | Steps[int] = self._database.recipient.acknowledge(claimed)
        if result is not None:
            acknowledging = in_transaction(acknowledged_with(result, acknowledging, len(claimed)))
        try:
            acknowledged = await self._database.attempt(acknowledging)
        except JMSException as error:
            raise with_unknown_outcome(
                error, "A message that is not acknowledged is delivered again."
            ) from error.__cause__
        self._delivered.clear()
        self._extended.clear()
        since = self._delivered_at if self._database.shares_connections else None  # a handler's call
        count_outcome([(buffer, row) for buffer, _, row in delivered], "acknowledged", since)
        self._free_groups(delivered)
        if acknowledged < len(delivered):
            raise JMSException(
                f"{len(delivered) - acknowledged} of {len(delivered)} messages could not be acknowledged, and are "
                "delivered again: they were held for longer than their visibility timeout, or the server took this "
                "client for gone.",
                CLAIM_LOST,
            )

    async def acknowledge_earlier(self) -> None:
        """Acknowledge all that was delivered before the last message.

        Raises:
            JMSException: As `acknowledge` does.
        """
        if len(self._delivered) < 2:
            return
        last = self._delivered.pop()
        try:
            await self.acknowledge()
        finally:
            self._delivered.append(last)

    async def release(self, failure: Failure | None = None) -> list[MessageKey]:
        """Release all that was delivered and return it.

        A message with which a listener has failed waits before its next delivery.
        """
        if not self._delivered:
            return []
        delivered = list(self._delivered)
        # The session's other messages of the same groups come after these.
        groups = {row.group_hash for _, _, row in delivered if row.group_hash is not None}
        held = [(buffer, row) for buffer in self._buffers for row in buffer.held.of_groups(groups)] if groups else []
        failed = [
            FailedDelivery(buffer, key_of(queue_id, row), row.handle, (row.delivery_count or 0) + 1, row.jms_message_id)
            for buffer, queue_id, row in delivered
        ]
        releases = await self._redelivery.failures(failed, failure)
        later = [Release(buffer.held.key(row), claim_of(row)) for buffer, row in held]
        released = await self._claiming.release(self._database, releases + later)
        self._has_dead_letter = any(
            release.dead_letter_queue_id is not None and release.key.sequence in released for release in releases
        )
        self._delivered.clear()
        self._extended.clear()
        for buffer, _ in held:
            buffer.discard_groups(groups)
        since = self._delivered_at if self._database.shares_connections else None  # a handler's call
        count_outcome([(buffer, row) for buffer, _, row in delivered], "rolled_back", since)
        for each in failed:
            each.buffer.source.returned(each.key)
        return [each.key for each in failed]

    async def closed(self, buffer: PrefetchBuffer) -> list[MessageKey]:
        """End the deliveries to a prefetch buffer: release its messages, and return them."""
        self._buffers.discard(buffer)
        releases = [Release(buffer.held.key(row), claim_of(row)) for row in buffer.discard_rows()]
        if releases:
            await self._claiming.release_in_any_case(self._database, releases)
        return [release.key for release in releases]

    def _free_groups(self, acknowledged: Sequence[_Delivered]) -> None:
        """Tell of the groups of acknowledged messages that the session does not hold any more."""
        keys = [(buffer, key_of(queue_id, row)) for buffer, queue_id, row in acknowledged if row.group_hash is not None]
        if keys:
            held = set[int]().union(*(buffer.held.groups for buffer in self._buffers))
            free = [(buffer, key) for buffer, key in keys if key.group_hash not in held]
            for buffer, key in free:
                buffer.source.returned(key)
            self._notify_released([key for _, key in free])
