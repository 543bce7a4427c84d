"""When a DUPS_OK session of tasks acknowledges what it has delivered."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

import jmsql.asyncio as jms
from jmsql import AcknowledgeMode, Queue
from jmsql.testing import FAST_TIMINGS, wait_for
from tests.integration.client.server import Server

pytestmark = pytest.mark.usefixtures("nothing_left")

ORDERS = Queue("orders")


@pytest.mark.parametrize("connections", [1, 5])
async def test_the_last_received_message_is_acknowledged_in_time(
    aio_factory: jms.ConnectionFactory, server: Server, connections: int
) -> None:
    timings = dataclasses.replace(FAST_TIMINGS, acknowledgement_delay=0.2)
    factory = dataclasses.replace(aio_factory, timings=timings, max_connections=connections)
    async with factory.create_connection() as connection:
        await connection.start()
        async with (
            connection.create_session(acknowledge_mode=AcknowledgeMode.DUPS_OK) as session,
            session.create_producer(ORDERS) as producer,
            session.create_consumer(ORDERS) as consumer,
        ):
            for text in "ab":
                await producer.send(session.create_text_message(text))
                assert await consumer.receive(60) is not None
                count = "select count(*) from jmsql_internal.message"
                await asyncio.to_thread(wait_for, lambda: server.rows(count) == [(0,)])  # noqa: B023 - called at once
