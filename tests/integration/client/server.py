"""The PostgreSQL server, as an administrator sees it and acts on it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, LiteralString

import psycopg
import sqlalchemy
from psycopg import sql

from jmsql.testing import wait_for

SESSIONS = "client's sessions"
CONTROL = "client's control"
"""Application names of the connections of the fixture `factory`."""

# In the tests' own database: others may run on the same server.
_OF_THAT_NAME: LiteralString = "from pg_stat_activity where datname = current_database() and application_name = %s"
_COUNT: LiteralString = f"select count(*) {_OF_THAT_NAME}"
_WAITING: LiteralString = """
    select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
    """
_SESSIONS_WAITING: LiteralString = f"{_COUNT} and wait_event_type = 'Lock'"
_TERMINATE: LiteralString = f"select pg_terminate_backend(pid, 10000) {_OF_THAT_NAME}"


def with_parameters(url: str, **parameters: str) -> str:
    """The URL with more of libpq's parameters."""
    return sqlalchemy.make_url(url).update_query_dict(parameters).render_as_string(hide_password=False)


class Server:
    """Runs an administrator's statements.

    Args:
        connection: The administrator's own, where each statement commits.
    """

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def rows(self, statement: LiteralString, *parameters: object) -> list[tuple[Any, ...]]:
        """Run a statement and return what it brings."""
        cursor = self._connection.execute(statement, parameters)
        return cursor.fetchall() if cursor.description is not None else []

    def transaction(self) -> AbstractContextManager[object]:
        """Return a block whose statements commit together."""
        return self._connection.transaction()

    def connections(self, application_name: str) -> int:
        """How many connections of that name are open."""
        count: int = self.rows(_COUNT, application_name)[0][0]
        return count

    def wait_until_someone_waits(self) -> None:
        """Return when a client waits for a lock of another's transaction."""
        wait_for(lambda: self.rows(_WAITING) != [(0,)])

    def wait_until_a_session_waits(self) -> None:
        """Return when a statement of a session waits for a lock of another's transaction."""
        wait_for(lambda: self.rows(_SESSIONS_WAITING, SESSIONS) != [(0,)])

    def terminate(self, application_name: str) -> int:
        """End the connections of that name; return how many there were, once they are gone."""
        return len(self.rows(_TERMINATE, application_name))


class Database:
    """The database, as its owner sets it up for new connections."""

    def __init__(self, owner: psycopg.Connection[Any]) -> None:
        self._owner = owner
        self._name = sql.Identifier(owner.info.dbname)

    def refuse_writes(self) -> None:
        """Make transactions of new connections read-only."""
        self._owner.execute(sql.SQL("alter database {} set default_transaction_read_only = on").format(self._name))

    def take_writes(self) -> None:
        """Make them as before."""
        self._owner.execute(sql.SQL("alter database {} reset default_transaction_read_only").format(self._name))
