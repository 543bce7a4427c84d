"""The duty to record a client's counts and consumers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from jmsql.exceptions import JMSException, JMSSecurityException
from jmsql.logs import contained_logger
from jmsql.store.control.counters import Consumption, DestinationCounters, add_counters, replace_consumers
from jmsql.store.errors import is_connection_lost
from jmsql.store.wire._sync.runner import Runner
from jmsql.timings import InternalTimings
from jmsql.values.clock import monotonic

logger = contained_logger("jmsql")


class Reporting:
    """Records the client's counts and consumers.

    Args:
        timings: How often.
        counters: The client's counters.
        consumers: Returns how many consumers of each kind the client has.
    """

    def __init__(
        self,
        timings: InternalTimings,
        counters: DestinationCounters,
        consumers: Callable[[], Mapping[Consumption, int]],
    ) -> None:
        self._interval = timings.statistics_interval
        self._counters = counters
        self._consumers = consumers
        self._written: tuple[int, Mapping[Consumption, int]] = (0, {})
        self._next_report = 0.0
        self.connection_id = 0
        """The number of the client's connection."""

    def run(self, control: Runner) -> None:
        """Write it down, if it is time to. An error here prevents none of the duties after it."""
        now = monotonic()
        if now < self._next_report:
            return
        self._next_report = now + self._interval
        try:
            self._write_consumers(control)
            self.write_counters(control)
        except JMSException as error:
            if is_connection_lost(error):
                raise
            logger.warning("Counters were not recorded; retrying: %s", error)

    def seconds_to_next(self) -> float:
        """Return infinity: the thread wakes often enough without it, each `maintenance_interval`."""
        return math.inf

    def write_counters(self, control: Runner) -> None:
        """Record the counts since the last time."""
        counted = self._counters.drain()
        if counted:
            try:
                control.run(add_counters(counted, self.connection_id))
            except JMSSecurityException:
                raise  # for good: the role had access, and has it no more
            except JMSException:
                self._counters.put_back(counted)
                raise

    def _write_consumers(self, control: Runner) -> None:
        consumers = self.connection_id, self._consumers()
        if consumers != self._written and (consumers[1] or self._written[1]):
            control.run(replace_consumers(*consumers))
            self._written = consumers
