"""How messages come to sessions without transactions: they are claimed, and deleted when they are acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from jmsql.client.delivery import Accept, Announce, StoreAccess, count_outcome
from jmsql.client.inbox import Inbox
from jmsql.client.redelivery import FailedDelivery, Redelivery
from jmsql.exceptions import JMSException
from jmsql.store.message_key import MessageKey
from jmsql.store.receive import claim
from jmsql.store.redelivery import ExtendedClaim, Release
from jmsql.store.rows import MessageRow
from jmsql.store.sign_of_life import is_connected

if TYPE_CHECKING:
    from jmsql.selectors import Selector
    from jmsql.store.dequeue import GroupScan
    from jmsql.store.statement import Query

__all__ = ["ClaimedDelivery"]

_LAZY_ACKNOWLEDGEMENTS = 100


class Claimant(Protocol):
    """The client, as the server knows it."""

    @property
    def connection_id(self) -> int:
        """The number of its connection."""

    @property
    def is_certain(self) -> bool:
        """Whether nobody can have taken it for dead."""


class ClaimedDelivery:
    """For CLIENT and DUPS_OK sessions and AUTO listeners: no transaction stays open while user code runs.

    Messages are claimed in batches, and deleted when they are acknowledged, if the claim still holds by then. If the
    client dies, the whole batch counts as delivered. Where there is a redelivery policy, a message that was delivered
    before is claimed for itself, so that it alone is blamed if it is delivered in vain once more.

    A client that was suspended, or cut off, may have been taken for dead, and its claims given to others. While that is
    not certain to be wrong, nothing is claimed, nor delivered of what was, without asking the server.

    Args:
        access: The store, with each statement committed by itself.
        claimant: In whose name messages are claimed.
        redelivery: Knows the policies.
        announce: Tells consumers of messages and groups that are free again.
    """

    def __init__(
        self, access: StoreAccess, claimant: Callable[[], Claimant], redelivery: Redelivery, announce: Announce
    ) -> None:
        self._access = access
        self._claimant = claimant
        self._redelivery = redelivery
        self._announce = announce
        self._time_limit: float | None = None
        self._inboxes: set[Inbox] = set()
        self._delivered: list[tuple[Inbox, MessageKey, MessageRow]] = []
        self._limited: list[ExtendedClaim] = []

    def operation(
        self,
        queue_id: int,
        selector: Selector | None,
        lowest: Sequence[int],
        limit: int,
        groups: GroupScan | None = None,
    ) -> Query[list[MessageRow]]:
        """Claim messages in the name of the client's connection."""
        return claim(queue_id, selector, lowest, limit, self._claimant().connection_id, self._time_limit, groups)

    def next(self, inbox: Inbox, accept: Accept | None = None) -> MessageRow | None:
        while True:
            row = self.next_held(inbox)
            if row is not None or not self.fetch(inbox, inbox.prefetch.size()):
                break
        if row is not None and accept is not None:
            try:
                accept(row)
            except BaseException:
                self._take_back(inbox)
                raise
        return row

    def next_held(self, inbox: Inbox) -> MessageRow | None:
        if len(inbox) and not self._lives():
            self._release(inbox, inbox.give_up())
        self._release(inbox, inbox.drop_stale())
        rules = self._redelivery.rules(inbox) if len(inbox) else None
        while (row := inbox.next()) is not None:
            key = inbox.key(row)
            if rules is not None and rules.is_exhausted(key, row.delivery_count or 0):
                self._give_up([Release(key, row.handle, dead_letter_queue_id=rules.dead_letter_queue_id)])
                continue
            self._delivered.append((inbox, key, row))
            if inbox.claimed_for is not None:
                self._limited.append(ExtendedClaim(key, row.handle, inbox.claimed_for))
            return row
        return None

    def _take_back(self, inbox: Inbox) -> None:
        """Undo the last delivery, which was to this inbox, as if nobody had asked for the message."""
        _, _, row = self._delivered.pop()
        inbox.keep_first(row)
        if inbox.claimed_for is not None:  # its time would run out while it waits
            self._limited.pop()
            self._announce(self._release(inbox, inbox.give_up()))

    def fetch(self, inbox: Inbox, limit: int) -> bool:
        if not self._lives():
            return False
        rules = self._redelivery.rules(inbox)
        self._time_limit = inbox.claimed_for = self._redelivery.claim_time_limit(inbox)
        # What waits behind a long delivery would run out of its time too.
        is_single = self._time_limit is not None or (rules is not None and rules.policy.maximum_deliveries == 1)
        self._inboxes.add(inbox)
        rows = self._access.run(inbox.fetch(1 if is_single else limit, self._claims_of_groups(inbox)))
        if rules is not None:
            first = next((number for number, row in enumerate(rows) if row.delivery_count), len(rows))
            rows, rest = rows[: max(first, 1)], rows[max(first, 1) :]
            for key in self._release(inbox, rest):
                inbox.returned(key)
        inbox.keep(rows)
        return bool(rows)

    def _lives(self) -> bool:
        claimant = self._claimant()
        return claimant.is_certain or self._access.run(is_connected(claimant.connection_id))

    def _claims_of_groups(self, inbox: Inbox) -> set[int]:
        """Return the claims by which the session holds groups, of which more may come to an inbox.

        Not of those whose messages another inbox holds for delivery: they come first.
        """
        own = {row.handle for _, _, row in self._delivered if row.group_hash is not None} | inbox.claims
        return own.difference(*(other.claims for other in self._inboxes if other is not inbox))

    @property
    def acknowledgement_due(self) -> bool:
        """Whether so many messages wait that even a lazy session should acknowledge them."""
        return len(self._delivered) >= _LAZY_ACKNOWLEDGEMENTS

    @property
    def limited_claims(self) -> list[ExtendedClaim]:
        """The claims on what was delivered, as far as they have time limits."""
        return list(self._limited)

    def acknowledge(self) -> None:
        """Acknowledge all that was delivered.

        Raises:
            JMSException: Some of the claims were lost; those messages are delivered again.
        """
        if not self._delivered:
            return
        delivered = list(self._delivered)
        acknowledged = self._access.run(
            self._access.recipient.acknowledge([(key, row.handle) for _, key, row in delivered])
        )
        self._delivered.clear()
        self._limited.clear()
        count_outcome([(inbox, row) for inbox, _, row in delivered], "acknowledged")
        self._free_groups(delivered)
        if acknowledged < len(delivered):
            raise JMSException(
                f"{len(delivered) - acknowledged} of {len(delivered)} messages could not be acknowledged, and are "
                "delivered again: they were held for longer than the time limit for claims, or the server took this "
                "client for gone."
            )

    def give_back(self, error: str | None = None) -> list[MessageKey]:
        """Give back all that was delivered and return it.

        Args:
            error: Why its listener failed, if it did. The message then waits before its next delivery.
        """
        if not self._delivered:
            return []
        delivered, self._delivered = self._delivered, []
        self._limited.clear()
        # What the session holds of the same groups comes after these.
        groups = {row.group_hash for _, _, row in delivered if row.group_hash is not None}
        held = [(inbox, row) for inbox in self._inboxes for row in inbox.give_up_groups(groups)] if groups else []
        failed = [
            FailedDelivery(inbox, key, row.handle, (row.delivery_count or 0) + 1) for inbox, key, row in delivered
        ]
        self._give_up(
            self._redelivery.failures(failed, error) + [Release(inbox.key(row), row.handle) for inbox, row in held]
        )
        count_outcome([(inbox, row) for inbox, _, row in delivered], "rolled_back")
        for inbox, key, _ in delivered:
            inbox.returned(key)
        return [key for _, key, _ in delivered]

    def closed(self, inbox: Inbox) -> list[MessageKey]:
        """End the deliveries to an inbox: give back what it holds, and return that."""
        self._inboxes.discard(inbox)
        return self._release(inbox, inbox.give_up())

    def _free_groups(self, acknowledged: Sequence[tuple[Inbox, MessageKey, MessageRow]]) -> None:
        """Tell of the groups of acknowledged messages that the session does not hold any more."""
        keys = [(inbox, key) for inbox, key, _ in acknowledged if key.group_hash is not None]
        if keys:
            held = set[int]().union(*(inbox.groups for inbox in self._inboxes))
            free = [(inbox, key) for inbox, key in keys if key.group_hash not in held]
            for inbox, key in free:
                inbox.returned(key)
            self._announce([key for _, key in free])

    def _release(self, inbox: Inbox, rows: list[MessageRow]) -> list[MessageKey]:
        """Give up the claims on messages that were not delivered, and return those."""
        if not rows:
            return []
        releases = [Release(inbox.key(row), row.handle) for row in rows]
        self._give_up(releases)
        return [release.key for release in releases]

    def _give_up(self, releases: list[Release]) -> None:
        try:
            self._access.run(self._access.recipient.release(releases))
        except JMSException:
            # The connection may have been lost while it was idle. As claims have numbers, nothing is given up twice.
            self._access.run(self._access.recipient.release(releases))
        if any(release.dead_letter_queue_id is not None for release in releases):
            self._redelivery.bury()
