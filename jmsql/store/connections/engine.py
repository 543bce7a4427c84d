"""How a URL becomes connections to PostgreSQL, with SQLAlchemy's engines and without."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg.pq import TransactionStatus

from jmsql.concurrency.readiness import wait_until_ready
from jmsql.exceptions import JMSException
from jmsql.store.connections._sync.connecting import make_fit
from jmsql.store.connections.adaptation import ADAPTERS
from jmsql.store.connections.database_url import UNREADABLE, DatabaseUrl, parse_url, without_secrets
from jmsql.store.connections.defaults import refuses_writes
from jmsql.store.connections.greenlet import require_greenlet
from jmsql.store.connections.keepalives import keepalive_parameters
from jmsql.store.errors import jms_errors
from jmsql.timings import Timings
from jmsql.values.clock import monotonic

# SQLAlchemy is imported where it is used: it takes longer than all else that a command does.
if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Dialect, Engine
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
    from sqlalchemy.pool import ConnectionPoolEntry, PoolResetState

    from jmsql.store.connections.pools import DemandPool


SESSION = "jmsql_session"
"""The option of SQLAlchemy's connection that has the session, once the application has asked for the connection."""
LENT = "jmsql.lent"
"""Says, in the `info` of a pool's connection, that the application had it: the pool closes it when it comes back."""

POOLED = "jmsql.pooled"
"""Says, in the `info` of a pool's connection, whether it leads through a pooler such as PgBouncer."""

_RETURNED = "jmsql.returned"
"""Says, in the `info` of a pool's connection, when it came back, on the monotonic clock."""

_MOST_ENDPOINTS = 32
"""Each is for one URL, and so for one user and password."""

_OPTIONS: dict[str, Any] = {
    "hide_parameters": True,
    "isolation_level": "READ COMMITTED",
    "pool_reset_on_return": None,  # `_watch_pool` rolls back
}
"""Options of all engines."""

_POOL: dict[str, Any] = {"pool_size": 0, "pool_use_lifo": True}
"""The pool of a client's engines: SQLAlchemy does not limit it."""

_ENCODING: dict[str, Any] = {"client_encoding": "UTF8"}
"""It can represent every message, unlike the defaults of some databases, roles or URLs."""

_OPEN = (TransactionStatus.INTRANS, TransactionStatus.INERROR)

_TRUSTED = 1.0
"""For how many seconds a connection that says nothing is taken to be alive."""


_RETRY_DELAY = 1.0
"""Seconds. After a connection attempt that took longer, others fail at once with the same error for as long, so that
sessions do not wait for an unreachable server one after the other."""


def open_engine(url: str, *, timings: Timings = Timings(), **options: Any) -> Engine:
    """Make an engine for the database; nothing is connected yet.

    Its transactions run in READ COMMITTED, not in the default of the database or role. Through a pooler that loses
    prepared statements, its connections prepare none. Both sides of a connection notice that the other is gone.
    Keepalives and time-outs in the URL take precedence.
    """
    connecting = _Connecting(_RETRY_DELAY)
    return _open_engine(parse_url(url), connecting, timings, **options)


def endpoint(url: str, user: str | None, password: str | None, timings: Timings) -> Endpoint:
    """Return where a URL leads, the same object for the same arguments: so knowledge of the server is shared.

    Raises:
        JMSException: The text is no URL of a PostgreSQL database.
    """
    given: object = url
    if not isinstance(given, str):
        raise JMSException(UNREADABLE)
    environment = tuple(os.environ.get(name) for name in ("PGAPPNAME", "PGSERVICE", "PGCONNECT_TIMEOUT"))
    return _endpoint(url, user, password, timings, environment)


@lru_cache(_MOST_ENDPOINTS)
def _endpoint(
    url: str, user: str | None, password: str | None, timings: Timings, _: tuple[str | None, ...]
) -> Endpoint:
    return Endpoint(parse_url(url, user, password), timings)


