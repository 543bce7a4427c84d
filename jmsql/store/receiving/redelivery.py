"""Redelivery and dead-letter queues: a queue's rules, and the statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jmsql.exceptions import JMSException
from jmsql.store.receiving.candidates import LOOK_UPS
from jmsql.store.rows.message_rows import MessageKey, key_parameters
from jmsql.store.statement import (
    Query,
    Result,
    SqlFile,
    Statement,
    Steps,
    array_literal,
    column,
    fill,
    integers_literal,
    nothing,
    records,
    row_count,
    rows,
    value,
)
from jmsql.values.policies import MOST_ERRORS, RedeliveryPolicy, delay_after_error

# A message that has used up its deliveries is marked in the statement that counts the last failure: from then on no
# consumer gets it. `bury` moves it later, once no transaction has it locked. The client calls that after its rollback,
# and maintenance once a second (decision 19).
#
# Most releases write the columns of `delivery` alone. More is said of messages that were put off, interrupted or
# rejected, in `delivery_outcome`, by statements with more parts.


_BURIED_AT_ONCE = 500
_DEFAULT_DEAD_LETTER_QUEUE_ID = 0
UNIQUE_VIOLATION = "23505"


@dataclass(frozen=True, slots=True)
class Release:
    """A message that is released.

    Args:
        key: The message.
        claim_id: The claim that holds it; None: only a transaction does.
        attempts: 1 if it was delivered, 0 if it only was prefetched.
        delay: Seconds until it may be delivered again.
        error: Why its delivery failed, if it did.
        dead_letter_queue_id: Where it moves as soon as no session holds it; 0: to the queue ``DLQ``; None: it stays.
        is_death: Whether the client died, or held it for too long.
        retries: 1 if the delivery has not failed, but its handler has asked to have the message again later, or was
            interrupted.
        interruptions: 1 if it was interrupted.
        dead_letter_reason: Why it moves; None: it was delivered as often as it may be.
    """

    key: MessageKey
    claim_id: int | None = None
    attempts: int = 0
    delay: float = 0.0
    error: str | None = None
    dead_letter_queue_id: int | None = None
    is_death: bool = False
    retries: int = 0
    interruptions: int = 0
    dead_letter_reason: str | None = None

    @property
    def says_more(self) -> bool:
        """True if more is to be stored than the table `delivery` has columns for."""
        return self.retries > 0 or self.dead_letter_reason is not None

    @property
    def was_raised(self) -> bool:
        """True if the handler raised the error: a death or an expired claim has a text, but raised none."""
        return self.error is not None and not self.is_death


class Rules(NamedTuple):
    """The rules for messages of a queue whose deliveries fail."""

    policy: RedeliveryPolicy
    dead_letter_queue_id: int
    """The queue for messages without attempts left; 0: ``DLQ``, the only name of it that a role without access has."""
    kept_in: int
    """The queue of these dead letters, which keeps messages that fail in it; 0: it does not exist yet."""

    def is_exhausted(self, key: MessageKey, failures: int) -> bool:
        """Tell whether a message is delivered no more; in its own dead-letter queue it always is."""
        return self.policy.is_exhausted(failures) and key.queue_id != self.kept_in

    def after_failure(self, key: MessageKey, claim_id: int | None, failures: int, error: str | None) -> Release:
        """Release a message whose delivery has failed so many times."""
        if self.is_exhausted(key, failures):
            return Release(key, claim_id, 1, 0.0, error, self.dead_letter_queue_id)
        return Release(key, claim_id, 1, self.policy.delay_after(failures), error)


def after_error(key: MessageKey, claim_id: int | None, errors: int, error: str, *, is_dead: bool) -> Release:
    """Release a message for which no policy says anything.

    Args:
        key: The message.
        claim_id: The claim that holds it; None: only a transaction does.
        errors: How many of its deliveries have failed with errors by now.
        error: The last of them.
        is_dead: Whether it is in the dead-letter queue already, where it stays.
    """
    if errors >= MOST_ERRORS and not is_dead:
        return Release(key, claim_id, 1, 0.0, error, _DEFAULT_DEAD_LETTER_QUEUE_ID)
    return Release(key, claim_id, 1, delay_after_error(errors), error)


class QueuePolicy(NamedTuple):
    """The settings of a queue."""

    rules: Rules | None
    visibility_timeout: float | None
    dead_letter_queue_id: int = _DEFAULT_DEAD_LETTER_QUEUE_ID
    """The queue for its dead letters, also for messages that a handler rejects without any rules; 0: ``DLQ``."""

    @classmethod
    def of_columns(
        cls,
        maximum_deliveries: int | None,
        delay: float | None,
        multiplier: float | None,
        maximum_delay: float | None,
        jitter: float | None,
        dead_letter_queue_id: int | None,
        default_dead_letter_queue_id: int | None,
        visibility_timeout: float | None,
    ) -> QueuePolicy:
        """Read the settings of a queue; each was checked when it was set, but not one beside the other."""
        rules = None
        named = dead_letter_queue_id or _DEFAULT_DEAD_LETTER_QUEUE_ID
        if maximum_deliveries is not None or delay is not None:
            longest = None if maximum_delay is None else max(maximum_delay, delay or 0.0)
            policy = RedeliveryPolicy(maximum_deliveries, delay or 0.0, multiplier or 1.0, longest, jitter or 0.0)
            rules = Rules(policy, named, named or default_dead_letter_queue_id or 0)
        return cls(rules, visibility_timeout, named)


NO_POLICY = QueuePolicy(None, None)


class LostClaim(NamedTuple):
    """A claim whose holder is gone, or has held it for too long."""

    key: MessageKey
    claim_id: int
    failures: int
    has_expired: bool
    policy: QueuePolicy


class EarlierDeliveries(NamedTuple):
    """The outcomes of a message's earlier deliveries."""

    errors: int
    """The number that failed with errors."""
    retries: int
    """The number that asked for another attempt later, without failing."""
    interruptions: int
    """The number of these that a worker interrupted, since it shut down."""


