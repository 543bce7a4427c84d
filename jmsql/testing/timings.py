"""Timings for tests: what comes about by itself comes about soon."""

from __future__ import annotations

from jmsql.timings import Timings

__all__ = ["FAST_TIMINGS"]

# The maintenance is what costs most: a tenth of a second is 8 % of a processor for a client that has nothing else to
# do, server and client together; a fiftieth is 20 %.
FAST_TIMINGS = Timings(
    minimum_reconnect_delay=0.02,
    maximum_reconnect_delay=0.2,
    maintenance_interval=0.1,
    maintenance_retry_delay=0.1,
    delayed_message_interval=0.1,
    locked_message_interval=0.02,
    minimum_poll_interval=0.02,
    maximum_poll_interval=0.1,
    sweep_interval=0.02,
    history_refresh_interval=0.1,
    policy_refresh_interval=0.1,
)
"""What waits for maintenance, for a poll or for a reconnection waits for a few hundredths of a second."""
