"""How messages come to a session and leave the store: one strategy for each way to acknowledge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from jmsql.client.inbox import Inbox
from jmsql.exceptions import JMSException
from jmsql.store.message_store import MessageKey, MessageStore, Release
from jmsql.store.reader import Fetch
from jmsql.store.rows import MessageRow
from jmsql.store.traffic import Counts

if TYPE_CHECKING:
    from jmsql.selectors import Selector
    from jmsql.store.session_connection import SessionConnection

__all__ = ["ClaimedDelivery", "Delivery", "ImmediateDelivery", "LockedDelivery", "StoreAccess"]

_LISTENER_DELAYS = (0.0, 0.1, 0.5, 2.0, 10.0, 60.0)
"""Seconds that a message waits after its listener failed for the first time, the second, and so on."""

_LAZY_ACKNOWLEDGEMENTS = 100


class StoreAccess(Protocol):
    """Where a strategy finds the store: through the session's connection, or the caller's."""

    @property
    def store(self) -> MessageStore:
        """The store, in the current transaction."""


class Delivery(Protocol):
    """A way to take messages from the store."""

    @property
    def operation(self) -> Fetch:
        """The store's operation that hands out messages."""

    def next(self, inbox: Inbox) -> MessageRow | None:
        """Return the next message, now delivered, or None if there is none."""

    def closed(self, inbox: Inbox) -> list[MessageKey]:
        """End the deliveries to an inbox, and return the messages given back."""


class LockedDelivery:
    """For transactions: messages are locked when they are fetched, and deleted before the commit.

    What was fetched and not delivered by the end of the transaction is simply unlocked.

    Args:
        access: The transaction.
        record: Counts the deliveries of messages that are about to be given back; None: they are not counted.
    """

    operation: Fetch = staticmethod(MessageStore.lock)

    def __init__(self, access: StoreAccess, record: Callable[[Sequence[MessageKey]], None] | None = None) -> None:
        self._access = access
        self._record = record
        self._inboxes: list[Inbox] = []
        self._undeleted: list[MessageRow] = []
        self._redelivered: list[MessageKey] = []
        self._delivered: list[tuple[Inbox, MessageRow]] = []
        self._are_counted = False

    @property
    def has_delivered(self) -> bool:
        """Whether the transaction has received anything."""
        return bool(self._delivered)

    def next(self, inbox: Inbox) -> MessageRow | None:
        """Return the next message, now delivered, or None if there is none."""
        row = self.next_held(inbox)
        if row is None:
            self.fetch(inbox, inbox.prefetch.size())
            row = self.next_held(inbox)
        return row

    def next_held(self, inbox: Inbox) -> MessageRow | None:
        """Return the next message that was fetched before, now delivered, or None if there is none."""
        inbox.drop_stale()  # they stay locked until the transaction ends
        row = inbox.next()
        if row is None:
            return None
        self._undeleted.append(row)
        if row.delivery_count is not None:
            self._redelivered.append(inbox.key(row))
        self._delivered.append((inbox, row))
        return row

    def fetch(self, inbox: Inbox, limit: int) -> None:
        """Fetch up to `limit` messages."""
        # A transaction's own locks do not make it skip a row. What it has delivered is deleted first; what other
        # inboxes of the session hold is left out here.
        self.flush()
        held = {key for other in self._inboxes if other is not inbox for key in other.held}
        if inbox not in self._inboxes:
            self._inboxes.append(inbox)
        rows = inbox.fetch(self._access.store, limit + len(held))
        inbox.keep([row for row in rows if inbox.key(row) not in held] if held else rows)

    def flush(self) -> None:
        """Delete what was delivered, still in the open transaction."""
        if self._undeleted:
            self._access.store.delete_locked(self._undeleted)
            self._undeleted.clear()

    def before_commit(self) -> None:
        """Delete what was delivered, and what is known of earlier deliveries.

        No sooner: a rollback counts the deliveries through another connection, which this transaction would hold up.
        """
        self.flush()
        if self._redelivered:
            self._access.store.forget_deliveries(self._redelivered)

    def committed(self) -> list[MessageKey]:
        """Note that the transaction is over: what was delivered is gone. Return the rest, which is unlocked."""
        _count(self._delivered, "acknowledged")
        return self._ended()

    def _ended(self) -> list[MessageKey]:
        self._are_counted = False
        self._delivered.clear()
        self._undeleted.clear()
        self._redelivered.clear()
        unlocked = []
        for inbox in self._inboxes:
            unlocked += [inbox.key(row) for row in inbox.give_up()]
            inbox.prefetch.transaction_ended()
        self._inboxes.clear()
        return unlocked

    def before_rollback(self) -> None:
        """Count the deliveries, so that no other consumer sees the messages without their redelivered flag."""
        if self._delivered and self._record is not None and not self._are_counted:
            self._record(self.delivered)
            self._are_counted = True

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
        returned = []
        for inbox, row in self._delivered:
            key = inbox.key(row)
            inbox.returned(key)
            returned.append(key)
        _count(self._delivered, "rolled_back")
        return returned + self._ended()

    def closed(self, inbox: Inbox) -> list[MessageKey]:  # noqa: ARG002 - it is the other strategy's concern
        """End the deliveries to an inbox: what it holds stays locked until the transaction ends."""
        return []


