"""Sessions share the connections to the server: those that wait hold none that another needs."""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
import sys
import time

import pytest

import jmsql.asyncio as jms
from jmsql import AcknowledgeMode, JMSException, Queue, ResourceAllocationException, Timings
from jmsql.asyncio.domains import QueueRequestor
from jmsql.client import connection_limit
from jmsql.client.openings import Openings
from jmsql.testing import wait_for
from tests.integration.asyncio.texts import text_of
from tests.integration.client.server import SESSIONS, Server

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.TRANSACTED])
async def test_consumers_that_wait_are_many_and_their_connections_few(
    aio_factory: jms.ConnectionFactory, server: Server, mode: AcknowledgeMode
) -> None:
    queue = Queue("orders")
    received: list[str] = []

    async def consume(session: jms.Session) -> None:
        async with session, session.create_consumer(queue) as consumer:
            message = await consumer.receive(timeout=60)
            assert message is not None
            received.append(text_of(message))
            if session.transacted:
                await session.commit()

    async with dataclasses.replace(aio_factory, max_connections=3).create_connection() as connection:
        await connection.start()
        tasks = [
            asyncio.create_task(consume(connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)))
            for _ in range(40)
        ]
        async with connection.create_session() as session, session.create_producer(queue) as producer:
            for number in range(40):
                await producer.send(session.create_text_message(str(number)))
        await asyncio.gather(*tasks)
        assert server.connections(SESSIONS) <= 3 + 3, "beside those of the sessions there are some for look-ups"
    assert sorted(received, key=int) == [str(number) for number in range(40)]


async def test_requests_at_once_are_answered_over_few_connections(aio_factory: jms.ConnectionFactory) -> None:
    quotes = Queue("quotes")
    factory = dataclasses.replace(aio_factory, timings=Timings())  # else the polls of so many would be all there is
    async with factory.create_connection() as connection:
        await connection.start()

        async def answer() -> None:
            async with connection.create_session() as session, session.create_consumer(quotes) as consumer:
                producer = await session.create_producer()
                async for request in consumer:
                    reply = session.create_text_message(request.get_body(str))
                    reply.jms_correlation_id = request.jms_message_id
                    assert request.jms_reply_to is not None
                    await producer.send(reply, request.jms_reply_to)

        async def ask(number: int) -> str:
            async with QueueRequestor(connection.create_session(), quotes) as requestor:
                reply = await requestor.request(jms.TextMessage(str(number)), timeout=60)
                assert reply is not None
                return text_of(reply)

        answering = asyncio.create_task(answer())
        replies = await asyncio.gather(*(ask(number) for number in range(120)))
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
    assert replies == [str(number) for number in range(120)], "the server has a hundred connections"


async def test_open_transactions_keep_their_connections(
    aio_factory: jms.ConnectionFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limit, "_PATIENCE", 0.3)
    queue = Queue("orders")
    async with dataclasses.replace(aio_factory, max_connections=1).create_connection() as connection:
        await connection.start()
        async with connection.create_session(transacted=True) as first:
            database = await first.get_database()
            assert (await database.exec_driver_sql("select 1")).scalar() == 1
            async with connection.create_session() as second, second.create_producer(queue) as producer:
                with pytest.raises(ResourceAllocationException, match="max_connections"):
                    await producer.send(second.create_text_message("a"))
        async with connection.create_session() as second, second.create_producer(queue) as producer:
            await producer.send(second.create_text_message("b"))
            consumer = await second.create_consumer(queue)
            message = await consumer.receive(timeout=60)
            assert message is not None
            assert message.get_body(str) == "b"


async def test_a_wait_for_a_connection_is_cancelled_at_once(aio_factory: jms.ConnectionFactory) -> None:
    queue = Queue("orders")

    async def send(session: jms.Session) -> None:
        async with session.create_producer(queue) as producer:
            await producer.send(session.create_text_message("a"))

    async def receive(session: jms.Session) -> None:
        async with session.create_consumer(queue) as consumer:
            await consumer.receive(timeout=5)

    async def commit(session: jms.Session) -> None:
        async with session.create_producer(queue) as producer:
            await producer.send(session.create_text_message("b"))
            await session.commit()

    async with dataclasses.replace(aio_factory, max_connections=1).create_connection() as connection:
        await connection.start()
        async with connection.create_session(transacted=True) as first:
            database = await first.get_database()
            assert (await database.exec_driver_sql("select 1")).scalar() == 1
            for work, transacted in ((send, False), (receive, False), (receive, True), (commit, True)):
                async with connection.create_session(transacted) as session:
                    started = time.monotonic()
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0.2):
                            await work(session)
                    assert time.monotonic() - started < connection_limit._PATIENCE / 2
        async with connection.create_session(transacted=True) as second, second.create_consumer(queue) as consumer:
            assert await consumer.receive_no_wait() is None, "what was cancelled was not sent"
            await commit(second)
            message = await consumer.receive(timeout=60)
            assert message is not None
            assert message.get_body(str) == "b"


