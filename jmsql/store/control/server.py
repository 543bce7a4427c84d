"""A server's properties that a client needs: the database, the schema, and the time."""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import Any, NamedTuple

from jmsql.exceptions import JMSException
from jmsql.store.schema.version import check_not_renamed, check_schema, check_version
from jmsql.store.statement import Query, SqlFile, Steps, record, rows, value
from jmsql.store.wire._sync.runner import Runner
from jmsql.timings import InternalTimings
from jmsql.values.clock import monotonic, monotonic_ns
from jmsql.values.recently_used import RecentlyUsed

_MISSING = {"3F000", "42P01", "42883"}
"""PostgreSQL's errors for a missing schema, table or function."""

_sql = SqlFile("server")
_server = _sql.statement("server", "looking at the schema", rows, {"schema_in_functions": _sql["schema_in_functions"]})
_clock = _sql.statement("clock", "asking for the time", value(int))
_clock_and_database = _sql.statement("clock_and_database", "joining the transaction", record(tuple))
find_database: Query[tuple[Any, ...]] = _sql.statement("database", "looking for the database", record(tuple)).bind()
"""The identity of a connection's database: the server's start, and the database's number."""


class Server(NamedTuple):
    """The server, the database and the schema, as the role that has connected sees them."""

    version: str
    milliseconds: int
    """The server's time, in milliseconds since the epoch."""
    is_restricted: bool
    """True if row security applies to the role, and it may not administer all destinations."""
    may_ask_to_dequeue: bool
    """True if the role may have the server dequeue a message for it."""
    dialect: tuple[Hashable, ...]
    """The database's identity, and the answers to the queries of SQLAlchemy's dialect on an engine's first
    connection."""

    @property
    def database(self) -> tuple[Hashable, ...]:
        """The database's identity, by `find_database`."""
        return self.dialect[:2]


def look_at_server(runner: Runner) -> Server:
    """Query the server's properties, and make sure that the schema exists and has the right version.

    Args:
        runner: Runs statements on a new connection, in autocommit mode.

    Raises:
        JMSException: The schema does not; the error says how to create or upgrade it.
    """
    try:
        [(schema_version, in_functions, version, milliseconds, is_restricted, may_ask_to_dequeue, *dialect)] = (
            runner.run(_server.bind())
        )
    except JMSException as error:
        if error.error_code in _MISSING:
            runner.run(check_schema(runner.schema))
        raise
    check_not_renamed(in_functions, runner.schema)
    check_version(schema_version, runner.schema)
    return Server(version, milliseconds, is_restricted, may_ask_to_dequeue, tuple(dialect))


def require_same_database(database: tuple[Any, ...]) -> Steps[None]:
    """Make sure that two URLs lead to one database: else each client's claims would look like a dead client's.

    Args:
        database: Where the other way leads.

    Raises:
        JMSException: They do not.
    """
    if (yield from find_database) != database:
        raise JMSException(
            "control_url leads to another database than url. Both lead to the same database of the same server, "
            "url perhaps through a pooler, control_url past it."
        )


class ServerClock:
    """The client's own clock while that agrees with the server's, which is asked now and then.

    A clock that was set wrong, or set while the client runs, would make messages expire as they are sent.

    Args:
        timings: How often it asks, and by how much the clocks may differ. Asking takes time, too.
    """

    def __init__(self, timings: InternalTimings) -> None:
        self._interval = timings.clock_interval
        self._tolerance = timings.clock_tolerance * 1000
        self._set_at: tuple[int, int] | None = None
        self._next_look = 0.0

    def milliseconds(self) -> int:
        """Return the time in milliseconds since the epoch."""
        own = time.time_ns() // 1_000_000
        if self._set_at is None:
            return own
        then, set_at = self._set_at
        servers = then + (monotonic_ns() - set_at) // 1_000_000
        return own if abs(own - servers) < self._tolerance else servers

    def set(self, milliseconds: int) -> None:
        """Take note of the server's time, of now."""
        self._set_at = milliseconds, monotonic_ns()
        self._next_look = monotonic() + self._interval

    @property
    def is_due(self) -> bool:
        """True if it is time to ask for the server's time."""
        return monotonic() >= self._next_look

    def refresh(self) -> Steps[None]:
        """Ask for the server's time, if it was not asked for lately."""
        if self.is_due:
            self.set((yield from _clock.bind()))


class CallersDatabase(NamedTuple):
    """A database, as a session in a transaction of the caller's knows it."""

    identity: tuple[Hashable, ...]
    """The database's identity, by `find_database`."""
    clock: ServerClock
    """The server's, which all such sessions of the process share."""


_databases = RecentlyUsed[Hashable, tuple[Hashable, ...]](1000)
_clocks = RecentlyUsed[tuple[Hashable, InternalTimings], ServerClock](100)


def callers_database(connection: Hashable, timings: InternalTimings) -> Steps[CallersDatabase]:
    """Return the database that a connection of the caller's leads to, with a clock that was set lately.

    The server is asked if it was not asked lately, or never on this connection.

    Args:
        connection: Tells the connection from all others of the process.
        timings: How often the server is asked.
    """
    database = _databases.get(connection)
    clock = None if database is None else _clocks.get((database, timings))
    if database is None or clock is None or clock.is_due:
        milliseconds, *identity = yield from _clock_and_database.bind()
        database = _databases[connection] = tuple(identity)
        clock = _clocks.get((database, timings)) or ServerClock(timings)
        clock.set(milliseconds)
        _clocks[database, timings] = clock
    return CallersDatabase(database, clock)
