"""Two users of one connection: a session and its asynchronous sender, or two sessions by turns."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import LiteralString

import psycopg
import pytest

import jmsql.asyncio as jms
from jmsql import AcknowledgeMode, JMSException, Queue
from jmsql.testing import wait_for
from tests.integration.client.server import SESSIONS, Server

pytestmark = pytest.mark.usefixtures("nothing_left")

COUNT: LiteralString = "select count(*) from jmsql_internal.message"
CLIENTS: LiteralString = "select connection_id from jmsql_internal.connection"
ORDERS, CUSTOMERS = Queue("orders"), Queue("customers")


async def test_a_message_received_while_the_sender_deletes_others_is_deleted_too(
    aio_connection: jms.Connection, server: Server, blocker: psycopg.Connection
) -> None:
    """A send under conditions has the sender delete the delivered messages, while the application receives."""
    async with (
        aio_connection.create_session() as others,
        others.create_producer(ORDERS) as orders,
        aio_connection.create_session(transacted=True) as session,
        session.create_consumer(ORDERS) as consumer,
        session.create_producer(CUSTOMERS) as producer,
    ):
        for text in ("earlier", "earlier"):
            await orders.send(others.create_text_message(text))
            assert await consumer.receive(60) is not None
        await session.commit()
        for text in ("first", "second"):
            await orders.send(others.create_text_message(text))
        received = [await consumer.receive(60)]
        blocker.execute("lock table jmsql_internal.message in share mode")
        message = session.create_text_message("last")
        message.set_string_property("JMS_jmsql_Coalesce", "customer 5")
        await producer.send(message, completion_listener=lambda *_: None)
        await asyncio.to_thread(server.wait_until_a_session_waits)
        second = asyncio.create_task(consumer.receive(60))  # it was fetched with the first
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        blocker.rollback()
        received.append(await second)
        await session.commit()
    assert [None if each is None else each.get_body(str) for each in received] == ["first", "second"]
    assert server.rows(COUNT) == [(1,)]


async def test_a_lost_claim_is_noticed_behind_an_unanswered_commit(
    aio_factory: jms.ConnectionFactory, server: Server, blocker: psycopg.Connection
) -> None:
    """The unread answer to another session's commit does not look like the end of an idle connection."""
    factory = dataclasses.replace(aio_factory, max_connections=1)
    async with (
        factory.create_connection() as connection,
        connection.create_session() as auto,
        connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT) as session,
        auto.create_producer(ORDERS) as producer,
        auto.create_consumer(ORDERS) as first,
        session.create_consumer(ORDERS) as second,
    ):
        await connection.start()
        await producer.send(auto.create_text_message("first"))
        await producer.send(auto.create_text_message("second"))
        before = server.rows(CLIENTS)
        assert await first.receive(60) is not None
        await asyncio.to_thread(wait_for, lambda: server.rows(COUNT) == [(1,)])  # the commit is answered, and not read
        blocker.execute("lock table jmsql_internal.delivery in share mode")
        claim = asyncio.create_task(second.receive(60))
        await asyncio.to_thread(server.wait_until_a_session_waits)
        server.terminate(SESSIONS)
        blocker.rollback()
        with pytest.raises(JMSException):
            await claim
        await asyncio.to_thread(wait_for, lambda: server.rows(CLIENTS) not in (before, []))
        message = await second.receive(60)
        assert message is not None
        assert message.get_body(str) == "second"
