"""Acknowledging: how messages leave their queues once they are received, and who receives them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, TypeVar

from jmsql.exceptions import JMSException, TransactionRolledBackException
from jmsql.store.history.keeping import RECORDED, history
from jmsql.store.receiving.candidates import LOOK_UPS
from jmsql.store.receiving.receive import Client
from jmsql.store.receiving.redelivery import Release, release
from jmsql.store.rows.message_rows import MessageKey, MessageRow, key_of, key_parameters
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

T = TypeVar("T")

_sql = SqlFile("receiving")
_SPARSEST = 4
"""How many times as long as the number of its messages a range may be that is read for them."""

_parts = {
    "forget_deliveries": _sql["forget_deliveries"],
    "forget_claimed": _sql["forget_claimed"],
    "recorded": RECORDED,
    **LOOK_UPS,  # last, since other parts contain them
}
_history_of_locked = history(
    queues="%(queue_ids)s::integer[]",
    addresses="%(addresses)s::tid[]",
    deliveries="%(deliveries)s::integer[]",
    consumer="%(connection_id)s::bigint",
)
_history_of_claimed = history(
    queues="%(queue_ids)s::integer[]",
    addresses="array(select address from found)",
    deliveries="array(select delivery_count from found)",
    consumer="(select max(connection_id) from found)",
)


def _acknowledging(name: str, *, claimed: bool = False) -> Statement[int]:
    parts = _parts | {"history": _history_of_claimed if claimed else _history_of_locked, "outcome": "count(*)"}
    return _sql.statement(name, "acknowledging", value(int) if claimed else row_count, parts)


def _acknowledging_last(name: str) -> Statement[None]:
    parts = _parts | {"history": _history_of_claimed, "outcome": _sql["fails_if_lost"]}
    return _sql.statement(name, "acknowledging", nothing, parts)


delete_locked = _acknowledging("delete_locked")
delete_locked_with_history = _acknowledging("delete_locked_with_history")
delete_one = _sql.statement("delete_one", "acknowledging", row_count)
delete_last_one = _sql.statement("delete_last_one", "acknowledging", nothing)


def _last(more: str = "", condition: str = "") -> Statement[None]:
    parts = {"more": more, "condition": condition}
    return _sql.statement("delete_last", "acknowledging", nothing, parts | _parts)


delete_last = _last()
delete_last_and_forget = _last("forgotten as ({forget_deliveries}),")
delete_last_and_forget_claimed = _last("forgotten as ({forget_claimed}),")
delete_last_with_history = _last(f"{_history_of_locked},", "and {recorded}")
_ask_to_delete_locked = _acknowledging("ask_to_delete_locked")
acknowledge = _acknowledging("acknowledge", claimed=True)
acknowledge_with_history = _acknowledging("acknowledge_with_history", claimed=True)
_ask_to_acknowledge = _acknowledging("ask_to_acknowledge", claimed=True)
acknowledge_last = _acknowledging_last("acknowledge")
_acknowledge_last_with_history = _acknowledging_last("acknowledge_with_history")
acknowledge_one = _sql.statement("acknowledge_one", "acknowledging", value(int), {"outcome": "count(*)"})
acknowledge_last_one = _sql.statement(
    "acknowledge_one", "acknowledging", nothing, {"outcome": _sql["fails_if_one_is_lost"]}
)
_ask_to_acknowledge_last = _acknowledging_last("ask_to_acknowledge")
_delete_last_claimed = _sql.statement("delete_last_claimed", "acknowledging", nothing, _parts)
_lock_claimed = _sql.statement("lock_claimed", "acknowledging", column, _parts)
_present = _sql.statement("present", "acknowledging", rows, _parts)
forget_deliveries = _sql.statement("forget_deliveries", "acknowledging", nothing, _parts)
_ask_to_forget_deliveries = _sql.statement("ask_to_forget_deliveries", "acknowledging", nothing, _parts)


def _range(keys: Sequence[MessageKey]) -> dict[str, int] | None:
    """Return the range that messages of one queue and priority lie in, if there is not much else in it."""
    queue_ids, inverse_priorities, sequences, _ = zip(*keys, strict=True)
    first, last = min(sequences), max(sequences)
    if last - first > _SPARSEST * len(keys) or len({*queue_ids}) > 1 or len({*inverse_priorities}) > 1:
        return None
    return {
        "queue_id": queue_ids[0],
        "inverse_priority": inverse_priorities[0],
        "first_sequence": first,
        "last_sequence": last,
    }


def present(keys: Sequence[MessageKey]) -> Steps[list[MessageKey]]:
    """Return those of some messages that the open transaction sees."""
    found = set((yield from _present.bind(key_parameters(keys))))
    return [key for key in keys if (key.queue_id, key.inverse_priority, key.sequence) in found]


def claim_of(row: MessageRow) -> int | None:
    """Return the number of the claim on a message that a transaction has received; None: it has locked the message."""
    claim_id = _claim_id(row)
    return int(claim_id) if claim_id else None


def _claim_id(row: MessageRow) -> str:
    claim_id: str = row.handle.partition("(")[0]
    return claim_id


def lock_claimed(claimed: Sequence[tuple[MessageKey, MessageRow]]) -> Steps[list[MessageRow]]:
    """Lock messages that are claimed, and return them as those that the open transaction has locked.

    Raises:
        TransactionRolledBackException: Some of them are not there any more: the claims were lost.
    """
    addresses = yield from _lock_claimed.bind(key_parameters([key for key, _ in claimed]))
    if len(addresses) != len(claimed):
        raise _taken_away(f"{len(claimed) - len(addresses)} of {len(claimed)}")
    return [row._replace(handle=address) for (_, row), address in zip(claimed, addresses, strict=True)]


def _addresses(rows: Sequence[MessageRow]) -> str:
    return '{"' + '","'.join([row.handle for row in rows]) + '"}'


def _one(statement: Statement[T], key: MessageKey, claim_id: int) -> Query[T]:
    return statement.bind(
        queue_id=key.queue_id, inverse_priority=key.inverse_priority, sequence=key.sequence, claim_id=claim_id
    )


_taken_away_from_last = re.compile(r"(\d+ of \d+) messages were taken away").search
_lost_claims = re.compile(r"\d+ of \d+ claims were lost").search


def _taken_away(number: str) -> TransactionRolledBackException:
    return TransactionRolledBackException(
        f"{number} messages were taken away from the transaction that had locked them: part of it was rolled back, or "
        "ended, by other means than the session's. Call rollback(), and do the work again."
    )


def missing_messages(error: JMSException) -> TransactionRolledBackException | None:
    """Return what an error of `Recipient.last_deletions` or `acknowledge_last` means, if messages are missing."""
    if _lost_claims(str(error)):
        return TransactionRolledBackException(
            "The message was taken away, and is delivered again: it was held for longer than its visibility timeout, "
            "or the server took this client for gone."
        )
    found = _taken_away_from_last(str(error))
    return None if found is None else _taken_away(found[1])


class Recipient:
    """The receiver of messages: it decides by which statements they leave their queues.

    Args:
        client: The client; None: a caller without a connection of jmsql's.
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
        """Tell whether to look for history of these queues: a client that knows that they keep none pays for none."""
        return self.client is None or not self.client.queues_with_history.possible.isdisjoint(queue_ids)

    def delete_locked(self, rows: Sequence[MessageRow], queue_ids: Collection[int]) -> Steps[None]:
        """Delete messages that the open transaction has locked.

        Raises:
            TransactionRolledBackException: Some of them are not there any more: the locks were lost. Nothing that was
                done with the messages may be committed.
        """
        if self.is_restricted:
            deletion = self._removal(rows)
        elif self._records(queue_ids):
            deletion = delete_locked_with_history.bind(self._recording(rows, queue_ids))
        elif len(rows) == 1:
            deletion = delete_one.bind(address=rows[0].handle)
        else:
            deletion = delete_locked.bind(addresses=_addresses(rows))
        deleted = yield from deletion
        if deleted != len(rows):
            raise _taken_away(f"{len(rows) - deleted} of {len(rows)}")

    def _removal(self, rows: Sequence[MessageRow]) -> Query[int]:
        return _ask_to_delete_locked.bind(addresses=_addresses(rows), connection_id=self._connection_id)

    def _recording(self, rows: Sequence[MessageRow], queue_ids: Collection[int]) -> dict[str, object]:
        return {
            "addresses": _addresses(rows),
            "queue_ids": array_literal(queue_ids),
            "deliveries": array_literal(row.delivery_count for row in rows),
            "connection_id": self._connection_id,
        }

    def last_deletions(
        self,
        rows: Sequence[MessageRow],
        queue_ids: Collection[int],
        recorded: Sequence[MessageKey],
        claim_ids: Collection[int] = (),
    ) -> list[Query[Any]]:
        """Delete the last messages that a transaction has locked, and forget deliveries of all that it has deleted.

        Args:
            rows: The messages.
            queue_ids: The queues that they are in.
            recorded: The messages of whose deliveries something is recorded.
            claim_ids: The claims that hold all of these, and nothing else that is to be kept; none: some have no claim.

        Returns:
            Statements of which one fails if some of the messages are not there any more: see `missing_messages`.
        """
        if not rows:
            return [self.forget_deliveries(recorded)] if recorded else []
        last: Query[Any]
        if self.is_restricted:
            last = self._removal(rows)
        elif self._records(queue_ids):
            last = delete_last_with_history.bind(self._recording(rows, queue_ids))
        elif recorded:
            found = _range(recorded) if claim_ids else None
            if found is not None:
                forget, forgotten = delete_last_and_forget_claimed, {**found, "claim_ids": integers_literal(claim_ids)}
            else:
                forget, forgotten = delete_last_and_forget, {**key_parameters(recorded)}
            return [forget.bind(forgotten, addresses=_addresses(rows))]
        elif len(rows) == 1:
            last = delete_last_one.bind(address=rows[0].handle)
        else:
            last = delete_last.bind(addresses=_addresses(rows))
        return [last, self.forget_deliveries(recorded)] if recorded else [last]

    def forget_deliveries(self, keys: Sequence[MessageKey]) -> Query[None]:
        """Forget how often messages were delivered before that the open transaction has deleted."""
        forget = _ask_to_forget_deliveries if self.is_restricted else forget_deliveries
        return forget.bind(key_parameters(keys))

    def acknowledge(self, claimed: Sequence[tuple[MessageKey, int]]) -> Query[int]:
        """Delete claimed messages, given with their claims, and return how many of the claims still held them."""
        keys, claim_ids = zip(*claimed, strict=True)
        if self.is_restricted:
            statement = _ask_to_acknowledge
        elif self._records({key.queue_id for key in keys}):
            statement = acknowledge_with_history
        elif len(claimed) == 1:
            return _one(acknowledge_one, *claimed[0])
        else:
            statement = acknowledge
        return statement.bind(key_parameters(keys), claim_ids=integers_literal(claim_ids))

    def acknowledge_last(self, key: MessageKey, claim_id: int) -> Query[None]:
        """Delete a claimed message with the commit, which fails if the claim is lost: see `missing_messages`."""
        if self.is_restricted:
            statement = _ask_to_acknowledge_last
        elif self._records({key.queue_id}):
            statement = _acknowledge_last_with_history
        else:
            return _one(acknowledge_last_one, key, claim_id)
        return statement.bind(key_parameters([key]), claim_ids=integers_literal([claim_id]))

    def last_acknowledgement(
        self, claimed: Sequence[tuple[int, Sequence[MessageRow]]], *, are_deleted: bool
    ) -> Query[None]:
        """Delete claimed messages with the commit, which fails if a claim is lost: see `missing_messages`.

        Args:
            claimed: The messages that the transaction has received by claims, with the queue that they are in.
            are_deleted: Whether the open transaction has deleted some of them already.
        """
        if self.is_restricted:
            statement = _ask_to_acknowledge_last
        elif self._records({queue_id for queue_id, _ in claimed}):
            statement = _acknowledge_last_with_history
        else:
            statement = acknowledge_last
            if len(claimed) == len(claimed[0][1]) == 1:
                queue_id, (row,) = claimed[0]
                return _one(acknowledge_last_one, key_of(queue_id, row), int(_claim_id(row)))
            if len(claimed) == 1 and not are_deleted:
                queue_id, rows = claimed[0]
                sequences = [row.sequence for row in rows]
                first, last = sequences[0], sequences[-1]  # of one priority they are in order
                if last - first <= _SPARSEST * len(rows) and len({row.inverse_priority for row in rows}) == 1:
                    claim_id = _claim_id(rows[0])
                    start = len(claim_id)
                    return _delete_last_claimed.bind(
                        queue_id=queue_id,
                        inverse_priority=rows[0].inverse_priority,
                        first_sequence=first,
                        last_sequence=last,
                        claim_ids="{" + claim_id + "}",
                        addresses='{"' + '","'.join([row.handle[start:] for row in rows]) + '"}',
                        sequences=integers_literal(sequences),
                    )
        keys = [key_of(queue_id, row) for queue_id, rows in claimed for row in rows]
        claim_ids = [_claim_id(row) for _, rows in claimed for row in rows]
        return statement.bind(key_parameters(keys), claim_ids="{" + ",".join(claim_ids) + "}")

    def release(self, releases: Sequence[Release]) -> Steps[None]:
        """Release messages."""
        return release(releases, restricted=self.is_restricted)
