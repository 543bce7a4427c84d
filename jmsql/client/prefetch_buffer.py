"""What a consumer has fetched of its queue and not delivered yet, and what it expects of the next fetch."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from jmsql.client.pacing import PollInterval
from jmsql.store.control.wake_ups import Competition
from jmsql.store.destinations.lookup import find_queue
from jmsql.store.receiving.reader import QueueReader
from jmsql.store.rows.message_rows import GroupKey, MessageKey, MessageRow, key_of
from jmsql.values.clock import monotonic
from jmsql.values.destinations import Queue

if TYPE_CHECKING:
    from jmsql.client.throttle import Throttle
    from jmsql.selectors import Selector
    from jmsql.store.control.counters import DestinationCounters
    from jmsql.store.control.server import ServerClock
    from jmsql.store.receiving.receive import Fetch
    from jmsql.store.receiving.redelivery import Rules
    from jmsql.store.statement import Steps
    from jmsql.timings import InternalTimings
    from jmsql.values.destinations import Destination


_MOST_GROUPS = 1000
"""The most groups of which it is noted that they are free. Others are found by sweeps."""

_REST = 0.001
_LONGEST_REST = 0.064
"""Seconds for which a consumer that found nothing heeds no news: twice as long each time others were faster."""

_QUESTIONS = 8
"""With how many messages a consumer asks whether another one follows, after none did."""

_SHARE = 20.0
"""The answer may take as long as a sweep. How many times as long it is not asked again."""

_MOST_MESSAGES = 100
_MOST_BYTES = 16 * 1024 * 1024


@dataclass
class ConsumerPolicy:
    """What a consumer sets for the messages that it receives.

    The `rules` replace those of the destination; the `default` holds where there are none. The `throttle` is the limit
    over all workers; None: there is none.
    """

    rules: Rules | None = None
    default: Rules | None = None
    visibility_timeout: float | None = None
    throttle: Throttle | None = None


class QueueChanges:
    """How often a queue was paused, resumed or removed since somebody began to look."""

    def __init__(self) -> None:
        self.count = 0


class QueueNews:
    """News of a queue between two fetches, from any thread: something is new, or free again.

    Of released messages the lowest sequence counts, for each inverse priority.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._returned: dict[int, int] = {}
        self._freed: set[int] = set()
        self.is_any = False
        """Whether there was any."""
        self.is_of_old = False
        """Whether it was of released messages or freed groups, which a reader would not come to."""

    def note(self, key: MessageKey | GroupKey | None) -> None:
        """Note that a message or a group is free again; None: something new is there."""
        self.is_any = True
        if isinstance(key, MessageKey) and key.group_hash is None:
            with self._lock:
                self.is_of_old = True
                lowest = self._returned.get(key.inverse_priority, key.sequence)
                self._returned[key.inverse_priority] = min(lowest, key.sequence)
        elif key is not None and key.group_hash is not None and len(self._freed) < _MOST_GROUPS:
            with self._lock:
                self.is_of_old = True
                self._freed.add(key.group_hash)

    def tell(self, reader: QueueReader) -> None:
        """Have a reader look at released messages and freed groups."""
        with self._lock:
            self.is_of_old = False
            returned, self._returned = self._returned, {}
            freed, self._freed = self._freed, set()
        for inverse_priority, sequence in returned.items():
            reader.returned(inverse_priority, sequence)
        for group in freed:
            reader.freed(group)


