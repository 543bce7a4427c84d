"""What the tests with roles start from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
import sqlalchemy

from tests.integration.access.role_kinds import PASSWORD, roles_of_each_kind

Plain = Callable[[str], psycopg.Connection[Any]]


@pytest.fixture
def roles(jmsql_clean_url: str) -> Iterator[dict[str, str]]:
    """A role of each kind, by kind; the tables are left to the next test as a migration does."""
    protected = (
        "select oid::regclass::text from pg_class where relrowsecurity "
        "and relnamespace = 'jmsql_internal'::regnamespace"
    )
    with psycopg.connect(jmsql_clean_url, autocommit=True) as database:
        before = database.execute(protected).fetchall()
        with roles_of_each_kind(database) as names:
            yield names
        database.execute("delete from jmsql_internal.permission")
        for (table,) in set(database.execute(protected).fetchall()) - set(before):
            database.execute(f"alter table {table} disable row level security".encode())


@pytest.fixture
def url_of(jmsql_clean_url: str, roles: dict[str, str]) -> Callable[[str], str]:
    """Returns the URL with which a role of a kind connects."""
    url = sqlalchemy.make_url(jmsql_clean_url)
    return lambda kind: url.set(username=roles[kind], password=PASSWORD).render_as_string(hide_password=False)


@pytest.fixture
def plain(url_of: Callable[[str], str]) -> Iterator[Plain]:
    """Connects as a role of a kind, without jmsql; each statement commits."""
    with ExitStack() as stack:
        yield lambda kind: stack.enter_context(psycopg.connect(url_of(kind), autocommit=True))


@pytest.fixture
def owner(jmsql_clean_url: str, roles: dict[str, str]) -> Iterator[psycopg.Connection[Any]]:
    """The owner's connection."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as database:
        yield database
