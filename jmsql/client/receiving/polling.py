"""How long to wait before looking again, when nobody says that there is something new."""

from __future__ import annotations

from jmsql.timings import Timings, jitter

__all__ = ["PollInterval"]

_MOST_LOOKS = 200
"""How often a second all consumers of a client look by themselves, each at another queue."""


class PollInterval:
    """Ever longer pauses, varied so that consumers do not march in step.

    Notifications wake a consumer sooner. The polls find what they miss: a notification that was lost with its
    connection or held back because another had just been sent, and messages that a dead client's transaction held.
    Once the pauses are at their longest, the control connection may look for all consumers together instead.

    Args:
        timings: How long they are at the least, and at the most.
    """

    def __init__(self, timings: Timings) -> None:
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