class Endpoint:
    """A database, as one user connects to it: makes connections, and engines that share facts about it."""

    def __init__(self, url: DatabaseUrl, timings: Timings = Timings()) -> None:
        self.url = url
        self.text = without_secrets(url)
        """The URL as it may be shown and logged."""
        self._timings = timings
        self._connecting = _Connecting(_RETRY_DELAY)
        self._templates: dict[type[Any], tuple[tuple[Hashable, ...], Engine]] = {}

    def connect(self, role: str = "") -> tuple[psycopg.Connection[Any], bool]:
        """Connect without an engine, in autocommit mode; otherwise as the connections of an engine are.

        Args:
            role: The connection's purpose, for errors.

        Returns:
            The connection, and whether it leads through a pooler.

        Raises:
            JMSException: The server cannot be reached, or refuses.
        """
        with jms_errors(f"connecting to {self.text}{role}"):
            connection: psycopg.Connection[Any] = psycopg.connect(**self._arguments, context=ADAPTERS, autocommit=True)
            try:
                is_pooled = make_fit(connection, self._timings)
            except BaseException:
                connection.close()
                raise
        self._connecting.forget()
        return connection, is_pooled

    async def connect_async(self) -> tuple[psycopg.AsyncConnection[Any], bool]:
        """Connect, for asyncio; see `connect`."""
        from jmsql.store.connections._async import connecting as asynchronous

        with jms_errors(f"connecting to {self.text}"):
            connection: psycopg.AsyncConnection[Any] = await psycopg.AsyncConnection.connect(
                **self._arguments, context=ADAPTERS, autocommit=True
            )
            try:
                is_pooled = await asynchronous.make_fit(connection, self._timings)
            except BaseException:
                await connection.close()
                raise
        self._connecting.forget()
        return connection, is_pooled

    def open_engine(self, facts: tuple[Hashable, ...], connection_class: type[psycopg.Connection[Any]]) -> Engine:
        """Make an engine for a client's sessions; nothing is connected yet. Its pool is its own.

        Making one, with SQLAlchemy's queries on an engine's first connection, takes longer than connecting. So the
        engines share their dialect, once the first of them has connected.

        Args:
            facts: The server's answers that the dialect depends on; the last is the number of the type hstore, or
                None: psycopg's query for that type could run another role's function.
            connection_class: The class of its connections.
        """
        from jmsql.store.connections.pools import DemandPool

        return self._engine(facts, _open_engine, connection_class, DemandPool)

    def open_async_engine(
        self, facts: tuple[Hashable, ...], connection_class: type[psycopg.AsyncConnection[Any]]
    ) -> AsyncEngine:
        """Open an engine for asyncio; see `open_engine`."""
        require_greenlet()
        from sqlalchemy.ext.asyncio import AsyncEngine

        from jmsql.store.connections.pools import AsyncDemandPool

        return AsyncEngine(self._engine(facts, _open_async_engine, connection_class, AsyncDemandPool))

    def _engine(
        self,
        facts: tuple[Hashable, ...],
        make: Callable[..., Engine],
        connection_class: type[Any],
        pool_class: type[DemandPool],
    ) -> Engine:
        engine = self._make(facts, make, connection_class, pool_class)
        assert isinstance(engine.pool, pool_class)
        engine.pool.period = self._timings.idle_connection_timeout
        return engine

    def _make(
        self,
        facts: tuple[Hashable, ...],
        make: Callable[..., Engine],
        connection_class: type[Any],
        pool_class: type[DemandPool],
    ) -> Engine:
        template = self._templates.get(connection_class)
        if template is not None and template[0] == facts:
            return _like(template[1])
        import sqlalchemy

        options = {**_POOL, "poolclass": pool_class, "use_native_hstore": facts[-1] is not None}
        engine = make(self.url, self._connecting, self._timings, connection_class, **options)

        def keep(_: object, __: object) -> None:  # called after SQLAlchemy's first queries
            known = self._templates.get(connection_class)
            if known is None or known[0] != facts:
                # Without the connections of the pool, which end with their client.
                self._templates[connection_class] = facts, _like(engine)

        sqlalchemy.event.listen(engine, "connect", keep)
        return engine

    @cached_property
    def _arguments(self) -> dict[str, Any]:
        return _given(self.url) | _beside(self.url, self._timings)


def synchronous(connection: AsyncConnection | Connection) -> Connection:
    """Return the connection that SQLAlchemy's events are told of."""
    found: Any = getattr(connection, "sync_connection", connection)
    synchronous_connection: Connection = found
    return synchronous_connection


