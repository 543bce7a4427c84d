"""Each call of a session, cancelled at each of its steps: nothing is lost, doubled, or held by anyone afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, LiteralString

import pytest

import jmsql.asyncio as jms
from jmsql import AcknowledgeMode, Message, Queue, TemporaryQueue, Topic
from jmsql.testing import wait_for
from tests.integration.asyncio.cancelling import cancelled_at
from tests.integration.asyncio.texts import text_of
from tests.integration.client.server import Server

AUTO, CLIENT, DUPS_OK, TRANSACTED = (
    AcknowledgeMode.AUTO,
    AcknowledgeMode.CLIENT,
    AcknowledgeMode.DUPS_OK,
    AcknowledgeMode.TRANSACTED,
)
MODES = (AUTO, CLIENT, DUPS_OK, TRANSACTED)
MOST_WAITS = 60
"""More than a call waits."""
SOURCE, TARGET = Queue("source"), Queue("target")
"""The queues of each step: what one step has sent, it has received at its end."""
PRICES = Topic("prices")
THREE_SENT: LiteralString = (
    "select jmsql.send('source', text) from unnest(array['a', 'b', 'c']) with ordinality as t (text, n) order by n"
)
LEFT: LiteralString = """
    select (select count(*) from jmsql.messages where claimed_by is not null),
           (select count(*) from jmsql_internal.queue where name like 'temporary-%%')
    """


@dataclass
class Scene:
    """A session that has received a message and not settled it, and what became of its calls.

    `received` is what the session has in hand or has settled, `sent` what is sent once it has settled.
    """

    mode: AcknowledgeMode
    source: Queue
    session: jms.Session
    consumer: jms.MessageConsumer
    producer: jms.MessageProducer
    received: list[Message] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    made: list[TemporaryQueue] = field(default_factory=list)

    async def receive(self, seconds: float = 60.0) -> None:
        self.keep(await self.consumer.receive(seconds))

    async def receive_no_wait(self) -> None:
        self.keep(await self.consumer.receive_no_wait())

    def keep(self, message: Message | None) -> None:
        if message is not None:
            self.received.append(message)

    async def send(self, text: str = "of the call") -> None:
        await self.producer.send(self.session.create_text_message(text))
        self.sent.append(text)

    async def send_once(self) -> None:
        await jms.send(self.session, TARGET, "of the call", deduplication_id=str(uuid.uuid4()))
        self.sent.append("of the call")

    async def settle(self) -> None:
        await (self.session.commit() if self.session.transacted else self.session.acknowledge())

    async def roll_back(self) -> None:
        await self.session.rollback()
        self.forget()

    async def recover(self) -> None:
        await self.session.recover()
        self.forget()

    def forget(self) -> None:
        """The message in hand comes again, and what a transaction has sent does not come."""
        if self.mode in {CLIENT, TRANSACTED}:
            del self.received[1:]
        if self.mode is TRANSACTED:
            del self.sent[1:]

    async def acknowledge_message(self) -> None:
        await asyncio_only(self.received[-1].acknowledge())

    async def listen(self) -> None:
        await self.consumer.set_message_listener(self.keep)

    async def get_database(self) -> None:
        await self.session.get_database()

    async def browse(self) -> None:
        async with self.session.create_browser(self.source) as browser:
            async for _ in browser:
                pass

    async def open_and_close(self, opening: Awaitable[Any]) -> None:
        await (await opening).close()

    async def subscribe_and_unsubscribe(self) -> None:
        await self.open_and_close(self.session.create_shared_durable_consumer(PRICES, "all"))
        await self.session.unsubscribe("all")

    async def make_queue(self) -> None:
        self.made.append(await self.session.create_temporary_queue())


async def asyncio_only(work: Any) -> None:
    """Await what the classes that threads have as well return under asyncio."""
    await work


Call = Callable[[Scene], Coroutine[Any, Any, None]]

CALLS: dict[str, tuple[Call, tuple[AcknowledgeMode, ...]]] = {
    "receive": (Scene.receive, MODES),
    "receive of what is not there": (lambda scene: scene.receive(0.01), MODES),
    "receive_no_wait": (Scene.receive_no_wait, MODES),
    "send": (Scene.send, MODES),
    "send with a deduplication id": (Scene.send_once, MODES),
    "commit": (lambda scene: scene.session.commit(), (TRANSACTED,)),
    "rollback": (Scene.roll_back, (TRANSACTED,)),
    "get_database": (Scene.get_database, (TRANSACTED,)),
    "acknowledge": (lambda scene: scene.session.acknowledge(), (CLIENT, DUPS_OK)),
    "acknowledge of a message": (Scene.acknowledge_message, (CLIENT, DUPS_OK)),
    "recover": (Scene.recover, (AUTO, CLIENT)),
    "set_message_listener": (Scene.listen, MODES),
    "create_consumer": (lambda scene: scene.open_and_close(scene.session.create_consumer(scene.source)), MODES),
    "create_shared_consumer": (
        lambda scene: scene.open_and_close(scene.session.create_shared_consumer(PRICES, "some")),
        MODES,
    ),
    "create_shared_durable_consumer, unsubscribe": (Scene.subscribe_and_unsubscribe, MODES),
    "create_producer": (lambda scene: scene.open_and_close(scene.session.create_producer(Queue("new"))), MODES),
    "create_browser": (Scene.browse, MODES),
    "create_temporary_queue": (Scene.make_queue, MODES),
    "closing the consumer": (lambda scene: scene.consumer.close(), MODES),
    "closing the session": (lambda scene: scene.session.close(), MODES),
}


async def receive_all(connection: jms.Connection, *queues: Queue) -> list[list[str]]:
    """Receive all messages of each queue."""
    found = []
    async with connection.create_session() as session:
        for queue in queues:
            async with session.create_consumer(queue) as consumer:
                texts = []
                while (message := await consumer.receive_no_wait()) is not None:
                    texts.append(text_of(message))
                found.append(texts)
    return found


@contextlib.asynccontextmanager
async def in_use(connection: jms.Connection) -> AsyncIterator[None]:
    """Let the block find the only connection of the sessions in use, which becomes free while it waits."""
    holder = connection.create_session(transacted=True)
    await (await holder.get_database()).exec_driver_sql("select 1")
    closing = asyncio.create_task(holder.close())
    yield
    await closing


@pytest.mark.parametrize("most", [1, 20], ids=["one connection", "warm"])
@pytest.mark.parametrize(("name", "mode"), [(name, mode) for name, (_, modes) in CALLS.items() for mode in modes])
async def test_each_call_may_be_cancelled_at_each_step(
    aio_factory: jms.ConnectionFactory, server: Server, name: str, mode: AcknowledgeMode, most: int
) -> None:
    call, _ = CALLS[name]
    closes, receives_nothing = name == "closing the session", "not there" in name
    async with dataclasses.replace(aio_factory, max_connections=most).create_connection() as connection:
        await connection.start()
        for number in range(1, MOST_WAITS):
            await asyncio.to_thread(server.rows, THREE_SENT)
            session = connection.create_session(mode is TRANSACTED, mode)
            consumer = await session.create_consumer(SOURCE, "FALSE" if receives_nothing else None)
            scene = Scene(mode, SOURCE, session, consumer, await session.create_producer(TARGET))
            if not receives_nothing:
                await scene.receive()
            await scene.send("first")
            await scene.settle()
            await scene.send("second")
            if not receives_nothing and (most > 1 or mode is not TRANSACTED):
                await scene.receive()
            async with in_use(connection) if most == 1 else contextlib.nullcontext():
                outcome = await cancelled_at(number, call(scene))
            for queue in scene.made:
                await asyncio_only(queue.delete())
            if closes:
                await session.close()
                scene.forget()
            else:
                if name == "set_message_listener":
                    await consumer.set_message_listener(None)
                await scene.settle()
                await session.close()
            await asyncio.to_thread(wait_for, lambda: server.rows(LEFT) == [(0, 0)])
            if durable := server.rows("select subscription from jmsql.subscriptions"):
                assert durable == [("all",)]
                assert name.endswith("unsubscribe")
                assert outcome.was_cancelled
                async with connection.create_session() as another:
                    await another.unsubscribe("all")
            received = [text_of(message) for message in scene.received]
            left, sent = await receive_all(connection, SOURCE, TARGET)
            assert sorted(received + left) == ["a", "b", "c"], number
            assert sent == scene.sent, number
            if outcome.waited < number:
                break
        assert number < MOST_WAITS - 1
