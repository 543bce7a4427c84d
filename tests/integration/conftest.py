"""What the tests with clients and a server start from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import psycopg
import pytest

from jmsql import AcknowledgeMode, Connection, ConnectionFactory, Queue, Session
from tests.integration.client.server import CONTROL, SESSIONS, Server, with_parameters


@pytest.fixture
def queue() -> Queue:
    return Queue("orders")


@pytest.fixture
def factory(jmsql_factory: ConnectionFactory) -> ConnectionFactory:
    """One whose connections to PostgreSQL have names that tell what they are for, so that tests can find them."""
    assert jmsql_factory.url is not None
    return dataclasses.replace(
        jmsql_factory,
        url=with_parameters(jmsql_factory.url, application_name=SESSIONS),
        control_url=with_parameters(jmsql_factory.control_url or jmsql_factory.url, application_name=CONTROL),
    )


@pytest.fixture
def connection(factory: ConnectionFactory) -> Iterator[Connection]:
    """A started connection to an empty store."""
    with factory.create_connection() as connection:
        connection.start()
        yield connection


@pytest.fixture
def session(connection: Connection) -> Session:
    """A session that acknowledges by itself."""
    return connection.create_session()


@pytest.fixture
def other_connection(jmsql_factory: ConnectionFactory) -> Iterator[Connection]:
    """A started connection of another client, whom the server leaves alone."""
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