def connect(url: str, *, autocommit: bool, timings: Timings = Timings()) -> psycopg.Connection[Any]:
    """Connect without an engine; transactions run in READ COMMITTED, not in the default.

    The server notices if this client is gone.
    """
    connection = psycopg.connect(url, context=ADAPTERS, autocommit=True, **_ENCODING)
    try:
        make_fit(connection, timings)
        connection.autocommit = autocommit
    except BaseException:
        connection.close()
        raise
    return connection


class _Connecting:
    """Connects, but not once more right after an attempt that took long: sessions would wait one after the other.

    Args:
        retry_delay: How many seconds are long, and for how long after such an attempt others fail with its error.
    """

    def __init__(self, retry_delay: float) -> None:
        self._retry_delay = retry_delay
        self._failure = ""
        self._failed_at = -math.inf

    def forget(self) -> None:
        """Connect even right after an attempt that took long."""
        self._failed_at = -math.inf

    def connect(self, connect: Callable[[], Any]) -> Any:
        """Connect, by the given function."""
        started = monotonic()
        if started - self._failed_at < self._retry_delay:
            raise psycopg.OperationalError(self._failure)
        try:
            return connect()
        except psycopg.OperationalError as error:
            if monotonic() - started > self._retry_delay:
                self._failure, self._failed_at = str(error), monotonic()
            raise
        except OSError as error:  # psycopg has no descriptor to wait with
            raise psycopg.OperationalError(f"connection failed: {error}") from error


def _open_engine(
    url: DatabaseUrl,
    connecting: _Connecting,
    timings: Timings,
    connection_class: type[psycopg.Connection[Any]] = psycopg.Connection,
    **options: Any,
) -> Engine:
    import sqlalchemy

    parsed, arguments = _connect_arguments(url, timings)
    engine = sqlalchemy.create_engine(parsed, connect_args=arguments, **_OPTIONS, **options)

    def connect(_: Dialect, __: ConnectionPoolEntry, arguments: tuple[Any, ...], parameters: dict[str, Any]) -> Any:
        return connecting.connect(lambda: connection_class.connect(*arguments, **parameters))

    def prepare(connection: psycopg.Connection[Any], entry: ConnectionPoolEntry) -> None:
        connection.autocommit = True
        entry.info[POOLED] = make_fit(connection, timings)
        connection.autocommit = False

    sqlalchemy.event.listen(engine, "do_connect", connect)
    sqlalchemy.event.listen(engine, "connect", prepare)
    _watch_pool(engine)
    return engine


def _open_async_engine(
    url: DatabaseUrl,
    connecting: _Connecting,
    timings: Timings,
    connection_class: type[psycopg.AsyncConnection[Any]],
    **options: Any,
) -> Engine:
    import sqlalchemy
    from sqlalchemy.ext.asyncio import create_async_engine

    from jmsql.store.connections._async import connecting as asynchronous

    parsed, arguments = _connect_arguments(url, timings)
    engine = create_async_engine(parsed, connect_args=arguments, **_OPTIONS, **options).sync_engine
    pooled = WeakKeyDictionary[psycopg.AsyncConnection[Any], bool]()

    async def connect_and_prepare(*arguments: Any, **parameters: Any) -> psycopg.AsyncConnection[Any]:
        connection = await connection_class.connect(*arguments, **parameters, autocommit=True)
        try:
            pooled[connection] = await asynchronous.make_fit(connection, timings)
            await connection.set_autocommit(False)
        except BaseException:
            await connection.close()
            raise
        return connection

    def connect(
        dialect: Dialect, _: ConnectionPoolEntry, arguments: tuple[Any, ...], parameters: dict[str, Any]
    ) -> Any:
        driver: Any = dialect.loaded_dbapi
        return connecting.connect(
            lambda: driver.connect(*arguments, async_creator_fn=connect_and_prepare, **parameters)
        )

    def note(connection: Any, entry: ConnectionPoolEntry) -> None:
        entry.info[POOLED] = pooled[connection.driver_connection]

    sqlalchemy.event.listen(engine, "do_connect", connect)
    sqlalchemy.event.listen(engine, "connect", note)
    _watch_pool(engine)
    return engine


def _of_sqlalchemy(url: DatabaseUrl) -> URL:
    from sqlalchemy import URL

    return URL.create("postgresql+psycopg", url.username, url.password, url.host, url.port, url.database, url.query)


