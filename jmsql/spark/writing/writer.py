"""Writing messages: each task stages its own, and the driver sends them all in one transaction, once.

With two-phase commit, each task sends its own in a transaction that it prepares, and the driver commits them all.
"""

from __future__ import annotations

import logging
import uuid
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from jmsql.exceptions import JMSException, ResourceAllocationException
from jmsql.spark.database import check_database, check_rights
from jmsql.spark.options import Options
from jmsql.spark.writing.commit import decide, forget_write, send_once
from jmsql.spark.writing.copying import QueueCopy, stage_batches
from jmsql.spark.writing.driver_lock import hold_driver_lock
from jmsql.spark.writing.maintenance import request_maintenance
from jmsql.spark.writing.outgoing import Staging, count_destinations
from jmsql.spark.writing.prepared import finish_transactions, prepare
from jmsql.spark.writing.staging import Attempt, StagedDestination, begin_attempt, forget_attempts, missing_queues
from jmsql.store._sync.runner import PsycopgRunner
from jmsql.store.global_transactions import require_prepared_transactions
from jmsql.store.lookup import queue_id

__all__ = ["BatchWriter", "StreamWriter", "check_target", "watched_driver"]

logger = logging.getLogger("jmsql")

_QUERY_ID = "sql.streaming.queryId"


def check_target(options: Options) -> None:
    """Make sure that the database takes what is written, and have its clients look after what a dead task leaves.

    Raises:
        JMSException: It cannot be reached, its schema is missing or of another version, the role may not write, or the
            server prepares no transactions and is to.
    """
    with options.database.connect("planning a write") as connection:
        planning = PsycopgRunner(connection, options.schema)
        check_database(planning)
        check_rights(planning)
        if options.two_phase_commit:
            try:
                planning.run(require_prepared_transactions())
            except ResourceAllocationException as error:
                raise ResourceAllocationException(f"Option 'twoPhaseCommit': {error}", error.error_code) from error
        planning.run(request_maintenance(two_phase_commit=options.two_phase_commit))


def watched_driver(options: Options) -> int | None:
    """Have others see, with two-phase commit, that this driver lives; return its number, None if they do not.

    Raises:
        JMSException: The process that shows it could not be started.
    """
    if not options.two_phase_commit:
        return None
    with options.database.connect("planning a write") as connection:
        return hold_driver_lock(PsycopgRunner(connection, options.schema), options.database)


@dataclass
class StagedPartition(WriterCommitMessage):
    """What a task reports to the driver.

    Args:
        attempt: What it has staged, and perhaps prepared.
        query_id: The streaming query that it ran for, if it did.
    """

    attempt: Attempt
    query_id: str | None


