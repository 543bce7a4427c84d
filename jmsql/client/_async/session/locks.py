"""How messages come to a transacted session: they are locked, or claimed, and deleted with the commit at the latest."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from jmsql.client._async.link.lease import savepoint
from jmsql.client._async.session.claims import count_outcome
from jmsql.client._async.session.delivery import Delivery
from jmsql.client._async.session.delivery_records import NOTHING_COUNTED, DeliveryRecords
from jmsql.client._async.session.transaction_claims import TransactionClaims, claimed_of
from jmsql.client._async.shared.redelivery import Failure, Redelivery
from jmsql.client.receiving.fetching import PrefetchBuffer
from jmsql.client.savepoints import Savepoints
from jmsql.client.transaction_state import TransactionState
from jmsql.exceptions import JMSException
from jmsql.logs import contained_logger
from jmsql.store.receiving.acknowledge import lock_claimed, present
from jmsql.store.receiving.receive import Fetch, next_messages, telling_lock_statement
from jmsql.store.receiving.redelivery import Release
from jmsql.store.rows.message_rows import Claim, ClaimedRow, LockedRow, MessageKey, MessageRow, claim_of
from jmsql.store.sending.notification import MOST_GROUPS
from jmsql.store.wire.application_sql import SavepointCommand, SavepointStep
from jmsql.values.clock import monotonic

if TYPE_CHECKING:
    from jmsql.client._async.link.lease import Lease
    from jmsql.selectors import Selector
    from jmsql.store.receiving.late_messages import ScanStart
    from jmsql.store.receiving.receive import GroupScan
    from jmsql.store.statement import Query, Steps


logger = contained_logger("jmsql")


# A message passes three places on its way through a transaction: fetched, in a prefetch buffer; delivered, in
# `Delivered`; and deleted, when it leaves `Delivered.undeleted`. The commit makes the deletions stand; a rollback
# brings all of them back.
#
# Invariants:
#
# 1. Delivered messages are deleted before the transaction locks others. A transaction's own locks do not make SKIP
#    LOCKED pass over a row, so it would fetch them twice.
# 2. Delivered messages are deleted before each of the application's statements, too. PostgreSQL itself then undoes the
#    deletions that belong to a savepoint.
# 3. The records of deliveries, and their counts, are beside the transaction (`DeliveryRecords`).
#
# Things that do not work:
#
# - DELETE … RETURNING for a batch, though it is the fastest statement: a message that the application has not looked at
#   by the commit would have to be inserted again, in another place of the order.
# - Inserting and deleting message by message, which needs no notice of the application's statements: transactions of
#   100 messages with one such statement received 150 messages a second in place of 4,000 (decision 4).
# - Keeping the lock of a message that a global transaction has not delivered. If another client had just claimed it,
#   that client's acknowledgement would wait for the transaction manager. So a frugal session fetches within a
#   savepoint, and undoes it if nothing was delivered (decision 13).


_Delivery: TypeAlias = "tuple[PrefetchBuffer, MessageRow]"
_UNUSED_STATES = {TransactionState.NONE, TransactionState.BEGUN}
_MOST_ATTEMPTS = 5
"""How often a transaction begins again where other consumers claim the messages that it locks."""


class Delivered:
    """The messages that a transaction has delivered, and of these the ones that it has still to delete.

    It is written with the session's lock held, or with `SessionWork.lock` alone by a `send` that inserts and by the
    asynchronous sender, which delete messages before a send under conditions. While there is such a sender, a delivery
    holds that lock, too. The application's statements and commits write it in the thread that runs them, which holds
    neither.
    """

    def __init__(self) -> None:
        self.undeleted: list[_Delivery] = []
        """Deliveries that the transaction has still to delete, in their order."""
        self.redelivered: list[MessageKey] = []
        """Deliveries of which a row in `delivery` tells something, for the commit to delete."""
        # Deliveries whose keys were not needed yet: most transactions commit without making them. `note_keys` moves
        # them to `_listed` before their buffer may be of another queue.
        self.unlisted: list[_Delivery] = []
        self._listed: dict[MessageKey, _Delivery] = {}
        self._came_back: list[MessageKey] = []
        """Messages that a rollback to a savepoint has brought back. The transaction's end notifies of them."""

    def __len__(self) -> int:
        return len(self._listed) + len(self.unlisted)

    def add(self, buffer: PrefetchBuffer, row: MessageRow) -> None:
        """Note a delivery."""
        delivered = buffer, row
        self.undeleted.append(delivered)
        self.unlisted.append(delivered)
        if row.delivery_count is not None:
            self.redelivered.append(buffer.held.key(row))

    def note_keys(self) -> None:
        """Note the keys of delivered messages, as long as they are known by the buffers' queues."""
        if self.unlisted:
            self._listed.update([(delivered[0].held.key(delivered[1]), delivered) for delivered in self.unlisted])
            self.unlisted.clear()

    @property
    def by_key(self) -> dict[MessageKey, _Delivery]:
        """The deliveries by their keys, for which most transactions do not ask."""
        self.note_keys()
        return self._listed

    def to_delete(self) -> tuple[list[LockedRow], set[int]]:
        """Return the locked messages that are delivered and not deleted, and their queues."""
        queues, locked = set(), []
        for buffer, row in self.undeleted:
            if isinstance(row, LockedRow):
                locked.append(row)
                queues.add(buffer.source.queue_id)
        return locked, queues

    def note_deleted(self) -> None:
        """Note that nothing is left to delete."""
        self.undeleted.clear()

    def claim(self, claims: Mapping[MessageKey, Claim]) -> dict[int, list[ClaimedRow]]:
        """Note that locked messages are claimed now, and their deletions undone; return them by queue."""
        claimed: dict[int, list[ClaimedRow]] = {}
        for key, claim_id in claims.items():
            buffer, row = self.by_key[key]
            claimed_row = row.with_claim(claim_id)
            self._listed[key] = buffer, claimed_row
            claimed.setdefault(key.queue_id, []).append(claimed_row)
        self.undeleted[:] = self.by_key.values()
        self.redelivered[:] = [key for key in self.redelivered if key not in claims]  # these are forgotten by claim
        return claimed

    def take_back(self, keys: Collection[MessageKey]) -> None:
        """Note that messages come again, though the transaction goes on."""
        back = [self.by_key.pop(key) for key in keys]
        count_outcome(back, "rolled_back")
        for key, (buffer, _) in zip(keys, back, strict=True):
            buffer.source.returned(key)
        self.redelivered[:] = [key for key in self.redelivered if key not in keys]
        self._came_back.extend(keys)

    def tell_of_return(self) -> None:
        """Have the next fetches go back for the messages, which may be there again."""
        for key, (buffer, _) in self.by_key.items():
            buffer.source.returned(key)

    def count(self, outcome: str) -> None:
        """Count an outcome for all deliveries."""
        count_outcome(self._listed.values(), outcome)
        count_outcome(self.unlisted, outcome)

    @property
    def of_groups(self) -> list[MessageKey]:
        """The deliveries of groups."""
        groups = [key for key in self._listed if key.group_hash is not None]
        return groups + [buffer.held.key(row) for buffer, row in self.unlisted if row.group_hash is not None]

    def end(self) -> list[MessageKey]:
        """Forget the deliveries, and return the messages that have come back before."""
        came_back = [*self._came_back]
        for each in (self.undeleted, self.redelivered, self.unlisted, self._listed, self._came_back):
            each.clear()
        return came_back


