"""Schedules whose ticks tests bring about."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from jmsql import Connection, ConnectionFactory
from jmsql.admin import Administration
from tests.integration.worker.conftest import database, fresh_processes, start_worker, write_application

__all__ = ["database", "fresh_processes", "start_worker", "write_application"]


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
def receiver(jmsql_factory: ConnectionFactory) -> Iterator[Connection]:
    """A client that receives, and so sends what schedules have due."""
    with jmsql_factory.create_connection() as connection:
        connection.create_session().create_consumer("another queue")
        connection.start()
        yield connection


@pytest.fixture
def set_due(sql: psycopg.Connection) -> Callable[[str, str], None]:
    """Makes a schedule due, by the time that has passed since."""

    def set_due(name: str, ago: str) -> None:
        moment = "date_trunc('minute', clock_timestamp()) - %s::interval"
        sql.execute(f"update jmsql_internal.schedule set next_at = {moment} where name = %s", (ago, name))
        sql.execute("select pg_notify('jmsql', '-2147483648')")

    return set_due
