"""Messages that are delivered again, or move to a dead-letter queue: the operations of the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jmsql.policies import MOST_ERRORS, RedeliveryPolicy, delay_after_error
from jmsql.store.driver import Driver
from jmsql.store.errors import jms_errors
from jmsql.store.message_key import MessageKey, key_parameters
from jmsql.store.redelivery_statements import POLICY_COLUMNS, redelivery_statements
from jmsql.store.rows import array_literal

__all__ = ["NO_POLICY", "ExtendedClaim", "LostClaim", "QueuePolicy", "Redelivery", "Release", "Rules", "after_error"]

_BURIED_AT_ONCE = 500
_DEFAULT_DEAD_LETTER_QUEUE_ID = 0


@dataclass(frozen=True, slots=True)
class Release:
    """A message that is given back.

    Args:
        key: The message.
        claim_id: The claim that holds it; None: only a transaction does.
        attempts: 1 if it was delivered, 0 if it only was prefetched.
        delay: Seconds until it may be delivered again.
        error: Why its delivery failed, if it did.
        dead_letter_queue_id: Where it moves as soon as nobody holds it; 0: to the queue ``DLQ``; None: it stays.
        is_death: Whether the client died, or held it for too long.
    """

    key: MessageKey
    claim_id: int | None = None
    attempts: int = 0
    delay: float = 0.0
    error: str | None = None
    dead_letter_queue_id: int | None = None
    is_death: bool = False

    @property
    def was_raised(self) -> bool:
        """Whether the error counts as one: a death, or a claim that ran out, has a text but none was raised."""
        return self.error is not None and not self.is_death


class Rules(NamedTuple):
    """What holds for messages of a queue whose deliveries fail."""

    policy: RedeliveryPolicy
    dead_letter_queue_id: int
    """Where they go at last; 0: to the queue ``DLQ``, which is not there yet."""

    def is_exhausted(self, key: MessageKey, failures: int) -> bool:
        """Tell whether a message is delivered no more; in its own dead-letter queue it always is."""
        return self.policy.is_exhausted(failures) and key.queue_id != self.dead_letter_queue_id

    def after_failure(self, key: MessageKey, claim_id: int | None, failures: int, error: str | None) -> Release:
        """Give back a message whose delivery has failed, for the so-manyth time."""
        if self.is_exhausted(key, failures):
            return Release(key, claim_id, 1, 0.0, error, self.dead_letter_queue_id)
        return Release(key, claim_id, 1, self.policy.delay_after(failures), error)


def after_error(key: MessageKey, claim_id: int | None, errors: int, error: str, *, is_dead: bool) -> Release:
    """Give back a message for which no policy says anything.

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
    """What is set for a queue."""

    rules: Rules | None
    claim_time_limit: float | None

    @classmethod
    def of_columns(
        cls,
        maximum_deliveries: int | None,
        delay: float | None,
        multiplier: float | None,
        maximum_delay: float | None,
        jitter: float | None,
        dead_letter_queue_id: int | None,
        claim_time_limit: float | None,
    ) -> QueuePolicy:
        """Read the settings of a queue; each was checked when it was set, but not one beside the other."""
        rules = None
        if maximum_deliveries is not None or delay is not None:
            longest = None if maximum_delay is None else max(maximum_delay, delay or 0.0)
            policy = RedeliveryPolicy(maximum_deliveries, delay or 0.0, multiplier or 1.0, longest, jitter or 0.0)
            rules = Rules(policy, dead_letter_queue_id or 0)
        return cls(rules, claim_time_limit)


NO_POLICY = QueuePolicy(None, None)


class LostClaim(NamedTuple):
    """A claim whose holder is gone, or has held it for too long."""

    key: MessageKey
    claim_id: int
    failures: int
    has_expired: bool
    policy: QueuePolicy


class ExtendedClaim(NamedTuple):
    """A claim that is to last for so many seconds from now on."""

    key: MessageKey
    claim_id: int
    seconds: float


