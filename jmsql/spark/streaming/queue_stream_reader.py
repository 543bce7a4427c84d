"""Reading a queue as a stream: each message goes into one micro-batch, and leaves the queue when that is done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

import psycopg
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from jmsql import InvalidClientIDException, JMSException
from jmsql.extension.claiming import (
    Consumption,
    ControlConnection,
    DestinationCounters,
    GroupKey,
    InternalTimings,
    MessageKey,
    ServerClock,
    occupy,
    rejoin,
)
from jmsql.extension.connections import Endpoint
from jmsql.extension.statements import PsycopgRunner, Runner, Steps, in_transaction, jms_errors
from jmsql.logs import contained_logger
from jmsql.spark.columns.schema import shaper
from jmsql.spark.connection import inlined
from jmsql.spark.database import check_rights
from jmsql.spark.options import Options
from jmsql.spark.reading.browse import queue_of, source_of
from jmsql.spark.streaming.queue_stream import (
    SparkStream,
    create_source,
    find_start,
    is_durable,
    last_sequence,
    queue_of_source,
    read_claim,
)
from jmsql.spark.streaming.stream_reader import Offset, ReconnectingReader, StreamPartition

logger = contained_logger("jmsql")

T = TypeVar("T")

_POLL = 1.0
"""Seconds after which an empty queue is looked at again, though nothing was heard of it."""


class _Beside:
    """Connections that work on large batches beside the driver's own, which are opened when the first one comes."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._connections: list[psycopg.Connection[Any]] = []

    def __call__(self, work: Sequence[Steps[T]], /) -> list[T]:
        """Run steps side by side, each in a transaction."""
        options = self._options
        while len(self._connections) < options.claim_connections:
            self._connections.append(options.database.open("claiming", autocommit=True))
        free: SimpleQueue[Runner] = SimpleQueue()
        for connection in self._connections:
            free.put(PsycopgRunner(connection, options.schema))

        def run(steps: Steps[T]) -> T:
            runner = free.get()
            try:
                return runner.run(in_transaction(steps))
            finally:
                free.put(runner)

        try:
            with ThreadPoolExecutor(options.claim_connections, "jmsql-claiming") as threads:
                return list(threads.map(run, work))
        except BaseException:
            self.close()  # one may be lost, or in a transaction that has failed
            raise

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            connection.close()
        self._connections.clear()


class _Driver:
    """The state of a stream in the driver while it runs: its connections, and the read that it holds."""

    def __init__(self, options: Options, source_id: str, lose: Callable[[str], None]) -> None:
        self.source_id = source_id
        self._lose = lose
        self._options = options
        self._joined: int | None = None
        self.news = threading.Event()
        self.news.set()
        self.next_look = 0.0
        self._consumptions: dict[Consumption, int] = {}
        self._beside = _Beside(options)
        self.connection: psycopg.Connection[Any] | None = None

    def open(self) -> None:
        """Connect, and take the read from the driver before.

        Raises:
            LookupError: The read is not known.
        """
        options = self._options
        counters = DestinationCounters()
        source = source_of(options)
        timings = InternalTimings()
        with jms_errors("connecting"):
            endpoint = Endpoint(options.database.resolve(), timings)
            self.control = ControlConnection.open(endpoint, options.schema, ServerClock(timings), timings)
        try:
            with suppress(InvalidClientIDException):  # a driver before has it, which is about to end
                self.control.set_client_id(f"spark-{self.source_id}")
            self.control.serve(_log_loss, lambda _: self.news.set(), counters, lambda: self._consumptions)
            self.connection = options.database.open("streaming", autocommit=True)
            runner = PsycopgRunner(self.connection, options.schema)
            self._require_same_queue(runner)
            self.stream = SparkStream.open(
                runner,
                self.source_id,
                options.selector,
                lambda counts: counters.count(self.stream.queue_id, source, counts),
                None if options.claim_connections == 1 else self._beside,
                self._lose,
            )
        except BaseException:
            self.close()
            raise
        selector = None if options.selector is None else options.selector.text
        self._consumptions = {Consumption(self.stream.queue_id, selector): 1}
        self.control.begin_waiting(self.stream.queue_id, self._hear)

    def _require_same_queue(self, runner: Runner) -> None:
        queue_id = runner.run(queue_of_source.bind(source_id=self.source_id))
        if queue_id is not None and queue_id != queue_of(runner, self._options):
            raise JMSException(
                "The checkpoint belongs to a stream of another queue or subscription than the options name; one that "
                "was deleted and made again is another, too. Give each query a checkpoint of its own."
            )

    def join(self) -> None:
        """Be a consumer of the subscription that is read, also when the control connection was made again.

        Raises:
            IllegalStateException: It is not shared, and has another active consumer.
        """
        connection_id = self.control.connection_id
        if self._options.subscription is None or self._joined == connection_id:
            return
        assert self.connection is not None
        PsycopgRunner(self.connection, self._options.schema).run(in_transaction(self._occupy(connection_id)))
        self._joined = connection_id

    def _occupy(self, connection_id: int) -> Steps[None]:
        if self._joined is not None:
            yield from rejoin([self._joined], connection_id)
        yield from occupy(self.stream.queue_id, connection_id)

    def close(self) -> None:
        self.control.close()
        self._beside.close()
        if self.connection is not None:
            self.connection.close()

    def has_news(self) -> bool:
        """Return whether the queue may have something new since it was found empty."""
        return self.news.is_set() or time.monotonic() >= self.next_look

    def _hear(self, _: MessageKey | GroupKey | None) -> None:
        self.news.set()


