"""The pytest plugin of jmsql: fixtures and the check for connections left open. See `jmsql.testing`.

Loaded into every pytest run where jmsql is installed; so it imports its dependencies when a test uses them.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import psycopg

    import jmsql.asyncio
    from jmsql import ConnectionFactory, Timings
    from jmsql.testing.database import SessionDatabase


@pytest.fixture(scope="session")
def jmsql_server_url() -> Iterator[str]:
    """The URL of a PostgreSQL server on which the tests may make databases."""
    from jmsql.testing.servers import server_for_tests

    with server_for_tests() as url:
        yield url


@pytest.fixture(scope="session")
def jmsql_schema() -> str:
    """The name of the schema that the tests use."""
    return "jmsql"


@pytest.fixture(scope="session")
def _jmsql_database(jmsql_server_url: str, jmsql_schema: str) -> Iterator[SessionDatabase]:
    from jmsql.testing.database import session_database

    with session_database(jmsql_server_url, jmsql_schema) as database:
        yield database


@pytest.fixture(scope="session")
def jmsql_url(_jmsql_database: SessionDatabase) -> str:
    """The URL of a database of this test session's own, with the schema installed; dropped at the end."""
    return _jmsql_database.url


@pytest.fixture(autouse=True)
def _jmsql_connections_are_closed(request: pytest.FixtureRequest) -> Iterator[None]:
    # Set up before the test's own fixtures, so that it ends after them; fixtures of wider scope come before it.
    if "_jmsql_database" not in request.fixturenames:
        yield
        return
    database: SessionDatabase = request.getfixturevalue("_jmsql_database")
    before, tasks_before = database.connections(), _unfinished_tasks()
    yield
    left = database.end_connections_except(before)
    tasks = [task for task in _unfinished_tasks() if task not in tasks_before]
    if tasks:
        listing = "\n".join(f"  {task}" for task in tasks)
        pytest.fail(f"{len(tasks)} task(s) of jmsql.asyncio have not ended:\n{listing}", pytrace=False)
    if left:
        listing = "\n".join(f"  {connection}" for connection in left)
        pytest.fail(
            f"{len(left)} connection(s) to PostgreSQL opened by the test are still open:\n{listing}", pytrace=False
        )


def _unfinished_tasks() -> list[object]:
    """Return the tasks of jmsql that run, if a test has used jmsql.asyncio."""
    tasks = sys.modules.get("jmsql.concurrency.tasks")
    return [] if tasks is None else list(tasks.unfinished())


@pytest.fixture
def jmsql_clean_url(_jmsql_database: SessionDatabase) -> str:
    """The URL of the session's database, after its schema was emptied."""
    _jmsql_database.clean()
    return _jmsql_database.url


@pytest.fixture
def jmsql_transaction(jmsql_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A transaction on psycopg's connection, rolled back at the end of the test."""
    import psycopg

    with psycopg.connect(jmsql_url) as connection:
        yield connection
        connection.rollback()


@pytest.fixture
def jmsql_timings() -> Timings:
    """The intervals and time-outs of the factory's connections: much shorter than the defaults."""
    from jmsql.testing.timings import FAST_TIMINGS

    return FAST_TIMINGS


@pytest.fixture
def jmsql_factory(jmsql_clean_url: str, jmsql_schema: str, jmsql_timings: Timings) -> ConnectionFactory:
    """A connection factory on an empty schema."""
    from jmsql import ConnectionFactory

    return ConnectionFactory(jmsql_clean_url, schema=jmsql_schema, timings=jmsql_timings)


@pytest.fixture
def jmsql_asyncio_factory(jmsql_factory: ConnectionFactory) -> jmsql.asyncio.ConnectionFactory:
    """A connection factory for asyncio on an empty schema, like `jmsql_factory` in all else."""
    import jmsql.asyncio

    values = {field.name: getattr(jmsql_factory, field.name) for field in dataclasses.fields(jmsql_factory)}
    return jmsql.asyncio.ConnectionFactory(**values)
