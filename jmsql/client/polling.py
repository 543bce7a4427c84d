"""How long to wait before looking again, when nobody says that there is something new."""

from __future__ import annotations

import random

__all__ = ["PollInterval"]

_SHORTEST = 0.05
_LONGEST = 1.0


class PollInterval:
    """Ever longer pauses, from a twentieth of a second to one second, varied so that consumers do not march in step.

    Notifications wake a consumer sooner. The polls find what they miss: a notification that was lost with its
    connection or held back because another had just been sent, and messages that a dead client's transaction held.
    """

    def __init__(self) -> None:
        self._next = _SHORTEST

    def reset(self) -> None:
        """Begin with short pauses again: something has just happened."""
        self._next = _SHORTEST

    def next(self) -> float:
        """Return how many seconds to wait now."""
        pause, self._next = self._next, min(2 * self._next, _LONGEST)
        return pause * random.uniform(0.8, 1.2)  # noqa: S311 - jitter
