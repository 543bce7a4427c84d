"""A listener's limit as one client knows it, and the time of the next claim that can succeed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from jmsql.values.clock import monotonic

if TYPE_CHECKING:
    from jmsql.store.receiving.receive import Allowance
    from jmsql.values.rates import ListenerLimit

# The limit itself is in the database, and the claim takes from it (decision 87). This object only spares claims that
# cannot succeed: it knows from the last claim's answer when the next start is due. It is wrong without harm. Too early,
# the claim brings fewer messages; too late, at most by `_LONGEST`, which bounds the effect of a limit that another
# release has declared since.


_LEAD = 0.02
"""Seconds by which a consumer asks early, so that a slow start costs nothing of the rate: the server waits the rest."""
_SHORTEST = 0.005
_LONGEST = 5.0
"""Seconds after which it asks in any case: another release may have declared another limit."""


class LimitReachedError(Exception):
    """The limit lets no message through now: the queue was not looked at to its end."""


class Throttle:
    """The limit of a listener, which its tasks in a process share.

    Args:
        limit: The limit, as the listener has it. Another release may have declared another one.
    """

    def __init__(self, limit: ListenerLimit) -> None:
        self.limit = limit
        self.is_declared = False
        """True once a session has declared the limit."""
        self.counts_values = any(each is not None and each.by is not None for each in limit)
        """True if it has a part for each value of a property, as far as is known."""
        self._closed_until = 0.0
        self._due = math.inf

    @property
    def is_closed(self) -> bool:
        """True while no message can start."""
        return monotonic() < self._closed_until

    @property
    def seconds_to_next(self) -> float | None:
        """In how many seconds a message may start that waits for a rate; None: none waits for that."""
        return None if self._due == math.inf else max(self._due - monotonic(), _SHORTEST)

    def learn(self, allowance: Allowance, claimed: int) -> None:
        """Update from a claim's allowance.

        Args:
            allowance: The allowance.
            claimed: How many messages it has brought.
        """
        self._due, self._closed_until = math.inf, 0.0
        if allowance.pause is None:
            return
        if allowance.starts_left is None:
            self._due = monotonic() + allowance.pause
        elif claimed >= allowance.starts_left:
            self._due = monotonic() + max(allowance.pause - _LEAD, 0.0)
            self._closed_until = min(self._due, monotonic() + _LONGEST)
