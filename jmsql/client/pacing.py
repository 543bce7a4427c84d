"""When a consumer looks at its queue again."""

from __future__ import annotations

import time
from collections.abc import Hashable

from jmsql.timings import InternalTimings, jitter
from jmsql.values.recently_used import RecentlyUsed

_REST = 0.001
_LONGEST_REST = 0.064
"""Seconds for which a consumer that found nothing heeds no news: twice as long each time others were faster."""

_QUESTIONS = 8
"""With how many messages a consumer asks whether another one follows, after none did."""

_SHARE = 20.0
"""The answer may take as long as a sweep. How many times as long it is not asked again."""

_NOTIFICATIONS = 20
"""How many transactions of the application's notify of a destination without a pause between them."""

_MOST_DESTINATIONS = 1000
"""Of how many destinations a process knows how often it has notified."""

_MOST_LOOKS = 200
"""How often a second all consumers of a client look by themselves, each at another queue."""


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
            self._rests_until = time.monotonic() + min(_REST * 2 ** min(self._misled, 10), _LONGEST_REST)

    @property
    def rest(self) -> float:
        """For how many seconds the consumer heeds no news, since others were faster after the last news."""
        return self._rests_until - time.monotonic() if self._misled else 0.0

    @property
    def is_misled(self) -> bool:
        """Whether others were faster after the last news."""
        return self._misled > 0

    def asked(self, duration: float) -> None:
        """Note for how many seconds one has asked for the end of the queue, so that this takes a share of the time."""
        self._next_question = time.monotonic() + _SHARE * duration

    @property
    def asks(self) -> bool:
        """Whether to ask for the end of the queue with the next message: it was near the last times."""
        return self._questions > 0 and time.monotonic() >= self._next_question


class NotificationPacing:
    """How often a process notifies of a destination in transactions of the application's.

    Notifying commits wait for each other. Nobody can tell which of several transactions commits last, and a transaction
    that is rolled back notifies of nothing. So each of them notifies, as long as they are few. Where many follow each
    other, consumers have messages to receive, and look again soon after the last one that they have found.
    """

    def __init__(self) -> None:
        self._paid_until = RecentlyUsed[Hashable, float](_MOST_DESTINATIONS)

    def __len__(self) -> int:
        return len(self._paid_until)

    def is_due(self, destination: Hashable, interval: float) -> bool:
        """Tell whether to notify of a destination in a transaction, and note that it is done.

        Args:
            destination: Which one, of all databases and schemas.
            interval: For how many seconds a notification counts, once there are many.
        """
        now = time.monotonic()
        paid_until = max(self._paid_until.get(destination) or now, now)
        if paid_until > now + (_NOTIFICATIONS - 1) * interval:
            return False
        self._paid_until[destination] = paid_until + interval
        return True


class PollInterval:
    """Ever longer pauses, varied so that consumers do not march in step.

    Notifications wake a consumer sooner. The polls find what they miss: a notification that was lost with its
    connection or held back because another had just been sent, and messages that a dead client's transaction held.
    Once the pauses are at their longest, the control connection may look for all consumers together instead.

    Args:
        timings: How long they are at the least, and at the most.
    """

    def __init__(self, timings: InternalTimings) -> None:
        self._timings = timings
        self._next = timings.minimum_poll_interval

    def reset(self) -> None:
        """Begin with short pauses again: something has just happened."""
        self._next = self._timings.minimum_poll_interval

    @property
    def is_longest(self) -> bool:
        """Whether the next pause is as long as any after it."""
        return self._next >= self._timings.maximum_poll_interval

    def stretch(self, queues: int) -> None:
        """Make the pauses longer where many wait: all of a client look some hundred times a second together.

        Args:
            queues: Of how many queues consumers of the client wait for messages.
        """
        self._next = max(self._next, min(queues / _MOST_LOOKS, self._timings.maximum_poll_interval))

    def next(self) -> float:
        """Return how many seconds to wait now."""
        pause, self._next = self._next, min(2 * self._next, self._timings.maximum_poll_interval)
        return pause * jitter.uniform(0.8, 1.2)


enlisted_notifications = NotificationPacing()
"""Those of the process."""
