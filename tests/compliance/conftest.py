"""What the tests with a connection start from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jmsql import Connection, ConnectionFactory, Queue, Session


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
