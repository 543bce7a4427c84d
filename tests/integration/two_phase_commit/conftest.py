"""Sessions for global transactions, on a server where nothing is prepared at the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import psycopg
import pytest

from jmsql import ConnectionFactory, ResourceAllocationException
from jmsql.xa import XAConnection, XAConnectionFactory, XASession
from tests.integration.two_phase_commit.global_transactions import PREPARED


@pytest.fixture
def xa_factory(factory: ConnectionFactory) -> XAConnectionFactory:
    return XAConnectionFactory(factory.url, control_url=factory.control_url)


@pytest.fixture
def prepared(jmsql_clean_url: str) -> Iterator[Callable[[], list[str]]]:
    """What is prepared in the database; at the end nothing is."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:

        def names() -> list[str]:
            return [name for (name,) in connection.execute(PREPARED)]

        yield names
        for name in names():
            connection.execute(f"rollback prepared '{name}'".encode())


@pytest.fixture
def xa_connection(xa_factory: XAConnectionFactory, prepared: Callable[[], list[str]]) -> Iterator[XAConnection]:
    with xa_factory.create_xa_connection() as connection:
        connection.start()
        yield connection


@pytest.fixture
def xa_session(xa_connection: XAConnection) -> XASession:
    try:
        return xa_connection.create_xa_session()
    except ResourceAllocationException:
        if "JMSQL_TEST_URL" not in os.environ:
            raise
        pytest.skip("the server of JMSQL_TEST_URL has max_prepared_transactions = 0")


@pytest.fixture
def table(jmsql_clean_url: str, prepared: object) -> Iterator[str]:
    """A business table."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        connection.execute("create table shipment (goods text)")
        yield "shipment"
        for (name,) in connection.execute(PREPARED).fetchall():
            connection.execute(f"rollback prepared '{name}'".encode())
        connection.execute("drop table shipment")
