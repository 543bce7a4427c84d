"""Clients at work with `jmsql.asyncio`, whose tasks are cancelled at random, too."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import sqlalchemy

import jmsql.asyncio as jms
from jmsql import JMSException, Queue
from tests.faults.work import DONE, SENT, WAIT, StoppedError, Worker, is_fault, stopping

logger = logging.getLogger("work")


@asynccontextmanager
async def connected(worker: Worker) -> AsyncIterator[jms.Connection]:
    """Connect, however long it takes, and start."""
    while not stopping.is_set():
        try:
            connection = await jms.ConnectionFactory(worker.url).create_connection()
        except JMSException as error:
            logger.info("connecting: %s", error)
            await asyncio.sleep(worker.random.uniform(0.0, 0.05))
            continue
        async with connection:
            await connection.start()
            yield connection
        return
    raise StoppedError


async def despite_faults(worker: Worker, session: jms.Session, work: Callable[[], Awaitable[None]]) -> None:
    """Do a piece of work, perhaps in less time than it takes; if it fails, undo it, and go on a little later."""
    try:
        async with asyncio.timeout(worker.random.choice([None, None, worker.random.uniform(0.0, 0.1)])):
            await work()
    except (JMSException, sqlalchemy.exc.DBAPIError, TimeoutError) as error:
        if not isinstance(error, TimeoutError) and not is_fault(error):
            raise
        logger.info("%s", error)
        try:
            await session.rollback()
        except JMSException as failure:
            logger.info("undoing: %s", failure)
        await asyncio.sleep(worker.random.uniform(0.0, 0.05))


async def produce(worker: Worker, channel: str) -> None:
    """Send to a queue, and write a row for each message in the same transaction."""
    async with connected(worker) as connection:
        session = connection.create_session(transacted=True)

        async def send() -> None:
            async with session.create_producer(Queue(channel)) as producer:
                for number in worker.numbers():
                    database = await session.get_database()
                    await database.execute(SENT, {"channel": channel, "number": number})
                    await producer.send(session.create_text_message(number))
            await worker.random.choice([session.commit] * 9 + [session.rollback])()

        while not stopping.is_set():
            await despite_faults(worker, session, send)
            await asyncio.sleep(worker.random.uniform(0.0, 0.5))


async def consume(worker: Worker, channel: str, forward_to: str) -> None:
    """Receive from a queue in several tasks; write rows and forward in the same transaction."""
    async with connected(worker) as connection, asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(_consume(worker, connection.create_session(transacted=True), channel, forward_to))


async def _consume(worker: Worker, session: jms.Session, channel: str, forward_to: str) -> None:
    consumers: list[jms.MessageConsumer] = []
    producer = await session.create_producer()

    async def receive() -> None:
        if not consumers:
            consumers.append(await session.create_consumer(Queue(channel)))
        for _ in range(worker.random.randint(1, 10)):
            message = await consumers[0].receive(timeout=WAIT)
            if message is None:
                break
            number = message.get_body(str)
            database = await session.get_database()
            await database.execute(DONE, {"channel": channel, "number": number, "client": worker.name})
            await database.execute(SENT, {"channel": forward_to, "number": number})
            await producer.send(session.create_text_message(number), Queue(forward_to))
        await worker.random.choice([session.commit] * 9 + [session.rollback])()

    while not stopping.is_set():
        await despite_faults(worker, session, receive)


AWAITED_ROLES: dict[str, Callable[[Worker], None]] = {
    "produce orders, awaited": lambda worker: asyncio.run(produce(worker, "orders")),
    "take orders, awaited": lambda worker: asyncio.run(consume(worker, "orders", "invoices")),
}
