"""Requestors that are cancelled while they open leave nothing; what belongs to one event loop is refused in another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import LiteralString

import pytest

import jmsql.asyncio as jms
from jmsql import IllegalStateException, Queue, Topic
from jmsql.asyncio.domains import QueueRequestor, TopicConnectionFactory, TopicRequestor
from jmsql.testing import wait_for
from tests.integration.asyncio.cancelling import cancelled_at
from tests.integration.client.server import Server

MOST_WAITS = 40
_TEMPORARY: LiteralString = "select name from jmsql_internal.queue where name like 'temporary-%%'"
NOTHING_LEFT = pytest.mark.usefixtures("nothing_left")


async def is_closed(session: jms.Session) -> bool:
    try:
        session.create_text_message("a")
    except IllegalStateException:
        return True
    return False


@NOTHING_LEFT
@pytest.mark.parametrize("kind", ["queue", "topic"])
async def test_a_requestor_that_is_cancelled_while_it_opens_leaves_nothing(
    aio_factory: jms.ConnectionFactory, server: Server, kind: str
) -> None:
    factory = TopicConnectionFactory(aio_factory.url, control_url=aio_factory.control_url)
    async with aio_factory.create_connection() as connection, factory.create_topic_connection() as topics:
        for number in range(1, MOST_WAITS):
            requestor: QueueRequestor | TopicRequestor
            session: jms.Session
            if kind == "queue":
                session = connection.create_session()
                requestor = QueueRequestor(session, Queue(f"quotes {number}"))
            else:
                topic_session = topics.create_topic_session()
                session, requestor = topic_session, TopicRequestor(topic_session, Topic(f"quotes {number}"))

            async def use(requestor: QueueRequestor | TopicRequestor) -> None:
                async with requestor:
                    pass

            outcome = await cancelled_at(number, use(requestor))
            assert await is_closed(session)
            await asyncio.to_thread(
                wait_for, lambda: not server.rows(_TEMPORARY)
            )  # closing goes on, if that is cancelled
            if outcome.waited < number:
                break
        assert 1 < number < MOST_WAITS - 1


@NOTHING_LEFT
async def test_a_session_is_refused_in_another_event_loop(aio_connection: jms.Connection) -> None:
    session = aio_connection.create_session()
    producer = await session.create_producer(Queue("orders"))
    consumer = await session.create_consumer(Queue("orders"))
    uses: list[Callable[[], Awaitable[object]]] = [
        lambda: producer.send(session.create_text_message("a")),
        lambda: producer.send(jms.TextMessage("a")),
        lambda: consumer.receive(1),
        session.recover,
        session.close,
        aio_connection.start,
        aio_connection.close,
    ]

    async def use(work: Callable[[], Awaitable[object]]) -> None:
        await work()

    for work in uses:
        with pytest.raises(IllegalStateException, match="belongs to another event loop"):
            await asyncio.to_thread(asyncio.run, use(work))
    await producer.send(session.create_text_message("b"))
