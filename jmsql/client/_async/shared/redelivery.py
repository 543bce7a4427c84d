"""What a connection's sessions do about messages that are delivered again."""

from __future__ import annotations

import logging
import re
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from jmsql.client._async.shared.connection_destinations import ConnectionDestinations
from jmsql.client._async.shared.side_connection import SideConnection
from jmsql.client.prefetch_buffer import PrefetchBuffer
from jmsql.exceptions import InvalidDestinationException, JMSException, JMSSecurityException
from jmsql.store.control.control import ControlConnection
from jmsql.store.destinations.lookup import require_access
from jmsql.store.receiving.redelivery import (
    QueuePolicy,
    Release,
    Rules,
    after_error,
    bury,
    errors,
    policy,
    record_deliveries,
    record_first_deliveries,
)
from jmsql.store.rows.message_rows import MessageKey
from jmsql.values.destinations import Queue
from jmsql.values.policies import DEFAULT_DEAD_LETTER_QUEUE, RedeliveryPolicy
from jmsql.values.postgresql_text import to_postgresql

logger = logging.getLogger("jmsql")

_LONGEST_TEXT = 10_000
"""Characters of an error. The end of a traceback says more than its beginning."""

_password_in_url = re.compile(r"(://[^\s:/@]*):[^\s/@]+@")

_NEVER: tuple[float, QueuePolicy | None] = 0.0, None


class FailedDelivery(NamedTuple):
    """A delivery that failed.

    Args:
        buffer: Where the message came to.
        key: The message.
        claim_id: The claim that holds it; None: a transaction alone does.
        number: How often it was delivered and not acknowledged, this time included.
    """

    buffer: PrefetchBuffer
    key: MessageKey
    claim_id: int | None
    number: int


