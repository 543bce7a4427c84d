"""The base of the readers of streams: their limits, their connection in the driver, and their progress."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from jmsql import IllegalStateException, InvalidDestinationException, JMSException
from jmsql.extension.statements import PsycopgRunner, Runner, is_connection_lost
from jmsql.logs import contained_logger
from jmsql.spark.columns.schema import shaper
from jmsql.spark.connection import read_ahead
from jmsql.spark.garbage import exempt_modules
from jmsql.spark.options import Options
from jmsql.spark.streaming.queue_stream import Backlog, BatchLimits

logger = contained_logger("jmsql")

Offset = dict[str, Any]
"""How far a stream has come, as its checkpoint notes it; `source` is the number of the streaming read."""

_MOST_MESSAGES = 100_000
"""The most messages in a micro-batch where no option limits it: they are claimed in one transaction."""

_BACKLOG_INTERVAL = 10.0
"""The minimum of seconds between two counts of the backlog."""

_BACKLOG_SHARE = 20.0
"""How many times as long as a count, which reads all that waits, the pause after it is at the least."""


@dataclass
class StreamPartition(InputPartition):
    """A part of a batch.

    Args:
        statement: The statement that reads it, complete with its values.
        messages: How many messages it returns; None: a selector says.
    """

    statement: str
    messages: int | None


class _Closeable(Protocol):
    def close(self) -> None: ...


Opened = TypeVar("Opened", bound=_Closeable)
T = TypeVar("T")


class ReconnectingReader(DataSourceStreamReader, SupportsTriggerAvailableNow, Generic[Opened]):
    """A stream whose driver keeps a connection, and makes it again when it breaks."""

    _reading: str
    """The tasks' activity, for messages."""

    _unknown: str
    """Why the database may not know a streaming read, for messages."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._opened: Opened | None = None
        self._initial: Offset | None = None
        self._backlog: dict[str, Any] | None = None
        self._next_count = 0.0
        self._told: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        """Leave the connection behind: tasks have their own."""
        return {**self.__dict__, "_opened": None}

    def _open(self, offset: Offset) -> Opened:
        """Return the driver's connected part of the stream."""
        if self._opened is None:
            source_id = offset["source"]
            try:
                self._opened = self._take(source_id)
            except LookupError as error:
                if self._options.fail_on_data_loss:
                    raise InvalidDestinationException(
                        f"The checkpoint belongs to the streaming read {source_id}, which the database does not know: "
                        f"{self._unknown}, or the database was restored or is another. Start with a new checkpoint, or "
                        "set option 'failOnDataLoss' to false to start again with this one."
                    ) from error
                logger.warning(
                    "The database does not know the streaming read %s; it starts again, as options 'failOnDataLoss' "
                    "and 'startingOffsets' say.",
                    source_id,
                )
                with self._options.database.connect("starting a stream again") as connection:
                    self._begin_again(PsycopgRunner(connection, self._options.schema), source_id)
                self._opened = self._take(source_id)
        return self._opened

    @abstractmethod
    def _take(self, source_id: str) -> Opened:
        """Connect, and take the read from the driver before.

        Raises:
            LookupError: The read is not known.
        """

    @abstractmethod
    def _begin_again(self, driver: Runner, source_id: str) -> None:
        """Note a streaming read under the number that the checkpoint has."""

    def _lose(self, what: str) -> None:
        """Fail because something is lost, or log it, as option 'failOnDataLoss' says."""
        if self._options.fail_on_data_loss:
            raise IllegalStateException(f"{what}. Set option 'failOnDataLoss' to false to go on nevertheless.")
        if what not in self._told:
            self._told.add(what)
            logger.warning("%s. The stream goes on nevertheless, as option 'failOnDataLoss' says.", what)

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Begin a streaming read. Spark asks for it several times, and runs the first batch also if it is empty."""
        if self._initial is None:
            self._initial = self._begin()
        return self._initial

    @abstractmethod
    def _begin(self) -> Offset:
        """Note a new streaming read in the database, and return where it begins."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
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
        """Do something that may be done twice; if the connection breaks, once more with a new one."""
        try:
            return action(self._open(offset))
        except JMSException as error:
            if not is_connection_lost(error):
                raise
            logger.warning("The stream's connection was lost while %s: %s", doing, error)
            self.stop()
        return action(self._open(offset))

    def _count_backlog(self, offset: Offset, count: Callable[[Opened], Backlog]) -> None:
        """Count the backlog, for the query's progress, if it is time."""
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

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part of a batch, in a task."""
        assert isinstance(partition, StreamPartition)
        exempt_modules()
        messages = 0
        with self._options.database.connect_arrow(self._reading) as connection:
            rows = shaper(self._schema, self._options).shape(connection.execute(partition.statement))
            for batch in read_ahead(connection, rows, self._reading):
                messages += batch.num_rows
                yield batch
        if partition.messages is not None and messages < partition.messages:
            self._miss(partition.messages - messages)

    @abstractmethod
    def _miss(self, messages: int) -> None:
        """Say that a part of a batch lacks some messages."""

    def stop(self) -> None:
        """Close the connection."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
