"""A handler that exits has failed, as with any other exception: its process and the event loop go on."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncSession

import jmsql.asyncio
from jmsql import ConnectionFactory, Queue, RedeliveryPolicy
from jmsql.testing import wait_for
from jmsql.worker import Application
from tests.integration.worker.conftest import PATIENCE, StartWorker, WorkerDatabase
from tests.integration.worker.test_handlers import send, texts_in

ORDERS = Queue("orders")
AGAIN = RedeliveryPolicy(delay=0.01)
EXITS = pytest.mark.parametrize("error", [SystemExit, GeneratorExit, asyncio.CancelledError])

EXITING = """
import sys

@app.listener("orders", redelivery=jmsql.RedeliveryPolicy(delay=0.01))
async def handle(message, database):
    if message.get_int_property("JMSXDeliveryCount") == 1:
        {error}
    await database.execute(insertion(message))
"""


class Failing:
    """Fails with the first message.

    Args:
        error: What it raises.
    """

    def __init__(self, error: type[BaseException]) -> None:
        self._error = error
        self.texts: list[str] = []

    def handle(self, text: str) -> None:
        self.texts.append(text)
        if len(self.texts) == 1:
            raise self._error

    def has_handled(self, number: int) -> Callable[[], bool]:
        return lambda: len(self.texts) >= number


@EXITS
@pytest.mark.parametrize("kind", ["plain", "plain with the database", "coroutine", "coroutine with the database"])
async def test_the_message_comes_again(jmsql_factory: ConnectionFactory, error: type[BaseException], kind: str) -> None:
    app, failing = Application(jmsql_factory), Failing(error)

    if kind == "plain":

        @app.listener(ORDERS, redelivery=AGAIN)
        def handle(text: str) -> None:
            failing.handle(text)
    elif kind == "plain with the database":

        @app.listener(ORDERS, redelivery=AGAIN)
        def handle_with_session(text: str, database: orm.Session) -> None:
            database.connection()
            failing.handle(text)
    elif kind == "coroutine":

        @app.listener(ORDERS, redelivery=AGAIN)
        async def handle_in_loop(text: str) -> None:
            failing.handle(text)
    else:

        @app.listener(ORDERS, redelivery=AGAIN)
        async def handle_in_loop_with_session(text: str, database: AsyncSession) -> None:
            await database.connection()
            failing.handle(text)

    async with app.running():
        send(jmsql_factory, "orders", "a", "b")
        await asyncio.to_thread(wait_for, failing.has_handled(3), PATIENCE)
    assert sorted(failing.texts) == ["a", "a", "b"]
    assert texts_in(jmsql_factory, "orders") == []


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_listener_in_a_thread_goes_on(jmsql_factory: ConnectionFactory, error: type[BaseException]) -> None:
    failing = Failing(error)
    with jmsql_factory.create_connection() as connection:
        consumer = connection.create_session().create_consumer(ORDERS)
        consumer.message_listener = lambda message: failing.handle(message.get_body(str) or "")
        connection.start()
        send(jmsql_factory, "orders", "a", "b")
        wait_for(failing.has_handled(3), PATIENCE)
    assert sorted(failing.texts) == ["a", "a", "b"]


@pytest.mark.parametrize("error", [SystemExit, asyncio.CancelledError])
async def test_a_listener_in_the_event_loop_goes_on(
    jmsql_asyncio_factory: jmsql.asyncio.ConnectionFactory,
    jmsql_factory: ConnectionFactory,
    error: type[BaseException],
) -> None:
    failing = Failing(error)

    async def handle(message: jmsql.asyncio.Message) -> None:
        failing.handle(message.get_body(str) or "")

    async with jmsql_asyncio_factory.create_connection() as connection:
        consumer = await connection.create_session().create_consumer(ORDERS)
        await consumer.set_message_listener(handle)
        await connection.start()
        send(jmsql_factory, "orders", "a", "b")
        await asyncio.to_thread(wait_for, failing.has_handled(3), PATIENCE)
    assert sorted(failing.texts) == ["a", "a", "b"]


INTERRUPTED = """
import asyncio, sys
import jmsql
from jmsql.worker import Application

app = Application(jmsql.ConnectionFactory(sys.argv[1]))


@app.listener("orders", redelivery=jmsql.RedeliveryPolicy(delay=0.01))
async def handle(message: jmsql.Message) -> None:
    raise KeyboardInterrupt  # as Ctrl-C does in the main thread


asyncio.run(app.run_async())
"""


def test_ctrl_c_while_a_coroutine_function_runs_ends_the_program(
    jmsql_clean_url: str, jmsql_factory: ConnectionFactory
) -> None:
    send(jmsql_factory, "orders", "a")
    process = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, jmsql_clean_url], check=False, timeout=PATIENCE, capture_output=True
    )
    assert process.returncode == -signal.SIGINT, process.stderr.decode()
    wait_for(lambda: texts_in(jmsql_factory, "orders") == ["a"])


@pytest.mark.parametrize("error", ["sys.exit('enough')", "raise KeyboardInterrupt", "raise GeneratorExit"])
def test_a_process_of_the_worker_goes_on(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase, error: str
) -> None:
    worker = start_worker(EXITING.format(error=error))
    send(jmsql_factory, "orders", "a", "b")
    database.wait_until_handled(2)
    assert database.handled() == [("a", 2), ("b", 2)]
    assert len(database.rows("select distinct process from handled")) == 1
    assert worker.stop() == 0


async def test_an_application_of_asyncio_has_plain_handlers_too(
    jmsql_asyncio_factory: jmsql.asyncio.ConnectionFactory, jmsql_factory: ConnectionFactory
) -> None:
    app, seen = Application(dataclasses.replace(jmsql_asyncio_factory, max_connections=3)), []

    @app.listener(ORDERS)
    def handle(text: str) -> None:
        seen.append(text)

    @app.listener("invoices")
    async def handle_in_loop(text: str) -> None:
        seen.append(text)

    async with app.running():
        send(jmsql_factory, "orders", "a")
        send(jmsql_factory, "invoices", "b")
        await asyncio.to_thread(wait_for, lambda: len(seen) == 2, PATIENCE)
    assert sorted(seen) == ["a", "b"]
