"""The migration that brings topics, on a schema that has messages, and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.config import Config

import jmsql
from jmsql import ConnectionFactory, JMSException, Queue, Topic
from jmsql.store.engine import open_engine
from jmsql.testing import drain
from tests.texts import send_texts, texts_of

MIGRATIONS = Path(__file__).parents[3] / "migrations"
SCHEMA = "jmsql_migrated"
BEFORE = "0002"
SEND = f"""
    with q as (insert into {SCHEMA}.queue (name) values ('orders') returning queue_id)
    insert into {SCHEMA}.message (queue_id, inverse_priority, jms_delivery_mode, message_type, text_body)
    select queue_id, 5, 2, 'TextMessage', text from q, unnest(array['a', 'b']) as text
    """
SHAPE = """
    select c.relname, c.relkind::text, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull
    from pg_class c join pg_attribute a on a.attrelid = c.oid
    where c.relnamespace = to_regnamespace(%s) and a.attnum > 0 and not a.attisdropped order by 1, 3
    """


@pytest.fixture
def database(jmsql_clean_url: str) -> Iterator[psycopg.Connection]:
    """A schema as it was before there were topics, with two messages in a queue."""
    jmsql.migrate(jmsql_clean_url, SCHEMA, BEFORE)
    with psycopg.connect(jmsql_clean_url, autocommit=True) as database:
        database.execute(SEND)
        yield database
        database.execute(f"drop schema {SCHEMA} cascade")


def migrate_back(url: str) -> None:
    engine = open_engine(url)
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.set_main_option("jmsql_schema", SCHEMA)
        config.attributes["connection"] = connection
        command.downgrade(config, BEFORE)
    engine.dispose()


def shape(database: psycopg.Connection) -> list[tuple[object, ...]]:
    return database.execute(SHAPE, [SCHEMA]).fetchall()


def test_upgrade_keeps_messages_and_downgrade_all_but_those_of_topics(
    jmsql_clean_url: str, database: psycopg.Connection
) -> None:
    factory = ConnectionFactory(jmsql_clean_url, schema=SCHEMA)
    before = shape(database)
    for expected in (["a", "b"], ["c"]):
        jmsql.migrate(jmsql_clean_url, SCHEMA)
        with factory.create_connection() as connection:
            connection.start()
            session = connection.create_session()
            subscriber = session.create_shared_durable_consumer(Topic("news"), "subscription")
            assert drain(subscriber) == []
            assert texts_of(drain(session.create_consumer(Queue("orders")))) == expected
            send_texts(session, Topic("news"), "lost")
            send_texts(session, Queue("orders"), "c")
            session.create_temporary_queue()
        migrate_back(jmsql_clean_url)
        assert shape(database) == before
        assert database.execute(f"select name from {SCHEMA}.queue").fetchall() == [("orders",)]
        assert database.execute(f"select queue, ready from {SCHEMA}.queues").fetchall() == [("orders", 1)]
        assert database.execute(f"select queue, body from {SCHEMA}.messages").fetchall() == [("orders", "c")]
        with pytest.raises(JMSException, match="migrate"):
            factory.create_connection()


def test_views_count_the_same_as_before(jmsql_clean_url: str, database: psycopg.Connection) -> None:
    counts = f"""
        select queue, ready, claimed, waiting, expired, redelivered, oldest_sent_at from {SCHEMA}.queues
        where queue <> 'DLQ'"""
    before = database.execute(counts).fetchall()
    jmsql.migrate(jmsql_clean_url, SCHEMA)
    assert database.execute(counts).fetchall() == before
