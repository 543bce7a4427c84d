"""What the readers of streams have in common: their limits, their connection in the driver, and their progress."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from jmsql.exceptions import JMSException
from jmsql.spark.options.options import Options
from jmsql.spark.streaming.queue_stream import Backlog, BatchLimits
from jmsql.store.errors import is_connection_lost

__all__ = ["Offset", "ReconnectingReader"]

logger = logging.getLogger("jmsql")

Offset = dict[str, Any]
"""How far a stream has come, as its checkpoint notes it; `source` is the number of the streaming read."""

_MOST_MESSAGES = 100_000
"""The most messages in a micro-batch where no option limits it: they are claimed in one transaction."""

_BACKLOG_INTERVAL = 10.0
"""Seconds between two counts of what waits, at the least."""

_BACKLOG_SHARE = 20.0
"""How many times as long as a count, which reads all that waits, the pause after it is at the least."""


class _Closeable(Protocol):
    def close(self) -> None: ...


Opened = TypeVar("Opened", bound=_Closeable)
T = TypeVar("T")


class ReconnectingReader(DataSourceStreamReader, SupportsTriggerAvailableNow, Generic[Opened]):
    """A stream whose driver keeps a connection, and makes it again when it breaks.

    Args:
        options: The options of the read.
        schema: What to return.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._opened: Opened | None = None
        self._backlog: dict[str, Any] | None = None
        self._next_count = 0.0

    def __getstate__(self) -> dict[str, Any]:
        """Leave the connection behind: tasks have their own."""
        return {**self.__dict__, "_opened": None}

    @abstractmethod
    def _open(self, offset: Offset) -> Opened:
        """Return what the driver keeps for the stream, which is connected."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit of each micro-batch; if messages and bytes are limited, `_limits` adds the bytes."""
        if self._options.maximum_messages is not None:
            return ReadMaxRows(self._options.maximum_messages)
        if self._options.maximum_bytes is not None:
            return ReadMaxBytes(self._options.maximum_bytes)
        return ReadMaxRows(_MOST_MESSAGES)

    def _limits(self, limit: ReadLimit) -> BatchLimits:
        """Return how much a micro-batch takes, by the options and by the trigger."""
        limits = BatchLimits()
        if isinstance(limit, ReadMaxRows):
            limits = limits._replace(messages=limit.max_rows)
        if not isinstance(limit, ReadAllAvailable) and self._options.maximum_bytes is not None:
            limits = limits._replace(size=self._options.maximum_bytes)
        return limits

    def _do(self, doing: str, offset: Offset, action: Callable[[Opened], T]) -> T:
        """Do something that may be done twice; if the connection breaks, once more with a new one.

        Args:
            doing: What, for messages.
            offset: Names the streaming read.
            action: Does it.
        """
        try:
            return action(self._open(offset))
        except JMSException as error:
            if not is_connection_lost(error):
                raise
            logger.warning("The stream's connection was lost while %s: %s", doing, error)
            self.stop()
        return action(self._open(offset))

    def _count_backlog(self, offset: Offset, count: Callable[[Opened], Backlog]) -> None:
        """Count what waits, for the query's progress, if it is time."""
        began = time.monotonic()
        if began < self._next_count:
            return
        backlog = self._do("counting the backlog", offset, count)
        ended = time.monotonic()
        self._next_count = ended + max(_BACKLOG_INTERVAL, _BACKLOG_SHARE * (ended - began))
        self._backlog = {
            "source": offset["source"],
            "backlogMessages": backlog.messages,
            "backlogBytes": backlog.size,
            "lagSeconds": round(max(backlog.lag, 0.0), 3),
        }

    def stop(self) -> None:
        """Close the connection."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
