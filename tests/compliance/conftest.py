"""What the tests with a connection start from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jmsql import Connection, ConnectionFactory, Message, Queue, Session
from tests.compliance.places import Place, PlaceKind, make_place
from tests.compliance.selecting import Selecting


@pytest.fixture
def jmsql_factory(jmsql_factory: ConnectionFactory, request: pytest.FixtureRequest) -> ConnectionFactory:
    """A connection factory on an empty schema, whose clients do the maintenance if the test is marked `maintained`."""
    if request.node.get_closest_marker("maintained") is None:
        request.getfixturevalue("maintenance_suspended")
    return jmsql_factory


@pytest.fixture
def connection(jmsql_factory: ConnectionFactory) -> Iterator[Connection]:
    """A started connection to an empty store, with a client identifier, so that it can have durable subscriptions."""
    with jmsql_factory.create_connection() as connection:
        connection.client_id = "compliance"
        connection.start()
        yield connection


@pytest.fixture
def session(connection: Connection) -> Session:
    """A session that acknowledges by itself."""
    return connection.create_session()


@pytest.fixture
def queue() -> Queue:
    return Queue("compliance")


@pytest.fixture(params=list(PlaceKind), ids=lambda kind: kind.value)
def place(request: pytest.FixtureRequest, connection: Connection) -> Place:
    """A place where messages wait: the test is run with each kind."""
    return make_place(request.param, connection)


@pytest.fixture(scope="module")
def selecting(jmsql_url: str, jmsql_schema: str) -> Iterator[Selecting]:
    """One connection for all selectors of a module, of which there are many; each meets a queue of its own."""
    with ConnectionFactory(jmsql_url, schema=jmsql_schema).create_connection() as connection:
        connection.start()
        selecting = Selecting(connection.create_session())
        selecting.chosen(None, [Message()])  # opens what is opened on first use: what a test opens, it has to close
        yield selecting
