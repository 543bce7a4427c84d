"""Measurements of a store: how much waits where, how fast it moves, and which clients hold something.

For `jmsql top` and for metrics, which look again and again. To count each destination exactly reads all messages of the
store; an overview counts to a limit.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from jmsql.store.administration.inspection import ACCESS
from jmsql.store.statement import SqlFile, record, records

LONGEST_LOOK = 60.0
"""After how many seconds PostgreSQL is to give up a look."""


STATES = ("ready", "claimed", "waiting", "delayed", "expired")
"""The states of messages, as the fields of a measurement are called."""


class DestinationMeasurement(NamedTuple):
    """A queue, a topic, or the subscriptions of one name: its messages, and its rates so far.

    `oldest` is when the oldest message could first have been delivered, in milliseconds since the epoch; None: it has
    no message. The counts are the clients' recorded ones; `waited` and `handled` are microseconds. Where the role may
    not browse it, `browsable` is False, and its messages count as 0.
    """

    number: int
    kind: str
    destination: str
    subscription: str | None
    client_id: str | None
    ready: int
    claimed: int
    waiting: int
    delayed: int
    expired: int
    redelivered: int
    oldest: int | None
    oldest_claim: datetime | None
    consumers: int
    sent: int
    acknowledged: int
    rolled_back: int
    redeliveries: int
    waited: float
    calls: int
    handled: float
    paused: bool
    browsable: bool


class StoreMeasurement(NamedTuple):
    """Measurements of the store as a whole.

    `holding_transactions` are those open transactions that have touched messages, `longest_transaction_seconds` is how
    long the oldest of them has been open. `prepared_transactions` wait for the second phase of their commit.
    """

    server_time: float
    connected_clients: int
    gone_clients: int
    holding_transactions: int
    longest_transaction_seconds: float
    prepared_transactions: int
    longest_prepared_seconds: float
    notification_queue_usage: float
    delayed_messages_due: int


class TableMeasurement(NamedTuple):
    """A table through which messages pass, as the statistics see it."""

    table: str
    live_rows: int
    dead_rows: int
    bytes: int


_sql = SqlFile("measurement")
destinations = _sql.statement(
    "destinations", "measuring the destinations", records(DestinationMeasurement._make), ACCESS
).bind()
"""All destinations that are not temporary, by kind and name."""
store = _sql.statement("store", "measuring the store", record(StoreMeasurement._make)).bind()
"""Measurements of the store as a whole."""
tables = _sql.statement("tables", "measuring the tables", records(TableMeasurement._make)).bind()
"""The tables through which messages pass."""
