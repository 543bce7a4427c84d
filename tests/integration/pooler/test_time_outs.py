"""A pooler passes on that a statement is to be interrupted, and lends the server's connection to others next."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

import jmsql.asyncio as jms
from jmsql import Queue
from jmsql.concurrency.tasks import cancellation

ORDERS = Queue("orders")


async def test_a_time_out_hits_nothing_else(
    jmsql_asyncio_factory: jms.ConnectionFactory, blocker: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellation, "_GRACE", 0.1)
    async with jmsql_asyncio_factory.create_connection() as connection:
        await connection.start()
        sessions = [connection.create_session() for _ in range(4)]
        producers = [await session.create_producer(ORDERS) for session in sessions]
        message = jms.TextMessage("a")
        for producer in producers:
            await producer.send(message)
        for _ in range(3):
            blocker.execute("lock table jmsql_internal.message in share mode")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await producers[0].send(message)
            blocker.rollback()
            for _ in range(10):
                await asyncio.gather(*(producer.send(message) for producer in producers))
        async with connection.create_session(transacted=True) as session, session.create_consumer(ORDERS) as consumer:
            count = 0
            while await consumer.receive_no_wait() is not None:
                count += 1
            await session.commit()
        assert count == 4 + 3 * 10 * 4
