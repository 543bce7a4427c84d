"""What the tests with a connection start from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jmsql import Connection, ConnectionFactory, Message, Queue, Session
from tests.compliance.selecting import Selecting


@pytest.fixture
def connection(jmsql_factory: ConnectionFactory) -> Iterator[Connection]:
    """A started connection to an empty store."""
    with jmsql_factory.create_connection() as connection:
        connection.start()
        yield connection


@pytest.fixture
def session(connection: Connection) -> Session:
    """A session that acknowledges by itself."""
    return connection.create_session()


@pytest.fixture
def queue() -> Queue:
    return Queue("compliance")


@pytest.fixture(scope="module")
def selecting(jmsql_url: str, jmsql_schema: str) -> Iterator[Selecting]:
    """One connection for all selectors of a module, of which there are many; each meets a queue of its own."""
    with ConnectionFactory(jmsql_url, schema=jmsql_schema).create_connection() as connection:
        connection.start()
        selecting = Selecting(connection.create_session())
        selecting.chosen(None, [Message()])  # opens what is opened on first use: what a test opens, it has to close
        yield selecting