class ExtendedClaim(NamedTuple):
    """A claim that is to last for so many seconds from now on."""

    key: MessageKey
    claim_id: int
    seconds: float
    received_at: float
    """When its message was received, on the monotonic clock."""


_sql = SqlFile("redelivery")
_parts = {
    "policy": _sql["policy"],
    "retries_of_d": _sql["retries_of_d"],
    "interruptions_of_d": _sql["interruptions_of_d"],
    "outcomes": "%(attempts)s::integer[], %(delays)s::float8[], %(errors)s::text[], %(error_counts)s::integer[], "
    "%(dead_letter_queue_ids)s::integer[]",
    **LOOK_UPS,  # last, since other parts contain them
}


def _parts_of_outcomes(*, says_more: bool) -> dict[str, str]:
    """Return the parts of a statement that write to `delivery_outcome`; empty parts for most releases."""
    names = ("key_of_k", "said_of_k", "said", "said_names", "said_of_released", "said_of_locked")
    if not says_more:
        return dict.fromkeys(names, "") | {"retries_of_r": "0", "retries_of_k": "0"}
    return {
        "key_of_k": "k.queue_id, k.inverse_priority, k.sequence, ",
        "said_of_k": ", k.retry_count, k.interruption_count, k.dead_letter_reason",
        "said": ", %(retry_counts)s::integer[], %(interruption_counts)s::integer[], %(dead_letter_reasons)s::text[]",
        "said_names": ", retry_count, interruption_count, dead_letter_reason",
        "said_of_released": _sql["outcomes_of_released"],
        "said_of_locked": _sql["outcomes_of_locked"],
        "retries_of_r": "r.retry_count",
        "retries_of_k": "k.retry_count",
    }


def _release(*, restricted: bool, says_more: bool) -> Statement[list[int]]:
    forget = _sql["ask_to_forget_released" if restricted else "forget_released"]
    parts = {"forget": forget, "next_attempt": fill(_sql["next_attempt"], outcome="r")}
    parts |= _parts_of_outcomes(says_more=says_more) | _parts
    return _sql.statement("release", "releasing messages", column, parts)


def _record_attempts(*, says_more: bool) -> Statement[None]:
    parts = {"next_attempt": fill(_sql["next_attempt"], outcome="k")} | _parts_of_outcomes(says_more=says_more) | _parts
    return _sql.statement("record_attempts", "releasing messages", nothing, parts)


def _to_policy(result: Result) -> QueuePolicy:
    return QueuePolicy.of_columns(*result.rows[0]) if result.rows else NO_POLICY


def _to_lost_claim(row: tuple[Any, ...]) -> LostClaim:
    *key, claim_id, failures, has_expired = row[:7]
    return LostClaim(MessageKey(*key), claim_id, failures, bool(has_expired), QueuePolicy.of_columns(*row[7:]))


find_policy = _sql.statement("find_policy", "looking up a redelivery policy", _to_policy, _parts)
_record_first_deliveries = _sql.statement("record_first_deliveries", "recording deliveries", value(int))
_record_deliveries = _sql.statement("record_deliveries", "recording deliveries", value(int), _parts)
_release_claimed = {
    (restricted, says_more): _release(restricted=restricted, says_more=says_more)
    for restricted in (False, True)
    for says_more in (False, True)
}
_record_attempts_of = {says_more: _record_attempts(says_more=says_more) for says_more in (False, True)}
_find_earlier_deliveries = _sql.statement("find_earlier_deliveries", "looking up earlier deliveries", rows, _parts)
forget_outcomes = _sql.statement("forget_outcomes", "forgetting outcomes", nothing).bind()
"""Removes the outcomes of messages that are gone."""
_extend_claims = _sql.statement("extend_claims", "extending claims", row_count, _parts)
_find_lost_claims = _sql.statement("find_lost_claims", "looking for lost claims", records(_to_lost_claim), _parts)
_bury = _sql.statement("bury", "moving messages to a dead-letter queue", column)


