"""Which of a client's consumers wait for news of which queues, and which of them are woken.

Messages that no consumer waits for are not notified. A client holds shared locks for the queues that its consumers wait
for, and has the consumers look once more when it has got the locks. A sender tries the exclusive lock after its commit.
If it gets that, no consumer waits, and one that begins to wait later finds the message by its second look.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Iterable
from collections.abc import Set as AbstractSet
from itertools import islice
from types import TracebackType
from typing import NamedTuple, Self

from jmsql.values.clock import monotonic

BUCKETS = 32
"""How many locks there are for all queues and topics: a client with a thousand queues must not fill the server's table.
A power of two; clients have to agree on it."""

_COUNTERS = 4096
"""Channels share the counters of news, so that those of temporary queues leave nothing behind."""

_LONGEST_SECOND_LOOK = 60.0
"""The most seconds for which an announcement stands without a wait. Senders notify of each message meanwhile."""


def bucket_of(channel: int) -> int:
    """Return the number of the lock for a queue, or for what stands for a topic."""
    return channel & (BUCKETS - 1)


class Competition(NamedTuple):
    """What a consumer receives, for which others of the same client may wait, too.

    Args:
        queue_id: The queue.
        selector: Which of its messages; None: all.
    """

    queue_id: int
    selector: str | None


class Look(NamedTuple):
    """A consumer's look for messages.

    Args:
        competition: What it looks for.
        channels: Where there is news of that.
        heard: How much there had been before.
        news: The same with what the client itself has told.
        seconds: When it begins or has ended, by the monotonic clock.
    """

    competition: Competition
    channels: tuple[int, ...]
    heard: int
    news: int
    seconds: float


class Wait:
    """A consumer's wait for news, while a `with` block runs.

    Args:
        wake_ups: Those of the client.
        competition: What the consumer receives; None: it is woken in any case.
        channels: Of what it waits for news.
        count: How many of these there had been before it looked the last time.
        wake: Ends the wait; may be called from any thread.
    """

    __slots__ = ("_count", "_wake_ups", "channels", "competition", "is_chosen", "key", "wake")

    def __init__(
        self,
        wake_ups: WakeUps,
        competition: Competition | None,
        channels: Collection[int],
        count: int,
        wake: Callable[[], None],
    ) -> None:
        self._wake_ups = wake_ups
        self._count = count
        self.competition = competition
        self.key: Hashable = self if competition is None else competition
        self.channels = channels
        self.wake = wake
        self.is_chosen = False
        """True if it was woken to look, perhaps as the only one of those that wait for the same."""

    def __enter__(self) -> Self:
        self._wake_ups.enter(self, self._count)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._wake_ups.leave(self)
        if error is not None:
            self.pass_on()

    def pass_on(self) -> None:
        """Have another one look that waits for the same, since this one does not."""
        if self.is_chosen and self.competition is not None:
            self._wake_ups.wake_more(self.competition, 1)
        self.is_chosen = False


class StandingWait:
    """The waits of one session for news of many queues, while a `with` block runs, which it registers once for all.

    It collects the news of its channels between the waits as well, so that its owner looks at no other queue. One
    thread or task has it; `WakeUps` writes to it in any thread.

    Args:
        wake_ups: Those of the client.
        wake: Ends the wait; may be called from any thread.
    """

    __slots__ = ("_wake_ups", "buckets", "channels", "is_waiting", "misses_news", "new", "wake")

    def __init__(self, wake_ups: WakeUps, wake: Callable[[], None]) -> None:
        self._wake_ups = wake_ups
        self.wake = wake
        self.channels: frozenset[int] = frozenset()
        """The channels that it hears. `WakeUps.stand` writes it. All fields are written under the lock of `WakeUps`."""
        self.buckets: frozenset[int] = frozenset()
        """The buckets of the channels."""
        self.new: dict[int, None] = {}
        """The channels with news that the owner has not taken yet, the oldest first."""
        self.misses_news = False
        """True if there may be news of any channel."""
        self.is_waiting = False
        """True during a wait that no news has ended."""

    def __enter__(self) -> None:
        self._wake_ups.enter_standing(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._wake_ups.leave_standing(self)


class WakeUps:
    """Wakes a client's consumers when there is news of their queues; its methods may be called from any thread.

    Of those that wait for the same messages one is woken. If it finds a message, there may be more, and it wakes
    another; if it finds none, neither would they. News between a look and the wait after it ends the wait at once.

    Senders are told for what somebody waits, bucket by bucket. That they know now is news of all in the bucket: a look
    before that may have missed a message of which they have told nobody.

    Args:
        unannounced: Called when somebody begins to wait for something of which senders were not told; None: they tell
            of all messages.
    """

    def __init__(self, unannounced: Callable[[], None] | None = None) -> None:
        self._lock = threading.Lock()
        self._counts = [0] * _COUNTERS
        self._told = [0] * _COUNTERS
        self._gaps = 0
        self._ends: dict[int, Look] = {}
        self._waiting: dict[int, dict[Hashable, dict[Wait, None]]] = {}
        self._standing: dict[int, set[StandingWait]] = {}
        self._waited_for = [0] * BUCKETS
        self._unannounced = unannounced
        self._announced = set(range(BUCKETS)) if unannounced is None else set[int]()
        self._announcements = [0] * BUCKETS
        self._used: set[int] = set()
        """The buckets with a wait that has begun since the last withdrawal or the last announcement."""
        self._second_looks: dict[int, float] = {}
        """Until when an announcement stands in any case, by bucket: those look once more that waited at it."""

    def count(self, channels: Iterable[int]) -> int:
        """Return how much news there has been of something, to be compared later."""
        count = self._gaps
        for channel in channels:
            count += self._counts[channel % _COUNTERS] + self._announcements[channel % BUCKETS]
        return count

    def start_fetch(self, competition: Competition, channels: tuple[int, ...]) -> Look:
        """Return the record of a fetch that starts now."""
        count, told = self._gaps, 0  # what `count` returns: each message passes here
        for channel in channels:
            count += self._counts[channel % _COUNTERS] + self._announcements[channel % BUCKETS]
            told += self._told[channel % _COUNTERS]
        return Look(competition, channels, count, count + told, monotonic())

    def told(self, channel: int) -> None:
        """Note that the client is about to tell all of news; who does not wait yet need not hear of it first."""
        self._told[channel % _COUNTERS] += 1

    def record_empty(self, look: Look) -> None:
        """Note that there is nothing beyond what a look has found, if it has found anything."""
        self._ends[hash(look.competition) % _COUNTERS] = look._replace(seconds=monotonic())

    def is_known_empty(self, look: Look, most: float) -> bool:
        """Tell whether a look would find nothing, since another one has found the end and there is no news since.

        Which there would be if senders know that somebody waits. They have known all the time: that they know is news.

        Args:
            look: The look.
            most: How many seconds ago the other one may have ended.
        """
        other = self._ends.get(hash(look.competition) % _COUNTERS)
        if other is None or other[:-1] != look[:-1] or look.seconds - other.seconds > most:
            return False
        return all(self.is_announced(channel) for channel in look.channels)

    def wake_all(self) -> None:
        """Have everyone look: there may have been news that nobody heard."""
        with self._lock:
            self._gaps += 1
            waiting = {wait for competing in self._waiting.values() for waits in competing.values() for wait in waits}
            chosen: list[Wait | StandingWait] = [self._choose(wait) for wait in waiting]
            for standing in set[StandingWait]().union(*self._standing.values()):
                standing.misses_news = True
                if self._end_standing(standing):
                    chosen.append(standing)
        for wait in chosen:
            wait.wake()

    @property
    def waited_for(self) -> int:
        """The number of channels that consumers wait for."""
        return len(self._waiting) + len(self._standing)

    def channels(self) -> list[int]:
        """Return the channels that consumers wait for."""
        with self._lock:
            return [*self._waiting.keys() | self._standing.keys()]

    # What senders are told

    def add_waiter(self, channel: int) -> None:
        """Announce a waiter that is woken in another way to senders, until `remove_waiter`."""
        with self._lock:
            self._waited_for[bucket_of(channel)] += 1
            is_unannounced = self._use({bucket_of(channel)})
        if is_unannounced and self._unannounced is not None:
            self._unannounced()

    def remove_waiter(self, channel: int) -> None:
        """End what `add_waiter` has begun."""
        with self._lock:
            self._waited_for[bucket_of(channel)] -= 1

    def unannounced(self) -> set[int]:
        """Return the buckets in which somebody waits, and of which senders were not told."""
        with self._lock:
            return {bucket for bucket, count in enumerate(self._waited_for) if count} - self._announced

    def is_announced(self, channel: int) -> bool:
        """Tell whether senders were told that somebody waits, or has waited just now."""
        return bucket_of(channel) in self._announced

    def announced(self, buckets: Collection[int]) -> None:
        """Note that senders know that somebody waits, so that those look once more who wait already."""
        with self._lock:
            self._announced.update(buckets)
            self._used.difference_update(buckets)
            # Withdrawn during the second look, it would bring a third one after the next wait, and so on. A look at
            # the queues of a thousand listeners takes longer than it is to the next withdrawal.
            self._second_looks.update(dict.fromkeys(buckets, monotonic() + _LONGEST_SECOND_LOOK))
            for bucket in buckets:
                self._announcements[bucket] += 1
            waited_for = self._waiting.keys() | self._standing.keys()
            channels = [channel for channel in waited_for if bucket_of(channel) in buckets]
        for channel in channels:
            self.wake(channel)

    def unused(self) -> set[int]:
        """Withdraw and return the buckets without a wait since the last call.

        A bucket whose announcement no wait has followed yet stays announced.
        """
        with self._lock:
            now, second_looks = monotonic(), self._second_looks.items()
            self._second_looks = {each: end for each, end in second_looks if end > now and each not in self._used}
            idle = self._announced - self._used - self._second_looks.keys()
            unused = {bucket for bucket in idle if not self._waited_for[bucket]}
            self._used.clear()
            self._announced -= unused
        return unused

    def nothing_is_announced(self) -> None:
        """Note that senders know of nobody: the connection is new."""
        with self._lock:
            self._announced.clear()
            self._second_looks.clear()

    def _use(self, buckets: AbstractSet[int]) -> bool:
        """Note that a wait begins in some buckets; return True if senders do not know of all of them."""
        self._used |= buckets
        return not buckets <= self._announced

    # Waking

    def wake(self, channel: int, *, everyone: bool = False) -> None:
        """Tell of news.

        Args:
            channel: Of what.
            everyone: Whether all that wait for it are woken; else one of those that wait for the same messages.
        """
        with self._lock:
            self._counts[channel % _COUNTERS] += 1
            competing = list(self._waiting.get(channel, {}).values())
            most = None if everyone else 1
            chosen: list[Wait | StandingWait] = [
                self._choose(wait) for waits in competing for wait in [*islice(waits, most)]
            ]
            for standing in self._standing.get(channel, ()):
                standing.new[channel] = None
                if standing.is_waiting and self._end_standing(standing):
                    chosen.append(standing)
        for wait in chosen:
            wait.wake()

    def wake_more(self, competition: Competition, most: int = 1) -> None:
        """Wake so many of those that wait for the same messages."""
        with self._lock:
            waits = self._waiting.get(competition.queue_id, {}).get(competition, {})
            chosen = [self._choose(wait) for wait in [*islice(waits, most)]]
        for wait in chosen:
            wait.wake()

    def enter(self, wait: Wait, count: int) -> None:
        """Let somebody wait, or have it look again if there has been more news than so much."""
        with self._lock:
            wait.is_chosen = self.count(wait.channels) != count
            if not wait.is_chosen:
                for channel in wait.channels:
                    if channel not in self._waiting:
                        self._waiting[channel] = {}
                        self._waited_for[bucket_of(channel)] += 1
                    self._waiting[channel].setdefault(wait.key, {})[wait] = None
            is_unannounced = self._use({bucket_of(channel) for channel in wait.channels}) and not wait.is_chosen
        if wait.is_chosen:
            wait.wake()
        if is_unannounced and self._unannounced is not None:
            self._unannounced()

    def leave(self, wait: Wait) -> None:
        """Let somebody wait no more."""
        with self._lock:
            self._remove(wait)

    # For a session that waits for many

    def stand(self, standing: StandingWait, channels: frozenset[int]) -> None:
        """Let a session that does not wait now hear of these channels from now on, and of no others.

        Those that it has not heard before are new.
        """
        with self._lock:
            for channel in standing.channels - channels:
                standing.new.pop(channel, None)
                self._standing[channel].discard(standing)
                if not self._standing[channel]:
                    del self._standing[channel]
            for channel in channels - standing.channels:
                standing.new[channel] = None
                self._standing.setdefault(channel, set()).add(standing)
            standing.channels = channels
            standing.buckets = frozenset(map(bucket_of, channels))

    def take_news(self, standing: StandingWait) -> tuple[Iterable[int], bool]:
        """Return the channels with news since the last call, and True if any other may have news as well."""
        with self._lock:
            new, standing.new = standing.new, {}
            misses_news, standing.misses_news = standing.misses_news, False
        return new, misses_news

    def enter_standing(self, standing: StandingWait) -> None:
        """Let a session wait, or have it look again if there has been news since it took the last."""
        with self._lock:
            has_news = bool(standing.new) or standing.misses_news
            is_unannounced = self._use(standing.buckets) and not has_news
            if not has_news:
                standing.is_waiting = True
                for bucket in standing.buckets:
                    self._waited_for[bucket] += 1
        if has_news:
            standing.wake()
        if is_unannounced and self._unannounced is not None:
            self._unannounced()

    def leave_standing(self, standing: StandingWait) -> None:
        """Let a session wait no more; it still hears the news."""
        with self._lock:
            self._end_standing(standing)

    def _end_standing(self, standing: StandingWait) -> bool:
        """End a session's wait, and return True if there was one."""
        was_waiting, standing.is_waiting = standing.is_waiting, False
        if was_waiting:
            for bucket in standing.buckets:
                self._waited_for[bucket] -= 1
        return was_waiting

    def _choose(self, wait: Wait) -> Wait:
        self._remove(wait)
        wait.is_chosen = True
        return wait

    def _remove(self, wait: Wait) -> None:
        for channel in wait.channels:
            competing = self._waiting.get(channel, {})
            waits = competing.get(wait.key, {})
            waits.pop(wait, None)
            if not waits:
                competing.pop(wait.key, None)
                if not competing and self._waiting.pop(channel, None) is not None:
                    self._waited_for[bucket_of(channel)] -= 1
