"""Connection consumers in an event loop, with sessions that the test runs itself."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text

import jmsql.asyncio as jms
from jmsql import Message, Queue
from tests.integration.asynchronous_send.completions import Completions
from tests.integration.asyncio.texts import text_of

pytestmark = pytest.mark.usefixtures("nothing_left")

PATIENCE = 60.0


class OneSession:
    """A pool of one session, which the test runs itself."""

    def __init__(self, session: jms.Session) -> None:
        self.session = session
        self.free = asyncio.Semaphore()
        self.started = asyncio.Semaphore(0)

    async def get_server_session(self) -> OneSession:
        await self.free.acquire()
        return self

    async def start(self) -> None:
        self.started.release()


SENDER_WAITS = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


async def test_session_is_loaded_when_the_asynchronous_sends_of_its_last_run_are_inserted(
    aio_factory: jms.ConnectionFactory,
) -> None:
    orders, payments = Queue("orders"), Queue("payments")
    heard: list[str] = []
    told = Completions()
    async with aio_factory.create_connection() as connection:
        await connection.start()
        session, blocking = connection.create_session(transacted=True), connection.create_session(transacted=True)
        others = connection.create_session()
        payment = session.create_text_message("paid")
        payment.set_string_property("JMS_jmsql_DeduplicationID", "17")
        producer = await session.create_producer(payments)

        async def pay_once(message: Message) -> None:
            heard.append(text_of(message))
            if len(heard) == 1:
                await producer.send(payment, completion_listener=told)

        session.message_listener = pay_once
        pool = OneSession(session)
        await jms.send(blocking, "payments", "paid by another", deduplication_id="17")  # the asynchronous send waits
        async with await connection.create_connection_consumer(orders, None, pool, 1):
            await jms.send(others, orders, "a")
            await asyncio.wait_for(pool.started.acquire(), PATIENCE)
            await session.run()
            database = await blocking.get_database()
            while not await database.scalar(text(SENDER_WAITS)):
                pass
            await jms.send(others, orders, "b")
            pool.free.release()
            with pytest.raises(TimeoutError):  # the connection is the sender's
                await asyncio.wait_for(pool.started.acquire(), 0.5)
            await blocking.rollback()
            await asyncio.wait_for(pool.started.acquire(), PATIENCE)
            await session.run()
            await session.commit()
        pool.free.release()  # for the connection consumer's task, which waits for the next session
        async with others.create_consumer(payments) as consumer:
            paid = await consumer.receive(PATIENCE)
    assert heard == ["a", "b"]
    assert [error for _, error in told.told] == [None]
    assert paid is not None
    assert text_of(paid) == "paid"