def _batch(offset: Offset) -> int:
    """Return the number of a batch.

    Raises:
        JMSException: The offset belongs to a stream of the history.
    """
    if "batch" not in offset:
        raise JMSException(
            "The checkpoint belongs to a stream of the history (option 'history'). Give each query a checkpoint of its "
            "own."
        )
    batch: int = offset["batch"]
    return batch


def _log_loss(error: JMSException) -> None:
    logger.warning("The stream's control connection was lost: %s", error)


class StreamReader(ReconnectingReader[_Driver]):
    """Streams a queue or a durable subscription, beside its other consumers; one that is not shared has none.

    An offset is `{"source": the number of the read, "batch": the number of its last batch}`. A batch is claimed, then
    frozen before any task reads it, so that it stays the same when it is read again, and acknowledged when Spark says
    that it is done.
    """

    _reading = "reading a batch"
    _unknown = "the queue was deleted, the read was not used for 400 days"
    _last_sequence: int | None = None
    """The last message that is taken; None: there is no last one."""

    # Called by Spark, in one process of the driver

    def _begin(self) -> Offset:
        options = self._options
        with options.database.connect("beginning a stream") as connection:
            driver = PsycopgRunner(connection, options.schema)
            queue_id = queue_of(driver, options)
            check_rights(driver)
            if options.subscription is not None and not driver.run(is_durable.bind(queue_id=queue_id)):
                raise JMSException(
                    f"Option 'subscription': {options.subscription!r} is not durable; it would end with its last "
                    "consumer. Make one that is: jmsql subscribe, create_durable_subscriber() or "
                    "create_shared_durable_consumer()."
                )
            source_id = self._create(driver)
            # Spark also asks a query that comes back with its first batch, which begins where that does.
            return {"batch": 0, "refusal": self._no_start} if source_id is None else {"source": source_id, "batch": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Take no message that is sent after now."""
        with self._options.database.connect("looking for the last message") as connection:
            self._last_sequence = PsycopgRunner(connection, self._options.schema).run(last_sequence)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Acknowledge the finished batch, and claim the next one."""
        after = _batch(start)
        if "refusal" in start:
            raise JMSException(start["refusal"])
        limits = self._limits(limit)
        if self._last_sequence is not None:
            limits = limits._replace(last_sequence=self._last_sequence)

        def claim(driver: _Driver) -> int:
            driver.news.clear()
            return driver.stream.next_batch(
                after,
                limits,
                driver.control.connection_id,
                look_everywhere=self._last_sequence is not None,
            )

        if self._opened is not None and not self._opened.has_news() and self._last_sequence is None:
            return start
        batch = self._do("claiming a batch", start, claim)
        driver = self._open(start)
        if batch == after:
            driver.next_look = time.monotonic() + _POLL
            return start
        driver.news.set()  # there may be more
        return {**start, "batch": batch}

    def partitions(self, start: dict[str, Any], end: Offset) -> list[InputPartition]:
        """Freeze the batch, and divide it."""
        if _batch(start) == _batch(end):
            return []
        options = self._options
        frozen = self._do(
            "freezing a batch", end, lambda driver: driver.stream.freeze(_batch(end), options.count_partitions)
        )
        if frozen is None:
            self._lose(
                f"Batch {end['batch']} is in the checkpoint and not in the database: one of them was restored, or is "
                "another"
            )
            return []
        if frozen.missing:
            self._lose(
                f"{frozen.missing} messages of batch {end['batch']} are gone: they were deleted while they were claimed"
            )
        read = read_claim(shaper(self._schema, self._options).columns)
        connection = self._open(end).connection
        assert connection is not None
        destination = source_of(options).uri
        queries = [read.bind(part.parameters(), destination=destination) for part in frozen.parts]
        return [
            StreamPartition(inlined(connection, options.schema, query), part.messages)
            for query, part in zip(queries, frozen.parts, strict=True)
        ]

    def commit(self, end: Offset) -> None:
        """Remove the messages of the batches that are done."""
        batch = _batch(end)
        if batch:
            self._do(
                "acknowledging a batch",
                end,
                lambda driver: driver.stream.acknowledge(batch, driver.control.connection_id),
            )

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the queue's backlog, for the query's progress."""
        if self._opened is not None:
            self._count_backlog({"source": self._opened.source_id}, lambda driver: driver.stream.backlog())
        return self._backlog

    def _open(self, offset: Offset) -> _Driver:
        opened = super()._open(offset)
        opened.join()
        return opened

    def _take(self, source_id: str) -> _Driver:
        opened = _Driver(self._options, source_id, self._lose)
        opened.open()
        return opened

    def _begin_again(self, driver: Runner, source_id: str) -> None:
        if self._create(driver, source_id) is None:
            raise JMSException(self._no_start)

    @property
    def _no_start(self) -> str:
        return f"Option 'startingOffsets': there is no message {self._options.starting_offsets} in the queue."

    def _create(self, driver: Runner, source_id: str | None = None) -> str | None:
        """Note a streaming read, and return its number; None if the message is gone that it begins with."""
        queue_id = queue_of(driver, self._options)
        start = driver.run(find_start(queue_id, self._options.starting_offsets))
        return None if start is None else driver.run(create_source(queue_id, start, source_id))

    def _miss(self, messages: int) -> None:
        self._lose(
            f"{messages} messages of the batch are gone: another driver has acknowledged them, or they were deleted"
        )
