"""Batch reads: of a queue's messages, without consuming them, and of the history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from jmsql import InvalidDestinationException, JMSException
from jmsql.extension.statements import PsycopgRunner
from jmsql.spark.columns.expressions import (
    Condition,
    rare_columns_of_history,
    rare_columns_of_messages,
)
from jmsql.spark.columns.schema import shaper
from jmsql.spark.connection import BATCH_SIZE, inlined, read_ahead
from jmsql.spark.garbage import exempt_modules
from jmsql.spark.options import Options, read_timestamp
from jmsql.spark.reading.browse import divide_queue, is_there, queue_of, read_queue, source_of
from jmsql.spark.reading.history import HistorySpan, divide_history, find_origin, read_history
from jmsql.spark.reading.snapshot import keep_snapshot, see_snapshot

_LARGE_COLUMNS = {"text_body", "json_body", "bytes_body", "body"}
_BATCH_SIZE_OF_COLUMN = 2**19
"""Bytes of a batch for each column that has a few bytes: some 30,000 rows."""


@dataclass
class BrowsePartition(InputPartition):
    """A part of a read.

    Args:
        statement: The statement that reads it, complete with its values.
        is_there: The statement that tells whether what was read is still there; None: it always is.
        read: The number by which the tasks of the read see the same moment; None: each sees one of its own.
    """

    statement: str
    is_there: str | None
    read: int | None


class BatchReader(DataSourceReader):
    """Browses a queue or a subscription; all tasks of a query see the same moment."""

    _history_of: str | None = None
    """The PostgreSQL schema whose history must not lose a day while the tasks read."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Divide the read into as many parts as the options say, or fewer."""
        exempt_modules()
        options = self._options
        with options.database.connect("planning a read") as connection:
            texts, is_there = self._plan(connection)
        read = None
        if options.snapshot_timeout:
            shared = len(texts) > 1 or "snapshotTimeout" in options.given
            read = keep_snapshot(options.database, options.snapshot_timeout, self._history_of, shared=shared)
        return [BrowsePartition(text, is_there, read) for text in texts]

    def _plan(self, connection: psycopg.Connection[Any]) -> tuple[list[str], str | None]:
        """Return each task's statement, which reads a range of keys of the queue, and `BrowsePartition.is_there`."""
        options = self._options
        planning = PsycopgRunner(connection, options.schema)
        queue_id = queue_of(planning, options)
        rare = planning.run(rare_columns_of_messages)
        read = read_queue(shaper(self._schema, self._options).columns, options.selector, rare)
        parameters = {"queue_id": queue_id, "destination": source_of(options).uri}
        texts = [
            inlined(connection, options.schema, read.bind(parameters, **part))
            for part in planning.run(divide_queue(queue_id, options.count_partitions))
        ]
        return texts, inlined(connection, options.schema, is_there.bind(queue_id=queue_id))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part.

        Raises:
            InvalidDestinationException: The queue or subscription was deleted since the read was planned.
            JMSException: The moment that it is to see is gone, or PostgreSQL fails.
        """
        assert isinstance(partition, BrowsePartition)
        exempt_modules()
        with self._options.database.connect_arrow("reading") as connection:
            if partition.read is not None:
                see_snapshot(connection, partition.read, self._options.snapshot_timeout)
            shape = shaper(self._schema, self._options)
            rows = shape.shape(connection.execute(partition.statement, _batch_size(shape.columns)))
            yield from read_ahead(connection, rows, "reading")
            if partition.is_there is not None:
                (found,) = connection.execute(partition.is_there).read_all().column(0).to_pylist()
                if not found:
                    raise _deleted(self._options)


def _deleted(options: Options) -> InvalidDestinationException:
    subscription = "" if options.subscription is None else f"The subscription {options.subscription!r} of "
    return InvalidDestinationException(
        f"{subscription}{source_of(options).uri} was deleted since this read was planned; one of the same name that "
        "was made since is another. Call load() again."
    )


def _batch_size(columns: Sequence[str]) -> int:
    """Return the bytes of a batch: a query with a limit reads three batches, which shall not be a million rows."""
    return BATCH_SIZE if _LARGE_COLUMNS.intersection(columns) else min(len(columns) * _BATCH_SIZE_OF_COLUMN, BATCH_SIZE)


class HistoryReader(BatchReader):
    """Reads the history of a queue, a topic, a subscription, or of all there is; all its tasks see the same moment.

    Raises:
        JMSException: The read starts in the future.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        if options.starting_offsets == "latest":
            raise JMSException(
                "Option 'startingOffsets': a batch read of the history from 'latest' on is empty. Give earliest or a "
                "time; 'latest' is for streams."
            )
        super().__init__(options, schema)
        self._history_of = options.schema

    def _plan(self, connection: psycopg.Connection[Any]) -> tuple[list[str], str | None]:
        """Return the statement of each task."""
        options = self._options
        planning = PsycopgRunner(connection, options.schema)
        origin = find_origin(planning, options)
        span = HistorySpan(read_timestamp(options.starting_offsets), read_timestamp(options.ending_offsets))
        columns = shaper(self._schema, self._options).columns
        rare = planning.run(rare_columns_of_history)

        def text(part: Condition) -> str:
            read = read_history(columns, origin, options.selector, part, rare)
            return inlined(connection, options.schema, read)

        parts = planning.run(divide_history(origin, span, options.count_partitions))
        return [" union all ".join(map(text, each)) for each in parts], None