class Redelivery:
    """Knows the redelivery policies, and records deliveries beside the sessions' transactions.

    Its methods may be called from any thread.

    Args:
        side: Where the work is done.
        destinations: Knows the dead-letter queues.
        control: The control connection.
        refresh_interval: Seconds after which a queue's policy is looked up again.
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
        self._policies: dict[int, tuple[float, QueuePolicy | None]] = {}

    async def rules_of(self, policy: RedeliveryPolicy, queue_id: int) -> Rules:
        """Return what a consumer's own policy means; its dead-letter queue is made if need be.

        Args:
            policy: The policy.
            queue_id: What the consumer receives from.

        Raises:
            JMSSecurityException: The role may not send to the dead-letter queue, nor is it the one of the queue.
        """
        if policy.maximum_deliveries is None:
            return Rules(policy, 0, 0)
        if policy.dead_letter_queue not in {None, DEFAULT_DEAD_LETTER_QUEUE}:
            named = await self._destinations.look_up(Queue(policy.dead_letter_queue))
            of_queue = (await self._of_queue(queue_id)).rules
            if of_queue is None or of_queue.dead_letter_queue_id != named:
                await self._require_access(policy.dead_letter_queue, named)
            return Rules(policy, named, named)
        try:
            return Rules(policy, 0, await self._destinations.look_up(Queue(DEFAULT_DEAD_LETTER_QUEUE)))
        except (InvalidDestinationException, JMSSecurityException):  # who buries makes it
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
        """Return what holds for failed deliveries: by the consumer, by the destination, or else; None: nothing does."""
        own = buffer.policy
        if own.rules is not None:
            return own.rules
        of_queue = (await self._of_queue(buffer.source.queue_id)).rules
        return own.default if of_queue is None else of_queue

    def knows_no_rules(self, buffer: PrefetchBuffer) -> bool:
        """Tell whether it is known, without asking the server, that nothing holds for failed deliveries."""
        own = buffer.policy
        looked_up, found = self._policies.get(buffer.source.queue_id, _NEVER)
        return (
            found is not None
            and found.rules is None
            and own.rules is None
            and own.default is None
            and time.monotonic() < looked_up + self._refresh_interval
        )

    async def visibility_timeout(self, buffer: PrefetchBuffer) -> float | None:
        """Return for how many seconds messages are claimed; None: for as long as the client lives."""
        own = buffer.policy.visibility_timeout
        return (await self._of_queue(buffer.source.queue_id)).visibility_timeout if own is None else own

    async def _of_queue(self, queue_id: int) -> QueuePolicy:
        now = time.monotonic()
        looked_up, found = self._policies.get(queue_id, _NEVER)
        if found is None or now >= looked_up + self._refresh_interval:
            found = await self._side.run(policy, queue_id)
            self._policies[queue_id] = now, found
        return found

    async def failures(self, failed: Sequence[FailedDelivery], error: str | None) -> list[Release]:
        """Say what becomes of messages whose deliveries have failed together.

        Args:
            failed: The deliveries.
            error: Why, if that is known.
        """
        rules = {each.buffer: await self.rules(each.buffer) for each in failed}
        errors: dict[MessageKey, int] = {}
        if error is not None:
            errors = await self._earlier_errors(
                [each for each in failed if rules[each.buffer] is None and each.number > 1]
            )
        releases = []
        for buffer, key, claim_id, number in failed:
            own = rules[buffer]
            if own is not None:
                releases.append(own.after_failure(key, claim_id, number, error))
            elif error is not None:
                is_dead = buffer.source.destination == Queue(DEFAULT_DEAD_LETTER_QUEUE)
                releases.append(after_error(key, claim_id, errors.get(key, 0) + 1, error, is_dead=is_dead))
            else:
                releases.append(Release(key, claim_id, 1))
        for each, release in zip(failed, releases, strict=True):
            _tell(each, release)
        return releases

    async def _earlier_errors(self, failed: Sequence[FailedDelivery]) -> dict[MessageKey, int]:
        """Return with how many errors deliveries of messages have failed before."""
        if not failed:
            return {}
        keys = [each.key for each in failed]
        try:
            return await self._side.run(errors, keys)
        except JMSException as error:
            logger.warning("Messages pause as if each delivery before had failed with an error: %s", error)
            return {each.key: each.number - 1 for each in failed}

    async def record(self, keys: Sequence[MessageKey], *, is_new: bool) -> int:
        """Record that a transaction delivers messages that it has locked; return the number of the claim on them.

        Args:
            keys: The messages.
            is_new: Whether nothing was known of earlier deliveries when they were locked.
        """
        record = record_first_deliveries if is_new else record_deliveries
        connection_id = self._control.connection_id
        try:
            return await self._side.run(record, keys, connection_id)
        except JMSException as error:
            self._control.claim_failed(connection_id, error)
            raise

    async def release(self, releases: Sequence[Release]) -> None:
        """Release messages, of which a transaction may still hold the locks."""
        await self._side.run(self._side.recipient.release, releases)

    async def bury(self) -> None:
        """Move what is delivered no more to the dead-letter queues; maintenance does it later if this fails."""
        try:
            self._control.sent(await self._side.run(bury))
        except JMSException as error:
            logger.warning("Messages go to their dead-letter queue a little later: %s", error)


def _tell(failed: FailedDelivery, release: Release) -> None:
    """Write into the log when a message that has failed comes again, or that it does not."""
    place = failed.buffer.source.destination, failed.key.sequence
    if release.dead_letter_queue_id is not None:
        logger.warning(
            "The message of %s with the sequence %d moves to the dead-letter queue, after %d failed %s.",
            *(*place, failed.number, "delivery" if failed.number == 1 else "deliveries"),
        )
    elif release.error is not None and release.delay:
        next_attempt = datetime.now(UTC) + timedelta(seconds=release.delay)
        # Not a warning: the dispatcher or the worker has logged the failure.
        logger.debug(
            "The next attempt for the message of %s with the sequence %d is at %s.",
            *(*place, f"{next_attempt:%Y-%m-%d %H:%M:%S} UTC"),
        )


def failure_text(error: BaseException | str | None) -> str | None:
    """Return an error as text that PostgreSQL can store: an exception with its traceback, without passwords in URLs."""
    if error is None:
        return None
    text = error if isinstance(error, str) else "".join(traceback.format_exception(error))
    return to_postgresql(_password_in_url.sub(r"\1:***@", text)[-_LONGEST_TEXT:])
