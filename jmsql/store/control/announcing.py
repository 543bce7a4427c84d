"""The duty to announce to senders the queues that a client's consumers wait for."""

from __future__ import annotations

import math
from collections.abc import Callable

from jmsql.exceptions import JMSException
from jmsql.logs import contained_logger
from jmsql.store.control.handlers import QueueHandlers
from jmsql.store.control.wake_ups import WakeUps
from jmsql.store.errors import is_connection_lost
from jmsql.store.statement import SqlFile, column, integers_literal, nothing
from jmsql.store.wire._sync.runner import Runner
from jmsql.timings import InternalTimings
from jmsql.values.clock import monotonic

logger = contained_logger("jmsql")

_FIRST_PAUSE = 0.001
"""Seconds before a failed announcement is repeated; doubles each time."""

_sql = SqlFile("control")
_announce = _sql.statement("announce_waits", "announcing what is waited for", column)
_end = _sql.statement("end_waits", "announcing what is waited for", nothing)


class Announcing:
    """Announces queues that consumers wait for, and withdraws unused announcements after a while.

    Args:
        handlers: Who looks once more when senders know.
        wake: Wakes the control thread.
        timings: Its intervals.
    """

    def __init__(self, handlers: QueueHandlers, wake: Callable[[], None], timings: InternalTimings) -> None:
        self.wake_ups = WakeUps(self._wait_began)
        """The client's waiting consumers, by queue."""
        self.is_possible = True
        """True if waits are announced; they are not through a pooler."""
        self.is_connected = True
        """True if there is a connection to announce them on."""
        self._handlers = handlers
        self._wake = wake
        self._timings = timings
        self._next_announcement = 0.0
        self._pause = _FIRST_PAUSE
        self._next_withdrawal = 0.0

    def reset(self) -> None:
        """Begin on a new connection, on which nothing is announced."""
        if self.is_possible:
            self.wake_ups.nothing_is_announced()

    def run(self, control: Runner) -> None:
        """Make pending announcements, if it is time to."""
        now = monotonic()
        if not self.is_possible:
            return
        wanted = self.wake_ups.unannounced()
        if wanted and now >= self._next_announcement:
            try:
                announced = set(control.run(_announce.bind(buckets=integers_literal(wanted))))
            except JMSException as error:
                if is_connection_lost(error):
                    raise
                logger.warning("Announcements are postponed: %s", error)
                announced = set()
            if announced == wanted:
                self._pause = _FIRST_PAUSE
            else:  # a sender asks just now; or a role prevents it, for which senders notify meanwhile
                self._next_announcement = now + self._pause
                self._pause = min(2 * self._pause, self._timings.maintenance_interval)
            self._handlers.call_in(announced)  # of a message before that, nobody was told
            self.wake_ups.announced(announced)
        if now >= self._next_withdrawal:
            self._next_withdrawal = now + self._timings.maintenance_interval
            unused = self.wake_ups.unused()
            if unused:
                control.run(_end.bind(buckets=integers_literal(unused)))

    def seconds_to_next(self) -> float:
        """Return in how many seconds something is to be announced."""
        if self.is_possible and self.wake_ups.unannounced():
            return self._next_announcement - monotonic()
        return math.inf

    def _wait_began(self) -> None:
        if self.is_possible and self.is_connected:
            self._wake()
