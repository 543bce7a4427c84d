"""What a consumer has fetched of its queue and not delivered yet."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from jmsql.client.pacing import Expectation, PollInterval
from jmsql.store.control.wake_ups import Competition
from jmsql.store.destinations.lookup import find_queue
from jmsql.store.receiving.dequeue import Prefetch
from jmsql.store.receiving.reader import QueueReader
from jmsql.store.receiving.receive import Fetch
from jmsql.store.rows.message_rows import GroupKey, MessageKey, MessageRow, key_of, size_of
from jmsql.store.statement import Steps
from jmsql.values.destinations import Destination, Queue

if TYPE_CHECKING:
    from jmsql.selectors import Selector
    from jmsql.store.control.counters import Counts, DestinationCounters
    from jmsql.store.control.server import ServerClock
    from jmsql.store.receiving.redelivery import Rules
    from jmsql.timings import InternalTimings


_MOST_GROUPS = 1000
"""The most groups of which it is noted that they are free. Others are found by sweeps."""


@dataclass
class ConsumerPolicy:
    """What a consumer says itself of the messages that it receives.

    Args:
        rules: What holds for failed deliveries, whatever is set for the destination.
        default: What holds if nothing else does.
        visibility_timeout: For how many seconds it claims messages, whatever is set for the destination.
    """

    rules: Rules | None = None
    default: Rules | None = None
    visibility_timeout: float | None = None


class QueueChanges:
    """How often a queue was paused, resumed or removed since somebody began to look."""

    def __init__(self) -> None:
        self.count = 0


class PrefetchBuffer:
    """The messages on their way to one consumer.

    Args:
        queue_id: The queue that they come from.
        selector: Which of the queue's messages are wanted; None: all.
        fetch: How they are fetched from the store.
        destination: The queue or topic, by name.
        topic: The number of the topic, if the queue is that of a subscription.
        counters: Where it is counted what became of the messages; None: it is not.
        clock: Tells when they expire.
        timings: How often the queue is looked at from its front, and how much is fetched ahead.
    """

    def __init__(
        self,
        queue_id: int,
        selector: Selector | None,
        fetch: Fetch,
        destination: Destination,
        topic: int | None = None,
        counters: DestinationCounters | None = None,
        *,
        clock: ServerClock,
        timings: InternalTimings,
    ) -> None:
        self.queue_id = queue_id
        self.channels = (queue_id,) if topic is None else (queue_id, topic)
        self.policy = ConsumerPolicy()
        self.claimed_for: float | None = None
        self.prefetch = Prefetch(timings.prefetch_duration)
        self.destination = destination
        self._counters = counters
        self._clock = clock
        self._timings = timings
        self.on_move: Callable[[PrefetchBuffer], None] = lambda _: None
        """Called when it fetches messages from another queue than before, whose channel is new."""
        self._moved_to: int | None = None
        self.is_removed = False
        """Whether its queue may be gone: nobody is told when there is another one of the name."""
        self._selector = selector
        self.poll = PollInterval(timings)
        """How long `receive` waits before it looks again."""
        self.fetch_by(fetch)
        self._changes = QueueChanges()
        self._changes_seen = 0
        self._rows: deque[MessageRow] = deque()
        self.recorded = 0
        """How many of the next messages are delivered for the first time, which is recorded already."""
        # Noted from any thread, for the next fetch: the lowest sequence that was released, by inverse priority, the
        # groups that are free, and whether there was news at all.
        self._lock = threading.Lock()
        self._returned: dict[int, int] = {}
        self._freed: set[int] = set()
        self._has_news = False
        self.expectation = Expectation()
        """What its consumer has learned from what it has found."""
        self.looks_again = False
        """Whether its consumer, if it finds nothing now, waits for news and looks again."""
        self._has_fetched = False
        self._has_returned = False

    def __len__(self) -> int:
        return len(self._rows)

    def fetch_by(self, fetch: Fetch) -> None:
        """Fetch messages from the store in another way from now on."""
        self._reader = QueueReader(self.queue_id, self._selector, fetch, self._timings.sweep_interval)

    def copy(self, fetch: Fetch) -> PrefetchBuffer:
        """Make a prefetch buffer for the same messages, which fetches them in another way."""
        copy = PrefetchBuffer(
            self.queue_id,
            self._selector,
            fetch,
            self.destination,
            None,
            self._counters,
            clock=self._clock,
            timings=self._timings,
        )
        copy._changes, copy._changes_seen = self._changes, self._changes.count
        copy.policy = self.policy
        return copy

    def move(self, queue_id: int) -> None:
        """Fetch messages from another queue from the next fetch on; may be called from any thread."""
        self.channels = (*self.channels, queue_id)
        self._moved_to = queue_id

    @property
    def source(self) -> int:
        """The queue of the next fetch."""
        return self.queue_id if self._moved_to is None else self._moved_to

    @property
    def competition(self) -> Competition:
        """What its consumer receives, for which others of the client may wait, too."""
        return Competition(self.source, None if self._selector is None else self._selector.text)

    def fetch(self, limit: int, own_claims: Collection[int] = ()) -> Steps[list[MessageRow]]:
        """Fetch up to `limit` messages from the store, without keeping them.

        Args:
            limit: The most messages to fetch.
            own_claims: The claims by which messages of groups are held: more of the same groups may come.
        """
        if self._moved_to is not None:
            self.queue_id, self._moved_to = self._moved_to, None
            self.fetch_by(self._reader.fetch)
        self._begins_anew()
        if self.is_removed and not (yield from self._find_queue()):
            return []
        if self._returned or self._freed:
            with self._lock:
                returned, self._returned = self._returned, {}
                freed, self._freed = self._freed, set()
            for inverse_priority, sequence in returned.items():
                self._reader.returned(inverse_priority, sequence)
            for group in freed:
                self._reader.freed(group)
        has_news, self._has_news = self._has_news, False
        self._has_returned = False
        asks, started = self.asks_for_end, time.monotonic()
        rows = yield from self._reader.read(limit, own_claims, may_have_changed=has_news or not self.looks_again)
        self.prefetch.fetched(len(rows), size_of(rows))
        self._has_fetched |= bool(rows)
        is_end = not rows or rows[-1].handle is False
        if asks:
            self.expectation.asked(time.monotonic() - started)
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
        if self.expectation.expects_more or (self._has_news and not self.expectation.is_misled):
            return False
        return self.is_unchanged

    @property
    def is_unchanged(self) -> bool:
        """Whether it holds nothing, and knows of nothing that its own next fetch alone would heed."""
        has_moved = self._moved_to is not None or self.is_removed or self._changes_seen != self._changes.count
        return not (self._rows or has_moved or self._returned or self._freed or self._has_returned)

    def look(self) -> Steps[bool]:
        """Return whether a fetch may find something, which takes less time than to fetch in vain."""
        has_news, self._has_news = self._has_news, False
        if (yield from self._reader.look()):
            return True
        self.prefetch.fetched(0, 0)
        self.expectation.looked(found=False, has_news=has_news)
        return False

    def fetch_again(self, limit: int) -> Steps[list[MessageRow]]:
        """Fetch from the front of the queue if something was fetched before, which may be there again.

        A caller who rolls back to a savepoint, or its transaction, tells nobody.
        """
        if not self._has_fetched:
            return []
        self.fetch_by(self._reader.fetch)
        return (yield from self.fetch(limit))

    def keep(self, rows: list[MessageRow]) -> None:
        """Hold messages for delivery."""
        self._rows.extend(rows)

    def keep_first(self, *rows: MessageRow) -> None:
        """Hold messages again that were the next."""
        self._rows.extendleft(reversed(rows))

    @property
    def held(self) -> list[MessageKey]:
        """The keys of the messages held for delivery."""
        return [self.key(row) for row in self._rows]

    @property
    def held_for_the_first_time(self) -> list[MessageKey]:
        """The keys of those held for delivery before the first that was delivered already."""
        return [self.key(row) for row in takewhile(lambda row: not row.delivery_count, self._rows)]

    @property
    def claims(self) -> set[int]:
        """The claims on the messages held for delivery that are in groups."""
        return {row.handle for row in self._rows if row.group_hash is not None}

    @property
    def groups(self) -> set[int]:
        """The groups of the messages held for delivery."""
        return {row.group_hash for row in self._rows if row.group_hash is not None}

    def key(self, row: MessageRow) -> MessageKey:
        """Return a message's key."""
        return key_of(self.queue_id, row)

    def next(self) -> MessageRow | None:
        """Return the next message, which is then no longer held, or None if none is."""
        if not self._rows:
            return None
        self.prefetch.used += 1
        return self._pop()

    def _pop(self) -> MessageRow:
        if self.recorded:
            self.recorded -= 1
        return self._rows.popleft()

    @property
    def first(self) -> MessageRow | None:
        """The next message, which stays held."""
        return self._rows[0] if self._rows else None

    def next_fresh(self) -> MessageRow | None:
        """Do what `next` does if `drop_stale` surely keeps the message, since it never expires; else return None."""
        rows = self._rows
        if not rows or rows[0].jms_expiration is not None or self._changes_seen != self._changes.count:
            return None
        self.prefetch.used += 1
        if self.recorded:
            self.recorded -= 1
        return rows.popleft()

    def drop_stale(self) -> list[MessageRow]:
        """Hold the next messages no more if they expired, or the queue changed, since they were fetched.

        Returns:
            Those messages.
        """
        if self._begins_anew():
            return self.give_up()
        expired = []
        while self._rows:
            expiration = self._rows[0].jms_expiration
            if expiration is None or expiration > self._clock.milliseconds():
                break
            expired.append(self._pop())
        return expired

    def give_up(self) -> list[MessageRow]:
        """Hold no more messages, and look for those that were held next time; return them."""
        rows = list(self._rows)
        self._rows.clear()
        self.recorded = 0
        for row in rows:
            self.returned(self.key(row))
        return rows

    def held_of(self, groups: Collection[int]) -> list[MessageRow]:
        """Return the messages of some groups that are held for delivery."""
        return [row for row in self._rows if row.group_hash in groups]

    def give_up_groups(self, groups: Collection[int]) -> None:
        """Hold no more messages of some groups."""
        self.recorded = 0
        self._rows = deque(row for row in self._rows if row.group_hash not in groups)

    def returned(self, key: MessageKey | GroupKey) -> None:
        """Look again from a message that was released, or at a group that nobody holds any more."""
        self._has_returned = True
        if key.group_hash is not None:
            self._reader.freed(key.group_hash)
        elif isinstance(key, MessageKey):
            self._reader.returned(key.inverse_priority, key.sequence)

    def count(self, counts: Counts) -> None:
        """Count what became of messages."""
        if self._counters is not None:
            self._counters.count(self.queue_id, self.destination, counts)

    def notify(self, key: MessageKey | GroupKey | None) -> None:
        """Note, from any thread, that a message or a group is free again, or that something new is there.

        Args:
            key: The message or group; None if it is new. With the sequence 0: the queue was paused, resumed or removed.
        """
        self._has_news = True
        if isinstance(key, MessageKey) and key.sequence == 0:
            self._changes.count += 1
        elif isinstance(key, MessageKey) and key.group_hash is None:
            with self._lock:
                lowest = self._returned.get(key.inverse_priority, key.sequence)
                self._returned[key.inverse_priority] = min(lowest, key.sequence)
        elif key is not None and key.group_hash is not None and len(self._freed) < _MOST_GROUPS:
            with self._lock:
                self._freed.add(key.group_hash)

    def _begins_anew(self) -> bool:
        """Look at the queue from its front if it has changed, and return whether it has."""
        if self._changes_seen == self._changes.count:
            return False
        self._changes_seen = self._changes.count
        self.is_removed = isinstance(self.destination, Queue)
        self.fetch_by(self._reader.fetch)
        return True

    def _find_queue(self) -> Steps[bool]:
        """Return whether there is a queue of the name; it may be another one than before, made since."""
        queue_id = yield from find_queue(self.destination.name)
        if queue_id is None:
            return False
        self.is_removed = False
        if queue_id != self.queue_id:
            self.queue_id = queue_id
            self.channels = (*self.channels, queue_id)
            self.fetch_by(self._reader.fetch)
            self.on_move(self)
        return True
