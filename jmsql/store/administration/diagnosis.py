"""Facts that tell whether the store is well, and whether its messages move, for `jmsql doctor`.

Each question is one statement, so that a doctor can ask them one by one. Judging the answers is the asker's.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple, TypeVar

import psycopg

from jmsql.exceptions import InvalidSelectorException
from jmsql.selectors import Selector, SelectorSQL
from jmsql.store.statement import (
    Query,
    Result,
    SqlFile,
    Statement,
    Steps,
    column,
    in_transaction,
    nothing,
    record,
    records,
    value,
)
from jmsql.store.wire._sync.runner import PsycopgRunner, Runner
from jmsql.values.clock import monotonic
from jmsql.values.duration import as_setting
from jmsql.values.postgresql_text import from_postgresql

T = TypeVar("T")


class ServerFacts(NamedTuple):
    """The server, and the settings on which durability and vacuum depend."""

    version: str
    database: str
    in_recovery: bool
    fsync: bool
    full_page_writes: bool
    synchronous_commit: str
    autovacuum: bool
    autovacuum_naptime: str
    sees_all_sessions: bool
    role: str
    read_only: bool
    without_triggers: list[str] | None
    """Commands that end settings of session_replication_role with which no triggers run."""


class SnapshotHolder(NamedTuple):
    """A session, replication slot or prepared transaction that keeps vacuum from removing rows.

    `seconds` is how long it has done so, None where the server does not know; `transactions` is how many transactions
    have begun since.
    """

    kind: str
    process_id: int | None
    name: str
    user_name: str | None
    state: str | None
    seconds: float | None
    transactions: int
    query: str | None


class MessageTable(NamedTuple):
    """A table of the store, as the statistics see it."""

    table: str
    live_rows: int
    dead_rows: int
    bytes: int
    last_autovacuum: datetime | None
    autovacuum_enabled: bool
    settings: list[str]


class MaintenanceFacts(NamedTuple):
    """The client that does the maintenance, if any, and its backlog.

    `expired` and `overdue` count messages that expired, or were due, more than a minute ago. `restricted_users` are the
    users of connected clients that may not administer.
    """

    led: bool
    expired: int
    overdue: int
    clients: int
    restricted_users: list[str]


class ConnectionLimit(NamedTuple):
    """A limit on connections, of the server, the database or a role, and the program that has most of them."""

    kind: str
    name: str
    used: int
    most: int
    application_name: str
    user_name: str
    used_by_it: int


class IdleSlot(NamedTuple):
    """A replication slot that nothing reads, and how many bytes of the write-ahead log the server keeps for it."""

    name: str
    kept: int


class UnreadSubscription(NamedTuple):
    """A durable subscription with messages and without consumers."""

    topic: str
    name: str
    client_id: str | None
    ready: int
    oldest_seconds: float | None
    was_read: bool


class ScheduleFacts(NamedTuple):
    """A schedule: its last error, the seconds since its next tick was due, and since a worker has declared it.

    The former are negative before it is due, and None while it is paused; the latter are None if an administrator has
    made it.
    """

    name: str
    last_error: str | None
    late: float | None
    undeclared: float | None
    paused: bool


class LimitFacts(NamedTuple):
    """A limit of a listener over all workers, for one value of the property by which it counts.

    `free_in` are the seconds until the next message of a rate that is met may start.
    """

    destination: str
    subscription: str | None
    kind: str
    most: int
    per: float | None
    by: str | None
    value: str | None
    is_met: bool
    free_in: float | None


class SelectiveQueue(NamedTuple):
    """A queue that is received from with selectors alone."""

    queue_id: int
    name: str
    selectors: list[str]


class Unmatched(NamedTuple):
    """How many of a queue's first messages its consumers want, and the others with the age of their oldest."""

    wanted: int
    unwanted: int
    oldest_seconds: float | None


class TransactionHolder(NamedTuple):
    """An open transaction that has sent or received messages, which no other session sees or gets until it ends."""

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
        """True if its identifier looks like a transaction manager's."""
        return psycopg.Xid.from_string(self.identifier).format_id is not None


class SelectiveConsumer(NamedTuple):
    """A selector with which a queue is received from, and how many messages the queue has."""

    queue: str
    selector: str
    consumers: int
    depth: int


