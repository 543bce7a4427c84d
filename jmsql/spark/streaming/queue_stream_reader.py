"""Reading a queue as a stream: each message goes into one micro-batch, and leaves the queue when that is done."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from jmsql.exceptions import JMSException
from jmsql.spark.arrow import Shaper
from jmsql.spark.database import check_rights
from jmsql.spark.options import Options
from jmsql.spark.reading.source import find_queue, source_of
from jmsql.spark.streaming.backlog_report import BacklogReport
from jmsql.spark.streaming.queue_stream import SparkStream, create_source
from jmsql.spark.streaming.queue_stream_statements import source_statements
from jmsql.spark.streaming.read_limits import default_read_limit, limits_of_batch
from jmsql.spark.streaming.reconnection import do_with_reconnection
from jmsql.spark.streaming.start import find_start
from jmsql.store.consumers import Consumption
from jmsql.store.control import ControlConnection
from jmsql.store.driver import PsycopgDriver
from jmsql.store.engine import Endpoint, connect
from jmsql.store.errors import jms_errors
from jmsql.store.message_key import GroupKey, MessageKey
from jmsql.store.runner import runner
from jmsql.store.server_clock import ServerClock
from jmsql.store.subscriptions import occupy, rejoin
from jmsql.store.traffic import Traffic
from jmsql.timings import Timings

__all__ = ["StreamReader"]

logger = logging.getLogger("jmsql")

_POLL = 1.0
"""Seconds after which an empty queue is looked at again, though nothing was heard of it."""


@dataclass
class BatchPartition(InputPartition):
    """A part of a batch.

    Args:
        statement: The statement that reads it, complete with its values.
        messages: How many messages it has.
    """

    statement: str
    messages: int


class _Driver:
    """What a stream keeps in the driver while it runs: its connections, and the read that it holds.

    Args:
        options: The options of the read.
        source_id: The number of the read.
    """

    def __init__(self, options: Options, source_id: str) -> None:
        self.source_id = source_id
        self._options = options
        self._joined: int | None = None
        self._news = threading.Event()
        self._news.set()
        self._next_look = 0.0
        self._consumptions: dict[Consumption, int] = {}
        traffic = Traffic()
        source = source_of(options)
        timings = Timings()
        self.connection: psycopg.Connection[Any] | None = None
        with jms_errors("connecting"):
            endpoint = Endpoint(options.database.resolve(), timings)
            self.control = ControlConnection.open(endpoint, options.schema, ServerClock(timings), timings)
        try:
            self.control.serve(_log_loss, lambda _: self._news.set(), traffic, lambda: self._consumptions)
            with jms_errors("starting a stream"):
                self.connection = connect(options.database.libpq_url("jmsql-spark-streaming"), autocommit=True)
                self.stream = SparkStream(
                    self.connection,
                    options.schema,
                    source_id,
                    options.selector,
                    lambda counts: traffic.count(self.stream.queue_id, source, counts),
                )
        except BaseException:
            self.close()
            raise
        selector = None if options.selector is None else options.selector.text
        self._consumptions = {Consumption(self.stream.queue_id, selector): 1}
        self.control.subscribe(self.stream.queue_id, self._hear)

    def join(self) -> None:
        """Be a consumer of the subscription that is read, also when the control connection was made again.

        Raises:
            IllegalStateException: It is not shared, and has another active consumer.
        """
        connection_id = self.control.connection_id
        if self._options.subscription is None or self._joined == connection_id:
            return
        assert self.connection is not None
        with self.connection.transaction():
            subscriptions = runner(self.connection, self._options.schema)
            if self._joined is not None:
                subscriptions.run(rejoin([self._joined], connection_id))
            subscriptions.run(occupy(self.stream.queue_id, connection_id))
        self._joined = connection_id

    def close(self) -> None:
        self.control.close()
        if self.connection is not None:
            self.connection.close()

    def has_news(self) -> bool:
        """Whether the queue may have something new since it was found empty."""
        return self._news.is_set() or time.monotonic() >= self._next_look

    def looks(self) -> None:
        """Note that the queue is looked at now."""
        self._news.clear()

    def found_nothing(self) -> None:
        """Note that it is empty."""
        self._next_look = time.monotonic() + _POLL

    def found_something(self) -> None:
        """Note that there may be more."""
        self._news.set()

    def _hear(self, _: MessageKey | GroupKey | None) -> None:
        self._news.set()


def _log_loss(error: JMSException) -> None:
    logger.warning("The stream's control connection was lost: %s", error)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streams a queue or a durable subscription, beside its other consumers; one that is not shared has none.

    An offset is `{"source": the number of the read, "batch": the number of its last batch}`. A batch is claimed, then
    frozen before any task reads it, so that it stays the same when it is read again, and acknowledged when Spark says
    that it is done.

    Args:
        options: The options of the read.
        schema: What to return.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._opened: _Driver | None = None
        self._last_sequence: int | None = None
        self._backlog = BacklogReport()

    def __getstate__(self) -> dict[str, Any]:
        """Leave the connections behind: tasks have their own."""
        return {**self.__dict__, "_opened": None}

    # Called by Spark, in one process of the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Begin a streaming read."""
        options = self._options
        with options.database.connect("beginning a stream") as connection:
            driver = PsycopgDriver(connection)
            queue_id = find_queue(driver, options)
            check_rights(driver, options.schema)
            if options.subscription is not None:
                statement = source_statements(options.schema).subscription_is_durable
                if not driver.execute(statement, {"queue_id": queue_id}).rows[0][0]:
                    raise JMSException(
                        f"Option 'subscription': {options.subscription!r} is not durable; it would end with its last "
                        "consumer. Make one that is: jmsql subscribe, create_durable_subscriber() or "
                        "create_shared_durable_consumer()."
                    )
            start = find_start(driver, options.schema, queue_id, options.starting_offsets)
            return {"source": create_source(driver, options.schema, queue_id, start), "batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """How much a micro-batch takes, by the options; if both are given, `latestOffset` adds the bytes."""
        return default_read_limit(self._options)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take no message that is sent after now."""
        with self._options.database.connect("looking for the last message") as connection:
            statement = source_statements(self._options.schema).last_sequence
            self._last_sequence = PsycopgDriver(connection).execute(statement).rows[0][0]

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Acknowledge what is done, and claim the next batch."""
        limits = limits_of_batch(limit, self._options)
        if self._last_sequence is not None:
            limits = limits._replace(last_sequence=self._last_sequence)

        def claim(driver: _Driver) -> int:
            driver.looks()
            return driver.stream.next_batch(
                start["batch"],
                limits,
                driver.control.connection_id,
                look_everywhere=self._last_sequence is not None,
            )

        if self._opened is not None and not self._opened.has_news() and self._last_sequence is None:
            return start
        batch = self._do("claiming a batch", start, claim)
        driver = self._driver(start)
        if batch == start["batch"]:
            driver.found_nothing()
            return start
        driver.found_something()
        return {**start, "batch": batch}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Freeze the batch, and divide it."""
        if start["batch"] == end["batch"]:
            return []
        options = self._options
        frozen = self._do(
            "freezing a batch", end, lambda driver: driver.stream.freeze(end["batch"], options.partitions)
        )
        if options.fail_on_data_loss:
            if frozen is None:
                raise JMSException(
                    f"Batch {end['batch']} is in the checkpoint and not in the database, which was restored or is "
                    "another. Set option 'failOnDataLoss' to false to go on without it."
                )
            if frozen.missing:
                raise JMSException(
                    f"{frozen.missing} messages of batch {end['batch']} are gone: they were deleted while they were "
                    "claimed. Set option 'failOnDataLoss' to false to go on without them."
                )
        if frozen is None:
            return []
        text = source_statements(options.schema).read(Shaper(self._schema).columns)
        connection = self._driver(end).connection
        assert connection is not None
        cursor = psycopg.ClientCursor(connection)
        return [
            BatchPartition(
                cursor.mogrify(
                    text,
                    {
                        "queue_id": part.queue_id,
                        "claim_id": part.claim_id,
                        "destination": source_of(options).uri,
                        "first_priority": part.first[0],
                        "first_sequence": part.first[1],
                        "last_priority": part.last[0],
                        "last_sequence": part.last[1],
                    },
                ),
                part.messages,
            )
            for part in frozen.parts
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """Remove the messages of the batches that are done."""
        if end["batch"]:
            self._do("acknowledging a batch", end, lambda driver: driver.stream.acknowledge(end["batch"]))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Tell, for the query's progress, what waits in the queue."""
        if self._opened is not None:
            offset = {"source": self._opened.source_id}
            self._backlog.update(
                offset["source"],
                lambda: self._do("counting the backlog", offset, lambda driver: driver.stream.backlog()),
            )
        return self._backlog.found

    def stop(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _driver(self, offset: dict[str, Any]) -> _Driver:
        if self._opened is None:
            self._opened = _Driver(self._options, offset["source"])
        self._opened.join()
        return self._opened

    def _do(self, doing: str, offset: dict[str, Any], action: Any) -> Any:
        """Do something that may be done twice; if the connection breaks, once more with a new one."""
        return do_with_reconnection(doing, lambda: action(self._driver(offset)), self.stop)

    # Called by Spark, in a task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part of a batch."""
        assert isinstance(partition, BatchPartition)
        database = self._options.database
        messages = 0
        with database.connect_arrow("reading a batch") as connection, connection.cursor() as cursor:
            cursor.execute(partition.statement)
            for batch in Shaper(self._schema).shape(cursor.fetch_record_batch()):
                messages += batch.num_rows
                yield batch
        if messages < partition.messages and self._options.fail_on_data_loss:
            raise JMSException(
                f"{partition.messages - messages} messages of the batch are gone: another driver has acknowledged "
                "them, or they were deleted. See option 'failOnDataLoss'."
            )
