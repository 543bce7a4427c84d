"""What the tests with clients and a server start from."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

import psycopg
import pytest

from jmsql import AcknowledgeMode, Connection, ConnectionFactory, Session
from jmsql.store.wire._async import runner as runner_of_tasks
from jmsql.store.wire._sync import runner as runner_of_threads
from tests.administrator import AdministratorConnection
from tests.integration.client.server import CONTROL, SESSIONS, Database, Server, with_parameters
from tests.integration.pooler.routes import Route
from tests.preloaded import WORKER_MODULES, preloaded_programs
from tests.shared_connections import lent


@pytest.fixture(scope="module")
def adapted() -> Callable[[ConnectionFactory], ConnectionFactory]:
    """Names the connections to PostgreSQL for what they are for, so that tests can find them."""
    return _named


@pytest.fixture
def other_connection(
    request: pytest.FixtureRequest, route: Route, jmsql_factory: ConnectionFactory
) -> Iterator[Connection]:
    """A started connection of another client, whom the server leaves alone."""
    if "other_shared_connection" in request.fixturenames and route is Route.DIRECT:
        with lent(request.getfixturevalue("other_shared_connection")) as connection:
            yield connection
        return
    with jmsql_factory.create_connection() as connection:
        connection.start()
        yield connection


@pytest.fixture
def others(other_connection: Connection) -> Session:
    """A session of the other client."""
    return other_connection.create_session()


@pytest.fixture(scope="session")
def administrator() -> Iterator[AdministratorConnection]:
    """The administrator's connection, which all tests share."""
    administrator = AdministratorConnection()
    yield administrator
    administrator.close()


@pytest.fixture
def server(jmsql_clean_url: str, administrator: AdministratorConnection) -> Iterator[Server]:
    """The server, seen and touched as an administrator does."""
    with administrator.lent(jmsql_clean_url) as connection:
        yield Server(connection)


@pytest.fixture
def mode_session(connection: Connection, mode: AcknowledgeMode) -> Session:
    """A session in the mode of the test's parameter."""
    return connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)


@pytest.fixture
def database(jmsql_clean_url: str) -> Iterator[Database]:
    """The database, which takes writes again afterwards."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as owner:
        database = Database(owner)
        yield database
        database.take_writes()


@pytest.fixture
def used_just_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sessions rely on their connections however long ago they have used them: a call meets each loss."""
    for module in (runner_of_threads, runner_of_tasks):
        monkeypatch.setattr(module, "TRUSTED", math.inf)
        monkeypatch.setattr(module.WireConnection, "trusted_until", math.inf)


@pytest.fixture
def used_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sessions rely on no connection, as if each had been used long ago."""
    for module in (runner_of_threads, runner_of_tasks):
        monkeypatch.setattr(module, "TRUSTED", -1.0)


@pytest.fixture
def blocker(jmsql_clean_url: str) -> Iterator[psycopg.Connection]:
    """An administrator's transaction, which can lock tables."""
    with psycopg.connect(jmsql_clean_url) as connection:
        yield connection
        connection.rollback()


@pytest.fixture(scope="session")
def preloaded_python() -> Iterator[str]:
    """An interpreter that forks a worker's processes, with their libraries: each takes a second less."""
    with preloaded_programs(WORKER_MODULES) as programs:
        yield str(programs.directory / "python")


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
