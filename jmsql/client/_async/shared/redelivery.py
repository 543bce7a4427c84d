"""Redelivery in a connection's sessions."""

from __future__ import annotations

import dataclasses
import re
import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from jmsql.client._async.shared.connection_destinations import ConnectionDestinations
from jmsql.client._async.shared.side_connection import SideConnection
from jmsql.client.receiving.fetching import PrefetchBuffer
from jmsql.concurrency.tasks import Notifications
from jmsql.exceptions import InvalidDestinationException, JMSException, JMSSecurityException
from jmsql.logs import contained_logger
from jmsql.store.control.control import ControlConnection
from jmsql.store.destinations.lookup import require_access
from jmsql.store.lock_waits import NO_LOCK
from jmsql.store.receiving.receive import claim_for_transaction
from jmsql.store.receiving.redelivery import (
    UNIQUE_VIOLATION,
    EarlierDeliveries,
    QueuePolicy,
    Release,
    Rules,
    after_error,
    bury,
    earlier_deliveries,
    policy,
    record_deliveries,
    record_first_deliveries,
)
from jmsql.store.receiving.results import channel_of_kept
from jmsql.store.rows.message_rows import Claim, MessageKey, MessageRow
from jmsql.values.clock import monotonic
from jmsql.values.destinations import Queue
from jmsql.values.outcomes import MAXIMUM_RETRIES, Interruption, Reject, RetryAfter
from jmsql.values.policies import (
    DEFAULT_DEAD_LETTER_QUEUE,
    MOST_INTERRUPTIONS,
    RedeliveryPolicy,
    dead_letter_queue_of,
)
from jmsql.values.postgresql_text import to_postgresql

if TYPE_CHECKING:
    from jmsql.client._async.link.lease import Lease
    from jmsql.store.statement import Query


logger = contained_logger("jmsql")

_LONGEST_TEXT = 10_000
"""Characters of an error. The end of a traceback says more than its beginning."""

_password_in_url = re.compile(r"(://[^\s:/@]*):[^\s/@]+@")

_LONGEST_EXTENSION = 5.0
"""Seconds for which a session waits for an extension of its claims: a little longer than that waits for a lock."""

_NEVER: tuple[float, QueuePolicy | None] = 0.0, None
_NEVER_DELIVERED = EarlierDeliveries(0, 0, 0)


# The decision about a failed delivery is made here. For a dead client's messages `Maintenance` makes it, with the same
# policies (`jmsql.values.policies`) but those of the destination alone: a listener's own count with the next delivery.
# SQL holds no second copy of the rules.
#
# In the order of `_after`:
#
# 1. An interruption, by a worker that ends, is no failure. Twenty of one message are excused, and later ones count: a
#    handler that hangs must come to an end (decision 67).
# 2. `RetryAfter` puts the delivery off without a failure, up to its `maximum_retries`; after that the message is
#    rejected.
# 3. `Reject` makes a dead letter at once, unless the message is one already: in its dead-letter queue it stays.
# 4. A policy counts deliveries, without those that were put off or interrupted.
# 5. Without a policy, errors count, and not deliveries: rollbacks without an error are a program's own business
#    (decision 31). A failed commit is no error of the message.
#
# Statements here run beside the session's transaction, on the side connection. A rollback that cannot count before it
# ends counts after it, and a release that fails is left to the control connection (`release_later`). In between,
# another consumer may get the message without its redelivered flag; none gets lost.


class FailedDelivery(NamedTuple):
    """A delivery that failed.

    Args:
        buffer: Where the message came to.
        key: The message.
        claim_id: The claim that holds it; None: a transaction alone does.
        number: How often it was delivered and not acknowledged, this time included.
        message_id: JMSMessageID without its "ID:", for the log; None: the producer has disabled it.
    """

    buffer: PrefetchBuffer
    key: MessageKey
    claim_id: Claim | None
    number: int
    message_id: str | None


class Failure(NamedTuple):
    """Why a delivery has failed, or does not count as one."""

    text: str
    """The error as text that PostgreSQL can store, without passwords in URLs."""
    dead_letter_reason: str | None = None
    """Why the message moves to the dead-letter queue at once; None: it does not."""
    retry: RetryAfter | None = None
    """The request for another delivery without a failure, with its time."""
    is_interruption: bool = False
    """True if the worker has ended before its handler: the delivery has not failed, unless that was so too often."""
    is_of_commit: bool = False
    """True if the commit has failed: without a policy, the message is delivered again immediately."""

    @property
    def is_of_message(self) -> bool:
        """True if the message may be to blame: the delivery was neither put off nor interrupted."""
        return self.retry is None and not self.is_interruption


