"""The streaming reads of Spark: messages are claimed into numbered batches, which stay until they are acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import psycopg

from jmsql.exceptions import IllegalStateException, InvalidDestinationException
from jmsql.selectors import Selector
from jmsql.spark.streaming.fence import check_epoch
from jmsql.spark.streaming.queue_stream_statements import source_statements
from jmsql.store.dequeue import PRIORITIES, ScanBounds
from jmsql.store.driver import PsycopgDriver
from jmsql.store.receive import claim_batch, has_groups
from jmsql.store.runner import Runner
from jmsql.store.traffic import Counts
from jmsql.timings import Timings

__all__ = ["Backlog", "FrozenBatch", "Limits", "Part", "SparkStream", "Start", "create_source"]

_CHUNK = 10_000
"""The most messages that one statement claims."""

_EVERYTHING = 2**63 - 1

_NO_PLACES: dict[str, object] = {"place_priorities": "{}", "place_sequences": "{}", "place_limit": 1}
"""Where a scan of a queue with groups is to look besides: nowhere."""


class Start(NamedTuple):
    """What a new streaming read begins with.

    Args:
        sequence: Messages before it are left to others.
        timestamp: Messages sent before it are, in milliseconds since the epoch.
    """

    sequence: int = 0
    timestamp: int = 0


class Limits(NamedTuple):
    """How much a batch takes.

    Args:
        messages: The most messages.
        size: The bytes from which on it takes no more.
        last_sequence: The last message that it takes.
    """

    messages: int = _EVERYTHING
    size: int = _EVERYTHING
    last_sequence: int = _EVERYTHING


class Part(NamedTuple):
    """A part of a batch: so many messages, from one key to another, given as (inverse priority, sequence)."""

    queue_id: int
    claim_id: int
    messages: int
    first: tuple[int, int]
    last: tuple[int, int]


class FrozenBatch(NamedTuple):
    """A batch that stays as it is: its parts, and how many of its messages are gone all the same."""

    parts: list[Part]
    missing: int


class Backlog(NamedTuple):
    """What waits in the queue: messages, bytes, and for how many seconds the oldest has waited."""

    messages: int
    size: int
    lag: float


def create_source(driver: PsycopgDriver, schema: str, queue_id: int, start: Start) -> str:
    """Note a new streaming read and return its number."""
    parameters = {"queue_id": queue_id, "first_sequence": start.sequence, "first_timestamp": start.timestamp}
    number: str = driver.execute(source_statements(schema).create_source, parameters).rows[0][0]
    return number


class SparkStream:
    """A streaming read, in the hands of one driver.

    The driver that opens it takes it from the driver before, which can do nothing more. Each method is one transaction.

    Args:
        connection: A connection of its own, in autocommit mode.
        schema: The name of the schema.
        source_id: The number of the read.
        selector: Which messages are wanted.
        count: Called with what was acknowledged, once that is committed.

    Raises:
        JMSException: The read is not known.
    """

    def __init__(
        self,
        connection: psycopg.Connection[object],
        schema: str,
        source_id: str,
        selector: Selector | None,
        count: Callable[[Counts], None],
    ) -> None:
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # whatever the database's default is
        self._connection = connection
        self._driver = PsycopgDriver(connection)
        self._statements = source_statements(schema)
        self._runner = Runner(self._driver, schema)
        self._selector = selector
        self._count = count
        self._source = {"source_id": source_id}
        self._bounds = ScanBounds(Timings().sweep_interval)
        found = self._driver.execute(self._statements.begin_epoch, self._source).rows
        if not found:
            raise InvalidDestinationException(
                f"The checkpoint belongs to the streaming read {source_id}, which the database does not know: the "
                "queue was deleted, or the database is another. Start with a new checkpoint."
            )
        self._epoch, self.queue_id, self._first_sequence, self._first_timestamp = found[0]

    def next_batch(self, after: int, limits: Limits, connection_id: int, *, look_everywhere: bool) -> int:
        """Acknowledge the batches up to `after`, and return the next: one that is there, or a new one.

        Args:
            after: The last batch that is done.
            limits: How much a new batch takes.
            connection_id: The connection with whose end the claims of a new batch end.
            look_everywhere: Whether to look at the whole queue before the answer is that nothing is there.

        Returns:
            The number of the next batch, or `after` if there is none.
        """
        with self._counting(), self._connection.transaction():
            acknowledged = self._lock()
            if after < acknowledged:
                raise IllegalStateException(
                    f"The checkpoint is at batch {after}, but batch {acknowledged} is acknowledged and gone: the "
                    "checkpoint is old. Start with a new one."
                )
            self._acknowledge(after)
            existing: int | None = self._driver.execute(self._statements.next_batch, self._at(after)).rows[0][0]
            if existing is not None:
                return existing
            claim_id: int = self._driver.execute(self._statements.new_claim).rows[0][0]
            messages, size = self._fill(claim_id, limits, connection_id, look_everywhere=look_everywhere)
            if not messages:
                return after
            batch = {**self._at(after + 1), "claim_id": claim_id, "messages": messages, "bytes": size}
            self._driver.execute(self._statements.create_batch, batch)
            return after + 1

    def freeze(self, batch: int, partitions: int) -> FrozenBatch | None:
        """Make sure that a batch stays as it is until it is acknowledged, and divide it; None if it is not known."""
        with self._connection.transaction():
            self._lock()
            found = self._driver.execute(self._statements.find_batch, self._at(batch)).rows
            if not found:
                return None
            claim_id, messages, frozen = found[0]
            if not frozen:
                claim_id, messages = self._freeze(batch, claim_id)
            claim = {"queue_id": self.queue_id, "claim_id": claim_id}
            parts = self._driver.execute(self._statements.parts, {**claim, "partitions": partitions}).rows
            return FrozenBatch(
                [
                    Part(self.queue_id, claim_id, count, (first[0], first[1]), (last[0], last[1]))
                    for count, first, last in parts
                ],
                messages - sum(row[0] for row in parts),
            )

    def _freeze(self, batch: int, claim_id: int) -> tuple[int, int]:
        """Take the claims of a batch from the driver; return their new number, and how many there are."""
        frozen: int = self._driver.execute(self._statements.new_claim).rows[0][0]
        claim = {"queue_id": self.queue_id, "claim_id": claim_id, "frozen_claim_id": frozen}
        messages = self._driver.execute(self._statements.freeze_claims, claim).row_count
        batch_claim = {**self._at(batch), "claim_id": frozen, "messages": messages}
        self._driver.execute(self._statements.freeze_batch, batch_claim)
        return frozen, messages

    def acknowledge(self, batch: int) -> None:
        """Remove the messages of a batch and of those before it."""
        with self._counting(), self._connection.transaction():
            self._lock()
            self._acknowledge(batch)

    def last_sequence(self) -> int:
        """Return the last sequence that was given to any message."""
        return int(self._driver.execute(self._statements.last_sequence).rows[0][0])

    def backlog(self) -> Backlog:
        """Count what waits in the queue."""
        return Backlog._make(self._driver.execute(self._statements.backlog, {"queue_id": self.queue_id}).rows[0])

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Tell what was acknowledged in the block, unless it fails."""
        self._acknowledged = Counts()
        yield
        if self._acknowledged.acknowledged:
            self._count(self._acknowledged)

    def _at(self, batch: int) -> dict[str, object]:
        return {**self._source, "batch": batch}

    def _lock(self) -> int:
        """Lock the source until the transaction ends, and return the last batch that was acknowledged."""
        found = self._driver.execute(self._statements.lock_source, self._source).rows
        (acknowledged,) = check_epoch(found, self._epoch)
        return int(acknowledged)

    def _acknowledge(self, batch: int) -> None:
        finished = self._driver.execute(self._statements.finished, self._at(batch)).rows
        for number, claim_id in finished:
            claim = {"queue_id": self.queue_id, "claim_id": claim_id}
            self._driver.execute(self._statements.keep_history, claim)
            messages, redelivered = self._driver.execute(self._statements.acknowledge, claim).rows[0]
            self._acknowledged = self._acknowledged.plus(Counts(acknowledged=messages, redelivered=redelivered))
            self._driver.execute(self._statements.forget_batch, self._at(number))
        if finished:
            self._driver.execute(self._statements.set_acknowledged, self._at(batch))

    def _fill(self, claim_id: int, limits: Limits, connection_id: int, *, look_everywhere: bool) -> tuple[int, int]:
        """Claim messages; return how many they are, and their size."""
        sweeps = self._bounds.sweep_due(idle=False)
        started = time.monotonic()
        found = self._claim_up_to(claim_id, limits, connection_id, [0] * PRIORITIES if sweeps else self._bounds.lowest)
        if not sweeps and not found[0] and (look_everywhere or self._bounds.sweep_due(idle=True)):
            sweeps, started = True, time.monotonic()
            found = self._claim_up_to(claim_id, limits, connection_id, [0] * PRIORITIES)
        if sweeps:
            self._bounds.swept(time.monotonic() - started)
        return found

    def _claim_up_to(self, claim_id: int, limits: Limits, connection_id: int, lowest: Sequence[int]) -> tuple[int, int]:
        messages = size = 0
        bounds = list(lowest)
        claim = claim_batch(self._selector, grouped=self._runner.run(has_groups(self.queue_id)))
        while messages < limits.messages and size < limits.size:
            limit = min(_CHUNK, limits.messages - messages)
            parameters = {
                "queue_id": self.queue_id,
                "lowest": bounds,
                "limit": limit,
                "first_sequence": self._first_sequence,
                "last_sequence": limits.last_sequence,
                "first_timestamp": self._first_timestamp,
                "claim_id": claim_id,
                "connection_id": connection_id,
                **_NO_PLACES,
            }
            rows = self._runner.run(claim.bind(parameters))
            for inverse_priority, _, _, last in rows:
                bounds[inverse_priority] = last + 1
            self._bounds.passed((row[0], row[3]) for row in rows)
            claimed = sum(row[1] for row in rows)
            messages += claimed
            size += sum(row[2] for row in rows)
            if claimed < limit:
                break
        return messages, size
