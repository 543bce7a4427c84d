"""What the tests with clients and a server start from."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from jmsql import AcknowledgeMode, Connection, ConnectionFactory, Message, Queue, Session
from jmsql.testing import FAST_TIMINGS
from jmsql.testing.database import SessionDatabase
from tests.integration.client.server import CONTROL, SESSIONS, Server, with_parameters
from tests.integration.pooler.routes import Route
from tests.leadership import SUSPEND_MAINTENANCE

_SESSIONS = 4
"""How many sessions that use the database at once a shared connection has connections for."""

_KEEPING = dataclasses.replace(FAST_TIMINGS, idle_connection_timeout=3600.0)
"""Connections that are open when a test begins are there when it needs them, however long the one before took."""

_MESSAGES = ("delivery", "message", "delayed_message")

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def shared_connection(_jmsql_database: SessionDatabase, jmsql_schema: str) -> Iterator[Connection]:
    """One connection for all tests of a module, each of which has sessions and a queue of its own.

    To connect costs ten times as much as to send a message and receive it. A module says that it shares one by
    `pytest.mark.usefixtures`. Its tests meet no messages but their own, and nobody does the maintenance, unless a test
    is marked `maintained`. Tests that close their connection, or have more sessions with transactions than it has
    connections for, are marked `own_connection`.
    """
    _jmsql_database.clean()
    _jmsql_database.execute(SUSPEND_MAINTENANCE)
    with _connect_for_module(_jmsql_database, jmsql_schema) as connection:
        yield connection


@pytest.fixture(scope="module")
def other_shared_connection(
    shared_connection: Connection, _jmsql_database: SessionDatabase, jmsql_schema: str
) -> Iterator[Connection]:
    """The connection of another client, for all tests of a module."""
    assert shared_connection is not None  # which empties the schema
    with _connect_for_module(_jmsql_database, jmsql_schema) as connection:
        yield connection


@pytest.fixture
def jmsql_clean_url(request: pytest.FixtureRequest, _jmsql_database: SessionDatabase) -> str:
    """The URL of the session's database, whose schema is empty but for what a shared connection knows."""
    if not _shares_connection(request):
        _jmsql_database.clean()
        return _jmsql_database.url
    for table in _MESSAGES:
        _jmsql_database.execute(f"delete from jmsql_internal.{table}")
    is_maintained = request.node.get_closest_marker("maintained") is not None
    _jmsql_database.execute("delete from jmsql_internal.leadership" if is_maintained else SUSPEND_MAINTENANCE)
    return _jmsql_database.url


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> Queue:
    """A queue without messages."""
    return Queue(f"orders {next(_numbers)}" if _shares_connection(request) else "orders")


@pytest.fixture
def factory(jmsql_factory: ConnectionFactory) -> ConnectionFactory:
    """One whose connections to PostgreSQL have names that tell what they are for, so that tests can find them."""
    return _named(jmsql_factory)


@pytest.fixture
def connection(request: pytest.FixtureRequest, route: Route, factory: ConnectionFactory) -> Iterator[Connection]:
    """A started connection to an empty store, or that of the module, which reaches the server directly."""
    if (
        _shares_connection(request)
        and route is Route.DIRECT
        and request.node.get_closest_marker("own_connection") is None
    ):
        yield from _lend(request.getfixturevalue("shared_connection"))
        return
    with factory.create_connection() as connection:
        connection.start()
        yield connection


@pytest.fixture
def session(connection: Connection) -> Session:
    """A session that acknowledges by itself."""
    return connection.create_session()


@pytest.fixture
def other_connection(
    request: pytest.FixtureRequest, route: Route, jmsql_factory: ConnectionFactory
) -> Iterator[Connection]:
    """A started connection of another client, whom the server leaves alone."""
    if "other_shared_connection" in request.fixturenames and route is Route.DIRECT:
        yield from _lend(request.getfixturevalue("other_shared_connection"))
        return
    with jmsql_factory.create_connection() as connection:
        connection.start()
        yield connection


@pytest.fixture
def others(other_connection: Connection) -> Session:
    """A session of the other client."""
    return other_connection.create_session()


@pytest.fixture
def server(jmsql_clean_url: str) -> Iterator[Server]:
    """The server, seen and touched as an administrator does."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        yield Server(connection)


@pytest.fixture
def mode_session(connection: Connection, mode: AcknowledgeMode) -> Session:
    """A session in the mode of the test's parameter."""
    return connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)


@pytest.fixture
def blocker(jmsql_clean_url: str) -> Iterator[psycopg.Connection]:
    """An administrator's transaction, which can lock tables."""
    with psycopg.connect(jmsql_clean_url) as connection:
        yield connection
        connection.rollback()


@pytest.fixture
def row_security_is_off_again(jmsql_clean_url: str) -> Iterator[None]:
    """Leaves the tables to the next test as a migration does."""
    protected = (
        "select oid::regclass::text from pg_class where relrowsecurity "
        "and relnamespace = 'jmsql_internal'::regnamespace"
    )
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        before = connection.execute(protected).fetchall()
    yield
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        connection.execute("delete from jmsql_internal.permission")
        for (table,) in set(connection.execute(protected).fetchall()) - set(before):
            connection.execute(f"alter table {table} disable row level security".encode())


def _named(factory: ConnectionFactory) -> ConnectionFactory:
    assert factory.url is not None
    return dataclasses.replace(
        factory,
        url=with_parameters(factory.url, application_name=SESSIONS),
        control_url=with_parameters(factory.control_url or factory.url, application_name=CONTROL),
    )


def _shares_connection(request: pytest.FixtureRequest) -> bool:
    return "shared_connection" in request.fixturenames


@contextmanager
def _connect_for_module(database: SessionDatabase, schema: str) -> Iterator[Connection]:
    """Connect, and open what sessions use: what a test opens, it has to close."""
    factory = ConnectionFactory(database.url, schema=schema, timings=_KEEPING)
    with _named(factory).create_connection() as connection:
        connection.start()
        sessions = [connection.create_session(transacted=True) for _ in range(_SESSIONS)]
        for session in sessions:  # each is in a transaction, and keeps its connection
            queue = Queue(f"first {next(_numbers)}")
            session.create_producer(queue).send(Message())
            session.commit()
            assert session.create_consumer(queue).receive(timeout=10) is not None
        sessions[0].create_temporary_queue().delete()  # which is done beside the sessions
        for session in sessions:
            session.close()
        yield connection


def _lend(connection: Connection) -> Iterator[Connection]:
    """Give the connection to one test; afterwards it is as it was before."""
    try:
        yield connection
    finally:
        connection.exception_listener = None
        connection.start()
        connection._sessions.close()
