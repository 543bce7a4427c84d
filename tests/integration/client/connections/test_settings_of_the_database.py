"""Clients send and receive alike, whatever the database has as the default of settings that change what SQL means."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from jmsql import AcknowledgeMode, Connection, ConnectionFactory, MapMessage, Queue
from jmsql.testing import receive_all
from tests.texts import receive, receive_texts, send_texts, texts_of

pytestmark = pytest.mark.usefixtures("maintenance_suspended")

SETTINGS = {
    "array_nulls": "off",
    "bytea_output": "escape",
    "datestyle": "German, DMY",
    "extra_float_digits": "-15",
    "intervalstyle": "sql_standard",
    "plan_cache_mode": "force_generic_plan",
    "standard_conforming_strings": "off",
    "timezone": "Australia/Lord_Howe",
    "transform_null_equals": "on",
}
QUEUE = Queue("settings")


@pytest.fixture
def connection(
    request: pytest.FixtureRequest, jmsql_clean_url: str, factory: ConnectionFactory
) -> Iterator[Connection]:
    """A client's connection, to a database with another default for a setting."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as owner:
        database, setting = sql.Identifier(owner.info.dbname), sql.Identifier(request.param)
        change = sql.SQL("alter database {} set {} = {}")
        owner.execute(change.format(database, setting, sql.Literal(SETTINGS[request.param])))
        try:
            with factory.create_connection() as connection:
                connection.start()
                yield connection
        finally:
            owner.execute(sql.SQL("alter database {} reset {}").format(database, setting))


@pytest.mark.parametrize("connection", SETTINGS, indirect=True)
def test_messages_are_delivered_and_acknowledged_in_each_mode(connection: Connection) -> None:
    for mode in AcknowledgeMode:
        with connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode) as session:
            send_texts(session, QUEUE, r"one\n", "two's", '"three"')
            if session.transacted:
                session.commit()
            consumer = session.create_consumer(QUEUE)
            assert receive_texts(consumer, 1) == [r"one\n"]
            if session.transacted:
                session.rollback()
            else:
                session.recover()
            left = receive_all(consumer)
            assert texts_of(left)[-2:] == ["two's", '"three"']
            if session.transacted:
                session.commit()
            left[-1].acknowledge()
        with connection.create_session() as another:
            assert another.create_consumer(QUEUE).receive_no_wait() is None


@pytest.mark.parametrize("connection", SETTINGS, indirect=True)
def test_values_of_all_types_and_selectors_are_as_ever(connection: Connection) -> None:
    session = connection.create_session()
    message: MapMessage = session.create_map_message()
    message.set_double("ratio", 0.1)
    message.set_bytes("bytes", b"\x00\\\xff")
    message.set_double_property("weight", 1 / 3)
    message.set_string_property("path", "C:\\new")
    sent = dt.datetime.now(dt.UTC)
    session.create_producer(QUEUE).send(message)
    received = receive(session.create_consumer(QUEUE, rf"weight = {1 / 3!r} and path = 'C:\new' and other is null"))
    assert isinstance(received, MapMessage)
    assert (received.get_double("ratio"), received.get_bytes("bytes")) == (0.1, b"\x00\\\xff")
    assert received.get_double_property("weight") == 1 / 3
    assert abs(received.jms_timestamp / 1000 - sent.timestamp()) < 60
