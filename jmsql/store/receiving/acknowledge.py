"""Acknowledging: how messages leave their queues once they are received, and who receives them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from jmsql.exceptions import TransactionRolledBackException
from jmsql.store.history.keeping import RECORDED, history
from jmsql.store.receiving.candidates import LOOK_UPS
from jmsql.store.receiving.receive import Client
from jmsql.store.receiving.redelivery import Release, release
from jmsql.store.rows.message_rows import (
    ClaimedRow,
    Lock,
    LockedRow,
    MessageKey,
    MessageRow,
    array,
    key_parameters,
)
from jmsql.store.statement import (
    Query,
    SqlFile,
    Statement,
    Steps,
    array_literal,
    column,
    integers_literal,
    nothing,
    row_count,
    rows,
    value,
)

# A locked message is deleted by its address (`ctid`), which the lock keeps in place; a claimed one by its key and the
# claim's number, since no lock keeps its address.
#
# A deletion that goes with the commit fails if it finds too few messages. As a count, the answer would be read after
# the commit, when it is too late to undo the rest. Without a commit, the count is returned.
#
# A role that row security restricts may not delete, since it could lock the table as well. It inserts a request, and a
# trigger deletes (decision 29).


_sql = SqlFile("receiving")
_SPARSEST = 4
"""The longest range that is read for some messages, as a multiple of their number."""

CLAIM_LOST = "JMS05"
"""The code of the error of an acknowledgement, alone or with a commit, whose messages were taken away."""

_TAKEN_AWAY = (
    " messages were taken away from the transaction that had locked them: part of it was rolled back, or ended, by "
    "other means than the session's. Call rollback(), and do the work again."
)
_parts = {
    "range": _sql["range"],
    "taken_away": "'" + _TAKEN_AWAY.replace("'", "''") + "'",
    "place": _sql["place"],
    "addresses": array("addresses", "tid"),
    "recorded": RECORDED,
    **LOOK_UPS,  # last, since other parts contain them
}
_history_of_locked = history(
    queues=array("queue_ids", "integer"),
    addresses="%(addresses)s::tid[]",
    deliveries="%(deliveries)s::integer[]",
    consumer="%(connection_id)s::bigint",
)
_history_of_claimed = history(
    queues="array(select queue_id from acknowledged)",
    addresses="array(select address from found)",
    deliveries="array(select delivery_count from found)",
    consumer="(select max(connection_id) from found)",
)


def _deleting(name: str) -> Statement[int]:
    return _sql.statement(name, "acknowledging", row_count, {"history": _history_of_locked} | _parts)


def _last(more: str = "", condition: str = "") -> Statement[None]:
    return _sql.statement("delete_last", "acknowledging", nothing, {"more": more, "condition": condition} | _parts)


delete_locked = _deleting("delete_locked")
delete_locked_with_history = _deleting("delete_locked_with_history")
_ask_to_delete_locked = _deleting("ask_to_delete_locked")
delete_last = _last()
delete_last_and_forget = _last(f"forgotten as (delete from jmsql_internal.delivery where {_sql['close_together']}),")
delete_last_with_history = _last(f"{_history_of_locked},", "and {recorded}")
_lock_claimed = _sql.statement("lock_claimed", "acknowledging", column, _parts)
_present = _sql.statement("present", "acknowledging", rows, _parts)
forget_deliveries = _sql.statement("forget_deliveries", "acknowledging", nothing, _parts)
_ask_to_forget_deliveries = _sql.statement("ask_to_forget_deliveries", "acknowledging", nothing, _parts)


def _acknowledging(name: str, place: str, *, goes_with_commit: bool) -> Statement[Any]:
    parts = {
        "claimed": _sql[place],
        "outcome": _sql["fails_if_lost"] if goes_with_commit else "count(*)",
        "number": "%(number)s::bigint" if place == "whole" else "pg_catalog.cardinality(%(claim_ids)s::bigint[])",
        "history": _history_of_claimed,
    }
    return _sql.statement(name, "acknowledging", nothing if goes_with_commit else value(int), parts | _parts)


acknowledgements = {
    (name, place, goes_with_commit): _acknowledging(name, place, goes_with_commit=goes_with_commit)
    for name, place in (
        ("acknowledge", "close_together"),
        ("acknowledge_with_history", "close_together"),
        ("acknowledge_with_history", "anywhere"),
        ("ask_to_acknowledge", "close_together"),
        ("ask_to_acknowledge", "anywhere"),
    )
    for goes_with_commit in (False, True)
} | {
    (name, "whole", True): _acknowledging(name, "whole", goes_with_commit=True)
    for name in ("acknowledge", "acknowledge_with_history")
}
"""The deletions of claimed messages: by statement, place of the claims, and True with a commit.