def failure_of(error: BaseException | str | None) -> Failure | None:
    """Return the failure of messages by their error; None: there is no error."""
    match error:
        case None:
            return None
        case Reject():
            return Failure(_text(error.error), error.dead_letter_reason)
        case RetryAfter():
            return Failure(_text(error), retry=error)
        case Interruption():
            return Failure(_text(str(error)), is_interruption=True)
        case _:
            return Failure(_text(error))


def failure_of_commit(error: JMSException) -> Failure:
    """Return the failure of messages by a failed commit."""
    return Failure(_text(error), is_of_commit=True)


def _text(error: BaseException | str) -> str:
    """Return an exception with its traceback. The last line names it, as the view of dead letters shows it."""
    if isinstance(error, str):
        text = error
    else:
        text = "".join(traceback.format_exception(error))
        # An exception's text may have several lines, the last one about its documentation.
        said = "".join(traceback.format_exception_only(error)).splitlines()
        first = next((line for line in said if line and not line[0].isspace()), "")
        if text.rstrip("\n").rpartition("\n")[2] != first:
            text += f"{first}\n"
    return to_postgresql(_password_in_url.sub(r"\1:***@", text)[-_LONGEST_TEXT:])


class Redelivery:
    """Knows the redelivery policies, and records deliveries beside the sessions' transactions.

    Its methods may be called from any thread.
    """

    def __init__(
        self,
        side: SideConnection,
        destinations: ConnectionDestinations,
        control: ControlConnection,
        refresh_interval: float,
    ) -> None:
        self._side = side
        self._destinations = destinations
        self._control = control
        self._refresh_interval = refresh_interval
        # By queue: when the policy was looked up, and the policy. Any thread replaces the pair as a whole; two threads
        # that look it up at once both do, and the later one counts.
        self._policies: dict[int, tuple[float, QueuePolicy | None]] = {}

    async def rules_of(self, policy: RedeliveryPolicy, queue_id: int) -> Rules:
        """Return the rules of a consumer's own policy; its dead-letter queue is created if missing.

        Raises:
            JMSSecurityException: The role may not send to the dead-letter queue, nor is it the one of the queue.
        """
        if policy.maximum_deliveries is None:
            return Rules(policy, 0, 0)
        name = dead_letter_queue_of(policy)
        if name is not None and name != DEFAULT_DEAD_LETTER_QUEUE:
            named = await self._destinations.look_up(Queue(name))
            of_queue = (await self._of_queue(queue_id)).rules
            if of_queue is None or of_queue.dead_letter_queue_id != named:
                await self._require_access(name, named)
            return Rules(policy, named, named)
        try:
            return Rules(policy, 0, await self._destinations.look_up(Queue(DEFAULT_DEAD_LETTER_QUEUE)))
        except (InvalidDestinationException, JMSSecurityException):  # the burial makes it
            return Rules(policy, 0, 0)

    async def _require_access(self, name: str, queue_id: int) -> None:
        """Refuse a dead-letter queue to which the role may not send: the messages would come again for ever."""
        try:
            await self._side.run(require_access, queue_id, "send")
        except JMSSecurityException as error:
            raise JMSSecurityException(
                f"The role may not send to {name!r}, the dead-letter queue of the consumer's own policy. Let it send "
                "there (`jmsql destination grant`), or set the policy for the destination (`jmsql destination set`).",
                error.error_code,
            ) from error

    async def rules(self, buffer: PrefetchBuffer) -> Rules | None:
        """Return the rules for failed deliveries: the consumer's, the destination's, the default, or None."""
        own = buffer.policy
        if own.rules is not None:
            return own.rules
        of_queue = (await self._of_queue(buffer.source.queue_id)).rules
        return own.default if of_queue is None else of_queue

    def free_until(self, buffer: PrefetchBuffer) -> float:
        """Return until when nothing holds for failed deliveries, by the monotonic clock; 0: something may now."""
        own = buffer.policy
        looked_up, found = self._policies.get(buffer.source.queue_id, _NEVER)
        if found is None or found.rules is not None or own.rules is not None or own.default is not None:
            return 0.0
        return looked_up + self._refresh_interval

    async def visibility_timeout(self, buffer: PrefetchBuffer) -> float | None:
        """Return for how many seconds messages are claimed; None: for as long as the client lives."""
        own = buffer.policy.visibility_timeout
        return (await self._of_queue(buffer.source.queue_id)).visibility_timeout if own is None else own

    async def _of_queue(self, queue_id: int) -> QueuePolicy:
        looked_up, found = self._policies.get(queue_id, _NEVER)
        if found is None or monotonic() >= looked_up + self._refresh_interval:
            try:
                found = await self._side.run(policy, queue_id)
            except JMSException as error:
                if found is None or error.error_code != NO_LOCK:
                    raise
                logger.info("The policy of a queue that was looked up before still counts: %s", error)
            self._policies[queue_id] = monotonic(), found
        return found

    async def is_exhausted(self, rules: Rules, key: MessageKey, deliveries: int) -> bool:
        """Tell whether a message that comes after so many deliveries is delivered no more."""
        if not rules.is_exhausted(key, deliveries):
            return False
        earlier = (await self._side.run(earlier_deliveries, [key])).get(key)
        return rules.is_exhausted(key, deliveries - (0 if earlier is None else earlier.retries))

    async def have_failed(self, buffer: PrefetchBuffer, rows: Sequence[MessageRow]) -> list[bool]:
        """Tell of which messages a delivery has failed, other than by being put off or interrupted."""
        keys = [buffer.held.key(row) for row in rows]
        again = [key for key, row in zip(keys, rows, strict=True) if row.delivery_count]
        earlier = await self._side.run(earlier_deliveries, again) if again else {}
        return [
            (row.delivery_count or 0) > earlier.get(key, _NEVER_DELIVERED).retries
            for key, row in zip(keys, rows, strict=True)
        ]

    async def failures(self, failed: Sequence[FailedDelivery], failure: Failure | None) -> list[Release]:
        """Decide the outcome of messages whose deliveries have failed together."""
        earlier = await self._earlier(failed, failure)
        releases = [await self._after(each, earlier[each.key], failure) for each in failed]
        for each, release in zip(failed, releases, strict=True):
            _log_outcome(each, release)
        return releases

    async def _after(self, failed: FailedDelivery, earlier: EarlierDeliveries, failure: Failure | None) -> Release:
        """Return the outcome of a message whose delivery has failed."""
        buffer, key, claim_id, number, _ = failed
        rules = await self.rules(buffer)
        retry = reason = error = None
        if failure is not None:
            if failure.is_interruption and earlier.interruptions < MOST_INTERRUPTIONS:
                return Release(key, claim_id, 1, retries=1, interruptions=1)
            retry, reason, error = failure.retry, failure.dead_letter_reason, failure.text
        if retry is not None:
            if earlier.retries - earlier.interruptions < retry.maximum_retries:
                return Release(key, claim_id, 1, retry.delay, retries=1)
            reason = MAXIMUM_RETRIES
        if reason is not None and not self._is_own_dead_letter(buffer, rules):
            target = await self._dead_letter_queue(buffer)
            return Release(key, claim_id, 1, 0.0, error, target, dead_letter_reason=reason)
        if rules is not None:
            release = rules.after_failure(key, claim_id, number - earlier.retries, error)
        elif failure is not None and error is not None and not failure.is_of_commit:
            is_dead = self._is_own_dead_letter(buffer, rules)
            release = after_error(key, claim_id, earlier.errors + 1, error, is_dead=is_dead)
        else:
            release = Release(key, claim_id, 1, error=error)
        if retry is not None and release.dead_letter_queue_id is None:
            return dataclasses.replace(release, delay=retry.delay)
        return release

    @staticmethod
    def _is_own_dead_letter(buffer: PrefetchBuffer, rules: Rules | None) -> bool:
        """Tell whether the messages of a buffer are dead letters that stay where they are."""
        is_kept = rules is not None and rules.kept_in == buffer.source.queue_id
        return is_kept or buffer.source.destination == Queue(DEFAULT_DEAD_LETTER_QUEUE)

    async def _dead_letter_queue(self, buffer: PrefetchBuffer) -> int:
        """Return where rejected messages go; 0: to the queue ``DLQ``."""
        own = buffer.policy.rules
        if own is not None:
            return own.dead_letter_queue_id
        return (await self._of_queue(buffer.source.queue_id)).dead_letter_queue_id

    async def _earlier(
        self, failed: Sequence[FailedDelivery], failure: Failure | None
    ) -> Mapping[MessageKey, EarlierDeliveries]:
        """Return how deliveries of the messages have ended before."""
        earlier = {each.key: _NEVER_DELIVERED for each in failed}
        # Without rules, only errors count.
        again = [each for each in failed if each.number > 1 and (failure is not None or await self.rules(each.buffer))]
        if again:
            try:
                earlier |= await self._side.run(earlier_deliveries, [each.key for each in again])
            except JMSException as error:
                logger.warning("Messages pause as if each delivery before had failed with an error: %s", error)
                earlier |= {each.key: EarlierDeliveries(each.number - 1, 0, 0) for each in again}
        return earlier

    async def claim(self, database: Lease, buffer: PrefetchBuffer, limit: int) -> list[MessageRow] | None:
        """Claim messages that a transaction delivers which has not begun: the claims are the record.

        Returns:
            The messages; None: they cannot be claimed now, but perhaps locked.
        """
        connection_id = self._control.connection_id
        if not self._control.is_certain:
            return None
        claim = partial(claim_for_transaction, connection_id)
        try:
            return await database.run_alone(buffer.fetch(limit, fetch=claim))
        except (JMSException, KeyboardInterrupt) as error:
            if isinstance(error, JMSException) and error.error_code == UNIQUE_VIOLATION:
                return None
            self._control.claim_failed(connection_id, error)
            raise

    async def record(self, keys: Sequence[MessageKey], *, is_new: bool) -> Claim:
        """Record that a transaction delivers messages that it has locked; return the number of the claim on them.

        `is_new` says that nothing was known of earlier deliveries when they were locked.
        """
        record = record_first_deliveries if is_new else record_deliveries
        connection_id = self._control.connection_id
        try:
            return Claim(await self._side.run(record, keys, connection_id))
        except (JMSException, KeyboardInterrupt) as error:
            self._control.claim_failed(connection_id, error)
            raise

    async def wait_for_extension(self) -> None:
        """Wait until no claim is being extended, before statements that settle claims with a visibility timeout.

        These find the rows by their addresses, and an extension that commits meanwhile gives the rows others.
        """
        if self._control.is_extending:
            ended = Notifications()
            self._control.call_after_extension(ended.notify)
            await ended.wait(0, _LONGEST_EXTENSION)

    async def release(self, releases: Sequence[Release]) -> list[int]:
        """Release messages, of which a transaction may still hold the locks; return as `release_claimed` does."""
        await self.wait_for_extension()
        return await self._side.run(self._side.recipient.release, releases)

    async def release_in_any_case(self, releases: Sequence[Release]) -> None:
        """Release messages; the control connection does it later if this fails."""
        try:
            await self.release(releases)
        except JMSException as error:
            logger.warning("Messages are released a little later: %s", error)
            self._control.release_later(releases)

    def result_kept(self, kept: Query[None]) -> None:
        """Notify those that wait for the result of a message, which was stored."""
        self._control.notifier.sent([channel_of_kept(kept)])

    async def bury(self) -> None:
        """Move exhausted messages to the dead-letter queues; maintenance does it later if this fails."""
        try:
            self._control.notifier.sent(await self._side.run(bury))
        except JMSException as error:
            logger.warning("Messages go to their dead-letter queue a little later: %s", error)


def _log_outcome(failed: FailedDelivery, release: Release) -> None:
    """Log the outcome of a failed delivery: the next attempt, or the dead-letter queue."""
    destination = failed.buffer.source.destination
    message_id = None if failed.message_id is None else f"ID:{failed.message_id}"
    place = message_id or f"with the sequence {failed.key.sequence}", destination
    fields = {"message_id": message_id, "destination": str(destination)}
    if release.dead_letter_reason is not None:
        logger.warning(
            "The message %s of %s moves to the dead-letter queue: %s.",
            *(*place, release.dead_letter_reason),
            extra=fields,
        )
    elif release.dead_letter_queue_id is not None:
        logger.warning(
            "The message %s of %s moves to the dead-letter queue, after %d failed %s.",
            *(*place, failed.number, "delivery" if failed.number == 1 else "deliveries"),
            extra=fields,
        )
    elif release.delay:
        next_attempt = datetime.now(UTC) + timedelta(seconds=release.delay)
        # Not a warning: the dispatcher or the worker has logged the failure.
        logger.debug(
            "The next attempt for the message %s of %s is at %s.",
            *(*place, f"{next_attempt:%Y-%m-%d %H:%M:%S} UTC"),
            extra=fields,
        )
