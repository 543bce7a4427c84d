"""Facts that tell whether messages move: who holds some, who receives, and what waits for a person."""

from __future__ import annotations

import time
from typing import NamedTuple

import psycopg

from jmsql.store.statement import Query, SqlFile, Steps, records, value

__all__ = [
    "ClaimHolder",
    "ClockSkew",
    "FailingDestination",
    "PreparedTransaction",
    "SelectiveConsumer",
    "TransactionHolder",
    "WaitingQueue",
    "claims",
    "clock_skew",
    "dead_letters",
    "failing",
    "prepared_transactions",
    "selective_consumers",
    "transactions",
    "unattended_queues",
]


class TransactionHolder(NamedTuple):
    """An open transaction that has sent or received messages, which nobody else sees or gets until it ends."""

    process_id: int
    application_name: str
    user_name: str | None
    state: str | None
    transaction_seconds: float
    state_seconds: float
    query: str | None


class ClaimHolder(NamedTuple):
    """A client that lives and holds messages, with the queue of the one that it has held longest."""

    connection_id: int
    client_id: str | None
    host: str
    process_id: int
    claimed: int
    seconds: float
    destination: str | None


class PreparedTransaction(NamedTuple):
    """A transaction that waits for the second phase of its commit, with all its locks."""

    identifier: str
    owner: str
    seconds: float
    holds_messages: bool

    @property
    def is_global(self) -> bool:
        """Whether a transaction manager has prepared it, by what its identifier looks like."""
        return psycopg.Xid.from_string(self.identifier).format_id is not None


class SelectiveConsumer(NamedTuple):
    """A selector with which a queue is received from, and how many messages the queue has."""

    queue: str
    selector: str
    consumers: int
    depth: int


class WaitingQueue(NamedTuple):
    """A queue with messages that nobody receives, or with dead letters."""

    queue: str
    ready: int
    oldest_seconds: float | None


class FailingDestination(NamedTuple):
    """A destination with messages that have failed with errors and are still there.

    `most_errors` is how often the worst of them failed; `waiting` is how many wait for their next attempt, the last of
    which is in `seconds`.
    """

    destination: str
    messages: int
    most_errors: int
    waiting: int
    seconds: float | None


class ClockSkew(NamedTuple):
    """How many seconds the server's clock is ahead of this machine's, and by how much that may be wrong."""

    seconds: float
    uncertainty: float


_EXAMINING = "examining the server"
_sql = SqlFile("diagnosis")
_clock = _sql.statement("clock", _EXAMINING, value(float))
_transactions = _sql.statement("transactions", _EXAMINING, records(TransactionHolder._make))
_claims = _sql.statement("claims", _EXAMINING, records(ClaimHolder._make))
_prepared_transactions = _sql.statement("prepared_transactions", _EXAMINING, records(PreparedTransaction._make))
_selective_consumers = _sql.statement("selective_consumers", _EXAMINING, records(SelectiveConsumer._make))
_unattended_queues = _sql.statement("unattended_queues", _EXAMINING, records(WaitingQueue._make))
_failing = _sql.statement("failing", _EXAMINING, records(FailingDestination._make))
_dead_letters = _sql.statement("dead_letters", _EXAMINING, records(WaitingQueue._make))

_COUNTED = 100_000
"""A queue is not counted further, unless more is asked for."""


def clock_skew() -> Steps[ClockSkew]:
    """Return how far the clocks are apart: the best of three looks."""
    looks = []
    for _ in range(3):
        started = time.time()
        server = yield from _clock.bind()
        ended = time.time()
        looks.append(ClockSkew(server - (started + ended) / 2, abs(ended - started) / 2))
    return min(looks, key=lambda look: look.uncertainty)


def transactions() -> Query[list[TransactionHolder]]:
    """Return the open transactions that have sent or received messages, the oldest first."""
    return _transactions.bind()


def claims() -> Query[list[ClaimHolder]]:
    """Return the clients that live and hold messages, those that have held one for longest first."""
    return _claims.bind()


def prepared_transactions() -> Query[list[PreparedTransaction]]:
    """Return the transactions of this database that wait for their second phase, the oldest first."""
    return _prepared_transactions.bind()


def selective_consumers(depth: int) -> Query[list[SelectiveConsumer]]:
    """Return the selectors with which queues are received from that have at least so many messages."""
    return _selective_consumers.bind(depth=depth, most=max(depth, _COUNTED))


def unattended_queues() -> Query[list[WaitingQueue]]:
    """Return the queues with messages and without consumers, but for those that letters are put into."""
    return _unattended_queues.bind()


def failing() -> Query[list[FailingDestination]]:
    """Return the destinations with messages whose deliveries have failed with errors, the most of them first."""
    return _failing.bind()


def dead_letters() -> Query[list[WaitingQueue]]:
    """Return the queues that have dead letters, with their number."""
    return _dead_letters.bind()
