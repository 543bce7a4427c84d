"""Batches, and the ways to see and end their messages."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from jmsql import Connection, ConnectionFactory, Session
from jmsql.admin import Administration


@pytest.fixture
def administration(jmsql_factory: ConnectionFactory) -> Iterator[Administration]:
    """The administration of an empty store."""
    with Administration(jmsql_factory) as administration:
        yield administration


@pytest.fixture
def sql(jmsql_clean_url: str) -> Iterator[psycopg.Connection]:
    """An administrator's connection, in autocommit mode."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def sender(connection: Connection) -> Session:
    """A transacted session."""
    return connection.create_session(transacted=True)
