"""Writing messages: each task commits its own, hidden, and the driver sends them all, once, in a small transaction."""

from __future__ import annotations

import contextlib
import uuid
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from jmsql import Destination, JMSException
from jmsql.extension.sending import pending_transactions
from jmsql.extension.statements import PsycopgRunner, Runner
from jmsql.spark.database import check_database, check_rights
from jmsql.spark.garbage import exempt_modules
from jmsql.spark.options import Options
from jmsql.spark.writing.commit import Attempt, WriteName, abandon, send_once
from jmsql.spark.writing.destinations import check_destination, create
from jmsql.spark.writing.maintenance import request_maintenance

if TYPE_CHECKING:
    import pyarrow as pa


_QUERY_ID = "sql.streaming.queryId"

_REMOVED_AT_ONCE = 100_000


def _plan(options: Options) -> int:
    """Make sure that the database accepts the write, and have its clients clean up after dead tasks.

    Raises:
        InvalidDestinationException: The destination does not exist, and the write does not make it.
        JMSException: It cannot be reached, its schema is missing or of another version, or the role may not write.
    """
    exempt_modules()
    with options.database.connect("planning a write", autocommit=True) as connection:
        planning = PsycopgRunner(connection, options.schema)
        check_database(planning)
        check_rights(planning)
        for destination in filter(None, (options.destination, options.bad_records)):
            planning.run(check_destination(destination, wanted=options.automatic_creation))
        planning.run(request_maintenance())
        _remove_abandoned(planning)
        return planning.run(pending_transactions.next_sequence)


@dataclass
class WrittenPartition(WriterCommitMessage):
    """The messages that a task has committed, if any, and its streaming query, if it ran for one."""

    attempt: Attempt | None
    query_id: str | None


class _Writer:
    """The base of batch and streaming writes.

    Made when the write is planned.

    Raises:
        JMSException: The database does not accept the write.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._planned = _plan(options)

    @abstractmethod
    def _name(self, query_id: str | None) -> WriteName:
        """Return the names of the write."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenPartition:
        """Commit the messages of a partition, on a worker. They are hidden until the driver sends them."""
        exempt_modules()
        # The driver plans and commits in processes of their own, which need none of this.
        from jmsql.spark.writing.outgoing import OutgoingMessages
        from jmsql.spark.writing.task import TaskMessages

        options = self._options
        context = TaskContext.get()
        assert context is not None
        query_id = context.getLocalProperty(_QUERY_ID)
        name = self._name(query_id)
        outgoing = OutgoingMessages(
            *(None if each is None else each.uri for each in (options.destination, options.bad_records))
        )
        messages = (outgoing.convert(batch) for batch in iterator if batch.num_rows)
        first = next(messages, None)
        if first is None:
            return WrittenPartition(None, query_id)
        with options.database.connect("writing messages") as connection:
            task = TaskMessages.open(connection, options.schema, self._create)
            task.send(first)
            for each in messages:
                task.send(each)
            # The earlier attempts of a query that was started again. A write without a query may still run elsewhere.
            return WrittenPartition(task.end(name.tasks, None if query_id is None else self._planned), query_id)

    def _create(self, destination: Destination) -> None:
        with self._options.database.connect("making a destination") as connection:
            runner = PsycopgRunner(connection, self._options.schema)
            runner.run(create(destination, wanted=self._options.automatic_creation))

    def _send(self, written: Sequence[WrittenPartition], batch_id: int | None) -> None:
        exempt_modules()
        options = self._options
        name = self._name(written[0].query_id if written else None)
        with options.database.connect("writing messages", autocommit=True) as connection:
            driver = PsycopgRunner(connection, options.schema)
            sending = send_once(_attempts(written), name, batch_id, days=options.write_days)
            with connection.transaction():
                driver.run(sending)
            _remove_abandoned(driver)

    def _discard(self, written: Sequence[WrittenPartition], write_id: str | None = None) -> None:
        if not written and write_id is None:
            return
        with self._options.database.connect("discarding messages", autocommit=True) as connection:
            driver = PsycopgRunner(connection, self._options.schema)
            driver.run(abandon(_attempts(written), write_id))
            _remove_abandoned(driver)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Sends the rows of a DataFrame."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._known_as = options.write_id or f"write {uuid.uuid4()}"  # the same in the tasks and in the driver

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Send all tasks' messages, on the driver."""
        # Spark commits once. A write without a name is not repeated.
        batch_id = None if self._options.write_id is None else 0
        self._send(_written(messages), batch_id)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the messages of the tasks that succeeded."""
        # A write of the same name may go on elsewhere.
        self._discard(_written(messages), self._known_as if self._options.write_id is None else None)

    def _name(self, query_id: str | None) -> WriteName:  # noqa: ARG002 - a batch runs for no query
        return WriteName(self._known_as, self._known_as)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Sends the micro-batches of a streaming query."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Send all tasks' messages, on the driver, unless this batch was sent before."""
        written = _written(messages)
        if written:
            self._send(written, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Delete the messages of the tasks that succeeded."""
        self._discard(_written(messages))

    def _name(self, query_id: str | None) -> WriteName:
        if query_id is None:
            raise JMSException(
                "Spark does not tell which query writes: its tasks have no property sql.streaming.queryId."
            )
        return WriteName.of_query(query_id, self._options.write_id)


def _remove_abandoned(driver: Runner) -> None:
    """Delete messages that are never sent. If that is not possible now, maintenance does it."""
    with contextlib.suppress(JMSException):
        while driver.run(pending_transactions.remove_abandoned(_REMOVED_AT_ONCE)):
            pass


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[WrittenPartition]:
    return [message for message in messages if isinstance(message, WrittenPartition)]


def _attempts(written: Sequence[WrittenPartition]) -> list[Attempt]:
    return [partition.attempt for partition in written if partition.attempt is not None]