class ImmediateDelivery:
    """For `receive` in AUTO sessions: each message is taken off its queue before it is returned.

    Args:
        connection: The session's connection.
    """

    operation: Fetch = staticmethod(MessageStore.take)

    def __init__(self, connection: SessionConnection) -> None:
        self._connection = connection

    def next(self, inbox: Inbox) -> MessageRow | None:
        """Return the next message, now delivered, or None if there is none."""
        rows: list[MessageRow] = []
        with self._connection.receiving() as received:
            rows = inbox.fetch(self._connection.store, 1)
            if rows:
                received()
        if not rows:
            return None
        _count([(inbox, rows[0])], "acknowledged")
        return rows[0]

    def closed(self, inbox: Inbox) -> list[MessageKey]:  # noqa: ARG002 - it is the other strategy's concern
        """End the deliveries to an inbox, which holds nothing."""
        return []


class ClaimedDelivery:
    """For CLIENT and DUPS_OK sessions and AUTO listeners: no transaction stays open while user code runs.

    Messages are claimed in batches, and deleted when they are acknowledged, if the claim still holds by then.

    Args:
        access: The store, with each statement committed by itself.
        connection_id: Returns the number of the client's connection, in whose name messages are claimed.
    """

    def __init__(self, access: StoreAccess, connection_id: Callable[[], int]) -> None:
        self._access = access
        self._connection_id = connection_id
        self._delivered: list[tuple[Inbox, MessageKey, MessageRow]] = []

    def operation(
        self, store: MessageStore, queue_id: int, selector: Selector | None, lowest: Sequence[int], limit: int
    ) -> list[MessageRow]:
        """Claim messages in the name of the client's connection."""
        return store.claim(queue_id, selector, lowest, limit, self._connection_id())

    def next(self, inbox: Inbox) -> MessageRow | None:
        """Return the next message, now delivered, or None if there is none."""
        row = self.next_held(inbox)
        if row is None:
            self.fetch(inbox, inbox.prefetch.size())
            row = self.next_held(inbox)
        return row

    def next_held(self, inbox: Inbox) -> MessageRow | None:
        """Return the next message that was fetched before, now delivered, or None if there is none."""
        self._release(inbox, inbox.drop_stale())
        row = inbox.next()
        if row is not None:
            self._delivered.append((inbox, inbox.key(row), row))
        return row

    def fetch(self, inbox: Inbox, limit: int) -> None:
        """Fetch up to `limit` messages."""
        inbox.keep(inbox.fetch(self._access.store, limit))

    @property
    def acknowledgement_due(self) -> bool:
        """Whether so many messages wait that even a lazy session should acknowledge them."""
        return len(self._delivered) >= _LAZY_ACKNOWLEDGEMENTS

    def acknowledge(self) -> None:
        """Acknowledge all that was delivered.

        Raises:
            JMSException: Some of the claims were lost; those messages are delivered again.
        """
        if not self._delivered:
            return
        delivered = list(self._delivered)
        acknowledged = self._access.store.acknowledge([(key, row.handle) for _, key, row in delivered])
        self._delivered.clear()
        _count([(inbox, row) for inbox, _, row in delivered], "acknowledged")
        if acknowledged < len(delivered):
            raise JMSException(
                f"{len(delivered) - acknowledged} of {len(delivered)} messages could not be acknowledged: the server "
                "took this client for gone, and they are delivered again."
            )

    def give_back(self, error: str | None = None) -> list[MessageKey]:
        """Give back all that was delivered and return it.

        Args:
            error: Why its listener failed, if it did. The message then waits before its next delivery.
        """
        if not self._delivered:
            return []
        delivered, self._delivered = self._delivered, []
        self._give_up(
            [
                Release(key, row.handle, 1, 0.0 if error is None else _listener_delay(row), error)
                for _, key, row in delivered
            ]
        )
        _count([(inbox, row) for inbox, _, row in delivered], "rolled_back")
        for inbox, key, _ in delivered:
            inbox.returned(key)
        return [key for _, key, _ in delivered]

    def closed(self, inbox: Inbox) -> list[MessageKey]:
        """End the deliveries to an inbox: give back what it holds, and return that."""
        return self._release(inbox, inbox.give_up())

    def _release(self, inbox: Inbox, rows: list[MessageRow]) -> list[MessageKey]:
        """Give up the claims on messages that were not delivered, and return those."""
        if not rows:
            return []
        releases = [Release(inbox.key(row), row.handle) for row in rows]
        self._give_up(releases)
        return [release.key for release in releases]

    def _give_up(self, releases: list[Release]) -> None:
        try:
            self._access.store.release(releases)
        except JMSException:
            # The connection may have been lost while it was idle. As claims have numbers, nothing is given up twice.
            self._access.store.release(releases)


def _count(delivered: Sequence[tuple[Inbox, MessageRow]], outcome: str) -> None:
    """Count deliveries that have ended."""
    counts: dict[Inbox, list[int]] = {}
    for inbox, row in delivered:
        count = counts.setdefault(inbox, [0, 0])
        count[0] += 1
        if row.delivery_count:
            count[1] += 1
    for inbox, (number, redelivered) in counts.items():
        inbox.count(Counts(redelivered=redelivered, **{outcome: number}))


def _listener_delay(row: MessageRow) -> float:
    return _LISTENER_DELAYS[min(row.delivery_count or 0, len(_LISTENER_DELAYS) - 1)]
