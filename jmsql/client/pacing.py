"""When a consumer looks at its queue again."""

from __future__ import annotations

from collections.abc import Hashable

from jmsql.timings import InternalTimings, jitter
from jmsql.values.clock import monotonic
from jmsql.values.recently_used import RecentlyUsed

# Two paces: how often a process notifies of a destination in transactions that it does not end, and how often a
# consumer polls that nothing has woken.
#
# An application's transaction cannot ask after its commit whether a consumer waits, as a session's own does. So it
# notifies always, up to a rate. Each notification advances `paid_until` by one interval; twenty may be ahead of the
# clock before one is left out.


_NOTIFICATIONS = 20
"""How many transactions of the application's notify of a destination without a pause between them."""

_MOST_DESTINATIONS = 1000
"""Of how many destinations a process knows how often it has notified."""

_MOST_LOOKS = 200
"""How often a second all consumers of a client look by themselves, each at another queue."""


class NotificationPacing:
    """The pace at which a process notifies of a destination in the application's transactions.

    Notifying commits wait for each other. It is not known which of several transactions commits last, and a transaction
    that is rolled back notifies of nothing. So each of them notifies, as long as they are few. Where many follow each
    other, consumers have messages to receive, and look again soon after the last one that they have found.
    """

    def __init__(self) -> None:
        self._paid_until = RecentlyUsed[Hashable, float](_MOST_DESTINATIONS)

    def __len__(self) -> int:
        return len(self._paid_until)

    def is_due(self, destination: Hashable, interval: float) -> bool:
        """Tell whether to notify of a destination in a transaction, and note that it is done."""
        now = monotonic()
        paid_until = max(self._paid_until.get(destination) or now, now)
        if paid_until > now + (_NOTIFICATIONS - 1) * interval:
            return False
        self._paid_until[destination] = paid_until + interval
        return True


class PollInterval:
    """Ever longer pauses, varied so that consumers do not march in step.

    Notifications wake a consumer sooner. The polls find messages without a notification: it was lost with its
    connection, or held back after another one, or a dead client's transaction held the message. Once the pauses are at
    their longest, the control connection may look for all consumers together instead.
    """

    def __init__(self, timings: InternalTimings) -> None:
        self.shortest = timings.minimum_poll_interval
        self._longest = timings.maximum_poll_interval
        self.pause = self.shortest
        """The next pause in seconds, but for its variation. The consumer that waits writes it."""

    def reset(self) -> None:
        """Begin with short pauses again: something has just happened."""
        self.pause = self.shortest

    @property
    def is_longest(self) -> bool:
        """True if the next pause is the longest."""
        return self.pause >= self._longest

    def stretch(self, queues: int) -> None:
        """Make the pauses longer where many wait: all of a client look some hundred times a second together."""
        self.pause = max(self.pause, min(queues / _MOST_LOOKS, self._longest))

    def next(self) -> float:
        """Return how many seconds to wait now."""
        pause, self.pause = self.pause, min(2 * self.pause, self._longest)
        return pause * jitter.uniform(0.8, 1.2)


enlisted_notifications = NotificationPacing()
"""The process's notifications."""
