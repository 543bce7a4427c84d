"""What all tests share: the compliance table, the ways to the server, and the fixtures of `jmsql.testing`."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from jmsql import ConnectionFactory
from jmsql.testing.database import SessionDatabase
from tests.integration.pooler.pgbouncer import PgBouncer, pgbouncer
from tests.integration.pooler.routes import Route, by_route
from tests.leadership import SUSPEND_MAINTENANCE

pytest_plugins = [
    "pytester",
    "tests.budget",
    "tests.collecting",
    "tests.compliance.table",
    "tests.scheduling",
    "tests.skips",
]

# A shell has what it starts in the background ignore SIGINT, and programs pass that on to those that they start. Tests
# interrupt processes, whatever has started the tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
