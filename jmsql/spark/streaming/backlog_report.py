"""What waits for a stream, for the progress of its query."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from jmsql.spark.streaming.queue_stream import Backlog

__all__ = ["BacklogReport"]

_INTERVAL = 10.0
"""Seconds between two counts, at the least."""

_SHARE = 20.0
"""How many times as long as a count, which reads all that waits, the pause after it is at the least."""


class BacklogReport:
    """Counts what waits, once in a while."""

    def __init__(self) -> None:
        self.found: dict[str, Any] | None = None
        """What was counted last."""

        self._next_count = 0.0

    def update(self, source_id: str, count: Callable[[], Backlog]) -> None:
        """Count again, if it is time.

        Args:
            source_id: The number of the streaming read.
            count: Counts.
        """
        began = time.monotonic()
        if began < self._next_count:
            return
        backlog = count()
        ended = time.monotonic()
        self._next_count = ended + max(_INTERVAL, _SHARE * (ended - began))
        self.found = {
            "source": source_id,
            "backlogMessages": backlog.messages,
            "backlogBytes": backlog.size,
            "lagSeconds": round(max(backlog.lag, 0.0), 3),
        }
