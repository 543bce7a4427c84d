"""Streaming the history by a cursor that misses no message and can be read again."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import psycopg
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from jmsql import JMSException
from jmsql.extension.statements import PsycopgRunner, Runner
from jmsql.spark.columns.schema import shaper
from jmsql.spark.connection import inlined
from jmsql.spark.database import check_rights
from jmsql.spark.options import Options, read_timestamp
from jmsql.spark.reading.history import HistoryOrigin, find_origin
from jmsql.spark.streaming.history_stream import HistoryPosition, HistoryStream, Lost, create_cursor, end_of_history
from jmsql.spark.streaming.stream_reader import Offset, ReconnectingReader, StreamPartition

_POLL = 1.0
"""Seconds after which a history without anything new is looked at again, at the least."""


class _Opened(NamedTuple):
    """The state of a stream in the driver while it runs: its connection, and the read that it holds."""

    connection: psycopg.Connection[Any]
    stream: HistoryStream

    def close(self) -> None:
        self.connection.close()


class HistoryStreamReader(ReconnectingReader[_Opened]):
    """Streams the history of a queue, a topic, a subscription, or of all there is. It consumes nothing.

    An offset is a place `(transaction, sequence)` in the history, with the number of the read, and besides with the
    place at which its batch begins and how many rows that has: so a batch is the same each time it is read, or it is
    noticed that it is not.
    """

    _reading = "reading the history"
    _unknown = "it was ended by forget_spark_source()"

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._origin = HistoryOrigin(options.destination, options.subscription, options.client_id)
        self._bound: HistoryPosition | None = None
        self._next_look = 0.0
        self._last: Offset | None = None

    # Called by Spark, in one process of the driver

    def _begin(self) -> Offset:
        with self._options.database.connect("beginning a stream") as connection:
            driver = PsycopgRunner(connection, self._options.schema)
            find_origin(driver, self._options)
            check_rights(driver)
            first = self._first_place(driver)
            since = read_timestamp(self._options.starting_offsets)
            source_id = driver.run(create_cursor(self._origin, first, since))
            return {"source": source_id, "transaction": first.transaction, "sequence": first.sequence}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Take nothing that comes after now."""
        with self._options.database.connect("looking for the end of the history") as connection:
            self._bound = PsycopgRunner(connection, self._options.schema).run(end_of_history)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Record the finished batch, and find the next one."""
        if self._bound is None and self._opened is not None:
            # Spark's processAllAvailable() relies on each answer, so each answer takes a query.
            time.sleep(max(0.0, self._next_look - time.monotonic()))
        first = self._check(start, is_done=True)
        limits = self._limits(limit)
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
        has_moved = self._check(end, is_done=False) != _place(end)
        if has_moved or "first" not in end:  # without it, the offset is where the stream began, before any batch
            return []
        first = HistoryPosition(*end["first"])
        count = options.count_partitions(end["messages"])
        parts = self._do("dividing a batch", end, lambda opened: opened.stream.divide(first, _place(end), count))
        missing = end["messages"] - sum(part.messages for part in parts)
        if missing:
            self._lose(f"{missing} of the {end['messages']} rows of a batch are gone from the history")
        opened = self._open(end)
        columns = shaper(self._schema, self._options).columns
        read = [(opened.stream.read(part, columns, options.selector), part.messages) for part in parts]
        return [
            StreamPartition(
                inlined(opened.connection, options.schema, query), messages if options.selector is None else None
            )
            for query, messages in read
        ]

    def commit(self, end: Offset) -> None:
        """Record a finished batch: retention keeps it no longer."""
        place = _place(end)
        self._do("noting what is done", end, lambda opened: opened.stream.pass_to(place))

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Return, for the query's progress, how much has not been read."""
        start = self._last
        if start is not None and self._opened is not None:
            self._count_backlog(start, lambda opened: opened.stream.backlog(_place(start)))
        return self._backlog

    def _first_place(self, driver: Runner) -> HistoryPosition:
        return driver.run(end_of_history) if self._options.starting_offsets == "latest" else HistoryPosition(0)

    def _check(self, offset: Offset, *, is_done: bool) -> HistoryPosition:
        """Return where to go on after an offset: there, or elsewhere if the history was restored and that may be."""
        place = _place(offset)
        lost: Lost | None = self._do(
            "looking for the stream's place", offset, lambda opened: opened.stream.check(place, is_done=is_done)
        )
        if lost is None:
            return place
        self._lose(lost.reason)
        if lost.place is None:
            self._do("going on", offset, lambda opened: opened.stream.forgive_loss(place))
            return place
        return lost.place

    def _take(self, source_id: str) -> _Opened:
        connection = self._options.database.open("streaming history", autocommit=True)
        try:
            runner = PsycopgRunner(connection, self._options.schema)
            return _Opened(connection, HistoryStream.open(runner, source_id, self._origin))
        except BaseException:
            connection.close()
            raise

    def _begin_again(self, driver: Runner, source_id: str) -> None:
        since = read_timestamp(self._options.starting_offsets)
        driver.run(create_cursor(self._origin, self._first_place(driver), since, source_id))

    def _miss(self, messages: int) -> None:
        self._lose(f"{messages} rows of a batch were removed from the history while it was read")


def _place(offset: Offset) -> HistoryPosition:
    """Return a place in the history.

    Raises:
        JMSException: It is the offset of a stream that consumes messages.
    """
    if "transaction" not in offset:
        raise JMSException(
            "The checkpoint belongs to a stream that consumes messages, without option 'history'. Give each query a "
            "checkpoint of its own."
        )
    return HistoryPosition(offset["transaction"], offset["sequence"])
