"""Streaming the history: what left its destination, by a cursor that misses nothing and can be read again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from jmsql.exceptions import InvalidDestinationException, JMSException
from jmsql.spark.arrow import Shaper
from jmsql.spark.database import check_rights
from jmsql.spark.offset_options import moment
from jmsql.spark.options import Options
from jmsql.spark.reading.history_reader import find_origin
from jmsql.spark.reading.history_statements import HistoryOrigin
from jmsql.spark.streaming.backlog_report import BacklogReport
from jmsql.spark.streaming.history_stream import HistoryStream, Lost, Place, create_cursor, end_of_history
from jmsql.spark.streaming.read_limits import default_read_limit, limits_of_batch
from jmsql.spark.streaming.reconnection import do_with_reconnection
from jmsql.store.driver import PsycopgDriver
from jmsql.store.engine import connect

__all__ = ["HistoryStreamReader"]

logger = logging.getLogger("jmsql")

Result = TypeVar("Result")
Offset = dict[str, Any]

_POLL = 1.0
"""Seconds after which a history without anything new is looked at again."""


@dataclass
class HistoryPartition(InputPartition):
    """A part of a batch.

    Args:
        statement: The statement that reads it, complete with its values.
        messages: How many rows it returns; None: a selector says.
    """

    statement: str
    messages: int | None


class _Opened:
    """What a stream keeps in the driver while it runs: its connection, and the read that it holds.

    Args:
        options: The options of the read.
        source_id: The number of the read.
        origin: Whose history it reads.

    Raises:
        LookupError: The read is not known.
    """

    def __init__(self, options: Options, source_id: str, origin: HistoryOrigin) -> None:
        url = options.database.libpq_url("jmsql-spark-streaming-history")
        self.connection: psycopg.Connection[Any] = connect(url, autocommit=True)
        try:
            self.stream = HistoryStream(self.connection, options.schema, source_id, origin)
        except BaseException:
            self.connection.close()
            raise


class HistoryStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streams the history of a queue, a topic, a subscription, or of all there is. It consumes nothing.

    An offset is a place `(transaction, sequence)` in the history, with the number of the read, and besides with the
    place at which its batch begins and how many rows that has: so a batch is the same each time it is read, or it is
    noticed that it is not.

    Args:
        options: The options of the read.
        schema: What to return.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._origin = HistoryOrigin(options.destination, options.subscription, options.client_id)
        self._opened: _Opened | None = None
        self._bound: Place | None = None
        self._next_look = 0.0
        self._backlog = BacklogReport()
        self._last: Offset | None = None
        self._told: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        """Leave the connection behind: tasks have their own."""
        return {**self.__dict__, "_opened": None}

    # Called by Spark, in one process of the driver

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Begin a streaming read."""
        with self._options.database.connect("beginning a stream") as connection:
            driver = PsycopgDriver(connection)
            find_origin(driver, self._options)
            check_rights(driver, self._options.schema)
            first = self._first_place(driver)
            since = moment(self._options.starting_offsets)
            source_id = create_cursor(driver, self._options.schema, self._origin, first, since)
            return {"source": source_id, "transaction": first.transaction, "sequence": first.sequence}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """How much a micro-batch takes, by the options; if both are given, `latestOffset` adds the bytes."""
        return default_read_limit(self._options)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take nothing that comes after now."""
        with self._options.database.connect("looking for the end of the history") as connection:
            self._bound = end_of_history(PsycopgDriver(connection), self._options.schema)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Note what is done, and find the next batch."""
        if self._bound is None and self._opened is not None and time.monotonic() < self._next_look:
            return start
        first = self._check(start)
        limits = limits_of_batch(limit, self._options)
        batch = self._do("finding a batch", start, lambda opened: opened.stream.next_batch(first, limits, self._bound))
        self._last = start
        if batch is None:
            self._next_look = time.monotonic() + _POLL
            return start
        return {
            "source": start["source"],
            "transaction": batch.end.transaction,
            "sequence": batch.end.sequence,
            "first": list(batch.first),
            "messages": batch.messages,
        }

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Divide a batch."""
        if start == end:
            return []
        options = self._options
        if self._check(end) != _place(end):
            return []
        first = Place(*end["first"])
        parts = self._do(
            "dividing a batch", end, lambda opened: opened.stream.divide(first, _place(end), options.partitions)
        )
        missing = end["messages"] - sum(part.messages for part in parts)
        if missing:
            self._lose(f"{missing} of the {end['messages']} rows of a batch are gone from the history")
        opened = self._open(end)
        cursor = psycopg.ClientCursor(opened.connection)
        columns = Shaper(self._schema).columns
        read = [(opened.stream.read(part, columns, options.selector), part.messages) for part in parts]
        return [
            HistoryPartition(
                cursor.mogrify(statement.text, statement.parameters), messages if options.selector is None else None
            )
            for statement, messages in read
        ]

    def commit(self, end: Offset) -> None:
        """Note what is done: retention keeps it no longer."""
        self._do("noting what is done", end, lambda opened: opened.stream.pass_to(_place(end)))

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Return, for the query's progress, how much has not been read."""
        start = self._last
        if start is not None and self._opened is not None:
            self._backlog.update(
                start["source"],
                lambda: self._do("counting the backlog", start, lambda opened: opened.stream.backlog(_place(start))),
            )
        return self._backlog.found

    def stop(self) -> None:
        """Close the connection."""
        if self._opened is not None:
            self._opened.connection.close()
            self._opened = None

    def _first_place(self, driver: PsycopgDriver) -> Place:
        if self._options.starting_offsets == "latest":
            return end_of_history(driver, self._options.schema)
        return Place(0)

    def _check(self, offset: Offset) -> Place:
        """Return where to go on after an offset: there, or elsewhere if the history was restored and that may be."""
        place = _place(offset)
        lost: Lost | None = self._do("looking for the stream's place", offset, lambda o: o.stream.check(place))
        if lost is None:
            return place
        self._lose(lost.reason)
        if lost.place is None:
            self._do("going on", offset, lambda opened: opened.stream.forgive_loss())
            return place
        return lost.place

    def _lose(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise JMSException(f"{what}. Set option 'failOnDataLoss' to false to go on without it.")
        if what not in self._told:
            self._told.add(what)
            logger.warning("%s. The stream goes on without it, as option 'failOnDataLoss' says.", what)

    def _open(self, offset: Offset) -> _Opened:
        if self._opened is None:
            source_id = offset["source"]
            try:
                self._opened = _Opened(self._options, source_id, self._origin)
            except LookupError as error:
                if self._options.fail_on_data_loss:
                    raise InvalidDestinationException(
                        f"The checkpoint belongs to the streaming read {source_id}, which the database does not know: "
                        "it was ended by forget_spark_source(), or the database was restored or is another. Start with "
                        "a new checkpoint, or set option 'failOnDataLoss' to false to start again with this one."
                    ) from error
                self._begin_anew(source_id)
                self._opened = _Opened(self._options, source_id, self._origin)
        return self._opened

    def _begin_anew(self, source_id: str) -> None:
        logger.warning(
            "The database does not know the streaming read %s; it starts again, as options 'failOnDataLoss' and "
            "'startingOffsets' say.",
            source_id,
        )
        options = self._options
        with options.database.connect("starting a stream again") as connection:
            driver = PsycopgDriver(connection)
            since = moment(options.starting_offsets)
            create_cursor(driver, options.schema, self._origin, self._first_place(driver), since, source_id)

    def _do(self, doing: str, offset: Offset, action: Callable[[_Opened], Result]) -> Result:
        return do_with_reconnection(doing, lambda: action(self._open(offset)), self.stop)

    # Called by Spark, in a task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part of a batch."""
        assert isinstance(partition, HistoryPartition)
        messages = 0
        with (
            self._options.database.connect_arrow("reading the history") as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(partition.statement)
            for batch in Shaper(self._schema).shape(cursor.fetch_record_batch()):
                messages += batch.num_rows
                yield batch
        if partition.messages is not None and messages < partition.messages:
            self._lose(
                f"{partition.messages - messages} rows of a batch were removed from the history while it was read"
            )


def _place(offset: Offset) -> Place:
    return Place(offset["transaction"], offset["sequence"])