def _like(engine: Engine) -> Engine:
    """Return an engine with the same dialect, and a pool of the same kind with nothing in it."""
    return type(engine)(engine.pool.recreate(), engine.dialect, engine.url, hide_parameters=engine.hide_parameters)


def _connect_arguments(url: DatabaseUrl, timings: Timings) -> tuple[URL, dict[str, Any]]:
    """Return a URL for SQLAlchemy, and the arguments that connections need beside it."""
    return _of_sqlalchemy(url.without_parameters("sslpassword")), _beside(url, timings)  # it would show the parameter


def _given(url: DatabaseUrl) -> dict[str, Any]:
    """Return the arguments of a connection that its URL gives."""
    hosts, ports = url.query.get("host", ""), url.query.get("port", "")
    if not (isinstance(hosts, str) and isinstance(ports, str)) or {":", ","} & {*hosts, *ports}:
        # Several hosts are written in several ways, which SQLAlchemy knows. Its dialect never connects here.
        parsed = _of_sqlalchemy(url)
        dialect: Dialect = parsed.get_dialect()()
        return dict(dialect.create_connect_args(parsed)[1])
    arguments = {
        "host": url.host,
        "port": url.port,
        "dbname": url.database,
        "user": url.username,
        "password": url.password,
    }
    return {name: value for name, value in arguments.items() if value} | dict(url.query)


def _beside(url: DatabaseUrl, timings: Timings) -> dict[str, Any]:
    """Return the arguments that connections need beside those in the URL."""
    is_named = "application_name" in url.query or "PGAPPNAME" in os.environ
    name = {} if is_named else {"application_name": "jmsql"}
    arguments: dict[str, Any] = {**name, **_ENCODING, **keepalive_parameters(url.query, timings)}
    if "sslpassword" in url.query:
        arguments["sslpassword"] = url.query["sslpassword"]
    return arguments


def _watch_pool(engine: Engine) -> None:
    """Check the connections that an engine's pool makes, hands out and takes back."""
    import sqlalchemy

    def end_transaction(connection: Any, entry: ConnectionPoolEntry) -> None:
        # The application may have listeners for all engines. They run first, and may begin a transaction, in which
        # neither SQLAlchemy's dialect nor jmsql can set up the connection.
        driver_connection: Any = entry.driver_connection
        if driver_connection.pgconn.transaction_status in _OPEN:
            connection.commit()

    def check(connection: Any, entry: ConnectionPoolEntry, _: object) -> None:
        end_transaction(connection, entry)
        returned = entry.info.get(_RETURNED)
        if returned is None or _is_quiet(entry.driver_connection, returned):
            return
        try:
            alive = engine.dialect.do_ping(connection) and not _is_unfit(entry)  # as its answer may have told
        except psycopg.Error:
            alive = False
        if not alive:
            raise sqlalchemy.exc.InvalidatePoolError

    sqlalchemy.event.listen(engine, "connect", end_transaction, insert=True)

    def reset(connection: Any, entry: ConnectionPoolEntry, state: PoolResetState) -> None:
        # SQLAlchemy itself logs an error for a connection that the server has ended, with a traceback.
        if state.asyncio_safe and not state.transaction_was_reset:
            try:
                engine.dialect.do_rollback(connection)
            except psycopg.Error as error:
                entry.invalidate(error)

    sqlalchemy.event.listen(engine, "reset", reset)
    sqlalchemy.event.listen(engine, "checkout", check)
    sqlalchemy.event.listen(engine, "checkin", _close_if_unfit)


def _is_quiet(connection: Any, returned: float) -> bool:
    """Return whether a connection was in use a moment ago, and the server has not said since that it ends it."""
    if monotonic() - returned > _TRUSTED or connection.closed:
        return False
    return not wait_until_ready([connection], 0)


def _is_unfit(entry: ConnectionPoolEntry) -> bool:
    connection: Any = entry.driver_connection
    return connection is not None and not entry.info.get(POOLED) and refuses_writes(connection)


def _close_if_unfit(_: object, entry: ConnectionPoolEntry) -> None:
    """Keep an application's settings on a connection (a role, a time limit, a lock) from its next user.

    `discard all` would undo most of it, but with it all prepared statements. A connection that refuses writes by
    default would do so for as long as it lasts.
    """
    entry.info[_RETURNED] = monotonic()
    if entry.info.pop(LENT, False) or _is_unfit(entry):
        entry.invalidate()