class Redelivery:
    """The state of messages that are delivered again, seen through one connection.

    Args:
        driver: Runs the statements, each of which commits by itself, or with the transaction that it is in.
        schema: The name of the schema.
        restricted: Whether policies hide something from the role.
    """

    def __init__(self, driver: Driver, schema: str, *, restricted: bool = False) -> None:
        self._driver = driver
        self._statements = redelivery_statements(schema, restricted=restricted)

    def policy(self, queue_id: int) -> QueuePolicy:
        """Return what is set for a queue, which may be gone."""
        with jms_errors("looking up a redelivery policy"):
            rows = self._driver.execute(self._statements.find_policy, {"queue_id": queue_id}).rows
        return QueuePolicy.of_columns(*rows[0]) if rows else NO_POLICY

    def record_deliveries(self, keys: Sequence[MessageKey], connection_id: int) -> int:
        """Note that a transaction, which has locked these messages, delivers them; return the claim's number.

        If the connection dies, the deliveries count.
        """
        with jms_errors("recording deliveries"):
            parameters = {**key_parameters(keys), "connection_id": connection_id}
            return int(self._driver.execute(self._statements.record_deliveries, parameters).rows[0][0])

    def release(self, releases: Sequence[Release]) -> None:
        """Give messages back.

        Those without a claim are locked by a transaction that is about to end. Claims that were taken away meanwhile
        are left alone.
        """
        claimed = [release for release in releases if release.claim_id is not None]
        locked = [release for release in releases if release.claim_id is None]
        with jms_errors("giving messages back"):
            if claimed:
                claim_ids = {"claim_ids": array_literal(release.claim_id for release in claimed)}
                self._driver.execute(self._statements.release, _outcomes(claimed) | claim_ids)
            if locked:
                self._driver.execute(self._statements.record_attempts, _outcomes(locked))

    def errors(self, keys: Sequence[MessageKey]) -> dict[MessageKey, int]:
        """Return with how many errors deliveries of the messages have failed before, of those with any."""
        with jms_errors("looking up errors"):
            rows = self._driver.execute(self._statements.find_errors, key_parameters(keys)).rows
        return {keys[position - 1]: count for position, count in rows}

    def extend_claims(self, claims: Sequence[ExtendedClaim]) -> int:
        """Make claims last longer, and return how many there still were."""
        parameters = {
            **key_parameters([claim.key for claim in claims]),
            "claim_ids": array_literal(claim.claim_id for claim in claims),
            "seconds": array_literal(claim.seconds for claim in claims),
        }
        with jms_errors("extending claims"):
            return self._driver.execute(self._statements.extend_claims, parameters).row_count

    def lost_claims(self, limit: int) -> list[LostClaim]:
        """Return claims whose holders are gone, or have held them for too long."""
        rows = self._driver.execute(self._statements.find_lost_claims, {"limit": limit}).rows
        width = len(POLICY_COLUMNS)
        return [
            LostClaim(MessageKey(*row[:4]), row[4], row[5], bool(row[6]), QueuePolicy.of_columns(*row[-width:]))
            for row in rows
        ]

    def bury(self) -> list[int]:
        """Move messages that are delivered no more, and return the numbers of the dead-letter queues they went to."""
        with jms_errors("moving messages to a dead-letter queue"):
            return [row[0] for row in self._driver.execute(self._statements.bury, {"limit": _BURIED_AT_ONCE}).rows]


def _outcomes(releases: Sequence[Release]) -> dict[str, str]:
    return {
        **key_parameters([release.key for release in releases]),
        "attempts": array_literal(release.attempts for release in releases),
        "delays": array_literal(release.delay for release in releases),
        "errors": array_literal(release.error for release in releases),
        "error_counts": array_literal(int(release.was_raised) for release in releases),
        "dead_letter_queue_ids": array_literal(release.dead_letter_queue_id for release in releases),
    }