class WaitingQueue(NamedTuple):
    """A queue with messages and no consumer, or with dead letters."""

    queue: str
    ready: int
    oldest_seconds: float | None


class FailingDestination(NamedTuple):
    """A destination with messages that have failed with errors and are still there.

    `maximum_deliveries` is the destination's own, of subscriptions that differ the greatest; `has_maximum` is False if
    a subscription has none. `most_errors` is how often the worst of them failed; `waiting` is how many wait for their
    next attempt, the last of which is in `seconds`.
    """

    destination: str
    maximum_deliveries: int | None
    has_maximum: bool
    messages: int
    most_errors: int
    waiting: int
    seconds: float | None


class PausedDestination(NamedTuple):
    """A queue or topic that delivers nothing; of a queue, with how many messages it has, counted up to 1000."""

    kind: str
    destination: str
    depth: int


class Blocker(NamedTuple):
    """A session whose lock on a table of the store, or wait for one, keeps others from reading it."""

    process_id: int
    user_name: str | None
    application_name: str | None
    state: str | None
    query_start: datetime | None
    query: str | None


class ClockSkew(NamedTuple):
    """How many seconds the server's clock is ahead of this machine's, and by how much that may be wrong."""

    seconds: float
    uncertainty: float


_sql = SqlFile("diagnosis")


def _question(name: str, decode: Callable[[Result], T]) -> Query[T]:
    return _sql.statement(name, "examining the server", decode, {"ready": _sql["ready"]}).bind()


server = _question("server", record(ServerFacts._make))
"""Returns the server and its settings."""
_maintenance = _sql.statement("maintenance", "examining the server", record(MaintenanceFacts._make))
connection_limits = _question("connections", records(ConnectionLimit._make))
"""The limits on connections, the server's first."""
idle_slots = _question("idle_slots", records(IdleSlot._make))
"""The replication slots that nothing reads, first the one for which the server keeps most."""
unread_subscriptions = _question("unread_subscriptions", records(UnreadSubscription._make))
"""The durable subscriptions with messages and without consumers."""
schedules = _question("schedules", records(ScheduleFacts._make))
"""All schedules, by name."""
limits = _question("limits", records(LimitFacts._make))
"""The limits of listeners, first those that are met."""
_selective_queues = _question("selective_queues", records(SelectiveQueue._make))
_limit_memory = _question("limit_memory", nothing)
_write_file = _question("write_file", nothing)
snapshot_holders = _question("snapshot_holders", records(SnapshotHolder._make))
"""The holders that keep vacuum from removing dead rows of this database, the oldest first.

Sessions of other roles are seen only with the rights of `pg_read_all_stats`."""
tables = _question("tables", records(MessageTable._make))
"""The tables through which messages pass, with their settings that differ from the server's."""
tables_without_pages = _question("tables_without_pages", column)
"""The tables of messages with fewer pages than those that keep plans on their key."""
notification_queue_usage = _question("notification_queue_usage", value(float))
"""The part of the server's queue of notifications that is in use; sends fail when it reaches 1."""
transactions = _question("transactions", records(TransactionHolder._make))
"""The open transactions that have sent or received messages, the oldest first."""
_claims = _sql.statement("claims", "examining the server", records(ClaimHolder._make))
prepared_transactions = _question("prepared_transactions", records(PreparedTransaction._make))
"""The transactions of this database that wait for their second phase, the oldest first."""
unattended_queues = _question("unattended_queues", records(WaitingQueue._make))
"""The queues with messages and without consumers, but for those that letters are put into."""
paused = _question("paused", records(PausedDestination._make))
"""The queues and topics that are paused."""
sees_all_messages = _question("sees_all_messages", value(bool))
"""True if policies hide no message from this role."""
has_lost_privileges = _question("has_lost_privileges", value(bool))
"""True if roles have access, and may execute more or fewer functions than jmsql lets them."""
blockers = _question("blockers", records(Blocker._make))
"""The sessions that keep others from writing or reading tables of the store, first those that hold a lock."""
_failing = _sql.statement("failing", "examining the server", records(FailingDestination._make))
dead_letters = _question("dead_letters", records(WaitingQueue._make))
"""The queues that have dead letters, with their number."""

