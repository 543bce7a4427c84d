"""What all tests share: the compliance table, the ways to the server, and the fixtures of `jmsql.testing`."""

from __future__ import annotations

import itertools
import logging
import signal
from collections.abc import Callable, Iterator

import pytest

from jmsql import Connection, ConnectionFactory, Queue, Session
from jmsql.testing.database import SessionDatabase
from tests.integration.pooler.pgbouncer import PgBouncer, pgbouncer
from tests.integration.pooler.routes import Route, by_route
from tests.leadership import SUSPEND_MAINTENANCE
from tests.shared_connections import connected_for_module, empty, lent, shares_connection

pytest_plugins = [
    "pytester",
    "tests.plugins.temporary_files",
    "tests.plugins.cost",
    "tests.plugins.patience",
    "tests.plugins.collecting",
    "tests.compliance.table",
    "tests.plugins.scheduling",
    "tests.plugins.skips",
]

# A shell has what it starts in the background ignore SIGINT, and programs pass that on to those that they start. Tests
# interrupt processes, whatever has started the tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_numbers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--route", type=Route, choices=list(Route), help="the only way on which clients reach the server in this run"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "route" not in metafunc.fixturenames:
        return
    only: Route | None = metafunc.config.getoption("--route")
    is_marked = metafunc.definition.get_closest_marker("routes") is not None
    if only is not None or is_marked:
        routes = list(Route) if only is None else [only]
        metafunc.parametrize("route", routes, ids=lambda route: route.value, indirect=True)


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """What a command that runs in the tests' process makes of the log ends with the test.

    Its handlers write to the command's own output; whatever is logged later would fail, or stand in another's output.
    """
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    for handler in set(root.handlers).difference(handlers):
        root.removeHandler(handler)


@pytest.fixture
def route(request: pytest.FixtureRequest) -> Route:
    """How the test's clients reach the server."""
    chosen: Route = getattr(request, "param", Route.DIRECT)
    return chosen


@pytest.fixture(scope="session")
def pooler(jmsql_server_url: str) -> Iterator[PgBouncer]:
    """A pooler in transaction mode in front of the server, started when it is first asked for."""
    with pgbouncer(jmsql_server_url) as pooler:
        yield pooler


@pytest.fixture(scope="session")
def current_pooler(jmsql_server_url: str) -> Iterator[PgBouncer]:
    """One that keeps prepared statements, from PgBouncer 1.21 on."""
    with pgbouncer(jmsql_server_url, current=True) as pooler:
        yield pooler


@pytest.fixture
def jmsql_clean_url(request: pytest.FixtureRequest, _jmsql_database: SessionDatabase) -> str:
    """The URL of the session's database, whose schema is empty but for what a shared connection knows."""
    empty(_jmsql_database, request)
    return _jmsql_database.url


@pytest.fixture
def jmsql_factory(
    jmsql_factory: ConnectionFactory, route: Route, request: pytest.FixtureRequest
) -> Iterator[ConnectionFactory]:
    """A connection factory on an empty schema, whose clients take the test's route."""
    yield from by_route(jmsql_factory, route, request)


@pytest.fixture
def maintenance_suspended(_jmsql_database: SessionDatabase, jmsql_clean_url: str) -> None:
    """No client does the maintenance, whose first run costs more than to connect, send a message and receive it."""
    _jmsql_database.execute(SUSPEND_MAINTENANCE)


@pytest.fixture(scope="module")
def adapted() -> Callable[[ConnectionFactory], ConnectionFactory]:
    """Gives the factories of a directory's tests what is particular to them."""
    return lambda factory: factory


@pytest.fixture
def factory(
    adapted: Callable[[ConnectionFactory], ConnectionFactory], jmsql_factory: ConnectionFactory
) -> ConnectionFactory:
    """That of the test's own connection."""
    return adapted(jmsql_factory)


@pytest.fixture(scope="module")
def shared_connection(
    adapted: Callable[[ConnectionFactory], ConnectionFactory], _jmsql_database: SessionDatabase, jmsql_schema: str
) -> Iterator[Connection]:
    """One connection for all tests of a module: `tests.shared_connections` says how they share it."""
    _jmsql_database.clean()
    _jmsql_database.execute(SUSPEND_MAINTENANCE)
    with connected_for_module(adapted(ConnectionFactory(_jmsql_database.url, schema=jmsql_schema))) as connection:
        yield connection


@pytest.fixture(scope="module")
def other_shared_connection(
    adapted: Callable[[ConnectionFactory], ConnectionFactory],
    shared_connection: Connection,
    _jmsql_database: SessionDatabase,
    jmsql_schema: str,
) -> Iterator[Connection]:
    """The connection of another client, for all tests of a module."""
    assert shared_connection is not None  # which empties the schema
    with connected_for_module(adapted(ConnectionFactory(_jmsql_database.url, schema=jmsql_schema))) as connection:
        yield connection


@pytest.fixture
def connection(
    request: pytest.FixtureRequest, route: Route, adapted: Callable[[ConnectionFactory], ConnectionFactory]
) -> Iterator[Connection]:
    """A started connection to an empty store, or that of the module, which reaches the server directly."""
    assert adapted is not None  # what it depends on is known when tests are collected
    is_own = request.node.get_closest_marker("own_connection") is not None
    if shares_connection(request) and route is Route.DIRECT and not is_own:
        request.getfixturevalue("jmsql_clean_url")
        with lent(request.getfixturevalue("shared_connection")) as connection:
            yield connection
        return
    with request.getfixturevalue("factory").create_connection() as connection:
        connection.start()
        yield connection


@pytest.fixture
def session(connection: Connection) -> Session:
    """A session that acknowledges by itself."""
    return connection.create_session()


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> Queue:
    """A queue without messages."""
    return Queue(f"orders {next(_numbers)}" if shares_connection(request) else "orders")
