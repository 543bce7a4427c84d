"""Writing messages: each task stages its own, and the driver sends them all in one transaction, once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from jmsql.exceptions import JMSException
from jmsql.spark.options import Options
from jmsql.spark.outgoing import Staging, staging_encoder
from jmsql.store.driver import PsycopgDriver
from jmsql.store.spark_writes import Attempt, SparkWrites, write_statements

__all__ = ["BatchWriter", "StreamWriter"]

_QUERY_ID = "sql.streaming.queryId"


@dataclass
class StagedPartition(WriterCommitMessage):
    """What a task reports to the driver.

    Args:
        attempt: What it has staged.
        query_id: The streaming query that it ran for, if it did.
    """

    attempt: Attempt
    query_id: str | None


class _Writer:
    """What batch and streaming writes have in common.

    Args:
        options: The options of the write.
    """

    def __init__(self, options: Options) -> None:
        self._options = options

    def _stage(self, batches: Iterator[pa.RecordBatch]) -> StagedPartition:
        options = self._options
        context = TaskContext.get()
        assert context is not None
        default = None if options.destination is None else options.destination.uri
        with options.database.connect("staging messages") as connection:
            attempt_id = SparkWrites(PsycopgDriver(connection), options.schema).begin_attempt()
            staging = Staging(attempt_id, default)
            encoder = staging_encoder()
            with connection.cursor() as cursor, cursor.copy(write_statements(options.schema).stage.encode()) as copy:
                copy.write(encoder.write_header())
                for batch in batches:
                    if batch.num_rows:
                        copy.write(encoder.write_batch(staging.stage(batch)))
                copy.write(encoder.finish())
        attempt = Attempt(attempt_id, context.partitionId(), staging.staged)
        return StagedPartition(attempt, context.getLocalProperty(_QUERY_ID))

    def _send(self, staged: Sequence[StagedPartition], write_id: str, batch_id: int, *, is_stream: bool) -> None:
        options = self._options
        with options.database.connect("writing messages") as connection:
            writes = SparkWrites(PsycopgDriver(connection), options.schema)
            writes.write([part.attempt for part in staged], write_id, batch_id, is_stream=is_stream)

    def _discard(self, staged: Sequence[StagedPartition]) -> None:
        if staged:
            with self._options.database.connect("discarding staged messages") as connection:
                writes = SparkWrites(PsycopgDriver(connection), self._options.schema)
                writes.forget([part.attempt for part in staged])


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Sends the rows of a DataFrame."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedPartition:
        """Stage a partition, on a worker."""
        return self._stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Send what all tasks have staged, on the driver."""
        self._send(_staged(messages), self._options.write_id or f"write {uuid.uuid4()}", 0, is_stream=False)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what the tasks have staged that succeeded."""
        self._discard(_staged(messages))


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Sends the micro-batches of a streaming query."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedPartition:
        """Stage a partition, on a worker."""
        return self._stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Send what all tasks have staged, on the driver, unless this batch was sent before."""
        staged = _staged(messages)
        if not staged:
            return
        name = self._options.write_id or staged[0].query_id
        if name is None:
            raise JMSException("Spark does not tell which query this is: give option 'writeId', a name of its own.")
        self._send(staged, f"query {name}", batchId, is_stream=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Remove what the tasks have staged that succeeded."""
        self._discard(_staged(messages))


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[StagedPartition]:
    return [message for message in messages if isinstance(message, StagedPartition)]