_clock = _question("clock", value(float))
_selective_consumers = _sql.statement("selective_consumers", "examining the server", records(SelectiveConsumer._make))

_limit_look = _sql.statement("limit_look", "examining the server", nothing)

DISK_FULL = "53100"
"""The SQLSTATE of a server that cannot write for lack of room."""
NO_LOCK = "55P03"
"""The SQLSTATE of a look that has waited for a lock for too long."""
TOO_LONG = "57014"
"""The SQLSTATE of a look that has taken longer than `LONGEST_LOOK`."""
LONGEST_LOOK = 10.0

_COUNTED = 100_000
"""A queue is not counted further, unless more is asked for."""


def ask(runner: Runner, question: Query[T] | Steps[T]) -> T:
    """Ask a question, and neither wait for a lock nor count for long. The limits end with it, also behind a pooler."""
    return runner.run(in_transaction(_limited(question)))


def _limited(question: Query[T] | Steps[T]) -> Steps[T]:
    yield from _limit_look.bind(timeout=as_setting(LONGEST_LOOK))
    return (yield from question)


def maintenance(most_rows: int | None = None) -> Query[MaintenanceFacts]:
    """Return whether a client does the maintenance, and the backlog, counted to a limit if one is given."""
    return _maintenance.bind(most_rows=most_rows)


def claims(most_rows: int | None = None) -> Query[list[ClaimHolder]]:
    """Return the clients that live and hold messages, those that have held one for longest first."""
    return _claims.bind(most_rows=most_rows)


def failing(most_rows: int | None = None) -> Query[list[FailingDestination]]:
    """Return the destinations with messages whose deliveries have failed with errors, the most of them first."""
    return _failing.bind(most_rows=most_rows)


def clock_skew() -> Steps[ClockSkew]:
    """Return how far the clocks are apart: the best of three looks."""
    looks = []
    for _ in range(3):
        started = time.time()
        server = yield from _clock
        ended = time.time()
        looks.append(ClockSkew(server - (started + ended) / 2, abs(ended - started) / 2))
    return min(looks, key=lambda look: look.uncertainty)


def selective_consumers(depth: int) -> Query[list[SelectiveConsumer]]:
    """Return the selectors with which queues are received from that have at least so many messages."""
    return _selective_consumers.bind(depth=depth, most=max(depth, _COUNTED))


def recorded_selector(text: str) -> Selector | None:
    """Return the selector of a consumer, from its record; None: another program has recorded a text that is none."""
    with contextlib.suppress(InvalidSelectorException):
        return Selector.parse(from_postgresql(text))
    return None


def unmatched() -> Steps[list[tuple[SelectiveQueue, Unmatched]]]:
    """Count the messages that no consumer wants, of each queue that is received from with selectors alone."""
    found = []
    for queue in (yield from _selective_queues):
        conditions: list[str] = []
        parameters: dict[str, object] = {}
        for text in queue.selectors:
            selector = recorded_selector(text)
            if selector is not None:
                condition, values = selector.to_sql(first=len(parameters))
                conditions.append(f"({condition})")
                parameters |= values
        chosen = SelectorSQL(" or ".join(conditions) or "false", parameters).packed()
        statement = _sql.statement(
            "unmatched", "examining the server", record(Unmatched._make), {"chosen": chosen.condition}
        )
        found.append((queue, (yield from statement.bind(chosen.parameters, queue_id=queue.queue_id))))
    return found


def write_file() -> Steps[None]:
    """Have the server write a temporary file where the messages are, which ends with the statement."""
    yield from _limit_memory
    yield from _write_file


def notification_delay(runner: PsycopgRunner, timeout: float) -> float | None:
    """Notify a connection from another one, on a channel of its own.

    Returns:
        How many seconds it took; None if it did not come within `timeout` seconds.
    """
    channel = f"jmsql_doctor_{uuid.uuid4().hex}"
    listen, notify, unlisten = (
        Statement(command, f"{command} {channel}", "listening for a notification", nothing).bind()
        for command in ("listen", "notify", "unlisten")
    )
    with runner.open_another() as sender:
        runner.run(listen)
        started = monotonic()
        sender.run(notify)
        arrived = monotonic() if runner.wait_for_notification(timeout) else None
        runner.run(unlisten)
    return None if arrived is None else arrived - started
