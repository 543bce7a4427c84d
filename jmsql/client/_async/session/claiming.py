"""Claims of messages: how prefetch buffers get them, hand them out and release them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from jmsql.client.receiving.fetching import PrefetchBuffer
from jmsql.client.throttle import LimitReachedError, Throttle
from jmsql.exceptions import JMSException
from jmsql.logs import contained_logger
from jmsql.store.control.liveness import is_connected
from jmsql.store.receiving.receive import claim, claim_within_limit
from jmsql.store.receiving.redelivery import Release
from jmsql.store.receiving.throttling import declare
from jmsql.store.rows.message_rows import Claim, MessageKey, MessageRow, claim_of
from jmsql.values.clock import monotonic

if TYPE_CHECKING:
    from jmsql.client._async.link.lease import Lease
    from jmsql.client._async.session.delivery import NotifyReleased
    from jmsql.client._async.shared.redelivery import Redelivery
    from jmsql.selectors import Selector
    from jmsql.store.control.control import ControlConnection
    from jmsql.store.receiving.late_messages import ScanStart
    from jmsql.store.receiving.receive import Fetch, GroupScan
    from jmsql.store.receiving.redelivery import Rules
    from jmsql.store.statement import Steps


logger = contained_logger("jmsql")

# A claim is a row of the table `delivery` with the number of the client's connection. It is committed before the
# message is handed out, and outlives every transaction. That makes it the record of the delivery, too: if the client
# dies, others release its claims, and each counts as a delivery.
#
# Invariants:
#
# 1. A message is delivered only while its claim certainly holds. For a while `is_certain` says so without a statement;
#    after that the session asks the server (`_lives`), and releases the fetched messages if the server took the client
#    for dead.
# 2. Nothing is released twice: a release names the claim by its number, and finds nothing if the message has another
#    holder by then.
# 3. A delivered row leaves its session (`Claims._delivered`, or a handler's transaction) by an acknowledgement, a
#    release, or as it is put back. A statement that fails leaves it there, so that the next call tries again.
# 4. A claim whose answer was lost is known to the server alone. `claim_failed` has the control connection take another
#    number then, and its former claims are released like a dead client's.
# 5. The messages of a group stay in order: with a failed one the session releases the other messages of its group that
#    it holds, since they come after it.
#
# Things that do not work:
#
# - Claiming a batch with a visibility timeout: the messages behind a long delivery run out of their time while they
#   wait. They are claimed one by one, unless all of them are delivered together and extended meanwhile.
# - One row for the claim of a batch: it takes an eighth less of the server's time, for a second form of claims wherever
#   the SQL asks if a message is claimed (decision 104). Without a second look under the lock it handed messages out
#   twice (decision 53).


def before_lone(rows: Sequence[MessageRow], is_lone: Callable[[MessageRow], bool]) -> int:
    """Return how many of some messages come before the first that is to be claimed by itself, at least one."""
    return max(next((number for number, row in enumerate(rows) if is_lone(row)), len(rows)), 1)


class Claiming:
    """Claims messages for prefetch buffers, hands them out one by one, and releases them.

    A session has one, or several sessions of a worker's listener share it. Each method gets the connection of the
    session that calls. One caller at a time: it holds the lock of the session, or the lock that the sessions share.

    Args:
        control: The client's control connection, in whose name it claims.
        redelivery: The rules for failed deliveries, and releases beside the sessions.
        notify_released: Called with messages that are free again.
        is_shared: True if several sessions deliver the messages. None holds those that another one could handle, and
            they are released beside the sessions, whose connections another one may use by then.
        extends_all: True if all claimed messages are delivered together, and their claims extended meanwhile.
    """

    def __init__(
        self,
        control: ControlConnection,
        redelivery: Redelivery,
        notify_released: NotifyReleased,
        *,
        is_shared: bool = False,
        extends_all: bool = False,
    ) -> None:
        self._control = control
        self._redelivery = redelivery
        self._notify_released = notify_released
        self._is_shared = is_shared
        self._extends_all = extends_all
        self.operation: Fetch = self._claim
        """The store's operation that claims messages. Written by `limit_by`, before the first fetch."""
        self._throttle: Throttle | None = None
        """The limit over all workers; None: there is none. Written as `operation`."""
        self._visibility_timeout: float | None = None
        """The seconds of the next claim. Each fetch writes it."""
        self._is_cut = False
        """True if the limit has allowed the last claim fewer messages than it asked for. A fetch writes it."""
        self._passes_over = False
        """True if the last claim has passed over messages for a limit. A fetch writes it."""

    def _claim(
        self,
        queue_id: int,
        selector: Selector | None,
        start: ScanStart,
        limit: int,
        groups: GroupScan | None = None,
    ) -> Steps[list[MessageRow]]:
        """Claim messages in the name of the client's connection."""
        return claim(queue_id, selector, start, limit, self._control.connection_id, self._visibility_timeout, groups)

    def limit_by(self, throttle: Throttle, buffer: PrefetchBuffer) -> None:
        """Claim the messages of a prefetch buffer within a limit over all workers."""
        if self._throttle is throttle:
            return  # another session of the listener has done so
        self._throttle = throttle
        buffer.use(buffer.policy._replace(throttle=throttle))
        self.operation = self._claim_within_limit
        buffer.source.fetch_by(self.operation)

    def _claim_within_limit(
        self,
        queue_id: int,
        selector: Selector | None,
        start: ScanStart,
        limit: int,
        groups: GroupScan | None = None,
    ) -> Steps[list[MessageRow]]:
        """Claim messages as `_claim` does, as many as the limit allows.

        Raises:
            LimitReachedError: It allows none of those that are there.
        """
        throttle, slots = self._throttle, self._control.slots
        assert throttle is not None
        yield from slots.use()
        while True:
            found = yield from claim_within_limit(
                *(queue_id, selector, start, limit, self._control.connection_id, slots.holder_id),
                *(self._visibility_timeout, groups),
                counts_values=throttle.counts_values,
            )
            if not found.allowance.is_declared:  # the queue was made again
                yield from declare(queue_id, "" if selector is None else selector.text, throttle.limit, replaces=False)
            elif found.allowance.counts_values and not throttle.counts_values:  # another release has declared it
                throttle.counts_values = True
            else:
                break
        throttle.learn(found.allowance, len(found.rows))
        self._is_cut = found.allowance.granted < limit
        is_partial = self._is_cut and (selector is not None or groups is not None)
        self._passes_over = found.allowance.passes_over or is_partial
        if not found.rows and (found.allowance.passes_over or not found.allowance.granted):
            raise LimitReachedError
        return found.rows

    # Handing out

    def pop_buffered(self, buffer: PrefetchBuffer) -> MessageRow | None:
        """Return the next message that was fetched before, if that takes no statement."""
        if not self._control.is_certain:
            return None
        if not buffer.held.rows:
            return None
        cancelled = self._control.cancellations.heard
        if cancelled and buffer.held.rows[0].sequence in cancelled:
            return None
        if buffer.held.rows[0].delivery_count and monotonic() >= self._redelivery.free_until(buffer):
            return None  # it may be exhausted
        return buffer.held.next_fresh()

    async def next_held(self, database: Lease, buffer: PrefetchBuffer) -> MessageRow | None:
        """Return the next message that was fetched before; None: there is none."""
        if buffer.held.rows and not await self._lives(database):
            await self.release_rows(database, buffer, buffer.discard_rows())
        await self.release_rows(database, buffer, buffer.drop_stale())
        if self._control.cancellations.heard:
            await self._drop_cancelled(database, buffer)
        rules = await self._redelivery.rules(buffer) if buffer.held.rows else None
        while (row := buffer.held.next()) is not None:
            key = buffer.held.key(row)
            if rules is not None and row.delivery_count:
                try:
                    if await self._redelivery.is_exhausted(rules, key, row.delivery_count):
                        await self._bury(database, key, row, rules)
                        continue
                except BaseException:
                    buffer.held.put_back(row)
                    raise
            return row
        return None

    async def _bury(self, database: Lease, key: MessageKey, row: MessageRow, rules: Rules) -> None:
        exhausted = Release(key, claim_of(row), dead_letter_queue_id=rules.dead_letter_queue_id)
        await self.release(database, [exhausted])

    async def _drop_cancelled(self, database: Lease, buffer: PrefetchBuffer) -> None:
        """Drop messages that were cancelled. If one was not, since any role may notify, its claim is released."""
        cancellations = self._control.cancellations
        dropped = buffer.drop(cancellations.heard)
        if dropped:
            self._notify_released(await self.release_rows(database, buffer, dropped))
            for row in dropped:
                cancellations.forget(row.sequence)

    # Fetching

    async def claim(
        self, database: Lease, buffer: PrefetchBuffer, limit: int, own_claims: Collection[Claim]
    ) -> tuple[list[MessageRow], Rules | None] | None:
        """Claim messages, which `keep` puts into the buffer.

        Args:
            database: The connection of the caller's session, where no transaction is open.
            buffer: The prefetch buffer.
            limit: The most messages to claim.
            own_claims: The claims by which the receiver holds groups, of which more may come.

        Returns:
            The messages, and the rules for their failures; None: a limit is reached, or the client counts as dead.
        """
        throttle = self._throttle
        if throttle is not None and throttle.is_closed and buffer.source.is_unchanged:
            return None
        if not await self._lives(database):
            return None
        rules = await self._redelivery.rules(buffer)
        self._visibility_timeout = await self._redelivery.visibility_timeout(buffer)
        buffer.held.claim_for(self._visibility_timeout)
        # Messages behind a long delivery would run out of their time too.
        is_timed = self._visibility_timeout is not None and not self._extends_all
        is_single = is_timed or (rules is not None and rules.policy.maximum_deliveries == 1)
        if throttle is not None and throttle.limit.at_most is not None:
            is_single |= not self._is_shared
        connection_id = self._control.connection_id
        async with database.connected():  # perhaps by one from the pool, where it may have been ended as well
            was_ended = database.link.was_ended
            try:
                rows = await database.run_alone(buffer.fetch_if_any(1 if is_single else limit, own_claims))
            except LimitReachedError:
                buffer.learn([])
                return None
            except (JMSException, KeyboardInterrupt) as error:
                if not was_ended:  # else the server has never seen the claim
                    self._control.claim_failed(connection_id, error)
                raise
        if throttle is not None:
            self._heed_limit(buffer, rows)
        return rows, rules

    async def keep(self, database: Lease, buffer: PrefetchBuffer, rows: list[MessageRow], count: int) -> bool:
        """Hold the first `count` of the messages that were claimed, and release the others; True if any are held."""
        rows, rest = rows[:count], rows[count:]
        buffer.learn(rows)
        try:
            for key in await self.release_rows(database, buffer, rest):
                buffer.source.returned(key)
        finally:
            buffer.held.put_back(*rows)
        return bool(rows)

    def _heed_limit(self, buffer: PrefetchBuffer, rows: list[MessageRow]) -> None:
        """Have the next fetch find the messages that the last one has left for the limit."""
        if rows and self._is_cut:
            buffer.expect_more()
        if self._passes_over:
            buffer.source.begin_again()

    async def _lives(self, database: Lease) -> bool:
        return self._control.is_certain or await database.run_alone(is_connected(self._control.connection_id))

    # Releasing

    async def release_rows(
        self, database: Lease | None, buffer: PrefetchBuffer, rows: list[MessageRow]
    ) -> list[MessageKey]:
        """Release messages that a prefetch buffer holds no more, and return them.

        If that cannot be done now, it holds them again.
        """
        if not rows:
            return []
        releases = [Release(buffer.held.key(row), claim_of(row)) for row in rows]
        try:
            await self.release(database, releases)
        except BaseException:
            buffer.held.put_back(*rows)
            raise
        return [release.key for release in releases]

    async def release(self, database: Lease | None, releases: list[Release]) -> list[int]:
        """Release messages by the session's connection, or beside the session; return as `release_claimed` does."""
        released = None if database is None else await self._release_by(database, releases)
        if released is None:
            released = await self._redelivery.release(releases)
        if any(release.dead_letter_queue_id is not None for release in releases):
            await self._redelivery.bury()
        return released

    async def release_in_any_case(self, database: Lease, releases: list[Release]) -> None:
        """Release messages as `release` does, or by the control connection a little later."""
        if await self._release_by(database, releases) is None:
            await self._redelivery.release_in_any_case(releases)

    async def _release_by(self, database: Lease, releases: list[Release]) -> list[int] | None:
        """Release messages by the session's own connection, as `release` does; return None if that was not possible.

        It may have none, for which it would have to wait, or may have lost it while it was idle. As claims have
        numbers, nothing is released twice.
        """
        if self._is_shared or not database.link.is_connected:
            return None
        await self._redelivery.wait_for_extension()
        try:
            return await database.run(database.recipient.release(releases))
        except JMSException as error:
            logger.info("Claims are released beside the session: %s", error)
            return None