def _queues_of_many_groups(keys: Sequence[MessageKey]) -> set[int]:
    """Return the queues of messages of groups, if the groups are more than a notification names."""
    groups = {(key.queue_id, key.group_hash) for key in keys}
    return {queue_id for queue_id, _ in groups} if len(groups) > MOST_GROUPS else set()


class LockScan:
    """The store's operation that locks messages, in one transaction after another."""

    def __init__(self) -> None:
        self.has_lost = False
        """True if it has locked messages that other consumers had just claimed, since `forget_lost`."""

    def forget_lost(self) -> None:
        """Note that such messages are settled."""
        self.has_lost = False

    def lock(
        self,
        queue_id: int,
        selector: Selector | None,
        start: ScanStart,
        limit: int,
        groups: GroupScan | None = None,
    ) -> Steps[list[MessageRow]]:
        """Lock messages, and return them."""
        places = groups is not None and len(groups.places) > 0
        statement = telling_lock_statement(
            selector, grouped=groups is not None, late=start.starts is not None, places=places
        )
        locked = yield from next_messages(statement, queue_id, start, limit, groups)
        if locked.has_lost:
            self.has_lost = True
        return locked.rows


class Locks(Delivery):
    """For transactions: messages are locked or claimed as they are fetched, and deleted with the commit at the latest.

    Messages that were fetched and not delivered by the end of the transaction are unlocked, or their claims released.
    Where there is a redelivery policy, deliveries are recorded before they are made: if the client dies, they count.
    Before the transaction begins the messages are claimed (`TransactionClaims`), which records their first deliveries;
    in an open transaction they are locked, and recorded on another connection. First deliveries are recorded together,
    since most succeed; a message that was delivered before is recorded by itself, so that it alone is blamed if its
    delivery fails again.

    Before each of the application's statements, the delivered messages are deleted, so that a rollback to a savepoint
    brings back those that were delivered since. Where the text of a statement does not tell which savepoint it rolls
    back to, each receive that finds nothing, and the commit, look for the messages that came back.
    """

    shares_position = True

    def __init__(self, database: Lease, redelivery: Redelivery, *, is_frugal: bool = False) -> None:
        self._database = database
        self._redelivery = redelivery
        self._is_frugal = is_frugal
        """True if it locks one message after another: a prepared transaction may hold its locks for long."""
        self._claimed = TransactionClaims(database, redelivery)
        self._records = DeliveryRecords(redelivery)
        self._scan = LockScan()
        self._buffers: list[PrefetchBuffer] = []
        self._delivered = Delivered()
        self._savepoints: Savepoints | None = None
        """The savepoints of the open transaction; None: none was set. Written by `heed` and `_ended`."""

    @property
    def operation(self) -> Fetch:
        return self._scan.lock

    @property
    def has_delivered(self) -> bool:
        return bool(self._delivered)

    def pop_buffered(self, buffer: PrefetchBuffer) -> MessageRow | None:
        if not (buffer.held.recorded or monotonic() < buffer.free_until):
            return None
        if self._savepoints is not None or self._database.link.has_lost_locks:
            return None  # `next` sees the rest
        row = buffer.held.next_fresh()
        if row is not None:
            self._delivered.add(buffer, row)
        return row

    async def next(self, buffer: PrefetchBuffer) -> MessageRow | None:
        if self._database.link.has_lost_locks:
            await self._give_up()
        while True:
            row = self.pop_buffered(buffer) or await self.next_held(buffer) if buffer.held.rows else None
            if row is not None:
                return row
            if self._is_frugal:
                row = await self._fetch_for_delivery(buffer)
                if row is not None:
                    return row
            elif await self.fetch(buffer, buffer.next_limit()):
                continue
            await self._database.link.require_view_of_commits()
            if not await self._notice_what_came_back():
                return None

    async def _fetch_for_delivery(self, buffer: PrefetchBuffer) -> MessageRow | None:
        """Lock one message and deliver it; if that fails, leave nothing locked."""
        await self.flush()  # not within the savepoint, which may be undone
        async with savepoint(self._database) as undo:
            await self.fetch(buffer, 1)
            row = await self.next_held(buffer)
            if row is None:
                await undo()  # with the lock of a message that another client had just claimed
            return row

    async def _give_up(self) -> list[MessageKey]:
        """Drop the messages that were fetched and not delivered, for which the next fetch looks again; return them."""
        released = [(buffer.held.key(row), row) for buffer in self._buffers for row in buffer.discard_rows()]
        claims = {key: claim_id for key, row in released if (claim_id := claim_of(row) or self._records.take(key))}
        if claims:  # else they would be hidden until the transaction ends, and others be delivered before them
            self._claimed.forget_undelivered(self._delivered.by_key)
            await self._redelivery.release_in_any_case([Release(key, claim_id) for key, claim_id in claims.items()])
        return [key for key, _ in released]

    async def next_held(self, buffer: PrefetchBuffer) -> MessageRow | None:
        buffer.drop_stale()  # they stay locked or claimed until the transaction ends
        rules = await self._redelivery.rules(buffer) if buffer.held.rows else None
        buffer.note_free(self._redelivery.free_until(buffer))
        while (row := buffer.held.next()) is not None:
            key = buffer.held.key(row)
            if key in self._delivered.by_key:  # a savepoint was rolled back
                await self._bring_back([key])
                row = row._replace(delivery_count=(row.delivery_count or 0) + 1)
            if rules is not None:
                try:
                    if row.delivery_count and await self._redelivery.is_exhausted(rules, key, row.delivery_count):
                        await self._records.mark_exhausted(key, rules)
                        continue
                    await self._records.record(buffer, row, rules)
                except BaseException:
                    buffer.held.put_back(row)
                    raise
            self._delivered.add(buffer, row)
            return row
        return None

    async def fetch(self, buffer: PrefetchBuffer, limit: int) -> bool:
        if buffer.is_likely_empty and not await self._database.inspect(buffer.may_find()):
            return False
        if buffer not in self._buffers:
            self._buffers.append(buffer)
        if self._delivered.unlisted:
            self._delivered.note_keys()  # before the buffer may move to another queue
        claimed = await self._claimed.claim(buffer, limit) if monotonic() >= buffer.free_until else None
        rows: Sequence[MessageRow]
        if claimed is not None:
            rows = claimed
        else:
            # A transaction's own locks do not make it skip a row. Its deliveries are deleted first; messages in other
            # prefetch buffers of the session are left out here.
            if self._delivered.undeleted:
                await self.flush()
            link = self._database.link
            begins = link.state in _UNUSED_STATES and not link.begins_early
            if len(self._buffers) == 1 and not self._records.claims:  # most transactions
                rows = await self._database.attempt(buffer.fetch(limit))
            else:
                rows = await self._fetch_beside_others(buffer, limit)
            if self._scan.has_lost:
                rows = await self._fetch_without_lost(buffer, limit, rows, begins=begins)
            if rows and self._claimed.batches:
                self._claimed.note_locks()
        buffer.keep(rows, are_recorded=claimed is not None)
        return bool(rows)

    async def _fetch_without_lost(
        self, buffer: PrefetchBuffer, limit: int, rows: Sequence[MessageRow], *, begins: bool
    ) -> Sequence[MessageRow]:
        """Release messages that a fetch has locked though other consumers had just claimed them, and fetch again.

        Their acknowledgements would wait for the end of the transaction, and for ever if the same thread is to end it
        later. PostgreSQL releases a row's lock with the transaction alone, so that is possible only where the fetch
        has begun it.
        """
        for _ in range(_MOST_ATTEMPTS if begins else 0):
            if not self._scan.has_lost:
                break
            await self._database.end_unused()
            for row in rows:
                buffer.source.returned(buffer.held.key(row))
            self._scan.forget_lost()
            rows = await self._fetch_beside_others(buffer, limit)
        self._scan.forget_lost()
        return rows

    async def _fetch_beside_others(self, buffer: PrefetchBuffer, limit: int) -> list[MessageRow]:
        """Fetch up to `limit` messages that no other prefetch buffer of the session holds, nor comes to first."""
        others = [other for other in self._buffers if other is not buffer]
        held = {key for other in others for key in other.held.keys}
        own_claims = {claim_id for key, claim_id in self._records.claims.items() if key.group_hash is not None}
        rows = await self._database.attempt(buffer.fetch(limit + len(held), own_claims))
        if held:
            groups = {group for other in others for group in other.held.groups}
            for row in rows:
                if row.group_hash in groups:
                    # It comes after those that the other prefetch buffer holds.
                    buffer.source.returned(buffer.held.key(row))
            rows = [row for row in rows if row.group_hash not in groups and buffer.held.key(row) not in held]
        return rows

    @property
    def has_undeleted(self) -> bool:
        """True if a delivered message is not deleted in the open transaction."""
        return bool(self._delivered.undeleted)

    async def flush(self) -> None:
        """Delete delivered messages, still in the open transaction."""
        undeleted = self._delivered.undeleted
        if undeleted:
            rows, queue_ids = self._delivered.to_delete()
            if self._claimed.batches and (claimed := claimed_of(undeleted)):
                rows += await self._database.attempt(lock_claimed(claimed))
                queue_ids |= {key.queue_id for key, _ in claimed}
            await self._database.attempt(self._database.recipient.delete_locked(rows, queue_ids))
            self._delivered.note_deleted()

    async def prepare_conditional(self, *, replaces: bool) -> None:
        """Let sends under conditions see which messages wait.

        A transaction's own locks do not keep it from its messages, so it deletes the delivered ones before. Others
        that were fetched ahead stay locked, or claimed. If a send may replace them, they leave the buffer, without
        their claims, and are fetched again.
        """
        await self.flush()
        if replaces:
            await self._give_up()

    async def before_commit(self, *, has_sent: bool) -> tuple[Sequence[Query[object]], Collection[int]]:
        """Delete delivered messages, and the records of their deliveries.

        No sooner: a rollback counts the deliveries through another connection, which this transaction would hold up.

        Args:
            has_sent: True if the transaction may have sent something; else no consumer goes back for its messages.

        Returns:
            The deletions that are left for the commit, and the queues of the groups that it frees, if these are more
            than a notification names.
        """
        if not has_sent:
            for buffer in self._buffers:
                if buffer.source.shares_position:
                    buffer.source.sent_nothing()
        delivered, records = self._delivered, self._records
        if self._savepoints is not None and self._savepoints.is_one_unknown:
            await self.flush()
            await self._notice_what_came_back()
        recorded: Sequence[MessageKey]
        recorded, claim_ids = records.of(delivered.by_key) if records.claims else (delivered.redelivered, [])
        if recorded or self._claimed.batches:
            records.forget_with_commit()
        recipient = self._database.recipient
        last = recipient.last_deletions(*delivered.to_delete(), recorded, claim_ids)
        if self._claimed.batches:
            among = None if self._has_delivered_all_claimed else delivered.by_key
            last += self._claimed.last_acknowledgements(recipient, among)
        freed = delivered.of_groups
        return last, _queues_of_many_groups(freed) if len(freed) > MOST_GROUPS else ()

    @property
    def _has_delivered_all_claimed(self) -> bool:
        return self._claimed.are_all(len(self._delivered))

    async def committed(self, *, are_groups_notified: bool = False) -> list[MessageKey]:
        """Note that the transaction is over: delivered messages are gone.

        Args:
            are_groups_notified: True if the waiting consumers of the queues of freed groups are notified.

        Returns:
            The other messages, which are unlocked, and delivered ones of groups, which are free again, unless their
            queues' consumers are notified.
        """
        # Its own consumers need not look at these groups: the transaction's hold did not make them pass over anything.
        self._delivered.count("acknowledged")
        freed = [] if are_groups_notified else self._delivered.of_groups
        if self._records.claims:
            self._records.committed(self._delivered.by_key)
        return freed + await self._ended()

    async def _ended(self) -> list[MessageKey]:
        if self._claimed.batches:
            if not self._has_delivered_all_claimed:
                self._records.release_at_end(self._claimed.undelivered(self._delivered.by_key))
            self._claimed.end()
        if self._records.claims or self._records.count is not NOTHING_COUNTED:  # few transactions
            await self._records.end()
        self._savepoints = None
        unlocked = self._delivered.end()
        for buffer in self._buffers:
            unlocked += [buffer.held.key(row) for row in buffer.end_transaction()]
        self._buffers.clear()
        return unlocked

    async def give_back_held(self) -> list[MessageKey]:
        """Release the messages that were fetched and not delivered, though the transaction goes on.

        PostgreSQL keeps a transaction's row locks to its end. So the delivered messages are claimed, and the
        transaction is rolled back, in which nothing else may have been done. The commit deletes these messages
        behind their claims.

        Returns:
            The released messages; none if they have to stay locked.
        """
        if not await self._claim_delivered():
            return []
        released = await self._give_up()
        for buffer in self._buffers:
            for key in released:
                if key.queue_id == buffer.source.queue_id:
                    buffer.source.returned(key)
        return released

    async def _claim_delivered(self) -> bool:
        """Claim the delivered messages that are locked, and end the transaction; return whether that could be done."""
        delivered = self._delivered.by_key
        locked = [key for key, (_, row) in delivered.items() if claim_of(row) is None]
        if any(key.group_hash is not None for key in delivered):
            return False  # the transaction's locks hold the groups, too
        try:
            await self._records.record_all(locked)
        except JMSException as error:
            logger.info("Messages that were fetched and not delivered stay locked: %s", error)
            return False
        await self._database.rollback()
        claims = {key: claim_id for key in locked if (claim_id := self._records.take(key)) is not None}
        self._claimed.replace_locks(self._delivered.claim(claims))
        return True

    async def before_rollback(self, failure: Failure | None = None) -> None:
        """Count the deliveries, so that no other consumer sees the messages without their redelivered flag."""
        await self._records.count_before_rollback(self._delivered.by_key, failure)

    async def before_prepare(self) -> None:
        """Delete delivered messages, and count the deliveries as before a rollback, since this may become one.

        A transaction manager that rolls a prepared transaction back need not know its deliveries. If it commits, the
        records of the deliveries are deleted later: the prepared transaction would block the counting.
        """
        await self.flush()
        await self._notice_what_came_back()
        await self.before_rollback()

    @property
    def delivered(self) -> list[MessageKey]:
        """The messages that the transaction has delivered."""
        return list(self._delivered.by_key)

    async def rolled_back(self, failure: Failure | None = None) -> list[MessageKey]:  # noqa: ARG002 - counted before
        """Note that the transaction is undone, if for a failure by that; return the messages that it had locked."""
        await self._records.count_after_rollback(self._delivered.by_key)
        returned = self.delivered
        self._delivered.tell_of_return()
        self._delivered.count("rolled_back")
        return returned + await self._ended()

    # The application's savepoints

    async def heed(self, step: SavepointStep) -> None:
        """Note the application's next step with a savepoint.

        A rollback brings back messages that were received since. Their deliveries are counted while they are locked, so
        that no other consumer sees them without their redelivered flag.
        """
        if self._savepoints is None:
            self._savepoints = Savepoints()
        if step.command is SavepointCommand.ROLLBACK:
            await self._give_up()  # the locks since
            self._delivered.note_deleted()  # those delivered after a statement had failed
        came_back = self._savepoints.heed(step, self._delivered.by_key)
        if came_back is None:
            self._delivered.tell_of_return()
        else:
            await self._bring_back(came_back)

    async def _notice_what_came_back(self) -> bool:
        """Look for delivered messages that a rollback to a savepoint has brought back; return whether there are any."""
        if self._savepoints is None or not (self._savepoints.is_one_unknown and self._delivered):
            return False
        keys = await self._database.run(present(self.delivered))
        await self._bring_back(keys)
        return bool(keys)

    async def _bring_back(self, keys: Collection[MessageKey]) -> None:
        """Count the deliveries of messages that are delivered again, though the transaction goes on."""
        if keys:
            await self._records.count_in_any_case({key: self._delivered.by_key[key] for key in keys})
            self._delivered.take_back(keys)
