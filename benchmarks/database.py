"""The database that benchmarks run in, and the queues in it."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy
from psycopg import sql

import jmsql.asyncio
from jmsql import ConnectionFactory, DeliveryMode, migrate

SCHEMA = "jmsql"
BODY = "x" * 200
"""The body of every message: 200 bytes."""

_FILL = """
    insert into jmsql_internal.message (queue_id, inverse_priority, jms_message_id, jms_timestamp, jms_delivery_mode,
                               message_type, properties, text_body)
    select %(queue_id)s, 5, gen_random_uuid(), 1, %(delivery_mode)s, 'TextMessage', %(properties)s::jsonb,
           %(body)s
    from generate_series(1, %(count)s::integer)"""


class BenchmarkDatabase:
    """A database with the schema of jmsql, all of whose queues belong to the benchmarks.

    Args:
        url: Where it is.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    @cached_property
    def _connection(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, autocommit=True)

    @property
    def factory(self) -> ConnectionFactory:
        """Makes jmsql's connections to the database."""
        return ConnectionFactory(self.url, schema=SCHEMA)

    @property
    def asyncio_factory(self) -> jmsql.asyncio.ConnectionFactory:
        """Makes jmsql's connections for asyncio."""
        return jmsql.asyncio.ConnectionFactory(self.url, schema=SCHEMA)

    def transactions(self) -> int:
        """Return how many transactions the database has seen; the server tells it within a second."""
        row = self._connection.execute(
            "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
        ).fetchone()
        assert row is not None
        return int(row[0])

    def server_seconds(self) -> float:
        """Return the processor time that the server has taken, with all its processes of now and before.

        Raises:
            SystemExit: The server runs on another machine.
        """
        try:
            server = _process_fields(self._connection.info.backend_pid)[1]
            own = [int(ticks) for ticks in _process_fields(server)[11:15]]  # the last two: of processes that ended
            children = Path(f"/proc/{server}/task/{server}/children").read_text(encoding="ascii").split()
            ticks = sum(own) + sum(int(ticks) for child in children for ticks in _process_fields(child)[11:13])
        except FileNotFoundError:
            raise SystemExit("The server's processor time is measured where it runs: leave out --url.") from None
        return ticks / os.sysconf("SC_CLK_TCK")

    def connect(self, *, autocommit: bool) -> psycopg.Connection[Any]:
        """Open a bare connection."""
        return psycopg.connect(self.url, autocommit=autocommit)

    def execute(self, statement: str) -> None:
        """Run a statement, which commits."""
        self._connection.execute(statement.encode())

    def queue_id(self, name: str) -> int:
        """Return the id of a queue, making it if need be."""
        self._connection.execute(
            "insert into jmsql_internal.queue (name) values (%s) on conflict (name) do nothing", (name,)
        )
        row = self._connection.execute("select queue_id from jmsql_internal.queue where name = %s", (name,)).fetchone()
        assert row is not None
        return int(row[0])

    def fill(
        self,
        queue: str,
        count: int,
        properties: str | None = None,
        delivery_mode: DeliveryMode = DeliveryMode.PERSISTENT,
    ) -> None:
        """Put messages into a queue.

        Args:
            queue: Its name.
            count: How many.
            properties: What properties each has, as JSON; None: none.
            delivery_mode: Their delivery mode.
        """
        parameters = {
            "queue_id": self.queue_id(queue),
            "count": count,
            "properties": properties,
            "body": BODY,
            "delivery_mode": int(delivery_mode),
        }
        self._connection.execute(_FILL, parameters)

    def clear(self) -> None:
        """Take away all messages, and what they leave in the tables, so that every benchmark begins alike."""
        self.execute("delete from jmsql_internal.message")
        self.execute("delete from jmsql_internal.delivery")
        self.execute("vacuum (analyze) jmsql_internal.message, jmsql_internal.delivery")

    def count(self, table: str) -> int:
        """Return how many rows a table has."""
        row = self._connection.execute(f"select count(*) from {table}".encode()).fetchone()
        assert row is not None
        return int(row[0])

    def size(self, table: str) -> tuple[int, int]:
        """Return how large a table is, and how large its indexes are together, in bytes."""
        row = self._connection.execute("select pg_table_size(%(table)s), pg_indexes_size(%(table)s)", {"table": table})
        table_size, indexes_size = row.fetchone() or (0, 0)
        return int(table_size), int(indexes_size)

    def setting(self, name: str) -> str:
        """Return one of the server's settings."""
        row = self._connection.execute("select current_setting(%s)", (name,)).fetchone()
        assert row is not None
        return str(row[0])

    def close(self) -> None:
        """Close the connection that the benchmarks' maintenance uses."""
        self._connection.close()


def _process_fields(process_id: int | str) -> list[str]:
    """Return what Linux tells of a process, from its state on."""
    return Path(f"/proc/{process_id}/stat").read_text(encoding="ascii").rpartition(")")[2].split()


@contextmanager
def server(url: str | None) -> Iterator[str]:
    """The URL of a PostgreSQL server: the one given, or an embedded one in a directory that is removed at the end.

    Args:
        url: The server to use; None: start one.
    """
    if url is not None:
        yield url
        return
    from jmsql.embedded import start_server

    with tempfile.TemporaryDirectory(prefix="jmsql-benchmarks-") as directory:
        Path(directory).chmod(0o711)  # for root: the server's account must pass through
        with start_server(Path(directory, "postgresql")) as embedded:
            yield embedded.url


@contextmanager
def database_on(server_url: str) -> Iterator[BenchmarkDatabase]:
    """Make a database with the schema of jmsql on a server, and drop it at the end.

    Raises:
        SystemExit: Commits do not wait for the disk there, which would make the figures meaningless.
    """
    url = sqlalchemy.make_url(server_url).set(drivername="postgresql")
    name = f"jmsql_benchmark_{uuid.uuid4().hex[:12]}"
    _administer(url, sql.SQL("create database {}").format(sql.Identifier(name)))
    try:
        made = BenchmarkDatabase(url.set(database=name).render_as_string(hide_password=False))
        migrate(made.url, SCHEMA)
        try:
            for setting in ("fsync", "synchronous_commit"):
                if (value := made.setting(setting)) != "on":
                    raise SystemExit(f"The server has {setting} = {value}; the benchmarks are about durable messages.")
            yield made
        finally:
            made.close()
    finally:
        _administer(url, sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def _administer(url: sqlalchemy.URL, statement: sql.Composed) -> None:
    with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as connection:
        connection.execute(statement)
