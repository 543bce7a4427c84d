"""Reading what is in a queue, without consuming it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
from adbc_driver_manager import Error
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from jmsql.exceptions import JMSException
from jmsql.spark.arrow import Shaper
from jmsql.spark.connection import inlined
from jmsql.spark.options import Options
from jmsql.spark.reading.browse import divide_queue, find_queue, read_queue, source_of
from jmsql.spark.reading.columns import ColumnComparison
from jmsql.spark.reading.snapshot import BEGIN_SNAPSHOT, keep_snapshot, reader_name
from jmsql.spark.schema import arrow_schema
from jmsql.store._sync.runner import PsycopgRunner

__all__ = ["BatchReader"]


@dataclass
class BrowsePartition(InputPartition):
    """A part of what is read.

    Args:
        statement: The statement that reads it, complete with its values.
        snapshot: The snapshot to read it in; None: one of its own.
    """

    statement: str
    snapshot: str | None


class BatchReader(DataSourceReader):
    """Browses a queue or a subscription; all its tasks see the same moment.

    Args:
        options: The options of the read.
        schema: What to return.
    """

    filters: Sequence[ColumnComparison] = ()
    """Conditions that hold for the rows that are wanted."""

    _history_of: str | None = None
    """The PostgreSQL schema whose history must not lose a day while the tasks read."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Divide what is read into as many parts as the options say, or fewer."""
        options = self._options
        with options.database.connect("planning a read") as connection:
            texts = self._plan(connection)
        snapshot = None
        # One task alone sees one moment by itself, until Spark repeats it after others have used its rows.
        if options.snapshot_timeout and (len(texts) > 1 or "snapshotTimeout" in options.given):
            snapshot = keep_snapshot(options.database, options.snapshot_timeout, self._history_of)
        return [BrowsePartition(text, snapshot) for text in texts]

    def _plan(self, connection: psycopg.Connection[Any]) -> list[str]:
        """Return the statement of each task: each reads a range of keys of the queue."""
        options = self._options
        planning = PsycopgRunner(connection, options.schema)
        queue_id = find_queue(planning, options)
        read = read_queue(Shaper(arrow_schema(self._schema)).columns, options.selector, self.filters)
        parameters = {"queue_id": queue_id, "destination": source_of(options).uri}
        return [
            inlined(connection, options.schema, read.bind(parameters, **part))
            for part in planning.run(divide_queue(queue_id, options.count_partitions))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part."""
        assert isinstance(partition, BrowsePartition)
        name = reader_name(partition.snapshot)
        with self._options.database.connect_arrow(name) as connection, connection.cursor() as cursor:
            if partition.snapshot is not None:
                cursor.execute(BEGIN_SNAPSHOT)
                try:
                    cursor.execute(f"set transaction snapshot '{partition.snapshot}'")
                except Error as error:
                    raise JMSException(
                        "The moment of this read is gone, which all its tasks were to see: it was kept for "
                        f"{self._options.snapshot_timeout:g} s after the last one. Call load() again to read a new "
                        "moment, and cache() before the first use of a DataFrame that is used again later; or raise "
                        "option 'snapshotTimeout', or set it to 0, so that each task sees a moment of its own."
                    ) from error
            cursor.execute(partition.statement)
            yield from Shaper(arrow_schema(self._schema)).shape(cursor.fetch_record_batch())
