"""The streaming reads of Spark: messages are claimed into numbered batches, which stay until they are acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import accumulate, takewhile
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from jmsql import IllegalStateException, InvalidDestinationException, JMSException
from jmsql.extension.claiming import Counts, InternalTimings, ScanBounds, claim_batch, has_groups
from jmsql.extension.scanning import PRIORITIES, Selector, by_key
from jmsql.extension.statements import (
    Result,
    Runner,
    SqlFile,
    Statement,
    Steps,
    first_value,
    in_transaction,
    is_connection_lost,
    nothing,
    optional_value,
    records,
    rows,
    value,
)
from jmsql.logs import contained_logger
from jmsql.spark.columns.expressions import MESSAGE_EXPRESSIONS, select_list
from jmsql.spark.options import read_timestamp

logger = contained_logger("jmsql")

T = TypeVar("T")

_CHUNK = 10_000
"""The most messages that one statement claims."""

_MOST_PIECES = 1000
"""The most statements that claim a batch side by side."""

_EVERYTHING = 2**63 - 1


class Start(NamedTuple):
    """The beginning of a new streaming read.

    Args:
        sequence: Messages before it are left to others.
        timestamp: Messages sent before it are, in milliseconds since the epoch.
    """

    sequence: int = 0
    timestamp: int = 0


class BatchLimits(NamedTuple):
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

    def parameters(self) -> dict[str, object]:
        """Return the parameters of the statement that reads it."""
        return {"queue_id": self.queue_id, "claim_id": self.claim_id, **_range(self.first, self.last)}


class _Piece(NamedTuple):
    """So many messages of a priority, from a sequence to another."""

    inverse_priority: int
    first: int
    last: int
    messages: int


class _Claimed(NamedTuple):
    """The messages that several connections have claimed for a batch: how many, and where."""

    batch: int
    claim_id: int
    messages: int
    size: int
    pieces: list[_Piece]


class InParallel(Protocol):
    """Runs steps side by side, each in a transaction on a connection of its own."""

    def __call__(self, work: Sequence[Steps[T]], /) -> list[T]:
        """Return all results when all have ended; raise the error of one."""


class FrozenBatch(NamedTuple):
    """A batch that stays as it is: its parts, and how many of its messages are gone all the same."""

    parts: list[Part]
    missing: int


class Backlog(NamedTuple):
    """The backlog of the queue: messages, bytes, and for how many seconds the oldest has waited."""

    messages: int
    size: int
    lag: float


def _first_row(result: Result) -> Sequence[Any]:
    return result.rows[0]


def _range(first: tuple[int, int], last: tuple[int, int]) -> dict[str, object]:
    """Return the parameters that choose the messages from a key to another."""
    return {
        "first_priority": first[0],
        "first_sequence": first[1],
        "last_priority": last[0],
        "last_sequence": last[1],
    }


_ALL = _range((0, 0), (PRIORITIES, 0))

_BY_KEY = {
    "message_of_d": by_key("message", "m", "d"),
    "message_of_a": by_key("message", "m", "a"),
    "delivery_of_m": by_key("delivery", "d", "m"),
}

_sql = SqlFile("queue_stream", "jmsql.spark")
_OF_PART = {"of_part": _sql["of_part"]}
_forget_unused = _sql.statement("forget_unused", "beginning a stream", nothing)
_create_source = _sql.statement("create_source", "beginning a stream", value(str))
_find_message = _sql.statement("find_message", "looking for the start of the stream", optional_value(int))
queue_of_source = _sql.statement("queue_of_source", "starting a stream", optional_value(int))
_begin_epoch = _sql.statement("begin_epoch", "starting a stream", rows)
_was_deleted = _sql.statement("queue_was_deleted", "going on with a stream", value(bool))
_share_source = _sql.statement("share_source", "going on with a stream", rows)
_lock_source = _sql.statement("lock_source", "going on with a stream", rows)
is_durable = _sql.statement("subscription_is_durable", "looking at the subscription", value(bool))
"""True if the subscription behind a queue is durable."""

last_sequence = _sql.statement("last_sequence", "looking for the last message", value(int)).bind()
"""The last sequence that was given to any message; 0 if there was none."""

_finished = _sql.statement("finished", "acknowledging a batch", rows)
_keep_history = _sql.statement("keep_history", "acknowledging a batch", nothing, {**_OF_PART, **_BY_KEY})
_acknowledge = _sql.statement("acknowledge", "acknowledging a batch", _first_row, {**_OF_PART, **_BY_KEY})
_forget_batch = _sql.statement("forget_batch", "acknowledging a batch", nothing)
_set_acknowledged = _sql.statement("set_acknowledged", "acknowledging a batch", nothing)
_next_batch: Statement[int | None] = _sql.statement("next_batch", "claiming a batch", first_value)
_new_claim = _sql.statement("new_claim", "claiming a batch", value(int))
_pieces = _sql.statement("pieces", "claiming a batch", records(_Piece._make))
_release_claims = _sql.statement("release_claims", "claiming a batch", nothing)
_create_batch = _sql.statement("create_batch", "claiming a batch", nothing)
_find_batch = _sql.statement("find_batch", "freezing a batch", rows)
_freeze_claims = _sql.statement("freeze_claims", "freezing a batch", nothing, _OF_PART)
_freeze_batch = _sql.statement("freeze_batch", "freezing a batch", nothing)
_parts = _sql.statement("parts", "dividing a batch", rows)
_backlog = _sql.statement("backlog", "counting the backlog", lambda result: Backlog._make(result.rows[0]), _BY_KEY)


def create_source(queue_id: int, start: Start, source_id: str | None = None) -> Steps[str]:
    """Note a new streaming read and return its number, a new one if none is given; forget unused ones."""
    yield from _forget_unused.bind()
    return (
        yield from _create_source.bind(
            source_id=source_id,
            queue_id=queue_id,
            first_sequence=start.sequence,
            first_timestamp=start.timestamp,
        )
    )


def find_start(queue_id: int, text: str) -> Steps[Start | None]:
    """Return where to start streaming a queue, as option 'startingOffsets' says; None if its message is not there."""
    if text == "earliest":
        return Start()
    if text == "latest":
        return Start(sequence=(yield from last_sequence) + 1)
    if (since := read_timestamp(text)) is not None:
        return Start(timestamp=int(since.timestamp() * 1000))
    found = yield from _find_message.bind(queue_id=queue_id, message_id=text.removeprefix("ID:").lower())
    return None if found is None else Start(sequence=found)


def _refuse(what: str) -> None:
    raise IllegalStateException(f"{what}.")


def read_claim(columns: Sequence[str]) -> Statement[list[tuple[Any, ...]]]:
    """Return the statement that reads the messages of a claim, from a key to another."""
    return _sql.statement(
        "read",
        "reading a batch",
        rows,
        {"columns": select_list(MESSAGE_EXPRESSIONS, columns), **_OF_PART, **_BY_KEY},
    )


def _of_piece(piece: _Piece) -> dict[str, object]:
    return _range((piece.inverse_priority, piece.first), (piece.inverse_priority, piece.last))


class SparkStream:
    """A streaming read, in the hands of one driver. Each method is one transaction.

    Made by `open`.
    """

    def __init__(
        self,
        runner: Runner,
        source_id: str,
        selector: Selector | None,
        count: Callable[[Counts], None],
        epoch: int,
        queue_id: int,
        start: Start,
        in_parallel: InParallel | None,
        lose: Callable[[str], None],
    ) -> None:
        self._runner = runner
        self._selector = selector
        self._count = count
        self._source = {"source_id": source_id}
        self._bounds = ScanBounds(InternalTimings().sweep_interval)
        self._epoch = epoch
        self.queue_id = queue_id
        self._start = start
        self._acknowledged = Counts()
        self._in_parallel = in_parallel
        self._lose = lose
        self._claimed: _Claimed | None = None
        self._was_large = False

    @classmethod
    def open(
        cls,
        runner: Runner,
        source_id: str,
        selector: Selector | None,
        count: Callable[[Counts], None],
        in_parallel: InParallel | None = None,
        lose: Callable[[str], None] = _refuse,
    ) -> Self:
        """Take a read from the driver before, which can do nothing more.

        The runner has a connection of its own, in autocommit mode. It works on large batches as well, unless
        `in_parallel` does. `count` is called with the acknowledged messages, once that is committed. `lose` is called
        with a sentence where the checkpoint and the database contradict each other; it raises, or the stream goes on.

        Raises:
            LookupError: The read is not known.
        """
        found = runner.run(_begin_epoch.bind(source_id=source_id))
        if not found:
            raise LookupError(source_id)
        epoch, queue_id, first_sequence, first_timestamp = found[0]
        start = Start(first_sequence, first_timestamp)
        return cls(runner, source_id, selector, count, epoch, queue_id, start, in_parallel, lose)

    def next_batch(self, after: int, limits: BatchLimits, connection_id: int, *, look_everywhere: bool) -> int:
        """Acknowledge the batches up to `after`, and return the next: one that is there, or a new one.

        Returns:
            The number of the next batch, or `after` if there is none.

        Raises:
            InvalidDestinationException: There is none, and the queue or subscription was deleted.
        """
        self._acknowledge_pieces(after, connection_id)
        claimed = self._claim_pieces(after, limits, connection_id)
        batch = self._counting(self._claim_next(after, limits, connection_id, claimed, look_everywhere=look_everywhere))
        self._claimed = claimed
        return batch

    def _claim_next(
        self, after: int, limits: BatchLimits, connection_id: int, claimed: _Claimed | None, *, look_everywhere: bool
    ) -> Steps[int]:
        acknowledged = yield from self._lock()
        place = yield from self._check_place(after, acknowledged)
        yield from self._acknowledge(after, connection_id)
        existing = yield from _next_batch.bind(self._at(place))
        if existing is not None:
            return existing
        if claimed is None:
            claim_id = yield from _new_claim.bind()
            messages, size = yield from self._fill(claim_id, limits, connection_id, look_everywhere=look_everywhere)
        else:
            _, claim_id, messages, size, _ = claimed
        self._was_large = messages >= 2 * _CHUNK
        if not messages:
            yield from self._require_queue()
            return after
        yield from _create_batch.bind(self._at(place + 1), claim_id=claim_id, messages=messages, bytes=size)
        return place + 1

    def _check_place(self, after: int, acknowledged: int) -> Steps[int]:
        """Return the batch after which the stream goes on: the checkpoint's, unless it is wrong.

        Spark notes a batch before it is acknowledged. So the checkpoint is never behind the acknowledged batch, and the
        database has the batch that the checkpoint names until then.
        """
        if after < acknowledged:
            self._lose(
                f"The checkpoint is at batch {after}, but batch {acknowledged} is acknowledged and gone: the "
                "checkpoint is old"
            )
            return acknowledged
        if after > acknowledged and not (yield from _find_batch.bind(self._at(after))):
            self._lose(
                f"The checkpoint is at batch {after}, beyond batch {acknowledged}, up to which the database knows this "
                "streaming read: the database was restored, or is another"
            )
        return after

    def _require_queue(self) -> Steps[None]:
        # It gets no messages any more, and its row stays until it is cleared away. One of the same name is another.
        if (yield from _was_deleted.bind(queue_id=self.queue_id)):
            raise InvalidDestinationException(
                "The queue or subscription that is streamed was deleted. Start with a new checkpoint when there is "
                "one again."
            )

    def freeze(self, batch: int, count_parts: Callable[[int], int]) -> FrozenBatch | None:
        """Make sure that a batch stays as it is until it is acknowledged, and divide it; None if it is not known.

        `count_parts` tells into how many parts some number of messages is to be divided.
        """
        if (claimed := self._claimed) is not None and claimed.batch == batch:
            self._work_beside([self._freeze_piece(claimed.claim_id, piece) for piece in claimed.pieces])
        return self._runner.run(in_transaction(self._freeze(batch, count_parts)))

    def _freeze(self, batch: int, count_parts: Callable[[int], int]) -> Steps[FrozenBatch | None]:
        yield from self._lock()
        found = yield from _find_batch.bind(self._at(batch))
        if not found:
            return None
        claim_id, messages, frozen = found[0]
        if not frozen:  # the claims are taken from the driver
            yield from _freeze_claims.bind(_ALL, queue_id=self.queue_id, claim_id=claim_id)
            claim_id = -claim_id
        parts = yield from _parts.bind(queue_id=self.queue_id, claim_id=claim_id, partitions=count_parts(messages))
        if not frozen:
            messages = sum(row[0] for row in parts)
            yield from _freeze_batch.bind(self._at(batch), claim_id=claim_id, messages=messages)
        return FrozenBatch(
            [
                Part(self.queue_id, claim_id, count, (first[0], first[1]), (last[0], last[1]))
                for count, first, last in parts
            ],
            messages - sum(row[0] for row in parts),
        )

    def acknowledge(self, batch: int, connection_id: int) -> None:
        """Remove the messages of a batch and of those before it, which the history says of a connection."""
        self._acknowledge_pieces(batch, connection_id)
        self._counting(self._acknowledge_locked(batch, connection_id))

    def backlog(self) -> Backlog:
        """Count the queue's waiting messages."""
        return self._runner.run(_backlog.bind(queue_id=self.queue_id))

    def _counting(self, steps: Steps[T]) -> T:
        """Run a transaction, and count its acknowledged messages, unless it fails."""
        self._acknowledged = Counts()
        outcome = self._runner.run(in_transaction(steps))
        if self._acknowledged.acknowledged:
            self._count(self._acknowledged)
        return outcome

    def _at(self, batch: int) -> dict[str, object]:
        return {**self._source, "batch": batch}

    def _lock(self) -> Steps[int]:
        """Lock the source until the transaction ends, and return the last batch that was acknowledged."""
        found = yield from _lock_source.bind(self._source)
        if not found:
            raise InvalidDestinationException(
                "The streaming read is gone: its queue or subscription was deleted, or forget_spark_source() has ended "
                "it. Start with a new checkpoint."
            )
        (acknowledged,) = check_epoch(found, self._epoch)
        return int(acknowledged)

    def _acknowledge_locked(self, batch: int, connection_id: int) -> Steps[None]:
        yield from self._lock()
        yield from self._acknowledge(batch, connection_id)

    def _acknowledge(self, batch: int, connection_id: int) -> Steps[None]:
        finished = yield from _finished.bind(self._at(batch))
        for number, claim_id in finished:
            acknowledged = yield from self._remove(claim_id, _ALL, connection_id)
            self._acknowledged = self._acknowledged.plus(acknowledged)
            yield from _forget_batch.bind(self._at(number))
        if finished:
            yield from _set_acknowledged.bind(self._at(batch))

    def _remove(self, claim_id: int, part: dict[str, object], connection_id: int) -> Steps[Counts]:
        claim = {"queue_id": self.queue_id, "claim_id": claim_id, **part}
        yield from _keep_history.bind(claim, connection_id=connection_id)
        messages, redelivered, waited = yield from _acknowledge.bind(claim)
        return Counts(acknowledged=messages, redelivered=redelivered, waited=int(waited))

    # In parallel: each transaction shares the source's row, and so makes the next driver wait until it has ended.

    def _claim_pieces(self, after: int, limits: BatchLimits, connection_id: int) -> _Claimed | None:
        """Claim a batch by several connections; None if one is to claim it: it may be small, or is not simple."""
        if self._in_parallel is None or self._selector is not None or limits.size < _EVERYTHING or not self._was_large:
            return None
        sweeps, started = self._bounds.sweep_due(idle=False), time.monotonic()
        lowest = [0] * PRIORITIES if sweeps else self._bounds.lowest
        claim_id, pieces = self._counting(self._plan_pieces(after, limits, connection_id, lowest))
        if len(pieces) < 2:
            return None
        found = None
        try:
            found = self._work_beside([self._claim_piece(claim_id, piece, connection_id) for piece in pieces])
        finally:
            if found is None:
                self._runner.run(in_transaction(self._release(claim_id)))
        if found is None:
            return None
        claimed = [row for each in found for row in each]
        self._bounds.passed((row[0], row[3]) for row in claimed)
        if sweeps:
            self._bounds.swept(time.monotonic() - started)
        messages, size = (sum(row[column] for row in claimed) for column in (1, 2))
        return _Claimed(after + 1, claim_id, messages, size, pieces) if messages else None

    def _plan_pieces(
        self, after: int, limits: BatchLimits, connection_id: int, lowest: Sequence[int]
    ) -> Steps[tuple[int, list[_Piece]]]:
        """Divide the messages to claim. Messages before it go first: a sweep would find them."""
        acknowledged = yield from self._lock()
        existing = yield from _next_batch.bind(self._at(after))
        is_known = after == acknowledged or (yield from _find_batch.bind(self._at(after)))
        if not is_known or existing is not None or (yield from has_groups(self.queue_id)):
            return 0, []
        yield from self._acknowledge(after, connection_id)
        found = yield from _pieces.bind(
            queue_id=self.queue_id,
            lowest=lowest,
            last_sequence=limits.last_sequence,
            limit=_CHUNK,
            count=min(limits.messages // _CHUNK, _MOST_PIECES),
        )
        ends = accumulate(piece.messages for piece in found)
        most = min(limits.messages, _MOST_PIECES * _CHUNK)
        pieces = [piece for piece, _ in takewhile(lambda each: each[1] <= most, zip(found, ends, strict=True))]
        return (yield from _new_claim.bind()), pieces

    def _claim_piece(self, claim_id: int, piece: _Piece, connection_id: int) -> Steps[list[tuple[Any, ...]]]:
        yield from self._share()
        lowest = [_EVERYTHING] * PRIORITIES
        lowest[piece.inverse_priority] = piece.first
        claim = self._claim(claim_id, connection_id, lowest, piece.messages, piece.last)
        return (yield from claim_batch(None).bind(claim))

    def _release(self, claim_id: int) -> Steps[None]:
        """Release the claims of all pieces, once their transactions have ended.

        The server may still be committing one whose connection was lost.
        """
        yield from _lock_source.bind(self._source)
        yield from _release_claims.bind(queue_id=self.queue_id, claim_id=claim_id)

    def _claim(
        self, claim_id: int, connection_id: int, lowest: Sequence[int], limit: int, last_sequence: int
    ) -> dict[str, object]:
        """Return the parameters of a claim."""
        return {
            "queue_id": self.queue_id,
            "lowest": lowest,
            "limit": limit,
            "last_sequence": last_sequence,
            "first_sequence": self._start.sequence,
            "first_timestamp": self._start.timestamp,
            "claim_id": claim_id,
            "connection_id": connection_id,
        }

    def _freeze_piece(self, claim_id: int, piece: _Piece) -> Steps[None]:
        yield from self._share()
        yield from _freeze_claims.bind(_of_piece(piece), queue_id=self.queue_id, claim_id=claim_id)

    def _acknowledge_pieces(self, batch: int, connection_id: int) -> None:
        """Remove the messages of a batch that several connections have claimed; one removes the rest."""
        claimed = self._claimed
        if claimed is None or claimed.batch > batch:
            return
        self._claimed = None
        work = [self._acknowledge_piece(-claimed.claim_id, piece, connection_id) for piece in claimed.pieces]
        for counts in self._work_beside(work) or ():
            self._count(counts)

    def _acknowledge_piece(self, claim_id: int, piece: _Piece, connection_id: int) -> Steps[Counts]:
        yield from self._share()
        return (yield from self._remove(claim_id, _of_piece(piece), connection_id))

    def _work_beside(self, work: Sequence[Steps[T]]) -> list[T] | None:
        """Work on several connections; None if one was lost, and some of the work is not done."""
        assert self._in_parallel is not None
        try:
            return self._in_parallel(work)
        except JMSException as error:
            if not is_connection_lost(error):
                raise
            logger.warning("A connection was lost that worked beside the stream's own, which does the rest: %s", error)
            return None

    def _share(self) -> Steps[None]:
        check_epoch((yield from _share_source.bind(self._source)), self._epoch)

    def _fill(
        self, claim_id: int, limits: BatchLimits, connection_id: int, *, look_everywhere: bool
    ) -> Steps[tuple[int, int]]:
        """Claim messages; return how many they are, and their size."""
        sweeps = self._bounds.sweep_due(idle=False)
        started = time.monotonic()
        lowest = [0] * PRIORITIES if sweeps else self._bounds.lowest
        found = yield from self._claim_up_to(claim_id, limits, connection_id, lowest)
        if not sweeps and not found[0] and (look_everywhere or self._bounds.sweep_due(idle=True)):
            sweeps, started = True, time.monotonic()
            found = yield from self._claim_up_to(claim_id, limits, connection_id, [0] * PRIORITIES)
        if sweeps:
            self._bounds.swept(time.monotonic() - started)
        return found

    def _claim_up_to(
        self, claim_id: int, limits: BatchLimits, connection_id: int, lowest: Sequence[int]
    ) -> Steps[tuple[int, int]]:
        messages = size = 0
        bounds = list(lowest)
        claim = claim_batch(self._selector, grouped=(yield from has_groups(self.queue_id)))
        while messages < limits.messages and size < limits.size:
            limit = min(_CHUNK, limits.messages - messages)
            found = yield from claim.bind(self._claim(claim_id, connection_id, bounds, limit, limits.last_sequence))
            for inverse_priority, _, _, last in found:
                bounds[inverse_priority] = last + 1
            self._bounds.passed((row[0], row[3]) for row in found)
            claimed = sum(row[1] for row in found)
            messages += claimed
            size += sum(row[2] for row in found)
            if claimed < limit:
                break
        return messages, size


def check_epoch(found: Sequence[Sequence[Any]], epoch: int) -> Sequence[Any]:
    """Make sure that a streaming read is there, and in the hands of this driver; return the other columns of its row.

    The transaction has locked the row, whose first column is the epoch. There is none if the read is gone.

    Raises:
        IllegalStateException: Another driver has opened it since.
        JMSException: It is gone.
    """
    if not found:
        raise JMSException("The streaming read was ended by forget_spark_source().")
    current, *others = found[0]
    if current != epoch:
        raise IllegalStateException(
            "Another driver has taken over this streaming read: two queries run with the same checkpoint. This one "
            "stops here; nothing is lost."
        )
    return others
