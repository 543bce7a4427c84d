"""Facts that tell whether the store is well: its version, its clients, vacuum, and notifications.

Each question is one statement, so that a doctor can ask them one by one. Judging the answers is the asker's.
"""

from __future__ import annotations

import time
import uuid
from datetime import datetime
from typing import NamedTuple

from jmsql.store.runners._sync.autocommit import AutocommitRunner
from jmsql.store.statement import Query, SqlFile, Statement, column, nothing, records, value

__all__ = [
    "MaintenanceFacts",
    "MessageTable",
    "ServerFacts",
    "SnapshotHolder",
    "maintenance",
    "notification_delay",
    "notification_queue_usage",
    "server",
    "snapshot_holders",
    "tables",
    "tables_without_pages",
]


class ServerFacts(NamedTuple):
    """What the server is, and the settings on which durability and vacuum depend."""

    version: str
    database: str
    encoding: str
    in_recovery: bool
    fsync: bool
    full_page_writes: bool
    synchronous_commit: str
    autovacuum: bool
    autovacuum_naptime: str
    sees_all_sessions: bool


class SnapshotHolder(NamedTuple):
    """What keeps vacuum from removing rows: a session, a replication slot, or a prepared transaction.

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
    """Whether a client does the maintenance, and what waits for it.

    `expired` counts messages that expired more than a minute ago.
    """

    led: bool
    expired: int


_EXAMINING = "examining the server"
_sql = SqlFile("diagnosis")
_server = _sql.statement("server", _EXAMINING, lambda result: ServerFacts._make(result.rows[0]))
_maintenance = _sql.statement("maintenance", _EXAMINING, lambda result: MaintenanceFacts._make(result.rows[0]))
_snapshot_holders = _sql.statement("snapshot_holders", _EXAMINING, records(SnapshotHolder._make))
_tables = _sql.statement("tables", _EXAMINING, records(MessageTable._make))
_tables_without_pages = _sql.statement("tables_without_pages", _EXAMINING, column)
_notification_queue_usage = _sql.statement("notification_queue_usage", _EXAMINING, value(float))


def server() -> Query[ServerFacts]:
    """Return what the server is, and its settings."""
    return _server.bind()


def maintenance() -> Query[MaintenanceFacts]:
    """Return whether a client does the maintenance, and what waits for it."""
    return _maintenance.bind()


def snapshot_holders() -> Query[list[SnapshotHolder]]:
    """Return what keeps vacuum from removing dead rows of this database, the oldest first.

    Sessions of other roles are seen only with the rights of `pg_read_all_stats`.
    """
    return _snapshot_holders.bind()


def tables() -> Query[list[MessageTable]]:
    """Return the tables through which messages pass, with their settings that differ from the server's."""
    return _tables.bind()


def tables_without_pages() -> Query[list[str]]:
    """Return the tables of messages with fewer pages than those that keep plans on their key."""
    return _tables_without_pages.bind()


def notification_queue_usage() -> Query[float]:
    """Return the part of the server's queue of notifications that is in use; sends fail when it reaches 1."""
    return _notification_queue_usage.bind()


def notification_delay(runner: AutocommitRunner, timeout: float) -> float | None:
    """Notify a connection from another one, on a channel that nobody else uses.

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
        started = time.monotonic()
        sender.run(notify)
        arrived = time.monotonic() if runner.wait_for_notification(timeout) else None
        runner.run(unlisten)
    return None if arrived is None else arrived - started
