"""Claiming messages in batches for a client that others see alive, and counting them."""

from __future__ import annotations

from jmsql.store.control.control import ControlConnection
from jmsql.store.control.counters import Consumption, Counts, DestinationCounters
from jmsql.store.control.server import ServerClock
from jmsql.store.destinations.subscriptions import occupy, rejoin
from jmsql.store.receiving.reader import ScanBounds
from jmsql.store.receiving.receive import claim_batch, has_groups
from jmsql.store.rows.message_rows import GroupKey, MessageKey
from jmsql.timings import InternalTimings

__all__ = [
    "Consumption",
    "ControlConnection",
    "Counts",
    "DestinationCounters",
    "GroupKey",
    "InternalTimings",
    "MessageKey",
    "ScanBounds",
    "ServerClock",
    "claim_batch",
    "has_groups",
    "occupy",
    "rejoin",
]
