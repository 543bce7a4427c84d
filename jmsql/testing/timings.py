"""Timings for tests: short intervals and time-outs."""

from __future__ import annotations

from jmsql.timings import InternalTimings

# Dead clients and leaders are missed after seconds, not less: a test on a busy machine is late by that much. The
# maintenance costs most: each quarter of a second, it and all else take 2.2 % of a processor for a client that has
# nothing else to do, server and client together; each tenth, 3.4 %.
FAST_TIMINGS = InternalTimings(
    minimum_reconnect_delay=0.02,
    maximum_reconnect_delay=0.2,
    heartbeat_interval=0.5,
    heartbeat_timeout=5.0,
    maintenance_interval=0.25,
    lease_duration=2.0,
    maintenance_retry_delay=0.1,
    lock_timeout=1.5,
    idle_in_transaction_timeout=1.5,
    delayed_message_interval=0.1,
    locked_message_interval=0.02,
    minimum_poll_interval=0.02,
    maximum_poll_interval=0.1,
    shared_poll_interval=0.1,
    missed_message_interval=0.1,
    sweep_interval=0.02,
    history_refresh_interval=0.1,
    policy_refresh_interval=0.1,
)
"""Waits for a poll or for a reconnection last some hundredths of a second, for maintenance some tenths."""
