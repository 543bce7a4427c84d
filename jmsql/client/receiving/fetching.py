"""The messages of one consumer: those that it holds, and the fetches that bring the next ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from jmsql.client.pacing import PollInterval
from jmsql.client.receiving.emptiness import READY, Emptiness
from jmsql.client.receiving.notified import PendingNotifications, QueueChanges
from jmsql.store.control.wake_ups import Competition
from jmsql.store.destinations.lookup import find_queue
from jmsql.store.receiving.reader import QueueReader, ScanPositions
from jmsql.store.rows.message_rows import Claim, ClaimedRow, GroupKey, LastRow, MessageKey, MessageRow, key_of, size_of
from jmsql.values.clock import monotonic
from jmsql.values.destinations import Queue

if TYPE_CHECKING:
    from jmsql.client.throttle import Throttle
    from jmsql.selectors import Selector
    from jmsql.store.control.counters import DestinationCounters
    from jmsql.store.control.server import ServerClock
    from jmsql.store.control.wake_ups import Look, WakeUps
    from jmsql.store.receiving.receive import Fetch
    from jmsql.store.receiving.redelivery import Rules
    from jmsql.store.statement import Steps
    from jmsql.timings import InternalTimings
    from jmsql.values.destinations import Destination

# A consumer has a prefetch buffer, with the messages that were fetched and not delivered (`HeldRows`), and a source,
# the queue that it fetches from. A fetch costs an exchange with the server, and an empty one is waste. So the consumer
# estimates how many messages to ask for (`BatchSize`), if there are any (`Emptiness`), and how long to ignore
# notifications after other consumers were faster (`BackOff`). These estimates are values: a fetch replaces the value.
#
# Invariants:
# - One thread or task at a time fetches and delivers: it has the session's lock, and `SessionWork.lock` to fetch in a
#   transaction; or the lock of `HandlerClaims` alone, whose buffer belongs to several sessions. It writes all fields
#   here but those that say otherwise. Others drop held rows: an insertion of sends that replace messages, with
#   `SessionWork.lock` alone; and with no lock the application's rollback to a savepoint, a statement of which the text
#   is not known, and its commit by a method. Any thread may call `notify`, which moves a shared position back.
# - All held rows come from the queue `source.queue_id`. A move to another queue takes effect with a fetch, and
#   `drop_stale` drops the rows of a queue that was paused, resumed or removed before it delivers the next one.
# - No notification is lost. A fetch passes earlier ones to the reader. Later ones stay pending; those that concern this
#   consumer alone (a release without a shared position, a freed group, a change) make `is_unchanged` False.
# - While `is_unchanged` is True, a fetch of this consumer finds no more than the fetch of a competing one. Only then
#   may `is_likely_empty` ask the cheaper `may_find` first, and `is_known_empty` rely on another consumer.
# - A row that leaves the buffer undelivered (`discard_rows`, `drop`) is pending: the next fetch finds it below its
#   bounds.
#
# Things that do not work:
# - A flag "the end was seen" that a caller unsets before its fetch and reads after it: two callers share the flag, and
#   one takes the other's end for its own. `Emptiness.ends_seen` counts, and each caller compares two counts.
# - Another operation in the reader for one fetch: the fetch replaces the reader if the queue has moved, and the
#   operation stays behind in the wrong one. It is an argument.
# - Two assignments in `move`, of the competition and of the channels: a look in between waits for one queue, and is
#   woken by another one. They are one value.
# - A count of delivered messages for `BatchSize`: it costs each message, where a count of fetched and of dropped ones
#   costs each batch.
# - A module for `BatchSize` or `QueueSource`: each message would pass another file (`test_walk.py`).

_MOST_MESSAGES = 100
MOST_BYTES = 16 * 1024 * 1024
"""The most bytes of bodies to fetch at once, by the size of those before, and to hand out as a chunk."""


class ConsumerPolicy(NamedTuple):
    """A consumer's own settings for the messages that it receives.

    Args:
        rules: The rules that replace those of the destination; None: none do.
        default: The rules where neither consumer nor destination has any.
        visibility_timeout: For how many seconds messages are claimed, in place of the destination's time-out.
        throttle: The limit over all workers; None: there is none.
        listener: The name of the worker's listener that receives the messages; None: an application does.
    """

    rules: Rules | None = None
    default: Rules | None = None
    visibility_timeout: float | None = None
    throttle: Throttle | None = None
    listener: str | None = None


class Target(NamedTuple):
    """The queue of the next fetch.

    Args:
        competition: The queue and selector, for which other consumers of the client may wait, too.
        channels: Where there are notifications of it, and of all queues before it.
        may_be_gone: True if the fetch looks the queue up by its name first, as another one may have taken its place.
    """

    competition: Competition
    channels: tuple[int, ...]
    may_be_gone: bool = False


class QueueSource:
    """The queue that one consumer's messages come from. Another one may take its place: one of its name, made later.

    Args:
        queue_id: The number of the queue.
        selector: Which of its messages the consumer receives; None: all.
        fetch: How messages are taken.
        destination: The queue or topic, as the application knows it.
        topic: The negative number of the topic, which is its channel, if the queue is that of a subscription.
        sweep_interval: Seconds between two looks from its front.
        changes: The changes of the queue, which copies share.
        on_move: Called by a fetch that has found another queue of the name, whose channel is new.
        positions: The positions that it shares with other consumers of the client; None: it has its own.
    """

    def __init__(
        self,
        queue_id: int,
        selector: Selector | None,
        fetch: Fetch,
        destination: Destination,
        topic: int | None,
        sweep_interval: float,
        changes: QueueChanges,
        on_move: Callable[[QueueSource], None] | None = None,
        positions: ScanPositions | None = None,
    ) -> None:
        self.selector = selector
        self.destination = destination
        self.changes = changes
        self.notified = PendingNotifications()
        self.queue_id = queue_id
        """The queue of the last fetch, and of the held rows. The fetch writes it."""
        self.target = Target(self._competition(queue_id), (queue_id,) if topic is None else (queue_id, topic))
        """The queue of the next fetch. `move` writes it for a subscription, in any thread; a fetch or a delivery for a
        queue."""
        self.changes_seen = changes.count
        """The count of changes at the last fetch, or at the last delivery. The fetching thread writes it."""
        self._on_move = on_move
        self._positions = ScanPositions(sweep_interval) if positions is None else positions
        self._reader = self._create_reader(fetch)
        """The place from which the next fetch reads. Replaced by `fetch_by`, which begins at the front again: in the
        fetching thread, or, with the session's lock, as the consumer gets or loses a listener. A worker's listener
        replaces it before its first fetch, as it gets its claims and its limit."""

    def _competition(self, queue_id: int) -> Competition:
        return Competition(queue_id, None if self.selector is None else self.selector.text)

    def _create_reader(self, fetch: Fetch) -> QueueReader:
        return QueueReader(self.queue_id, self.selector, fetch, self._positions.of(self.queue_id))

    @property
    def channels(self) -> tuple[int, ...]:
        """The channels on which there are notifications for the consumer."""
        return self.target.channels

    @property
    def competition(self) -> Competition:
        """The messages that the consumer receives, for which others of the client may wait, too."""
        return self.target.competition

    @property
    def next_queue_id(self) -> int:
        """The queue of the next fetch."""
        return self.target.competition.queue_id

    def fetch_by(self, fetch: Fetch) -> None:
        """Fetch messages from the store in another way from now on, and from the front of the queue.

        All consumers that share the position begin there again.
        """
        self._reader = self._create_reader(fetch)
        self._reader.restart()

    def begin_again(self) -> None:
        """Fetch from the front of the queue next time, with all consumers that share the position."""
        self.fetch_by(self._reader.fetch)

    def sent_nothing(self) -> None:
        """Note that the transaction in which the last fetch was made ends, and has sent nothing."""
        self._reader.sent_nothing()

    def move(self, queue_id: int) -> None:
        """Fetch messages from another queue from the next fetch on; may be called from any thread."""
        self.target = Target(self._competition(queue_id), (*self.target.channels, queue_id))

    def notify(self, key: MessageKey | GroupKey | None) -> None:
        """Note, from any thread, that a message or a group is free again, or that something new is there.

        Args:
            key: The message or group; None if it is new. With the sequence 0: the queue was paused, resumed or removed.
        """
        if isinstance(key, MessageKey) and key.sequence == 0:
            self.changes.add()
            key = None
        if self.shares_position and isinstance(key, MessageKey) and key.group_hash is None:
            # Now, for all that share the position: one after the other, each would have all go back once more.
            self._reader.returned(key.inverse_priority, key.sequence)
            key = None
        self.notified.notify(key)

    def returned(self, key: MessageKey | GroupKey) -> None:
        """Have the next fetch look again from a message that was released, or at a group that is free again."""
        if isinstance(key, MessageKey) and key.group_hash is None:
            self._reader.returned(key.inverse_priority, key.sequence)  # another consumer may take the position on
        self.notified.add(key)

    @property
    def is_unchanged(self) -> bool:
        """False if something concerns this consumer alone: a released message, a freed group, a changed or moved queue.

        Only if it is True does a competitor's empty fetch tell anything.
        """
        target, notified = self.target, self.notified
        return not (
            notified.released
            or notified.freed
            or self.changes_seen != self.changes.count
            or target.may_be_gone
            or target.competition.queue_id != self.queue_id
        )

    @property
    def shares_position(self) -> bool:
        """True if other consumers of the client fetch from the same place of the queue."""
        return len(self._reader.position.readers) > 1

    @property
    def has_groups(self) -> bool:
        """True if the queue has, or had, messages of groups, as far as is known."""
        return self._reader.has_groups or bool(self.notified.freed)

    @property
    def has_passed(self) -> bool:
        """True if the next fetch does not begin at the front of the queue."""
        return self._reader.has_passed

    def may_find(self) -> Steps[bool]:
        """Return whether `read` may find something, which takes less time than a read that finds nothing."""
        self.notified.heed()
        return (yield from self._reader.may_find())

    def read(
        self, limit: int, own_claims: Collection[int], *, may_have_changed: bool, fetch: Fetch | None = None
    ) -> Steps[list[MessageRow]]:
        """Fetch up to `limit` messages from the store.

        Args:
            limit: The most messages to fetch.
            own_claims: The claims by which messages of groups are held: more of the same groups may come.
            may_have_changed: Whether the queue may have got groups since the last read, if that has found something.
            fetch: How the messages are taken this time; None: as usual.
        """
        next_queue_id = self.target.competition.queue_id
        if next_queue_id != self.queue_id:
            self.queue_id = next_queue_id
            self.begin_again()
        if self.changes_seen != self.changes.count:
            self.heed_changes()
        if self.target.may_be_gone and not (yield from self._find_queue()):
            return []
        notified = self.notified
        if notified.is_any or notified.released or notified.freed:
            notified.pass_on(self._reader)
        return (yield from self._reader.read(limit, own_claims, may_have_changed=may_have_changed, fetch=fetch))

    def heed_changes(self) -> bool:
        """Look at the queue from its front if it has changed, and return whether it has."""
        if self.changes_seen == self.changes.count:
            return False
        self.changes_seen = self.changes.count
        if isinstance(self.destination, Queue):  # a subscription hears of another queue by `move`
            self.target = self.target._replace(may_be_gone=True)
        self.begin_again()
        return True

    def _find_queue(self) -> Steps[bool]:
        """Return whether there is a queue of the name; it may be another one than before, made since."""
        queue_id = yield from find_queue(self.destination.name)
        if queue_id is None:
            return False
        if queue_id == self.queue_id:
            self.target = self.target._replace(may_be_gone=False)
            return True
        self.queue_id = queue_id
        self.move(queue_id)
        self.begin_again()
        if self._on_move is not None:
            self._on_move(self)
        return True


class BatchSize(NamedTuple):
    """How many messages a consumer takes at once.

    It starts with one and doubles. A consumer in transactions takes as many as the last transaction used, less those
    that this one has taken. If the queue ran empty, the transaction's low count says nothing about its needs, so
    `expected` is not lowered, and consumers that compete take whole batches. It never takes more than the consumer
    handles in a certain time, so that a slow consumer leaves messages to others, nor more than 16 MiB by the size of
    those seen lately.

    Args:
        duration: That time, in seconds.
        previous: How many messages the last fetch brought that found any.
        fetched_at: When the last fetch ended, on the monotonic clock; 0: the transaction has ended since.
        seconds: How long the consumer worked on a batch, the last time that it did not wait.
        message_bytes: The mean size of a message of the last fetch, about.
        expected: How many messages the transaction will use, by those before it; 0: nothing is known of any.
        used: How many messages the transaction has taken so far, and has not dropped.
        ran_out: True if the last fetch has found nothing.
    """

    duration: float
    previous: int = 0
    fetched_at: float = 0.0
    seconds: float = 1e-6
    message_bytes: float = 0.0
    expected: int = 0
    used: int = 0
    ran_out: bool = False

    def next(self, now: float) -> tuple[int, BatchSize]:
        """Return how many messages to fetch now that the last batch is used up, and the next value."""
        limit, seconds = _MOST_MESSAGES, self.seconds
        if self.message_bytes:
            limit = max(1, min(limit, int(MOST_BYTES / self.message_bytes)))
        if self.previous:
            if self.fetched_at and not self.ran_out:  # else the consumer has waited, not worked
                seconds = max(now - self.fetched_at, 1e-6)
            limit = min(limit, int(self.duration * self.previous / seconds))
        remaining = self.expected - self.used
        limit = max(1, min(limit, remaining if remaining > 0 else 2 * self.previous))
        # Measured: the constructor takes half as long as `_replace`.
        return limit, BatchSize(
            self.duration,
            self.previous,
            self.fetched_at,
            seconds,
            self.message_bytes,
            self.expected,
            self.used,
            self.ran_out,
        )

    def within_size(self, limit: int) -> int:
        """Return how many messages take no more than 16 MiB, one at the least and `limit` at the most."""
        return max(1, min(limit, int(MOST_BYTES / self.message_bytes))) if self.message_bytes else limit

    def after_fetch(self, now: float, messages: int, size: int) -> BatchSize:
        """Note that a fetch brought so many messages, of `size` bytes together. Without any the consumer is idle."""
        if not messages:
            return self._replace(fetched_at=now, ran_out=True)
        used = self.used + messages
        return BatchSize(self.duration, messages, now, self.seconds, size / messages, self.expected, used)

    def without(self, messages: int) -> BatchSize:
        """Note that the consumer does not use so many messages that were fetched."""
        return self._replace(used=max(self.used - messages, 0))

    def slower(self, messages: int) -> BatchSize:
        """Note that so many of the last fetch were not used, since the consumer has become slow."""
        return self._replace(previous=max(self.previous - messages, 1))

    def after_transaction(self, now: float) -> BatchSize:
        """Expect the next transaction to use as many messages as this one, or more if it has found no more.

        The consumer holds no message from then on, so a pause before the next fetch is no work.
        """
        if not self.used:
            return self
        expected = max(self.used, self.expected) if self.ran_out else self.used
        return BatchSize(
            self.duration,
            self.previous,
            0.0,
            self.seconds if self.ran_out else max(now - self.fetched_at, 1e-6),
            self.message_bytes,
            expected,
            0,
            self.ran_out,
        )


def claims_of_groups(rows: Iterable[MessageRow]) -> set[Claim]:
    """Return the claims on the given messages that are in groups."""
    return {row.handle for row in rows if row.group_hash is not None and isinstance(row, ClaimedRow)}


class HeldRows:
    """The messages that one consumer has fetched and not delivered, all from one queue, the next one first.

    Args:
        source: The queue that they come from.
    """

    def __init__(self, source: QueueSource) -> None:
        self._source = source
        self.rows: deque[MessageRow] = deque()
        """The messages. Fetches, deliveries and drops change it; docs/internals.md lists the writers and locks."""
        self.recorded = 0
        """How many of the next messages are recorded as delivered for the first time. Only transactions record them:
        fetches and `DeliveryRecords` write it, and each delivery and drop."""
        self.claimed_for: float | None = None
        """For how many seconds they are claimed; None: while the client lives. `Claiming.claim` writes it."""

    def put_back(self, *rows: MessageRow) -> None:
        """Hold messages as the next ones to deliver, newly claimed ones or those that were so before."""
        self.rows.extendleft(reversed(rows))

    def claim_for(self, seconds: float | None) -> None:
        """Note for how many seconds the messages of the next fetch are claimed."""
        self.claimed_for = seconds

    def note_recorded(self, messages: int) -> None:
        """Note that the deliveries of the next messages are recorded, as first deliveries."""
        self.recorded = messages

    def key(self, row: MessageRow) -> MessageKey:
        """Return a message's key."""
        return key_of(self._source.queue_id, row)

    @property
    def keys(self) -> list[MessageKey]:
        """The keys of the messages."""
        return [self.key(row) for row in self.rows]

    @property
    def first_deliveries(self) -> list[MessageKey]:
        """The keys of the messages before the first that was delivered already."""
        return [self.key(row) for row in takewhile(lambda row: not row.delivery_count, self.rows)]

    @property
    def claims(self) -> set[Claim]:
        """The claims on the messages that are in groups."""
        return claims_of_groups(self.rows)

    @property
    def groups(self) -> set[int]:
        """The groups of the messages."""
        return {row.group_hash for row in self.rows if row.group_hash is not None}

    def of_groups(self, groups: Collection[int]) -> list[MessageRow]:
        """Return the messages of some groups."""
        return [row for row in self.rows if row.group_hash in groups]

    def next(self) -> MessageRow | None:
        """Return the next message, which is then no longer held, or None if none is."""
        if not self.rows:
            return None
        if self.recorded:
            self.recorded -= 1
        return self.rows.popleft()

    def next_fresh(self) -> MessageRow | None:
        """Do what `next` does if `drop_stale` surely keeps the message, since it never expires; else return None."""
        rows, source = self.rows, self._source
        if not rows or rows[0].jms_expiration is not None or source.changes.count != source.changes_seen:
            return None
        if self.recorded:
            self.recorded -= 1
        return rows.popleft()

    def remove(self, rows: Collection[MessageRow]) -> None:
        """Hold some messages no longer, without their delivery."""
        # The recorded ones among the others are not known then: to record one again costs a statement, and no more.
        self.recorded = 0
        if len(rows) == len(self.rows):
            self.rows.clear()
            return
        removed = {row.sequence for row in rows}  # one queue has a sequence once
        kept = [row for row in self.rows if row.sequence not in removed]
        self.rows.clear()
        self.rows.extend(kept)


