"""How messages come to a transacted session: they are locked, and deleted before the commit."""

from __future__ import annotations

import logging

from jmsql.client.delivery import StoreAccess, count_outcome
from jmsql.client.inbox import Inbox
from jmsql.client.redelivery import Redelivery
from jmsql.exceptions import JMSException
from jmsql.store.message_key import MessageKey
from jmsql.store.message_store import MessageStore
from jmsql.store.reader import Fetch
from jmsql.store.redelivery import Release, Rules
from jmsql.store.rows import MessageRow

__all__ = ["LockedDelivery"]

logger = logging.getLogger("jmsql")


class LockedDelivery:
    """For transactions: messages are locked when they are fetched, and deleted before the commit.

    What was fetched and not delivered by the end of the transaction is simply unlocked. Where there is a redelivery
    policy, deliveries are recorded beside the transaction, as claims, before they are made: if the client dies, they
    count. Those made for the first time are recorded together, since most end well; a message that was delivered
    before is recorded for itself, so that it alone is blamed if it is delivered in vain once more.

    Args:
        access: The transaction.
        redelivery: Records deliveries outside of it.
    """

    operation: Fetch = staticmethod(MessageStore.lock)

    def __init__(self, access: StoreAccess, redelivery: Redelivery) -> None:
        self._access = access
        self._redelivery = redelivery
        self._inboxes: list[Inbox] = []
        self._undeleted: list[MessageRow] = []
        self._undeleted_from: set[int] = set()
        self._recorded: list[MessageKey] = []
        self._delivered: list[tuple[Inbox, MessageRow]] = []
        self._claims: dict[MessageKey, int] = {}
        self._are_counted = False
        self._are_forgotten = False
        self._has_condemned = False

    @property
    def has_delivered(self) -> bool:
        """Whether the transaction has received anything."""
        return bool(self._delivered)

    def next(self, inbox: Inbox) -> MessageRow | None:
        """Return the next message, now delivered, or None if there is none."""
        while True:
            row = self.next_held(inbox)
            if row is not None or not self.fetch(inbox, inbox.prefetch.size()):
                return row

    def next_held(self, inbox: Inbox) -> MessageRow | None:
        """Return the next message that was fetched before, now delivered, or None if there is none."""
        inbox.drop_stale()  # they stay locked until the transaction ends
        rules = self._redelivery.rules(inbox) if len(inbox) else None
        while (row := inbox.next()) is not None:
            key = inbox.key(row)
            if rules is not None:
                if rules.is_exhausted(key, row.delivery_count or 0):
                    self._condemn(key, rules)
                    continue
                self._record(inbox, row, rules)
            self._undeleted.append(row)
            self._undeleted_from.add(inbox.queue_id)
            if row.delivery_count is not None or rules is not None:
                self._recorded.append(key)
            self._delivered.append((inbox, row))
            return row
        return None

    def _condemn(self, key: MessageKey, rules: Rules) -> None:
        self._redelivery.release([Release(key, dead_letter_queue_id=rules.dead_letter_queue_id)])
        self._has_condemned = True

    def _record(self, inbox: Inbox, row: MessageRow, rules: Rules) -> None:
        key = inbox.key(row)
        if key in self._claims:
            return
        keys = [key]
        if not row.delivery_count and rules.policy.maximum_deliveries != 1:
            keys += inbox.held_for_the_first_time
        self._claims.update(dict.fromkeys(keys, self._redelivery.record(keys)))

    def fetch(self, inbox: Inbox, limit: int) -> bool:
        """Fetch up to `limit` messages; return whether there are any."""
        # A transaction's own locks do not make it skip a row. What it has delivered is deleted first; what other
        # inboxes of the session hold is left out here.
        self.flush()
        others = [other for other in self._inboxes if other is not inbox]
        held = {key for other in others for key in other.held}
        if inbox not in self._inboxes:
            self._inboxes.append(inbox)
        own_claims = {claim_id for key, claim_id in self._claims.items() if key.group_hash is not None}
        rows = inbox.fetch(self._access.store, limit + len(held), own_claims)
        if held:
            groups = {group for other in others for group in other.groups}
            for row in rows:
                if row.group_hash in groups:
                    inbox.returned(inbox.key(row))  # it comes after those that the other inbox holds
            rows = [row for row in rows if row.group_hash not in groups and inbox.key(row) not in held]
        inbox.keep(rows)
        return bool(rows)

    def flush(self) -> None:
        """Delete what was delivered, still in the open transaction."""
        if self._undeleted:
            self._access.store.delete_locked(self._undeleted, self._undeleted_from)
            self._undeleted.clear()
            self._undeleted_from.clear()

    def before_commit(self) -> None:
        """Delete what was delivered, and what is recorded of its deliveries.

        No sooner: a rollback counts the deliveries through another connection, which this transaction would hold up.
        """
        self.flush()
        if self._recorded:
            self._are_forgotten = True
            self._access.store.forget_deliveries(self._recorded)

    def committed(self) -> list[MessageKey]:
        """Note that the transaction is over: what was delivered is gone.

        Returns:
            The rest, which is unlocked, and what was delivered of groups, which are free again.
        """
        count_outcome(self._delivered, "acknowledged")
        for key in self.delivered:
            self._claims.pop(key, None)
        freed = [(inbox, inbox.key(row)) for inbox, row in self._delivered if row.group_hash is not None]
        for inbox, key in freed:
            inbox.returned(key)
        return [key for _, key in freed] + self._ended()

    def _ended(self) -> list[MessageKey]:
        if self._claims:
            self._give_up_claims()
        if self._has_condemned:
            self._redelivery.bury()
        self._are_counted = self._are_forgotten = self._has_condemned = False
        self._delivered.clear()
        self._undeleted.clear()
        self._undeleted_from.clear()
        self._recorded.clear()
        unlocked = []
        for inbox in self._inboxes:
            unlocked += [inbox.key(row) for row in inbox.give_up()]
            inbox.prefetch.transaction_ended()
        self._inboxes.clear()
        return unlocked

    def _give_up_claims(self) -> None:
        try:
            self._redelivery.release([Release(key, claim_id) for key, claim_id in self._claims.items()])
        except JMSException as error:
            logger.warning("Messages that were fetched and not delivered come late to other consumers: %s", error)
        self._claims.clear()

    def before_rollback(self, error: str | None = None) -> None:
        """Count the deliveries, so that no other consumer sees the messages without their redelivered flag.

        Args:
            error: Why they failed, if that is known.
        """
        if self._delivered and not self._are_counted and not self._are_forgotten:
            self._count_failures(error)

    def _count_failures(self, error: str | None = None) -> None:
        releases = [
            self._redelivery.failure(
                inbox, inbox.key(row), self._claims.get(inbox.key(row)), (row.delivery_count or 0) + 1, error
            )
            for inbox, row in self._delivered
        ]
        self._redelivery.release(releases)
        self._are_counted = True
        self._has_condemned |= any(release.dead_letter_queue_id is not None for release in releases)
        for release in releases:
            self._claims.pop(release.key, None)

    def before_prepare(self) -> None:
        """Delete what was delivered, and count the deliveries as before a rollback, since this may become one.

        Who rolls a prepared transaction back need not know what it had delivered. If it is committed instead, what is
        known of the deliveries goes later: the prepared transaction would hold up who counts.
        """
        self.flush()
        self.before_rollback()

    @property
    def delivered(self) -> list[MessageKey]:
        """The messages that the transaction has delivered."""
        return [inbox.key(row) for inbox, row in self._delivered]

    def rolled_back(self) -> list[MessageKey]:
        """Note that the transaction is undone, and return the messages that it had locked."""
        if self._delivered and not self._are_counted:  # the transaction was in the way until now
            try:
                self._count_failures()
            except JMSException as error:
                logger.warning("The deliveries that are rolled back could not be counted: %s", error)
        returned = []
        for inbox, row in self._delivered:
            key = inbox.key(row)
            inbox.returned(key)
            returned.append(key)
        count_outcome(self._delivered, "rolled_back")
        return returned + self._ended()

    def closed(self, inbox: Inbox) -> list[MessageKey]:  # noqa: ARG002 - it is the other strategy's concern
        """End the deliveries to an inbox: what it holds stays locked until the transaction ends."""
        return []
