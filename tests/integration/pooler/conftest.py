"""What the tests with a pooler start from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jmsql import Connection, ConnectionFactory, Session
from tests.integration.cli.conftest import jmsql  # noqa: F401 - a fixture
from tests.integration.pooler.routes import Route


@pytest.fixture
def route(request: pytest.FixtureRequest) -> Route:
    """Everything goes through the pooler, the control connection too, unless the test says otherwise."""
    chosen: Route = getattr(request, "param", Route.POOLED_ALONE)
    return chosen


@pytest.fixture
def direct_factory(jmsql_clean_url: str, jmsql_schema: str) -> ConnectionFactory:
    """Nothing goes through the pooler."""
    return ConnectionFactory(jmsql_clean_url, schema=jmsql_schema)


@pytest.fixture
def direct_session(direct_factory: ConnectionFactory) -> Iterator[Session]:
    """A session of a client that reaches the server directly."""
    with direct_factory.create_connection() as connection:
        connection.start()
        yield connection.create_session()


@pytest.fixture
def durable_connection(jmsql_factory: ConnectionFactory) -> Iterator[Connection]:
    """A started connection with a client identifier."""
    with jmsql_factory.create_connection() as connection:
        connection.client_id = "reader"
        connection.start()
        yield connection
