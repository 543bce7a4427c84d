"""Which worker of the demo gets which flights: one queue, shared out by selectors."""

from __future__ import annotations

from jmsql.destinations import Queue

__all__ = ["ALL_OTHERS", "DELAYED", "DELAY_DESK", "FLIGHTS"]

FLIGHTS = Queue("jmsql_demo.flights")

DELAY_DESK = "delay desk"
"""The name of the worker that handles delayed flights alone."""

DELAYED = "carrier = 'UA' AND departure_delay > 60"
"""What the delay desk receives."""

ALL_OTHERS = "carrier <> 'UA' OR departure_delay <= 60 OR departure_delay IS NULL"
"""What the other workers receive. A cancelled flight has no delay, and to compare that is neither true nor false."""
