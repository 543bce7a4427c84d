"""Measurements of a store: how much waits where, how fast it moves, and which clients hold something.

For `jmsql top` and for metrics, which look again and again. To count each destination exactly reads all messages of the
store; an overview counts to a limit.
"""

from __future__ import annotations

from typing import NamedTuple

from jmsql.store.statement import SqlFile, record, records

LONGEST_LOOK = 60.0
"""After how many seconds PostgreSQL is to give up a look."""


STATES = ("ready", "claimed", "waiting", "delayed", "expired")
"""The states of messages, as the fields of a measurement are called."""


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
store = _sql.statement("store", "measuring the store", record(StoreMeasurement._make)).bind()
"""Measurements of the store as a whole."""
tables = _sql.statement("tables", "measuring the tables", records(TableMeasurement._make)).bind()
"""The tables through which messages pass."""