With a commit they fail if a claim is lost; without one they return how many claims were not."""


def _close_together(
    queue_ids: Sequence[int], inverse_priorities: Sequence[int], sequences: Sequence[int], claim_ids: Sequence[int]
) -> dict[str, str] | None:
    """Return claims as the parameters of a statement that finds them in one range; None: they lie too far apart."""
    if len(sequences) > 1:
        if len({*queue_ids}) > 1 or len({*inverse_priorities}) > 1:
            return None
        if max(sequences) - min(sequences) > _SPARSEST * len(sequences):
            return None
        sequences, claim_ids = zip(*sorted(zip(sequences, claim_ids, strict=True)), strict=True)
    # Numbers go as text: psycopg chooses a number's type by its size, and each type would be another prepared
    # statement.
    return {
        "queue_id": str(queue_ids[0]),
        "inverse_priority": str(inverse_priorities[0]),
        "sequences": integers_literal(sequences),
        "claim_ids": integers_literal(claim_ids),
    }


def _whole(queue_id: int, rows: Sequence[ClaimedRow]) -> dict[str, str] | None:
    """Return all messages of a claim as the parameters of a statement that finds them by the claim's number.

    That takes less of the server and of the client than to name each. None: they are of several claims, or lie too far
    apart.
    """
    sequences = [row.sequence for row in rows]
    first, last = min(sequences), max(sequences)
    if last - first > _SPARSEST * len(rows) or len({(row.inverse_priority, row.handle) for row in rows}) > 1:
        return None
    return {
        "queue_id": str(queue_id),
        "inverse_priority": str(rows[0].inverse_priority),
        "sequences": integers_literal((first, last)),
        "claim_id": str(rows[0].handle),
        "number": str(len(rows)),
    }


def present(keys: Sequence[MessageKey]) -> Steps[list[MessageKey]]:
    """Return the messages that the open transaction sees."""
    found = set((yield from _present.bind(key_parameters(keys))))
    return [key for key in keys if (key.queue_id, key.inverse_priority, key.sequence) in found]


def lock_claimed(claimed: Sequence[tuple[MessageKey, MessageRow]]) -> Steps[list[LockedRow]]:
    """Lock claimed messages, and return them as messages that the open transaction has locked.

    Raises:
        TransactionRolledBackException: Some of them are gone: the claims were lost.
    """
    addresses = yield from _lock_claimed.bind(key_parameters([key for key, _ in claimed]))
    if len(addresses) != len(claimed):
        raise _taken_away(len(claimed) - len(addresses), len(claimed))
    return [row.with_lock(Lock(address)) for (_, row), address in zip(claimed, addresses, strict=True)]


def _addresses(rows: Sequence[LockedRow]) -> str:
    return '{"' + '","'.join([row.handle for row in rows]) + '"}'


def _taken_away(missing: int, total: int) -> TransactionRolledBackException:
    return TransactionRolledBackException(f"{missing} of {total}{_TAKEN_AWAY}", CLAIM_LOST)


class Recipient:
    """The receiver of messages, with the statements by which they leave their queues.

    Args:
        client: The client; None: a caller without a jmsql connection.
        restricted: Whether policies hide something from the role. It may not delete then, since it could lock the
            tables; it asks for a removal.
    """

    def __init__(self, client: Client | None = None, *, restricted: bool = False) -> None:
        self.client = client
        self.is_restricted = restricted

    @property
    def _connection_id(self) -> int | None:
        return None if self.client is None else self.client.connection_id

    def _records(self, queue_ids: Collection[int]) -> bool:
        """Return whether these queues may keep history: a client that knows that they keep none pays for none."""
        return self.client is None or not self.client.queues_with_history.possible.isdisjoint(queue_ids)

    def delete_locked(self, rows: Sequence[LockedRow], queue_ids: Collection[int]) -> Steps[None]:
        """Delete messages that the open transaction has locked.

        Raises:
            TransactionRolledBackException: Some of them are not there any more: the locks were lost. Nothing that was
                done with the messages may be committed.
        """
        if self.is_restricted:
            deletion = self._removal(rows)
        elif self._records(queue_ids):
            deletion = delete_locked_with_history.bind(self._recording(rows, queue_ids))
        else:
            deletion = delete_locked.bind(addresses=_addresses(rows))
        deleted = yield from deletion
        if deleted != len(rows):
            # The locks were lost, as by a rollback to a savepoint that another statement has made. Another consumer may
            # have the messages by now: to commit would deliver them twice.
            raise _taken_away(len(rows) - deleted, len(rows))

    def _removal(self, rows: Sequence[LockedRow]) -> Query[int]:
        return _ask_to_delete_locked.bind(addresses=_addresses(rows), connection_id=self._connection_id)

    def _recording(self, rows: Sequence[LockedRow], queue_ids: Collection[int]) -> dict[str, object]:
        return {
            "addresses": _addresses(rows),
            "queue_ids": array_literal(queue_ids),
            "deliveries": array_literal(row.delivery_count for row in rows),
            "connection_id": self._connection_id,
        }

    def last_deletions(
        self,
        rows: Sequence[LockedRow],
        queue_ids: Collection[int],
        recorded: Sequence[MessageKey],
        claim_ids: Sequence[int] = (),
    ) -> list[Query[Any]]:
        """Delete the last messages that a transaction has locked, and forget deliveries of all that it has deleted.

        Args:
            rows: The messages.
            queue_ids: The queues that they are in.
            recorded: The messages with recorded deliveries.
            claim_ids: The claims that hold these, in the same order; none: some of them have no claim.

        Returns:
            Statements; one of them raises TransactionRolledBackException if some of the messages are gone.
        """
        if not rows:
            return [self.forget_deliveries(recorded)] if recorded else []
        last: Query[Any]
        if self.is_restricted:
            last = self._removal(rows)
        elif self._records(queue_ids):
            last = delete_last_with_history.bind(self._recording(rows, queue_ids))
        else:
            if recorded and claim_ids:
                claimed_in, inverse_priorities, sequences, _ = zip(*recorded, strict=True)
                near = _close_together(claimed_in, inverse_priorities, sequences, claim_ids)
                if near is not None:
                    return [delete_last_and_forget.bind(near, addresses=_addresses(rows))]
            last = delete_last.bind(addresses=_addresses(rows))
        return [last, self.forget_deliveries(recorded)] if recorded else [last]

    def forget_deliveries(self, keys: Sequence[MessageKey]) -> Query[None]:
        """Forget how often messages were delivered before that the open transaction has deleted."""
        forget = _ask_to_forget_deliveries if self.is_restricted else forget_deliveries
        return forget.bind(key_parameters(keys))

    def acknowledge(self, claimed: Sequence[tuple[MessageKey, int]]) -> Query[int]:
        """Delete claimed messages, given with their claims, and return how many of the claims still held them."""
        keys, claim_ids = zip(*claimed, strict=True)
        queue_ids, inverse_priorities, sequences, _ = zip(*keys, strict=True)
        return self._acknowledgement(queue_ids, inverse_priorities, sequences, claim_ids)

    def acknowledge_last(self, claimed: Sequence[tuple[MessageKey, int]]) -> Query[None]:
        """Delete claimed messages, given with their claims, with the commit.

        It fails with a TransactionRolledBackException if a claim is lost.
        """
        keys, claim_ids = zip(*claimed, strict=True)
        queue_ids, inverse_priorities, sequences, _ = zip(*keys, strict=True)
        return self._acknowledgement(queue_ids, inverse_priorities, sequences, claim_ids, goes_with_commit=True)

    def acknowledge_last_one(self, key: MessageKey, claim_id: int) -> Query[None]:
        """Do what `acknowledge_last` does for a single message, as each of a worker is, in a third of the time."""
        if self.is_restricted:
            name = "ask_to_acknowledge"
        else:
            name = "acknowledge_with_history" if self._records((key.queue_id,)) else "acknowledge"
        return acknowledgements[name, "close_together", True].bind(
            {
                "queue_id": str(key.queue_id),
                "inverse_priority": str(key.inverse_priority),
                "sequences": f"{{{key.sequence}}}",
                "claim_ids": f"{{{claim_id}}}",
            }
        )

    def last_acknowledgement(
        self, claimed: Sequence[tuple[int, Sequence[ClaimedRow]]], *, are_whole: bool
    ) -> Query[None]:
        """Delete claimed messages with the commit, which fails with a TransactionRolledBackException if one is lost.

        Args:
            claimed: The messages that the transaction has received by claims, with the queue that they are in.
            are_whole: True if the claims have no other messages.
        """
        if are_whole and len(claimed) == 1 and not self.is_restricted:
            [(queue_id, rows)] = claimed
            whole = _whole(queue_id, rows)
            if whole is not None:
                name = "acknowledge_with_history" if self._records((queue_id,)) else "acknowledge"
                return acknowledgements[name, "whole", True].bind(whole)
        return self._acknowledgement(
            [queue_id for queue_id, rows in claimed for _ in rows],
            [row.inverse_priority for _, rows in claimed for row in rows],
            [row.sequence for _, rows in claimed for row in rows],
            [row.handle for _, rows in claimed for row in rows],
            goes_with_commit=True,
        )

    def _acknowledgement(
        self,
        queue_ids: Sequence[int],
        inverse_priorities: Sequence[int],
        sequences: Sequence[int],
        claim_ids: Sequence[int],
        *,
        goes_with_commit: bool = False,
    ) -> Query[Any]:
        # Claims that lie close together are found by one scan of a range, in a third of the time.
        near = _close_together(queue_ids, inverse_priorities, sequences, claim_ids)
        if self.is_restricted:
            name = "ask_to_acknowledge"
        elif near is None or self._records({*queue_ids}):
            name = "acknowledge_with_history"  # of several messages, to ask for history takes a small share of the time
        else:
            name = "acknowledge"
        if near is not None:
            return acknowledgements[name, "close_together", goes_with_commit].bind(near)
        return acknowledgements[name, "anywhere", goes_with_commit].bind(
            queue_ids=integers_literal(queue_ids),
            inverse_priorities=integers_literal(inverse_priorities),
            sequences=integers_literal(sequences),
            claim_ids=integers_literal(claim_ids),
        )

    def release(self, releases: Sequence[Release]) -> Steps[list[int]]:
        """Release messages."""
        return release(releases, restricted=self.is_restricted)
