"""Facts that tell whether the store is well: its version, its clients, vacuum, and notifications.

Each question is one statement, so that a doctor can ask them one by one. Judging the answers is the asker's.
"""

from __future__ import annotations

import time
import uuid
from datetime import datetime
from types import TracebackType
from typing import Any, NamedTuple, Self

from jmsql.store.autocommit_connection import AutocommitConnection
from jmsql.store.errors import jms_errors
from jmsql.store.holders import Holders
from jmsql.store.identifier import Schema
from jmsql.store.inspection import ClientSummary, clients
from jmsql.store.migration import current_version, newest_version

__all__ = ["Diagnosis", "MessageTable", "ServerFacts", "SnapshotHolder", "UpkeepFacts"]


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


class UpkeepFacts(NamedTuple):
    """Whether a client does the upkeep, and what waits for it.

    `expired` counts messages that expired more than a minute ago.
    """

    led: bool
    expired: int


class Diagnosis:
    """Asks the server for the facts.

    Args:
        url: Where the database is.
        schema: The name of the schema, which need not be there.

    Raises:
        JMSException: The database cannot be reached.
    """

    def __init__(self, url: str, schema: str) -> None:
        self.schema = schema
        """The name of the schema."""
        self._schema = Schema(schema)
        self.connection = AutocommitConnection(url)
        """Where to ask."""
        self.holders = Holders(self.connection, schema)

    def server(self) -> ServerFacts:
        """Return what the server is, and its settings."""
        return ServerFacts._make(
            self._rows(
                """select current_setting('server_version'), current_database(), current_setting('server_encoding'),
                          pg_is_in_recovery(), current_setting('fsync')::boolean,
                          current_setting('full_page_writes')::boolean, current_setting('synchronous_commit'),
                          current_setting('autovacuum')::boolean and current_setting('track_counts')::boolean,
                          current_setting('autovacuum_naptime'), pg_has_role('pg_read_all_stats', 'usage')"""
            )[0]
        )

    def schema_versions(self) -> tuple[str | None, str]:
        """Return the version of the schema in the database, None if it is not there, and the one that is wanted."""
        with jms_errors("looking at the schema"):
            return current_version(self.connection.sqlalchemy, self.schema), newest_version()

    def clients(self) -> list[ClientSummary]:
        """Return the connections of clients, the oldest first."""
        return self.connection.runner(self.schema).run(clients())

    def upkeep(self) -> UpkeepFacts:
        """Return whether a client does the upkeep, and what waits for it."""
        return UpkeepFacts._make(
            self._rows(
                f"""select exists (select from {self._schema.internal}.leadership
                                   where expires_at > statement_timestamp()
                                     and {self._schema.internal}.is_connected(connection_id)),
                           (select count(*) from {self._schema.internal}.message
                            where jms_expiration < {self._schema.internal}.current_milliseconds() - 60000)"""
            )[0]
        )

    def snapshot_holders(self) -> list[SnapshotHolder]:
        """Return what keeps vacuum from removing dead rows of this database, the oldest first.

        Sessions of other roles are seen only with the rights of `pg_read_all_stats`.
        """
        rows = self._rows(
            """select 'session', pid, application_name, usename::text, state,
                      extract(epoch from clock_timestamp() - coalesce(xact_start, backend_start))::float8,
                      greatest(age(backend_xid), age(backend_xmin)), query
               from pg_stat_activity
               where (backend_xmin is not null or backend_xid is not null) and pid <> pg_backend_pid()
                 and (datname = current_database() or backend_type = 'walsender')
                 and backend_type <> 'autovacuum worker'
               union all
               select 'replication slot', active_pid, slot_name::text, null,
                      case when active then 'active' else 'inactive' end, null::float8, age(xmin), null
               from pg_replication_slots where xmin is not null
               union all
               select 'prepared transaction', null, gid, owner::text, 'prepared',
                      extract(epoch from clock_timestamp() - prepared)::float8, age(transaction), null
               from pg_prepared_xacts where database = current_database()
               order by 7 desc"""
        )
        return [SnapshotHolder._make(row) for row in rows]

    def tables(self) -> list[MessageTable]:
        """Return the tables through which messages pass, with their settings that differ from the server's."""
        rows = self._rows(
            """select c.relname::text, s.n_live_tup, s.n_dead_tup, pg_total_relation_size(c.oid), s.last_autovacuum,
                      not coalesce('autovacuum_enabled=false' = any(c.reloptions), false)
                          and not coalesce('autovacuum_enabled=off' = any(c.reloptions), false),
                      coalesce(c.reloptions, '{}')
               from pg_class c
               join pg_stat_all_tables s on s.relid = c.oid
               where c.relnamespace = %(schema)s::regnamespace and c.relname in ('message', 'delivery')
               order by c.relname desc""",
            schema=self._schema.internal,
        )
        return [MessageTable._make(row) for row in rows]

    def tables_without_pages(self) -> list[str]:
        """Return the tables of messages with fewer pages than those that keep plans on their key."""
        return [
            name for (name,) in self._rows(f"select name from {self._schema.internal}.tables_without_pages() as name")
        ]

    def notification_queue_usage(self) -> float:
        """Return the part of the server's queue of notifications that is in use; sends fail when it reaches 1."""
        return float(self._rows("select pg_notification_queue_usage()")[0][0])

    def notification_delay(self, timeout: float) -> float | None:
        """Notify this connection from another one, on a channel that nobody else uses.

        Returns:
            How many seconds it took; None if it did not come within `timeout` seconds.
        """
        channel = f"jmsql_doctor_{uuid.uuid4().hex}"
        with jms_errors("listening for a notification"), self.connection.engine.connect() as sender:
            self.connection.rows(f"listen {channel}")
            started = time.monotonic()
            sender.exec_driver_sql(f"notify {channel}")
            sender.commit()
            arrived = [time.monotonic() for _ in self.connection.psycopg.notifies(timeout=timeout, stop_after=1)]
            self.connection.rows(f"unlisten {channel}")
        return arrived[0] - started if arrived else None

    def close(self) -> None:
        """End the connection."""
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _rows(self, statement: str, **parameters: object) -> list[tuple[Any, ...]]:
        with jms_errors("examining the server"):
            return self.connection.rows(statement, **parameters)