class PrefetchBuffer:
    """The messages on their way to one consumer, or to the tasks of a worker's transacted listener."""

    def __init__(
        self, source: QueueSource, counters: DestinationCounters | None, clock: ServerClock, timings: InternalTimings
    ) -> None:
        self.source = source
        self.poll = PollInterval(timings)
        """How long `receive` waits before it looks again."""
        self.held = HeldRows(source)
        self.free_until = 0.0
        """Until when no rules hold for failed deliveries, on the monotonic clock. Fetches and deliveries write it,
        and `use`, with the policy."""
        self.policy = ConsumerPolicy()
        """The consumer's settings. The application's thread, or the one that opens a worker's task, replaces it without
        a lock: by the consumer, `HandlerSession.name_consumer` or `Claiming.limit_by`."""
        self.looks_again = False
        """True if the consumer, when it finds nothing now, waits for news and looks again. `receive` writes it."""
        self.emptiness = Emptiness()
        """The estimate whether a fetch finds a message. Fetches write it."""
        self._back_off = READY
        """How long to ignore notifications. Fetches write it, and `may_find` before them."""
        self._batch = BatchSize(timings.prefetch_duration)
        """How many messages to fetch. Fetches write it, ends of transactions, and drops of held messages, with the lock
        that these have; `hold_for` once, for a worker's listener."""
        self._counters = counters
        self._clock = clock

    def copy(self, fetch: Fetch, timings: InternalTimings) -> PrefetchBuffer:
        """Make a prefetch buffer for the same messages, which fetches them in another way."""
        own = self.source
        source = QueueSource(
            own.queue_id, own.selector, fetch, own.destination, None, timings.sweep_interval, own.changes
        )
        copy = PrefetchBuffer(source, self._counters, self._clock, timings)
        copy.use(self.policy)
        return copy

    # Settings

    def use(self, policy: ConsumerPolicy) -> None:
        """Heed other settings of the consumer from now on."""
        self.policy = policy
        self.free_until = 0.0

    def hold_for(self, seconds: float) -> None:
        """Hold no more messages than the consumer handles in so many seconds."""
        self._batch = BatchSize(seconds)

    def begin_receive(self, *, waits: bool) -> None:
        """Begin a call of `receive`, which looks again if it `waits` and finds nothing."""
        self.looks_again = waits

    # Fetching

    def next_limit(self) -> int:
        """Return how many messages to fetch now that the last batch is used up."""
        limit, self._batch = self._batch.next(monotonic())
        return limit

    def within_size(self, limit: int) -> int:
        """Return how many messages take no more than 16 MiB, one at the least and `limit` at the most."""
        return self._batch.within_size(limit)

    def fetch(
        self,
        limit: int,
        own_claims: Collection[int] = (),
        *,
        asks: bool = False,
        fetch: Fetch | None = None,
    ) -> Steps[list[MessageRow]]:
        """Fetch up to `limit` messages from the store, without keeping them.

        Args:
            limit: The most messages to fetch.
            own_claims: The claims by which messages of groups are held: more of the same groups may come.
            asks: Whether it asks for the end of the queue as well, which takes longer.
            fetch: How the messages are taken this time; None: as usual.
        """
        source = self.source
        has_news = source.notified.is_any
        started = monotonic()
        queue_id = source.queue_id
        may_have_changed = has_news or not self.looks_again
        rows = yield from source.read(limit, own_claims, may_have_changed=may_have_changed, fetch=fetch)
        if source.queue_id != queue_id:
            self.free_until = 0.0  # other rules may hold there
        emptiness = self.emptiness
        if asks:
            now = monotonic()
            emptiness = emptiness.after_question(now, now - started)
        is_end = not rows or isinstance(rows[-1], LastRow)
        was_full = len(rows) >= limit
        # Of a queue that stays full there is nothing to learn: mostly no value takes the place of the last.
        if is_end or not was_full or not emptiness.expects_more or emptiness.questions:
            emptiness = emptiness.after_fetch(was_full=was_full, has_seen_end=is_end)
        self.emptiness = emptiness
        if rows:
            self._back_off = READY
        elif has_news:
            self._back_off = self._back_off.after_loss(monotonic())
        return rows

    @property
    def asks_for_end(self) -> bool:
        """True if its consumer wants to know if another message follows the next: it would wait for it."""
        return self.looks_again and self.emptiness.questions > 0 and self.emptiness.asks(monotonic())

    @property
    def rest(self) -> float:
        """For how many seconds its consumer ignores notifications, since others were faster after the last one."""
        return self._back_off.remaining(monotonic())

    @property
    def is_likely_empty(self) -> bool:
        """True if a fetch would probably find nothing: the last one has found all, and there is no news since.

        Nor is news worth much if others were faster the last time.
        """
        if self.emptiness.expects_more or (self.source.notified.is_any and not self._back_off.losses):
            return False
        return self.is_unchanged

    @property
    def is_unchanged(self) -> bool:
        """True if it holds nothing, and its source is unchanged."""
        return not self.held.rows and self.source.is_unchanged

    def is_known_empty(self, wake_ups: WakeUps, look: Look, most: float) -> bool:
        """Tell whether a fetch finds nothing, since a competing consumer of the client has just seen the end.

        Args:
            wake_ups: Those of the client.
            look: The look that begins.
            most: How many seconds ago the other consumer may have seen the end.
        """
        return wake_ups.is_known_empty(look, most) and self.looks_again and self.is_unchanged

    def may_find(self) -> Steps[bool]:
        """Return whether a fetch may find something, which takes less time than a fetch that finds nothing."""
        has_news = self.source.notified.is_any
        if (yield from self.source.may_find()):
            return True
        self.learn([])
        if has_news:
            self._back_off = self._back_off.after_loss(monotonic())
        return False

    def fetch_if_any(
        self, limit: int, own_claims: Collection[int] = (), *, asks: bool = False
    ) -> Steps[list[MessageRow]]:
        """Do what `fetch` does, but first ask the cheaper `may_find` if the queue is likely empty."""
        if self.is_likely_empty and not (yield from self.may_find()):
            return []
        return (yield from self.fetch(limit, own_claims, asks=asks))

    def fetch_again(self, limit: int) -> Steps[list[MessageRow]]:
        """Fetch from the front of the queue if something was fetched before, which may be there again.

        A caller's rollback, of its transaction or to a savepoint, is not noticed.
        """
        if not self.source.has_passed:
            return []
        self.source.begin_again()
        return (yield from self.fetch(limit))

    def learn(self, rows: Sequence[MessageRow]) -> None:
        """Learn how many messages to fetch the next time from those that the consumer takes now; none: it is idle."""
        self._batch = self._batch.after_fetch(monotonic(), len(rows), size_of(rows) if rows else 0)

    def expect_more(self) -> None:
        """Note that the last fetch has left messages, though it did not bring as many as it asked for."""
        self.emptiness = self.emptiness._replace(expects_more=True)

    def slow_down(self, messages: int) -> None:
        """Fetch fewer messages, since so many of the last fetch were not used in time."""
        self._batch = self._batch.slower(messages)

    def end_transaction(self) -> list[MessageRow]:
        """Drop the held messages, as `discard_rows` does, and learn from the messages that the transaction has used."""
        rows = self.discard_rows() if self.held.rows else []
        self._batch = self._batch.after_transaction(monotonic())
        return rows

    # Holding

    def keep(self, rows: Sequence[MessageRow], *, are_recorded: bool) -> None:
        """Hold messages of a fetch for delivery, after those that it holds, and learn from them as `learn` does.

        Args:
            rows: The messages.
            are_recorded: True if the deliveries of all that are held then are recorded.
        """
        self._batch = self._batch.after_fetch(monotonic(), len(rows), size_of(rows) if rows else 0)
        held = self.held
        held.rows.extend(rows)
        if are_recorded:
            held.note_recorded(len(held.rows))

    def note_free(self, until: float) -> None:
        """Note that nothing holds for failed deliveries before a time on the monotonic clock."""
        self.free_until = until

    def drop_stale(self) -> list[MessageRow]:
        """Drop the next messages if they have expired, or the queue has changed, since they were fetched.

        Returns:
            Those messages.
        """
        if self.source.heed_changes():
            return self.discard_rows()
        expired = []
        held = self.held
        while held.rows:
            expiration = held.rows[0].jms_expiration
            if expiration is None or expiration > self._clock.milliseconds():
                break
            expired.append(held.rows[0])
            held.next()
        if expired:
            self._batch = self._batch.without(len(expired))
        return expired

    def discard_rows(self) -> list[MessageRow]:
        """Drop the held messages, for which the next fetch looks again; return them."""
        rows = list(self.held.rows)
        self._remove(rows)
        for row in rows:
            self.source.returned(self.held.key(row))
        return rows

    def drop(self, sequences: Container[int]) -> list[MessageRow]:
        """Drop the held messages with some sequences, for which the next fetch looks again; return them."""
        dropped = [row for row in self.held.rows if row.sequence in sequences]
        if dropped:
            self._remove(dropped)
            for row in dropped:
                self.source.returned(self.held.key(row))
        return dropped

    def discard_groups(self, groups: Collection[int]) -> None:
        """Drop the held messages of some groups."""
        self._remove(self.held.of_groups(groups))

    def _remove(self, rows: Collection[MessageRow]) -> None:
        """Hold some messages no longer, without their delivery."""
        self.held.remove(rows)
        self._batch = self._batch.without(len(rows))

    def count(self, outcome: str, rows: Sequence[MessageRow], delivered_at: float | None = None) -> None:
        """Count deliveries that have ended.

        Args:
            outcome: How: ``acknowledged`` or ``rolled_back``.
            rows: The messages.
            delivered_at: When they were given to a handler, on the monotonic clock; None: to no handler.
        """
        counters = self._counters
        if counters is None:
            return
        number = len(rows)
        acknowledged = rolled_back = redelivered = waited = 0
        if outcome == "acknowledged":
            acknowledged = number
            now, since = self._clock.milliseconds(), 0
            for row in rows:
                since += row.jms_delivery_time or row.jms_timestamp or now
                if row.delivery_count:
                    redelivered += 1
            waited = max(now * number - since, 0) * 1000
        else:
            rolled_back = number
            for row in rows:
                if row.delivery_count:
                    redelivered += 1
        handled = None if delivered_at is None else int((monotonic() - delivered_at) * 1_000_000)
        counters.count_ended(
            self.source.queue_id, self.source.destination, acknowledged, rolled_back, redelivered, waited, handled
        )
