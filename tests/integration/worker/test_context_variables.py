"""Context variables that a message's code sets: they hold for this message alone, wherever the code is called."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

import jmsql.asyncio
from jmsql import ConnectionFactory, Queue
from jmsql.testing import wait_for
from jmsql.worker import Application, HandlerCall
from tests.integration.worker.conftest import PATIENCE
from tests.integration.worker.test_handlers import send

QUEUE = Queue("orders")

tenant = contextvars.ContextVar("tenant", default="nobody")


def note(seen: list[str], text: str | None) -> None:
    """Note which tenant is seen, and set another one."""
    seen.append(tenant.get())
    tenant.set(text or "")


async def test_those_of_a_handler_are_not_seen_by_the_next(jmsql_factory: ConnectionFactory) -> None:
    names = "plain", "timeout", "coroutine", "coroutine timeout", "not transacted"
    seen: dict[str, list[str]] = {name: [] for name in (*names, "around", "after commit")}

    @contextmanager
    def around(call: HandlerCall) -> Iterator[None]:
        call.after_commit(lambda: note(seen["after commit"], "commit"))
        yield

    app = Application(jmsql_factory)
    surrounded = Application(jmsql_factory, around=around)

    def plain(name: str) -> Callable[[str], None]:
        return lambda body: note(seen[name], body)

    def coroutine(name: str) -> Callable[[str], Any]:
        async def handle(body: str) -> None:
            await asyncio.sleep(0)
            note(seen[name], body)

        return handle

    app.listener("plain")(plain("plain"))
    app.listener("timeout", timeout=60)(plain("timeout"))
    app.listener("coroutine")(coroutine("coroutine"))
    app.listener("coroutine timeout", timeout=60)(coroutine("coroutine timeout"))
    app.listener("not transacted", transacted=False)(plain("not transacted"))
    surrounded.listener("around")(plain("around"))
    for name, text in itertools.product([*names, "around"], "abc"):
        send(jmsql_factory, name, text)
    async with app.running(), surrounded.running():
        await asyncio.to_thread(wait_for, lambda: all(len(each) == 3 for each in seen.values()), PATIENCE)
    assert seen == {name: ["nobody"] * 3 for name in seen}


@pytest.mark.parametrize(
    "mode", [jmsql.AcknowledgeMode.AUTO, jmsql.AcknowledgeMode.CLIENT, jmsql.AcknowledgeMode.TRANSACTED]
)
def test_those_of_a_listener_are_not_seen_by_the_next(
    jmsql_factory: ConnectionFactory, mode: jmsql.AcknowledgeMode
) -> None:
    seen: list[str] = []
    completed: list[str] = []
    send(jmsql_factory, "orders", "a", "b", "c")
    with jmsql_factory.create_connection() as connection, connection.create_session(mode) as session:
        producer = session.create_producer(Queue("others"))

        def listen(message: jmsql.Message) -> None:
            note(seen, message.get_body(str))
            producer.send(session.create_message(), completion_listener=lambda *_: note(completed, "completed"))

        session.create_consumer(QUEUE).message_listener = listen
        connection.start()
        wait_for(lambda: len(seen) == len(completed) == 3, PATIENCE)
    assert seen == completed == ["nobody"] * 3


@asynccontextmanager
async def connected(factory: ConnectionFactory) -> AsyncIterator[jmsql.asyncio.Connection]:
    async with jmsql.asyncio.ConnectionFactory(factory.url).create_connection() as connection:
        yield connection


@pytest.mark.parametrize("is_plain", [False, True])
async def test_those_of_a_listener_under_asyncio_are_not_seen_by_the_next(
    jmsql_factory: ConnectionFactory, is_plain: bool
) -> None:
    seen: list[str] = []
    completed: list[str] = []
    send(jmsql_factory, "orders", "a", "b", "c")
    async with connected(jmsql_factory) as connection, connection.create_session() as session:
        producer = await session.create_producer(Queue("others"))
        consumer = await session.create_consumer(QUEUE)

        async def listen(message: jmsql.Message) -> None:
            note(seen, message.get_body(str))
            async with asyncio.timeout(PATIENCE):
                await producer.send(session.create_message(), completion_listener=complete)
            seen.append(tenant.get())

        async def complete(*_: object) -> None:
            await asyncio.sleep(0)
            note(completed, "completed")

        def listen_plainly(message: jmsql.Message) -> None:
            note(seen, message.get_body(str))
            note(completed, "completed")

        await consumer.set_message_listener(listen_plainly if is_plain else listen)
        await connection.start()
        await asyncio.to_thread(wait_for, lambda: len(completed) == 3, PATIENCE)
    if is_plain:
        assert (seen, completed) == (["nobody"] * 3, ["a", "b", "c"])
    else:
        assert (seen, completed) == (["nobody", "a", "nobody", "b", "nobody", "c"], ["nobody"] * 3)
