"""The records of a transaction's deliveries, which the store has beside the transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from jmsql.client._async.shared.redelivery import FailedDelivery, Failure, Redelivery
from jmsql.exceptions import JMSException
from jmsql.logs import contained_logger
from jmsql.store.receiving.redelivery import Release
from jmsql.store.rows.message_rows import claim_of

if TYPE_CHECKING:
    from jmsql.client.receiving.fetching import PrefetchBuffer
    from jmsql.store.receiving.redelivery import Rules
    from jmsql.store.rows.message_rows import Claim, MessageKey, MessageRow


logger = contained_logger("jmsql")


# Invariants:
#
# 1. The record of a delivery is written outside the transaction, by a claim or on another connection, and deleted with
#    the commit, no sooner. A deletion in the open transaction would hold up the connection that counts.
# 2. A delivery is counted once, unless the answer to its count is lost: then perhaps twice. `_Known` tells by whom:
#    AS_BEFORE, the rollback counts; COUNTED, it has done so; FORGOTTEN, the commit was under way, and a rollback counts
#    after the transaction has ended.
# 3. Where a policy counts deliveries, a message that was delivered before is recorded by itself, so that it alone is
#    blamed if the client dies with it.


Deliveries: TypeAlias = "Mapping[MessageKey, tuple[PrefetchBuffer, MessageRow]]"
"""Delivered messages by their keys, with the prefetch buffers that they come from."""


class _Known(Enum):
    """The store's record of a transaction's deliveries, beside it or in it."""

    AS_BEFORE = auto()
    COUNTED = auto()
    """They have failed."""
    FORGOTTEN = auto()
    """They are forgotten with the commit, which has not ended."""


class Count(NamedTuple):
    """The deliveries that the store knows of.

    Args:
        known: Its record of them.
        failure: The reason of a rollback that is under way.
        has_exhausted: True if a message is to be moved to its dead-letter queue when the transaction ends.
    """

    known: _Known = _Known.AS_BEFORE
    failure: Failure | None = None
    has_exhausted: bool = False


NOTHING_COUNTED = Count()


class DeliveryRecords:
    """The records of the deliveries of one transaction after another.

    Its fields are written as those of `Delivered`: with the session's lock held; with `SessionWork.lock` alone by an
    insertion of sends that replace messages; or in the thread that runs a statement or commit of the application.
    """

    def __init__(self, redelivery: Redelivery) -> None:
        self._redelivery = redelivery
        self.claims: dict[MessageKey, Claim] = {}
        """The claims that record deliveries beside the locks, or that the transaction has to release. Written here."""
        self.count = NOTHING_COUNTED
        """The deliveries that the store knows of. Replaced whole."""

    async def record(self, buffer: PrefetchBuffer, row: MessageRow, rules: Rules) -> None:
        """Record the delivery of a locked message, and with a first one the others that the buffer holds."""
        key = buffer.held.key(row)
        if key in self.claims or claim_of(row) is not None:
            return
        keys = [key]
        if not row.delivery_count and rules.policy.maximum_deliveries != 1:
            keys += buffer.held.first_deliveries
        claim_id = await self._redelivery.record(keys, is_new=row.delivery_count is None)
        buffer.held.note_recorded(len(keys) - 1)
        self.claims.update(dict.fromkeys(keys, claim_id))

    async def record_all(self, keys: Collection[MessageKey]) -> None:
        """Record deliveries, except those that are recorded."""
        unclaimed = [key for key in keys if key not in self.claims]
        if unclaimed:
            self.claims.update(dict.fromkeys(unclaimed, await self._redelivery.record(unclaimed, is_new=False)))

    async def mark_exhausted(self, key: MessageKey, rules: Rules) -> None:
        """Have a message moved to its dead-letter queue when the transaction ends."""
        await self._redelivery.release([Release(key, dead_letter_queue_id=rules.dead_letter_queue_id)])
        self.count = self.count._replace(has_exhausted=True)

    def take(self, key: MessageKey) -> Claim | None:
        """Return the claim of a message, which the caller ends; None: it has none."""
        return self.claims.pop(key, None)

    def release_at_end(self, claims: Mapping[MessageKey, Claim]) -> None:
        """Have claims released when the transaction ends."""
        self.claims.update(claims)

    def of(self, delivered: Deliveries) -> tuple[list[MessageKey], list[Claim]]:
        """Return the delivered messages that were not claimed when they were received.

        Returns:
            The messages, and the claims that record them, if all have one.
        """
        locked = [key for key, (_, row) in delivered.items() if claim_of(row) is None]
        claims = [self.claims[key] for key in locked if key in self.claims]
        return locked, claims if len(claims) == len(locked) else []

    def forget_with_commit(self) -> None:
        """Note that the commit is about to delete the records: a rollback counts after it."""
        self.count = self.count._replace(known=_Known.FORGOTTEN)

    def committed(self, delivered: Deliveries) -> None:
        """Note that the records of deliveries are deleted."""
        for key in delivered:
            self.claims.pop(key, None)

    async def count_before_rollback(self, delivered: Deliveries, failure: Failure | None) -> None:
        """Count the deliveries before the rollback, so that no other consumer sees the messages without their flag.

        Raises:
            JMSException: They could not be counted, and are counted after the rollback.
        """
        if delivered and self.count.known is _Known.AS_BEFORE:
            self.count = self.count._replace(failure=failure)
            await self._count(delivered, self._redelivery.release, failure)
            self.count = self.count._replace(known=_Known.COUNTED)

    async def count_after_rollback(self, delivered: Deliveries) -> None:
        """Count the deliveries, unless that was done before the rollback: the transaction was in the way until now."""
        if delivered and self.count.known is not _Known.COUNTED:
            await self.count_in_any_case(delivered, self.count.failure)

    async def count_in_any_case(self, delivered: Deliveries, failure: Failure | None = None) -> None:
        """Count deliveries that have failed, if the server can be told."""
        try:
            await self._count(delivered, self._redelivery.release_in_any_case, failure)
        except JMSException as error:
            logger.warning("Deliveries that were rolled back could not be counted: %s", error)

    async def _count(
        self,
        delivered: Deliveries,
        release: Callable[[Sequence[Release]], Awaitable[object]],
        failure: Failure | None,
    ) -> None:
        failed = [
            FailedDelivery(
                buffer, key, self.claims.get(key, claim_of(row)), (row.delivery_count or 0) + 1, row.jms_message_id
            )
            for key, (buffer, row) in delivered.items()
        ]
        releases = await self._redelivery.failures(failed, failure)
        await release(releases)
        if any(each.dead_letter_queue_id is not None for each in releases):
            self.count = self.count._replace(has_exhausted=True)
        for each in releases:
            self.claims.pop(each.key, None)

    async def end(self) -> None:
        """Release the claims that are left, as the transaction has ended, and have exhausted messages moved."""
        if self.claims:
            releases = [Release(key, claim_id) for key, claim_id in self.claims.items()]
            await self._redelivery.release_in_any_case(releases)
            self.claims.clear()
        if self.count.has_exhausted:
            await self._redelivery.bury()
        self.count = NOTHING_COUNTED
