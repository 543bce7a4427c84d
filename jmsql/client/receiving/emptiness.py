"""A consumer's estimates of its queue, as values: another fetch makes another value."""

from __future__ import annotations

from typing import NamedTuple

# Why guess at all: an empty fetch took 340 to 450 µs of the server, and the question `may_find`, which locks nothing,
# 120 to 170. All clients that wait for a queue hear of each message, and all but one find nothing (decision 38). Both
# estimates may be wrong without harm. Too hopeful, a fetch finds nothing; too gloomy, a question precedes a fetch that
# finds something, or a notification is heeded up to 64 ms late.


_SHORTEST = 0.001
_LONGEST = 0.064
"""Bounds of the back-off in seconds. It doubles with each fetch after a notification that finds nothing; the first
one is twice `_SHORTEST`."""

_QUESTIONS = 8
"""How many fetches in a row ask for the end of the queue after the last one that has seen it."""

_SHARE = 20.0
"""The minimum pause between two questions for the end, as a multiple of the last one's duration: a sweep may answer."""


class Emptiness(NamedTuple):
    """A forecast of the next fetch by the last ones.

    Args:
        expects_more: True if the last fetch may have left something.
        ends_seen: How many fetches have seen that nothing else was there. It only grows: a reader compares two counts.
        questions: How many of the next fetches ask for the end of the queue, which was near at the last ones.
        next_question: When one may ask, on the monotonic clock.
    """

    expects_more: bool = True
    ends_seen: int = 0
    questions: int = 0
    next_question: float = 0.0

    def after_fetch(self, *, was_full: bool, has_seen_end: bool) -> Emptiness:
        """Learn from a fetch.

        Args:
            was_full: True if it has brought as many messages as it asked for.
            has_seen_end: True if it has read to the end, from its scan bounds or from the front, and has seen nothing
                else.
        """
        if has_seen_end:
            seen = self.ends_seen + 1
            return Emptiness(expects_more=False, ends_seen=seen, questions=_QUESTIONS, next_question=self.next_question)
        questions = max(self.questions - 1, 0)
        return self._replace(expects_more=was_full, questions=questions)

    def after_question(self, now: float, duration: float) -> Emptiness:
        """Let a question for the end of the queue, which took `duration` seconds, take a share of the time."""
        return self._replace(next_question=now + _SHARE * duration)

    def asks(self, now: float) -> bool:
        """Tell whether the next fetch asks for the end of the queue."""
        return self.questions > 0 and now >= self.next_question


class BackOff(NamedTuple):
    """How long a consumer ignores notifications, since other consumers have won the last races.

    Args:
        losses: How many notified fetches have found nothing since one found a message.
        until: When it fetches again at a notification, on the monotonic clock.
    """

    losses: int = 0
    until: float = 0.0

    def after_loss(self, now: float) -> BackOff:
        """Note that a notified fetch has found nothing."""
        losses = self.losses + 1
        return BackOff(losses, now + min(_SHORTEST * 2 ** min(losses, 10), _LONGEST))

    def remaining(self, now: float) -> float:
        """Return how many seconds are left; at most 0: none."""
        return self.until - now if self.losses else 0.0


READY = BackOff()
"""The value after a fetch that has found a message."""