def policy(queue_id: int) -> Query[QueuePolicy]:
    """Return the settings of a queue, which may be gone."""
    return find_policy.bind(queue_id=queue_id)


def record_first_deliveries(keys: Sequence[MessageKey], connection_id: int) -> Steps[int]:
    """Record the first deliveries of messages that had no delivery record when they were locked.

    They may have one by now: a client may record its deliveries after its rollback.
    """
    queue_ids, inverse_priorities, sequences, group_hashes = zip(*keys, strict=True)
    recording = _record_first_deliveries.bind(
        queue_id=queue_ids[0],
        inverse_priorities=integers_literal(inverse_priorities),
        sequences=integers_literal(sequences),
        group_hashes=None if group_hashes.count(None) == len(keys) else array_literal(group_hashes),
        connection_id=connection_id,
    )
    try:
        return (yield from recording)
    except JMSException as error:
        if error.error_code != UNIQUE_VIOLATION:
            raise
    return (yield from record_deliveries(keys, connection_id))


def record_deliveries(keys: Sequence[MessageKey], connection_id: int) -> Query[int]:
    """Note that a transaction, which has locked these messages, delivers them; return the claim's number.

    If the connection dies, the deliveries count.
    """
    group_hashes = array_literal(key.group_hash for key in keys)
    return _record_deliveries.bind(key_parameters(keys), group_hashes=group_hashes, connection_id=connection_id)


def release(releases: Sequence[Release], *, restricted: bool = False) -> Steps[list[int]]:
    """Release messages.

    Those without a claim are locked by a transaction that is about to end. Claims that were taken away meanwhile are
    left alone.

    Args:
        releases: The messages.
        restricted: Whether the role may not delete; it asks for a removal instead.

    Returns:
        As `release_claimed`.
    """
    released: list[int] = []
    claimed = [release for release in releases if release.claim_id is not None]
    locked = [release for release in releases if release.claim_id is None]
    if claimed:
        released = yield from release_claimed(claimed, restricted=restricted)
    if locked:
        yield from record_attempts(locked)
    return released


def release_claimed(claimed: Sequence[Release], *, restricted: bool = False) -> Query[list[int]]:
    """Release messages that are claimed; return the sequences of those that were, and have a delivery to remember."""
    claim_ids = array_literal(release.claim_id for release in claimed)
    statement = _release_claimed[restricted, _say_more(claimed)]
    return statement.bind(_outcomes(claimed), claim_ids=claim_ids)


def record_attempts(locked: Sequence[Release]) -> Query[None]:
    """Record the outcomes of messages that the caller's open transaction still locks, and is about to release."""
    return _record_attempts_of[_say_more(locked)].bind(_outcomes(locked))


def earlier_deliveries(keys: Sequence[MessageKey]) -> Steps[dict[MessageKey, EarlierDeliveries]]:
    """Return the earlier deliveries of the messages that have had some."""
    found = yield from _find_earlier_deliveries.bind(key_parameters(keys))
    return {keys[position - 1]: EarlierDeliveries(*counts) for position, *counts in found}


def extend_claims(claims: Sequence[ExtendedClaim]) -> Query[int]:
    """Make claims last longer, and return how many there still were."""
    return _extend_claims.bind(
        key_parameters([claim.key for claim in claims]),
        claim_ids=array_literal(claim.claim_id for claim in claims),
        seconds=array_literal(claim.seconds for claim in claims),
    )


def lost_claims(limit: int) -> Query[list[LostClaim]]:
    """Return claims whose holders are gone, or have held them for too long, and at most so many."""
    return _find_lost_claims.bind(limit=limit)


def bury() -> Query[list[int]]:
    """Move messages that are delivered no more, and return the numbers of the dead-letter queues they went to."""
    return _bury.bind(limit=_BURIED_AT_ONCE)


def _say_more(releases: Sequence[Release]) -> bool:
    return any(release.says_more for release in releases)


def _outcomes(releases: Sequence[Release]) -> dict[str, str]:
    more: dict[str, str] = {}
    if _say_more(releases):
        more = {
            "retry_counts": array_literal(release.retries for release in releases),
            "interruption_counts": array_literal(release.interruptions for release in releases),
            "dead_letter_reasons": array_literal(release.dead_letter_reason for release in releases),
        }
    return more | {
        **key_parameters([release.key for release in releases]),
        "attempts": array_literal(release.attempts for release in releases),
        "delays": array_literal(release.delay for release in releases),
        "errors": array_literal(release.error for release in releases),
        "error_counts": array_literal(int(release.was_raised) for release in releases),
        "dead_letter_queue_ids": array_literal(release.dead_letter_queue_id for release in releases),
    }