class _Writer:
    """What batch and streaming writes have in common.

    Args:
        options: The options of the write.
        driver: The number of the driver, if others can see by it whether the driver lives.
    """

    def __init__(self, options: Options, driver: int | None = None) -> None:
        self._options = options
        self.driver = driver

    @abstractmethod
    def _write_id(self, query_id: str | None) -> str:
        """Return what the write is known by."""

    def _stage(self, batches: Iterator[pa.RecordBatch]) -> StagedPartition:
        options = self._options
        context = TaskContext.get()
        assert context is not None
        query_id = context.getLocalProperty(_QUERY_ID)
        with options.database.connect("staging messages") as connection:
            if options.two_phase_commit:
                attempt = self._prepare(connection, self._write_id(query_id), context.partitionId(), batches)
            else:
                staging = self._staging(PsycopgRunner(connection, options.schema).run(begin_attempt()))
                staged = (staging.stage(batch) for batch in batches if batch.num_rows)
                stage_batches(connection, options.schema, staged)
                attempt = Attempt(staging.attempt_id, context.partitionId(), staging.staged)
        return StagedPartition(attempt, query_id)

    def _prepare(
        self, connection: psycopg.Connection[Any], write_id: str, partition: int, batches: Iterator[pa.RecordBatch]
    ) -> Attempt:
        """Send a partition in a transaction that is prepared; only what does not go right into a queue is staged."""
        schema = self._options.schema
        task = PsycopgRunner(connection, schema)
        staging = self._staging(task.run(begin_attempt(write_id, self.driver)))
        connection.commit()  # so that the attempt is seen before what is prepared
        queues = QueueCopy(connection, schema, self._make_queues)
        staged: Counter[StagedDestination] = Counter()
        for batch in batches:
            rest = queues.copy(staging.stage(batch)) if batch.num_rows else batch
            if rest.num_rows:
                stage_batches(connection, schema, [rest])
                staged += count_destinations(rest)
        if staging.staged:
            self._make_queues(task.run(missing_queues(staged)))
            task.run(prepare(Attempt(staging.attempt_id, partition, staged)))
        return Attempt(staging.attempt_id, partition, staging.staged)

    def _staging(self, attempt_id: int) -> Staging:
        destination = self._options.destination
        return Staging(attempt_id, None if destination is None else destination.uri)

    def _make_queues(self, names: Sequence[str]) -> None:
        """Make queues. In a transaction that is prepared, all others that want them would wait for its end."""
        if names:
            with self._options.database.connect("making queues") as connection:
                queues = PsycopgRunner(connection, self._options.schema)
                for name in names:
                    queues.run(queue_id(name))

    def _send(self, staged: Sequence[StagedPartition], batch_id: int, *, is_stream: bool) -> None:
        options = self._options
        attempts = [part.attempt for part in staged]
        write_id = self._write_id(staged[0].query_id if staged else None)
        commit = decide if options.two_phase_commit else send_once
        with options.database.connect("writing messages") as connection:
            PsycopgRunner(connection, options.schema).run(commit(attempts, write_id, batch_id, is_stream=is_stream))
        if options.two_phase_commit:
            self._finish(attempts)

    def _finish(self, attempts: Sequence[Attempt]) -> None:
        """Commit what is decided. If that is not to be done now, the write is done all the same."""
        try:
            with self._options.database.connect("finishing writes", autocommit=True) as connection:
                finish_transactions(PsycopgRunner(connection, self._options.schema), attempts)
        except JMSException as error:
            logger.warning("The write is done, and some of its messages come later, by maintenance: %s", error)

    def _discard(self, staged: Sequence[StagedPartition]) -> None:
        if not staged:
            return
        options = self._options
        attempts = [part.attempt for part in staged]
        with options.database.connect("discarding staged messages", autocommit=True) as connection:
            driver = PsycopgRunner(connection, options.schema)
            if options.two_phase_commit:
                driver.run(forget_write(attempts, self._write_id(staged[0].query_id)))
                finish_transactions(driver)
            else:
                driver.run(forget_attempts(attempts))


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Sends the rows of a DataFrame."""

    def __init__(self, options: Options, driver: int | None = None) -> None:
        super().__init__(options, driver)
        self._name = options.write_id or f"write {uuid.uuid4()}"  # the same in the tasks and in the driver

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedPartition:
        """Stage a partition, on a worker."""
        return self._stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Send what all tasks have staged, on the driver."""
        self._send(_staged(messages), 0, is_stream=False)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what the tasks have staged that succeeded."""
        self._discard(_staged(messages))

    def _write_id(self, query_id: str | None) -> str:  # noqa: ARG002 - a batch runs for no query
        return self._name


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Sends the micro-batches of a streaming query."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedPartition:
        """Stage a partition, on a worker."""
        return self._stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Send what all tasks have staged, on the driver, unless this batch was sent before."""
        staged = _staged(messages)
        if staged:
            self._send(staged, batchId, is_stream=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Remove what the tasks have staged that succeeded."""
        self._discard(_staged(messages))

    def _write_id(self, query_id: str | None) -> str:
        name = self._options.write_id or query_id
        if name is None:
            raise JMSException("Spark does not tell which query this is: give option 'writeId', a name of its own.")
        return f"query {name}"


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[StagedPartition]:
    return [message for message in messages if isinstance(message, StagedPartition)]
