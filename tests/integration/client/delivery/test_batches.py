"""Batches of messages, which clients copy into the tables where they may."""

from __future__ import annotations

import pytest

import jmsql.asyncio as jms
from jmsql import Connection, ConnectionFactory, InvalidDestinationException, Queue, TransactionRolledBackException
from jmsql.testing import receive_all
from tests.integration.client.server import Server
from tests.texts import messages_left, texts_left, texts_of

BATCH = 60
TEXTS = [f"{number}\t\\N\n" for number in range(BATCH)]


@pytest.mark.routes
def test_messages_of_a_transaction_come_in_their_order(connection: Connection, queue: Queue) -> None:
    session = connection.create_session(transacted=True)
    producer = session.create_producer(queue)
    for number, text in enumerate(TEXTS):
        message = session.create_text_message(text)
        message.properties["number"] = number
        producer.send(message, priority=9 if number % 2 else 4)
    session.commit()
    received = receive_all(session.create_consumer(queue))
    session.commit()
    assert texts_of(received) == TEXTS[1::2] + TEXTS[::2]
    assert [message.properties["number"] for message in received] == [*range(1, BATCH, 2), *range(0, BATCH, 2)]


async def test_messages_of_a_transaction_in_asyncio(
    jmsql_asyncio_factory: jms.ConnectionFactory, jmsql_factory: ConnectionFactory, queue: Queue
) -> None:
    async with (
        jmsql_asyncio_factory.create_connection() as connection,
        connection.create_session(transacted=True) as session,
        session.create_producer(queue) as producer,
    ):
        for text in TEXTS:
            await producer.send(session.create_text_message(text))
        await session.rollback()
        for text in TEXTS:
            await producer.send(session.create_text_message(text))
        await session.commit()
    assert texts_left(jmsql_factory, queue) == TEXTS


def test_a_delayed_batch(connection: Connection, queue: Queue, server: Server) -> None:
    session = connection.create_session(transacted=True)
    producer = session.create_producer(queue)
    producer.delivery_delay = 3600
    for text in TEXTS:
        producer.send(session.create_text_message(text))
    session.commit()
    found = server.rows("select text_body from jmsql_internal.delayed_message order by sequence")
    assert [text for (text,) in found] == TEXTS


def test_a_batch_is_sent_whole_or_not_at_all(
    connection: Connection, queue: Queue, server: Server, jmsql_factory: ConnectionFactory
) -> None:
    session = connection.create_session(transacted=True)
    producer = session.create_producer()
    gone = connection.create_session().create_temporary_queue()
    for text in TEXTS:
        producer.send(session.create_text_message(text), queue)
        producer.send(session.create_text_message(text), gone)
    server.rows("delete from jmsql_internal.queue where connection_id is not null")
    with pytest.raises((InvalidDestinationException, TransactionRolledBackException)):
        session.commit()
    assert not messages_left(jmsql_factory, queue)


def test_a_batch_that_is_undone_to_a_savepoint(
    connection: Connection, queue: Queue, jmsql_factory: ConnectionFactory
) -> None:
    session = connection.create_session(transacted=True)
    producer = session.create_producer(queue)
    with session.database.begin_nested() as savepoint:
        for text in TEXTS:
            producer.send(session.create_text_message(text))
        savepoint.rollback()
    for text in TEXTS:
        producer.send(session.create_text_message(text))
    session.commit()
    assert texts_left(jmsql_factory, queue) == TEXTS