class QueueSource:
    """The queue that one consumer's messages come from. Another one may take its place: one of its name, made later.

    Args:
        topic: The number of the topic, if the queue is that of a subscription.
        sweep_interval: Seconds between two looks from its front.
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
    ) -> None:
        self.queue_id = queue_id
        self.selector = selector
        self.destination = destination
        self.channels = (queue_id,) if topic is None else (queue_id, topic)
        self.competition = self._competition(queue_id)
        """What the consumer receives, for which others of the client may wait, too."""
        self.on_move: Callable[[], None] = lambda: None
        """Called when messages come from another queue than before, whose channel is new."""
        self.is_removed = False
        """Whether the queue may be gone: there is no news of another one of the name."""
        self.changes = changes
        self.changes_seen = changes.count
        self._moved_to: int | None = None
        self._has_returned = False
        self.news = QueueNews()
        self._sweep_interval = sweep_interval
        self.fetch_by(fetch)

    def _competition(self, queue_id: int) -> Competition:
        return Competition(queue_id, None if self.selector is None else self.selector.text)

    def fetch_by(self, fetch: Fetch) -> None:
        """Fetch messages from the store in another way from now on, and from the front of the queue."""
        self._reader = QueueReader(self.queue_id, self.selector, fetch, self._sweep_interval)

    @contextmanager
    def fetching_by(self, fetch: Fetch) -> Iterator[None]:
        """Fetch messages in another way while a block runs, and from where the last fetch has come to."""
        usual, self._reader.fetch = self._reader.fetch, fetch
        try:
            yield
        finally:
            self._reader.fetch = usual  # perhaps of another reader: the queue may have changed

    def begin_again(self) -> None:
        """Fetch from the front of the queue next time."""
        self.fetch_by(self._reader.fetch)

    def move(self, queue_id: int) -> None:
        """Fetch messages from another queue from the next fetch on; may be called from any thread."""
        self.channels = (*self.channels, queue_id)
        self.competition = self._competition(queue_id)
        self._moved_to = queue_id

    @property
    def next_queue_id(self) -> int:
        """The queue of the next fetch."""
        return self.queue_id if self._moved_to is None else self._moved_to

    def notify(self, key: MessageKey | GroupKey | None) -> None:
        """Note, from any thread, that a message or a group is free again, or that something new is there.

        Args:
            key: The message or group; None if it is new. With the sequence 0: the queue was paused, resumed or removed.
        """
        if isinstance(key, MessageKey) and key.sequence == 0:
            self.changes.count += 1
            key = None
        self.news.note(key)

    def returned(self, key: MessageKey | GroupKey) -> None:
        """Look again from a message that was released, or at a group that is free again."""
        self._has_returned = True
        if key.group_hash is not None:
            self._reader.freed(key.group_hash)
        elif isinstance(key, MessageKey):
            self._reader.returned(key.inverse_priority, key.sequence)

    @property
    def is_unchanged(self) -> bool:
        """Whether it knows of nothing that its own next fetch alone would heed."""
        has_moved = self._moved_to is not None or self.is_removed or self.has_changed
        return not (has_moved or self.news.is_of_old or self._has_returned)

    @property
    def has_groups(self) -> bool:
        """Whether the queue has, or had, messages of groups, as far as is known."""
        return self._reader.has_groups

    def may_find(self) -> Steps[bool]:
        """Return whether `read` may find something, which takes less time than a read that finds nothing."""
        self.news.is_any = False
        return (yield from self._reader.may_find())

    def read(self, limit: int, own_claims: Collection[int], *, may_have_changed: bool) -> Steps[list[MessageRow]]:
        """Fetch up to `limit` messages from the store.

        Args:
            limit: The most messages to fetch.
            own_claims: The claims by which messages of groups are held: more of the same groups may come.
            may_have_changed: Whether the queue may have got groups since the last read, if that has found something.
        """
        if self._moved_to is not None:
            self.queue_id, self._moved_to = self._moved_to, None
            self.begin_again()
        if self.changes_seen != self.changes.count:
            self.heed_changes()
        if self.is_removed and not (yield from self._find_queue()):
            return []
        self.news.is_any = self._has_returned = False
        if self.news.is_of_old:
            self.news.tell(self._reader)
        return (yield from self._reader.read(limit, own_claims, may_have_changed=may_have_changed))

    def heed_changes(self) -> bool:
        """Look at the queue from its front if it has changed, and return whether it has."""
        if self.changes_seen == self.changes.count:
            return False
        self.changes_seen = self.changes.count
        self.is_removed = isinstance(self.destination, Queue)
        self.begin_again()
        return True

    @property
    def has_changed(self) -> bool:
        """Whether the queue was paused, resumed or removed since the last fetch."""
        return self.changes_seen != self.changes.count

    def _find_queue(self) -> Steps[bool]:
        """Return whether there is a queue of the name; it may be another one than before, made since."""
        queue_id = yield from find_queue(self.destination.name)
        if queue_id is None:
            return False
        self.is_removed = False
        if queue_id != self.queue_id:
            self.queue_id = queue_id
            self.channels = (*self.channels, queue_id)
            self.competition = self._competition(queue_id)
            self.begin_again()
            self.on_move()
        return True


class Expectation:
    """Whether there is more in a queue, and what news of it is worth: a consumer learns that from what it finds."""

    def __init__(self) -> None:
        self.expects_more = True
        """Whether the last fetch may have left something."""
        self.has_seen_end = False
        """Whether a fetch has seen that there was nothing else, since this was set to False."""
        self._misled = 0
        self._rests_until = 0.0
        self._questions = 0
        self._next_question = 0.0

    def fetched(self, *, found: bool, was_full: bool, has_seen_end: bool, has_news: bool) -> None:
        """Learn from a fetch.

        Args:
            found: Whether it has brought a message.
            was_full: Whether it has brought as much as was wanted.
            has_seen_end: Whether it has looked at the whole queue, and there is nothing else.
            has_news: Whether there had been news before.
        """
        self.expects_more = was_full and not has_seen_end
        self.has_seen_end |= has_seen_end
        self._questions = _QUESTIONS if has_seen_end else max(self._questions - 1, 0)
        self.looked(found=found, has_news=has_news)

    def looked(self, *, found: bool, has_news: bool) -> None:
        """Learn what news is worth: nothing, if others have taken what it was about."""
        if found:
            self._misled = 0
            self._rests_until = 0.0
        elif has_news:
            self._misled += 1
            self._rests_until = monotonic() + min(_REST * 2 ** min(self._misled, 10), _LONGEST_REST)

    @property
    def rest(self) -> float:
        """For how many seconds the consumer heeds no news, since others were faster after the last news."""
        return self._rests_until - monotonic() if self._misled else 0.0

    @property
    def is_misled(self) -> bool:
        """Whether others were faster after the last news."""
        return self._misled > 0

    def asked(self, duration: float) -> None:
        """Note for how many seconds one has asked for the end of the queue, so that this takes a share of the time."""
        self._next_question = monotonic() + _SHARE * duration

    @property
    def asks(self) -> bool:
        """Whether to ask for the end of the queue with the next message: it was near the last times."""
        return self._questions > 0 and monotonic() >= self._next_question


class Prefetch:
    """How many messages a consumer takes at once.

    It starts with one and doubles, or takes what is left of as many as the last transaction used. A transaction that
    found no more would have used more: it lowers no expectations, so that consumers that compete take whole batches. It
    never takes more than the consumer handles in a certain time, so that a slow consumer leaves messages to others, nor
    more than 16 MiB by the size of those seen lately.

    Args:
        duration: That time, in seconds.
        clock: A monotonic clock, in seconds.
    """

    __slots__ = (
        "_clock",
        "_duration",
        "_expected",
        "_fetched_at",
        "_message_bytes",
        "_previous",
        "_ran_out",
        "_seconds",
        "used",
    )

    def __init__(self, duration: float, clock: Callable[[], float] = monotonic) -> None:
        self._duration = duration
        self._clock = clock
        self._previous = 0
        self._fetched_at = 0.0
        self._message_bytes = 0.0
        self._expected = 0
        self._ran_out = False
        self._seconds = 1e-6
        self.used = 0
        """How many messages the transaction was given so far; the giver counts it here."""

    def size(self) -> int:
        """Return how many messages to dequeue now that the last batch is used up."""
        limit = self.within_size(_MOST_MESSAGES)
        if self._previous:
            if not self._ran_out:  # else the consumer has waited, not worked
                self._seconds = max(self._clock() - self._fetched_at, 1e-6)
            limit = min(limit, int(self._duration * self._previous / self._seconds))
        remaining = self._expected - self.used
        return max(1, min(limit, remaining if remaining > 0 else 2 * self._previous))

    def within_size(self, limit: int) -> int:
        """Return how many messages take no more than 16 MiB, one at the least and `limit` at the most."""
        return max(1, min(limit, int(_MOST_BYTES / self._message_bytes))) if self._message_bytes else limit

    def fetched(self, messages: int, size: int) -> None:
        """Note that a fetch brought so many messages, of `size` bytes together. Without any the consumer is idle."""
        self._fetched_at = self._clock()
        self._ran_out = not messages
        if messages:
            self._previous = messages
            self._message_bytes = size / messages

    def gave_up(self, messages: int) -> None:
        """Note that so many of the last fetch were not used, since the consumer has become slow."""
        self._previous = max(self._previous - messages, 1)

    def transaction_ended(self) -> None:
        """Expect the next transaction to use as many messages as this one, or more if it has found no more."""
        if self.used:
            self._expected = max(self.used, self._expected) if self._ran_out else self.used
        self.used = 0


class PrefetchBuffer:
    """The messages on their way to one consumer."""

    def __init__(
        self, source: QueueSource, counters: DestinationCounters | None, clock: ServerClock, timings: InternalTimings
    ) -> None:
        self.source = source
        self.policy = ConsumerPolicy()
        self.claimed_for: float | None = None
        self.prefetch = Prefetch(timings.prefetch_duration)
        self.poll = PollInterval(timings)
        """How long `receive` waits before it looks again."""
        self.rows: deque[MessageRow] = deque()
        """Those that are held for delivery."""
        self.recorded = 0
        """How many of the next messages are delivered for the first time, which is recorded already."""
        self.free_until = 0.0
        """Until when nothing holds for failed deliveries of what it holds, by the monotonic clock."""
        self.expectation = Expectation()
        """What its consumer has learned from what it has found."""
        self.looks_again = False
        """Whether its consumer, if it finds nothing now, waits for news and looks again."""
        self._has_fetched = False
        self._counters = counters
        self._clock = clock
        self._timings = timings

    def copy(self, fetch: Fetch) -> PrefetchBuffer:
        """Make a prefetch buffer for the same messages, which fetches them in another way."""
        own = self.source
        source = QueueSource(
            own.queue_id, own.selector, fetch, own.destination, None, self._timings.sweep_interval, own.changes
        )
        copy = PrefetchBuffer(source, self._counters, self._clock, self._timings)
        copy.policy = self.policy
        return copy

    def fetch(self, limit: int, own_claims: Collection[int] = (), *, asks: bool = False) -> Steps[list[MessageRow]]:
        """Fetch up to `limit` messages from the store, without keeping them.

        Args:
            limit: The most messages to fetch.
            own_claims: The claims by which messages of groups are held: more of the same groups may come.
            asks: Whether it asks for the end of the queue as well, which takes longer.
        """
        has_news = self.source.news.is_any
        started = monotonic()
        queue_id = self.source.queue_id
        rows = yield from self.source.read(limit, own_claims, may_have_changed=has_news or not self.looks_again)
        if self.source.queue_id != queue_id:
            self.free_until = 0.0  # other rules may hold there
        self._has_fetched |= bool(rows)
        is_end = not rows or rows[-1].handle is False
        if asks:
            self.expectation.asked(monotonic() - started)
        self.expectation.fetched(found=bool(rows), was_full=len(rows) >= limit, has_seen_end=is_end, has_news=has_news)
        return rows

    @property
    def asks_for_end(self) -> bool:
        """Whether its consumer wants to know if another message follows the next: it would wait for it."""
        return self.looks_again and self.expectation.asks

    @property
    def is_likely_empty(self) -> bool:
        """Whether a fetch would probably find nothing: the last one has found all, and there is no news since.

        Nor is news worth much if others were faster the last time.
        """
        if self.expectation.expects_more or (self.source.news.is_any and not self.expectation.is_misled):
            return False
        return self.is_unchanged

    @property
    def is_unchanged(self) -> bool:
        """Whether it holds nothing, and knows of nothing that its own next fetch alone would heed."""
        return not self.rows and self.source.is_unchanged

    def may_find(self) -> Steps[bool]:
        """Return whether a fetch may find something, which takes less time than a fetch that finds nothing."""
        has_news = self.source.news.is_any
        if (yield from self.source.may_find()):
            return True
        self.prefetch.fetched(0, 0)
        self.expectation.looked(found=False, has_news=has_news)
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
        if not self._has_fetched:
            return []
        self.source.begin_again()
        return (yield from self.fetch(limit))

    def keep_first(self, *rows: MessageRow) -> None:
        """Put back messages that were the next ones to deliver."""
        self.rows.extendleft(reversed(rows))

    @property
    def held(self) -> list[MessageKey]:
        """The keys of the messages held for delivery."""
        return [self.key(row) for row in self.rows]

    @property
    def held_for_the_first_time(self) -> list[MessageKey]:
        """The keys of those held for delivery before the first that was delivered already."""
        return [self.key(row) for row in takewhile(lambda row: not row.delivery_count, self.rows)]

    @property
    def claims(self) -> set[int]:
        """The claims on the messages held for delivery that are in groups."""
        return {row.handle for row in self.rows if row.group_hash is not None}

    @property
    def groups(self) -> set[int]:
        """The groups of the messages held for delivery."""
        return {row.group_hash for row in self.rows if row.group_hash is not None}

    def key(self, row: MessageRow) -> MessageKey:
        """Return a message's key."""
        return key_of(self.source.queue_id, row)

    def next(self) -> MessageRow | None:
        """Return the next message, which is then no longer held, or None if none is."""
        if not self.rows:
            return None
        self.prefetch.used += 1
        if self.recorded:
            self.recorded -= 1
        return self.rows.popleft()

    def next_fresh(self) -> MessageRow | None:
        """Do what `next` does if `drop_stale` surely keeps the message, since it never expires; else return None."""
        rows, source = self.rows, self.source
        if not rows or rows[0].jms_expiration is not None or source.changes.count != source.changes_seen:
            return None
        self.prefetch.used += 1
        if self.recorded:
            self.recorded -= 1
        return rows.popleft()

    def drop_stale(self) -> list[MessageRow]:
        """Drop the next messages if they have expired, or the queue has changed, since they were fetched.

        Returns:
            Those messages.
        """
        if self.source.heed_changes():
            return self.give_up()
        expired = []
        while self.rows:
            expiration = self.rows[0].jms_expiration
            if expiration is None or expiration > self._clock.milliseconds():
                break
            if self.recorded:
                self.recorded -= 1
            expired.append(self.rows.popleft())
        return expired

    def give_up(self) -> list[MessageRow]:
        """Drop the held messages, for which the next fetch looks again; return them."""
        rows = list(self.rows)
        self.rows.clear()
        self.recorded = 0
        for row in rows:
            self.source.returned(self.key(row))
        return rows

    def drop(self, sequences: Container[int]) -> list[MessageRow]:
        """Drop the held messages with some sequences, for which the next fetch looks again; return them."""
        dropped = [row for row in self.rows if row.sequence in sequences]
        if dropped:
            self.recorded = 0
            self.rows = deque(row for row in self.rows if row.sequence not in sequences)
            for row in dropped:
                self.source.returned(self.key(row))
        return dropped

    def held_of(self, groups: Collection[int]) -> list[MessageRow]:
        """Return the messages of some groups that are held for delivery."""
        return [row for row in self.rows if row.group_hash in groups]

    def give_up_groups(self, groups: Collection[int]) -> None:
        """Drop the held messages of some groups."""
        self.recorded = 0
        self.rows = deque(row for row in self.rows if row.group_hash not in groups)

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
