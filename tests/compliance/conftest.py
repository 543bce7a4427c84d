"""What the tests with a connection start from. A test that talks to a server is run with both APIs."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from jmsql import Connection, ConnectionFactory, Message, Queue, Session
from jmsql.testing import FAST_TIMINGS
from jmsql.testing.database import SessionDatabase
from tests.compliance.apis import Api, AsyncioApi, ThreadsApi
from tests.compliance.places import Place, PlaceKind, make_place
from tests.compliance.selecting import Selecting
from tests.event_loop_thread import EventLoopThread, run_event_loop
from tests.integration.pooler.routes import Route
from tests.leadership import SUSPEND_MAINTENANCE

_SESSIONS = 4
"""How many sessions that use the database at once a shared connection has connections for."""

_KEEPING = dataclasses.replace(FAST_TIMINGS, idle_connection_timeout=3600.0)
"""Connections that are open when a test begins are there when it needs them, however long the one before took."""

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def event_loop_thread() -> Iterator[EventLoopThread]:
    """The event loop of all tests of the process."""
    with run_event_loop() as event_loop:
        yield event_loop


@pytest.fixture(scope="module", params=["threads", "asyncio"])
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    """The API that the test is run with; that for asyncio in the shape of that for threads."""
    if request.param == "threads":
        yield ThreadsApi()
        return
    api = AsyncioApi(request.getfixturevalue("event_loop_thread"))
    yield api
    api.require_no_tasks()


@pytest.fixture
def jmsql_factory(
    jmsql_factory: ConnectionFactory, api: Api, request: pytest.FixtureRequest
) -> Iterator[ConnectionFactory]:
    """A connection factory on an empty schema, whose clients do the maintenance if the test is marked `maintained`."""
    if not _is_maintained(request):
        request.getfixturevalue("maintenance_suspended")
    yield api.factory(jmsql_factory)
    api.require_no_tasks()


@pytest.fixture(scope="module")
def shared_connection(api: Api, _jmsql_database: SessionDatabase, jmsql_schema: str) -> Iterator[Connection]:
    """One connection for all tests of a module: each has sessions and a queue of its own, on a schema that has others.

    To connect costs ten times as much as to send a message and receive it. A module says that it shares one by
    `pytest.mark.usefixtures`. No test of it may empty the schema; those that stop their connection, or use the
    database of a session, are marked `own_connection`.
    """
    with _connect_for_module(api, _jmsql_database, jmsql_schema) as connection:
        _open_for_sessions(connection)
        yield connection


@pytest.fixture(scope="module")
def other_shared_connection(
    api: Api, shared_connection: Connection, _jmsql_database: SessionDatabase, jmsql_schema: str
) -> Iterator[Connection]:
    """The connection of another client, for all tests of a module."""
    with _connect(_factory(api, _jmsql_database, jmsql_schema)) as connection:
        _open_for_sessions(connection)
        yield connection


@pytest.fixture
def connection(
    api: Api, request: pytest.FixtureRequest, route: Route, _jmsql_database: SessionDatabase
) -> Iterator[Connection]:
    """A started connection with a client identifier, so that it can have durable subscriptions.

    Its store is empty, unless the module shares a connection, which reaches the server directly.
    """
    if not _shares_connection(request) or route is not Route.DIRECT:
        with _connect(request.getfixturevalue("jmsql_factory")) as connection:
            yield connection
        return
    database = _jmsql_database
    if _is_maintained(request):
        database.execute("delete from jmsql_internal.leadership")
    if request.node.get_closest_marker("own_connection") is not None:
        with _connect(_factory(api, database, request.getfixturevalue("jmsql_schema"))) as connection:
            yield connection
    else:
        connection = request.getfixturevalue("shared_connection")
        yield connection
        connection._sessions.close()
    for table in ("delivery", "message", "delayed_message"):
        database.execute(f"delete from jmsql_internal.{table}")
    if _is_maintained(request):
        database.execute(SUSPEND_MAINTENANCE)


@pytest.fixture
def session(connection: Connection) -> Session:
    """A session that acknowledges by itself."""
    return connection.create_session()


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> Queue:
    """A queue without messages."""
    return Queue(f"compliance-{next(_numbers)}" if _shares_connection(request) else "compliance")


def _factory(api: Api, database: SessionDatabase, schema: str) -> ConnectionFactory:
    return api.factory(ConnectionFactory(database.url, schema=schema, timings=_KEEPING))


@contextmanager
def _connect(factory: ConnectionFactory) -> Iterator[Connection]:
    with factory.create_connection() as connection:
        connection.client_id = f"compliance {next(_numbers)}"
        connection.start()
        yield connection


def _open_for_sessions(connection: Connection) -> None:
    """Open what sessions use: what a test opens, it has to close.

    Each session is in a transaction, which keeps its connection: those of asyncio share what others do not use.
    """
    sessions = [connection.create_session(transacted=True) for _ in range(_SESSIONS)]
    for number, session in enumerate(sessions):
        queue = Queue(f"first {number}")
        session.create_producer(queue).send(Message())
        session.commit()
        assert session.create_consumer(queue).receive(timeout=10) is not None
    sessions[0].create_temporary_queue().delete()  # which is done beside the sessions
    for session in sessions:
        session.close()


@contextmanager
def _connect_for_module(api: Api, database: SessionDatabase, schema: str) -> Iterator[Connection]:
    database.clean()
    database.execute(SUSPEND_MAINTENANCE)
    with _connect(_factory(api, database, schema)) as connection:
        yield connection


def _shares_connection(request: pytest.FixtureRequest) -> bool:
    return "shared_connection" in request.fixturenames


def _is_maintained(request: pytest.FixtureRequest) -> bool:
    return request.node.get_closest_marker("maintained") is not None


@pytest.fixture(params=list(PlaceKind), ids=lambda kind: kind.value)
def place(request: pytest.FixtureRequest, connection: Connection, queue: Queue) -> Place:
    """A place where messages wait: the test is run with each kind."""
    return make_place(request.param, connection, queue.name)


@pytest.fixture(scope="module")
def selecting(api: Api, _jmsql_database: SessionDatabase, jmsql_schema: str) -> Iterator[Selecting]:
    """One connection for all selectors of a module, of which there are many; each meets a queue of its own."""
    with _connect_for_module(api, _jmsql_database, jmsql_schema) as connection:
        selecting = Selecting(connection.create_session())
        selecting.chosen(None, [Message()])  # opens what is opened on first use: what a test opens, it has to close
        yield selecting
