"""Databases whose encoding cannot hold every text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import alembic.command
import psycopg
import pytest
import sqlalchemy

import jmsql
import jmsql.asyncio
from tests.schema_revisions import alembic_configuration

SENTENCE = r"has the encoding {}, which cannot hold every text. jmsql needs UTF8"


@pytest.fixture(params=["SQL_ASCII", "EUC_JP", "LATIN1"])
def encoding(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def url(encoding: str, jmsql_server_url: str) -> Iterator[str]:
    """The URL of a database in that encoding."""
    server = sqlalchemy.make_url(jmsql_server_url).set(drivername="postgresql")
    bare = server.render_as_string(hide_password=False)
    name = f"jmsql_test_{encoding.lower()}"
    with psycopg.connect(bare, autocommit=True) as database:
        database.execute(f"drop database if exists {name}".encode())
        database.execute(
            f"create database {name} encoding '{encoding}' template template0 locale_provider libc "
            "lc_collate 'C' lc_ctype 'C'".encode()
        )
        yield server.set(database=name).render_as_string(hide_password=False)
        database.execute(f"drop database {name} with (force)".encode())


def test_they_are_refused_in_a_sentence_before_anything_is_made(encoding: str, url: str) -> None:
    refused = pytest.raises(jmsql.JMSException, match=SENTENCE.format(encoding))
    with refused:
        jmsql.migrate(url)
    with refused, jmsql.ConnectionFactory(url).create_connection():
        pass
    with refused:
        asyncio.run(connect(url))
    application = sqlalchemy.make_url(url).set(drivername="postgresql+psycopg")
    engine = sqlalchemy.create_engine(application, connect_args={"client_encoding": "UTF8"})
    with pytest.raises(sqlalchemy.exc.DBAPIError, match=SENTENCE.format(encoding)), engine.begin() as connection:
        alembic.command.upgrade(alembic_configuration(connection, "jmsql"), "head")
    engine.dispose()
    with psycopg.connect(url) as database:
        assert database.execute("select to_regnamespace('jmsql')").fetchone() == (None,)


async def connect(url: str) -> None:
    async with jmsql.asyncio.ConnectionFactory(url).create_connection():
        pass
