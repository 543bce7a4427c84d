"""A database for one test session: made, emptied between tests, watched for connections left open, dropped."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from graphlib import TopologicalSorter
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from jmsql.exceptions import JMSSecurityException
from jmsql.store.connections.database_url import DatabaseUrl, parse_url
from jmsql.store.errors import jms_errors
from jmsql.store.identifier import internal_schema
from jmsql.store.schema.migration import migrate
from jmsql.testing.waiting import wait_for

_ANSWERING = "jmsql-spark-answering-tasks"
"""The name of a connection that lives as long as a Spark driver, which other tests may share."""

_KEEPING = "jmsql-spark-keeping-a-snapshot"
"""The name of connections that such a driver's reads keep for a while, for later use of their DataFrames."""

WATCHING = "jmsql.testing"
"""The name of the tests' own connections, which stay open between tests."""

_GRACE = 2.0  # seconds for PostgreSQL to notice that a client is gone
_LOCK_TIMEOUT = "10s"
_LACKS_PRIVILEGE = "42501"

_TABLES = """
    select c.relname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relkind in ('r', 'p') and not c.relispartition
    """
_REFERENCES = """
    select child.relname, parent.relname from pg_catalog.pg_constraint f
    join pg_catalog.pg_namespace n on n.oid = f.connamespace
    join pg_catalog.pg_class child on child.oid = f.conrelid join pg_catalog.pg_class parent on parent.oid = f.confrelid
    where n.nspname = %s and f.contype = 'f' and child.oid <> parent.oid
      and not child.relispartition and not parent.relispartition
    """


class OpenConnection(NamedTuple):
    """A connection to the database, as PostgreSQL sees it."""

    process: int
    application_name: str
    state: str | None
    last_statement: str | None

    def __str__(self) -> str:
        return f"process {self.process} {self.application_name!r}, {self.state}, last statement: {self.last_statement}"


class SessionDatabase:
    """The database of the test session."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection: psycopg.Connection[Any] | None = None
        self._deletions: list[sql.Composed] = []

    def prepare(self, schema: str) -> None:
        """Make the schema of jmsql, by its name."""
        migrate(self.url, schema)
        internals = internal_schema(schema)
        tables = [name for (name,) in self.execute(_TABLES, (internals,))]
        references = self.execute(_REFERENCES, (internals,))
        order = TopologicalSorter(
            {table: [child for child, parent in references if parent == table] for table in tables}
        )
        # Triggers record the removal of destinations: the table of these records is emptied last.
        ordered = sorted(order.static_order(), key=lambda name: name == "administrative_action")
        # Rows of the migrations stay, except queues: the dead-letter queue is made when it is used.
        queues = sql.Identifier(internals, "queue")
        self._deletions = [
            sql.SQL("delete from {}").format(table)
            for table in (sql.Identifier(internals, name) for name in ordered)
            if table == queues or not self.execute(sql.SQL("select from {} limit 1").format(table))
        ]

    def clean(self) -> None:
        """Empty the schema. Rows are deleted: for the few that a test leaves, truncating takes 80 times as long.

        Raises:
            psycopg.errors.LockNotAvailable: A transaction left open holds a row.
        """
        self.execute(sql.SQL("; ").join(self._deletions))

    def connections(self) -> dict[int, OpenConnection]:
        """The connections of others to the database, by process."""
        rows = self.execute(
            "select pid, application_name, state, query from pg_catalog.pg_stat_activity "
            "where datname = current_database() and backend_type = 'client backend' "
            "and application_name <> all(%s)",
            ([WATCHING, _ANSWERING],),
        )
        return {row[0]: OpenConnection(*row) for row in rows}

    def end_connections_except(self, expected: dict[int, OpenConnection]) -> list[OpenConnection]:
        """Wait a moment until only the `expected` connections are open; end and return the others.

        Spark's connections for the test's reads are ended, too, and not returned.
        """
        self.execute(
            "select pg_terminate_backend(pid, 10000::bigint) from pg_catalog.pg_stat_activity "
            "where datname = current_database() and application_name = %s and pid <> all(%s)",
            (_KEEPING, list(expected)),
        )
        try:
            wait_for(lambda: self.connections().keys() <= expected.keys(), timeout=_GRACE)
        except AssertionError:
            left = [connection for process, connection in self.connections().items() if process not in expected]
            for connection in left:
                self.execute("select pg_terminate_backend(%s)", (connection.process,))
            return left
        return []

    def close(self) -> None:
        """Close the connection that watches."""
        if self._connection is not None:
            self._connection.close()

    def execute(self, statement: str | sql.Composed, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Run a statement on the connection that watches, and return its rows."""
        try:
            return _run(self._open(), statement, parameters)
        except psycopg.OperationalError:
            if self._connection is not None and not self._connection.closed:
                raise
            return _run(self._open(), statement, parameters)  # the test before stopped the server

    def _open(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(
                self.url, autocommit=True, application_name=WATCHING, options=f"-c lock_timeout={_LOCK_TIMEOUT}"
            )
        return self._connection


@contextmanager
def session_database(server_url: str, schema: str) -> Iterator[SessionDatabase]:
    """Make a database of a random name on the server, with the schema in it, and drop it at the end.

    Raises:
        JMSSecurityException: The role may not make databases.
    """
    server = parse_url(server_url)
    name = f"jmsql_test_{uuid.uuid4().hex[:12]}"
    try:
        _administer(server, sql.SQL("create database {}").format(sql.Identifier(name)))
    except JMSSecurityException as error:
        if error.error_code != _LACKS_PRIVILEGE:
            raise
        raise JMSSecurityException(
            "The role that the tests connect as may not make a database for them: give it the right, `alter role … "
            "createdb`, or name another role or server in JMSQL_TEST_URL.",
            error.error_code,
        ) from error
    try:
        database = SessionDatabase(server._replace(database=name).text())
        try:
            database.prepare(schema)
            yield database
        finally:
            database.close()
    finally:
        _administer(server, sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def _administer(server: DatabaseUrl, statement: sql.Composed) -> None:
    doing = "making or dropping a database for tests"
    with jms_errors(doing), psycopg.connect(server.text(), autocommit=True) as connection:
        connection.execute(statement)


def _run(
    connection: psycopg.Connection[Any], statement: str | sql.Composed, parameters: tuple[object, ...]
) -> list[tuple[Any, ...]]:
    cursor = connection.execute(statement, parameters)
    return cursor.fetchall() if cursor.description is not None else []