class Opener:
    """Opens texts in place of connections, when it may, and notes where those go that nobody has taken."""

    def __init__(self) -> None:
        self.begun, self.may_open = asyncio.Event(), asyncio.Event()
        self.opened = 0
        self.error: JMSException | None = None
        self.given_back: asyncio.Queue[str] = asyncio.Queue()
        self.discarded: asyncio.Queue[str] = asyncio.Queue()
        self.openings = Openings(self._open, self.given_back.put, self.discarded.put)

    async def _open(self) -> str:
        self.opened += 1
        self.begun.set()
        await self.may_open.wait()
        if self.error is not None:
            raise self.error
        return "a connection"

    async def give_up(self) -> None:
        """Wait for a connection, and be cancelled."""
        task = asyncio.create_task(self.openings.take())
        await self.begun.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_connection_that_was_being_opened_for_another_caller_goes_to_the_next_one() -> None:
    opener = Opener()
    await opener.give_up()
    await opener.give_up()
    opener.may_open.set()
    assert await opener.openings.take() == "a connection"
    assert opener.opened == 1
    assert opener.given_back.empty()
    assert await opener.openings.take() == "a connection", "another one"
    assert opener.opened == 2


async def test_a_connection_whose_caller_has_gone_returns_to_the_pool() -> None:
    opener = Opener()
    await opener.give_up()
    opener.may_open.set()
    async with asyncio.timeout(60):
        assert await opener.given_back.get() == "a connection"
    assert opener.discarded.empty()


async def test_a_connection_that_opens_after_its_pool_has_closed_is_closed() -> None:
    opener = Opener()
    await opener.give_up()
    opener.openings.close()
    opener.may_open.set()
    async with asyncio.timeout(60):
        assert await opener.discarded.get() == "a connection"
    assert opener.given_back.empty()


async def test_connecting_that_has_failed_meanwhile_is_tried_again() -> None:
    opener = Opener()
    opener.error = JMSException("refused")
    await opener.give_up()
    opener.may_open.set()
    for _ in range(3):
        await asyncio.sleep(0)
    opener.error = None
    assert await opener.openings.take() == "a connection"
    assert opener.opened == 2


@pytest.mark.usefixtures("used_just_now")
async def test_sessions_hand_their_connection_over_also_once_it_was_lost(
    aio_factory: jms.ConnectionFactory, server: Server
) -> None:
    queue = Queue("orders")
    async with dataclasses.replace(aio_factory, max_connections=1).create_connection() as connection:
        first, second = connection.create_session(), connection.create_session()
        producers = [await session.create_producer(queue) for session in (first, second)]
        for producer in producers * 2:
            await producer.send(first.create_text_message("a"))
        assert server.connections(SESSIONS) == 1
        assert server.terminate(SESSIONS) == 1
        with pytest.raises(JMSException):
            await producers[1].send(second.create_text_message("lost"))
        for producer in producers:
            await producer.send(first.create_text_message("b"))
        assert server.connections(SESSIONS) == 1


@pytest.mark.usefixtures("used_long_ago")
async def test_sessions_hand_no_connection_over_that_was_ended_while_it_was_idle(
    aio_factory: jms.ConnectionFactory, server: Server
) -> None:
    queue = Queue("orders")
    async with dataclasses.replace(aio_factory, max_connections=1).create_connection() as connection:
        await connection.start()
        first, second = connection.create_session(), connection.create_session()
        consumer = await second.create_consumer(queue)
        async with first.create_producer(queue) as producer:
            for text in ("a", "b"):
                await producer.send(first.create_text_message(text))
                assert server.terminate(SESSIONS) == 1
                message = await consumer.receive(timeout=60)
                assert message is not None
                assert text_of(message) == text
                # The commit's answer is unread then.
                await asyncio.to_thread(wait_for, lambda: server.rows("select from jmsql.messages") == [])
                assert server.terminate(SESSIONS) == 1


async def test_sessions_that_share_a_connection_find_no_answers_to_the_commits_of_others(
    aio_factory: jms.ConnectionFactory,
) -> None:
    queue = Queue("shared")
    async with dataclasses.replace(aio_factory, max_connections=1).create_connection() as connection:
        await connection.start()
        sessions = [connection.create_session() for _ in range(3)]
        async with sessions[0].create_producer(queue) as producer:
            for number in range(30):
                await producer.send(sessions[0].create_text_message(str(number)))
        consumers = [await session.create_consumer(queue) for session in sessions]
        received = [await consumers[number % 3].receive(timeout=60) for number in range(30)]
        texts = [text_of(message) for message in received if message is not None]
        assert sorted(texts, key=int) == [str(number) for number in range(30)]


FIRST_CONNECTION = """
import asyncio, sys, threading

importing = []

class Importing:
    def find_spec(self, name, *_):
        if name == "sqlalchemy.ext.asyncio":
            importing.append(threading.current_thread())

sys.meta_path.insert(0, Importing())

import jmsql.asyncio

async def main():
    async with jmsql.asyncio.ConnectionFactory(sys.argv[1]).create_connection() as connection:
        async with connection.create_session() as session, session.create_browser(session.create_queue("orders")):
            pass

asyncio.run(main())
assert importing and threading.main_thread() not in importing
"""


def test_the_first_connection_does_not_hold_up_the_event_loop_with_imports(jmsql_clean_url: str) -> None:
    subprocess.run([sys.executable, "-c", FIRST_CONNECTION, jmsql_clean_url], check=True)
