"""The claims of a transaction, in place of locks, where a redelivery policy counts deliveries."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING

from jmsql.client._async.shared.redelivery import Redelivery
from jmsql.client.receiving.fetching import PrefetchBuffer
from jmsql.store.rows.message_rows import Claim, ClaimedRow, MessageKey, MessageRow, key_of

if TYPE_CHECKING:
    from jmsql.client._async.link.lease import Lease
    from jmsql.store.receiving.acknowledge import Recipient
    from jmsql.store.statement import Query


# A claim is lock and record in one: it takes one exchange, and what is locked takes another to record its delivery.
# So a transaction claims while nothing of it is open. What is claimed and not delivered is released when it ends, as a
# lock would be. The class of a row tells if it was claimed.


def claimed_of(delivered: Iterable[tuple[PrefetchBuffer, MessageRow]]) -> list[tuple[MessageKey, ClaimedRow]]:
    """Return the messages that were claimed when they were received."""
    return [(buffer.held.key(row), row) for buffer, row in delivered if isinstance(row, ClaimedRow)]


class TransactionClaims:
    """The claims of one transaction after another. The commit deletes the messages behind them."""

    def __init__(self, database: Lease, redelivery: Redelivery) -> None:
        self._database = database
        self._redelivery = redelivery
        self.batches: list[tuple[int, list[ClaimedRow]]] = []
        """The messages that the transaction has claimed, each batch with its queue. Written here."""
        self._has_company = False
        """True if the transaction has locked other messages since."""

    async def claim(self, buffer: PrefetchBuffer, limit: int) -> list[ClaimedRow] | None:
        """Claim up to `limit` messages, and return them; None: they have to be locked."""
        source = buffer.source
        if source.has_groups or not self._database.link.can_run_alone:
            return None
        rules = await self._redelivery.rules(buffer)
        if rules is None:
            return None
        rows = await self._redelivery.claim(
            self._database, buffer, 1 if rules.policy.maximum_deliveries == 1 else limit
        )
        if rows is None:
            return None
        claimed = [row for row in rows if isinstance(row, ClaimedRow)]
        if len(claimed) < len(rows):
            # The last one was delivered before, or the queue has just got groups, and nothing is claimed.
            for row in rows[len(claimed) :]:
                source.returned(buffer.held.key(row))
            if not claimed:
                return None
        if claimed:
            self.batches.append((source.queue_id, claimed))
            self._has_company = False  # nothing is locked, since no transaction is open
        return claimed

    def note_locks(self) -> None:
        """Note that the transaction has locked messages beside the claimed ones."""
        self._has_company = True

    def replace_locks(self, claimed: Mapping[int, list[ClaimedRow]]) -> None:
        """Note that all locked messages are claimed now, each list with its queue, and their transaction has ended."""
        self.batches += claimed.items()
        self._has_company = False

    def forget_undelivered(self, delivered: Container[MessageKey]) -> None:
        """Forget the claims on messages that were not delivered, which the caller releases."""
        self.batches = self.among(delivered)

    def are_all(self, delivered: int) -> bool:
        """Return True if so many delivered messages are all claimed ones, and no others."""
        return not self._has_company and delivered == sum([len(rows) for _, rows in self.batches])

    def among(self, delivered: Container[MessageKey]) -> list[tuple[int, list[ClaimedRow]]]:
        """Return the claimed ones of the delivered messages, with the queues that they are in."""
        claimed = [
            (queue_id, [row for row in rows if key_of(queue_id, row) in delivered]) for queue_id, rows in self.batches
        ]
        return [(queue_id, rows) for queue_id, rows in claimed if rows]

    def last_acknowledgements(self, recipient: Recipient, delivered: Container[MessageKey] | None) -> list[Query[None]]:
        """Return the deletion of the delivered messages behind their claims, for the commit.

        Args:
            recipient: The receiver.
            delivered: The delivered messages; None: all that are claimed, and no others.
        """
        claimed = self.batches if delivered is None else self.among(delivered)
        return [recipient.last_acknowledgement(claimed, are_whole=delivered is None)] if claimed else []

    def undelivered(self, delivered: Container[MessageKey]) -> dict[MessageKey, Claim]:
        """Return the claims on messages that were not delivered."""
        return {
            key: row.handle
            for queue_id, rows in self.batches
            for row in rows
            if (key := key_of(queue_id, row)) not in delivered
        }

    def end(self) -> None:
        """Forget the claims, as the transaction ends."""
        self.batches = []
