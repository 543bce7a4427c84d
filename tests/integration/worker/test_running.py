"""Handlers in the process of an application: coroutine functions in its event loop, others in threads."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest
import sqlalchemy
from prometheus_client import CollectorRegistry
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

import jmsql
from jmsql import ConnectionFactory, Message, Queue, RedeliveryPolicy
from jmsql import asyncio as jms
from jmsql.testing import wait_for
from jmsql.worker import Application, WorkerTimings
from tests.integration.worker.conftest import PATIENCE, WorkerDatabase
from tests.integration.worker.test_handlers import send, texts_in


class Base(orm.DeclarativeBase):
    pass


class Handled(Base):
    __tablename__ = "handled"
    text: orm.Mapped[str] = orm.mapped_column(primary_key=True)


def insertion(message: Message) -> sqlalchemy.TextClause:
    text = "insert into handled (text, delivery_count) values (:text, :count)"
    count = message.get_int_property("JMSXDeliveryCount")
    return sqlalchemy.text(text).bindparams(text=message.get_body(str), count=count)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    await asyncio.to_thread(wait_for, condition, PATIENCE)


class Events:
    """What handlers have done, as a test waits for it in its event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._happened: asyncio.Queue[str] = asyncio.Queue()

    def tell(self, event: str) -> None:
        """Note an event, in any thread."""
        self._loop.call_soon_threadsafe(self._happened.put_nowait, event)

    async def next(self) -> str:
        """Wait for the next event."""
        async with asyncio.timeout(PATIENCE):
            return await self._happened.get()

    @property
    def are_over(self) -> bool:
        """Whether no other has happened."""
        return self._happened.empty()


async def test_coroutine_functions_get_the_values_of_their_parameters(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app = Application(jmsql_factory)
    loops = set()

    @app.listener("connection")
    async def by_connection(message: jmsql.TextMessage, rows: AsyncConnection, context: jms.JMSContext) -> None:
        loops.add(asyncio.get_running_loop())
        await rows.execute(insertion(message))
        await context.create_producer().send(Queue("answers"), "from the context")

    @app.listener("by name")
    async def by_name(message, body, database, session, context) -> None:  # type: ignore[no-untyped-def]
        assert message.get_body(str) == body
        assert isinstance(context, jms.JMSContext)
        await database.execute(insertion(message))
        async with session.create_producer(Queue("answers")) as producer:
            await producer.send(session.create_text_message("from the session"))

    @app.listener("orm")
    async def by_orm(text: str, rows: AsyncSession) -> None:
        rows.add(Handled(text=text))
        await rows.flush()
        if text == "undone":
            await rows.rollback()

    @app.listener("not transacted", transacted=False)
    async def alone(body: dict[str, Any], context: jms.JMSContext) -> None:
        await context.create_producer().send(Queue("answers"), f"number {body['number']}")

    async with app.running():
        send(jmsql_factory, "connection", "a")
        send(jmsql_factory, "by name", "b")
        send(jmsql_factory, "orm", "c", "undone")
        send(jmsql_factory, "not transacted", {"number": 5})
        await until(lambda: len(database.handled()) == 3 and database.queued() == 3)
    assert loops == {asyncio.get_running_loop()}
    assert dict(database.handled()) == {"a": 1, "b": 1, "c": None}
    assert sorted(texts_in(jmsql_factory, "answers"), key=str) == ["from the context", "from the session", "number 5"]


@pytest.mark.parametrize("is_async", [True, False], ids=["async def", "def"])
async def test_the_concurrency_is_the_number_of_messages_handled_at_a_time(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, is_async: bool
) -> None:
    app = Application(jmsql_factory)
    met, barrier = asyncio.Barrier(3), threading.Barrier(3, timeout=PATIENCE)

    if is_async:

        @app.listener("orders")
        async def handle(message: Message, rows: AsyncConnection) -> None:
            await met.wait()
            await rows.execute(insertion(message))
    else:

        @app.listener("orders")
        def handle_in_thread(message: Message, rows: sqlalchemy.Connection) -> None:
            barrier.wait()
            rows.execute(insertion(message))

    async with app.running(concurrency=3):
        send(jmsql_factory, "orders", "a", "b", "c")
        await until(lambda: len(database.handled()) == 3 and database.queued() == 0)
    assert database.handled() == [("a", 1), ("b", 1), ("c", 1)]


@pytest.mark.parametrize("transacted", [True, False], ids=["transacted", "not transacted"])
async def test_a_failure_is_rolled_back_delivered_again_and_goes_to_the_dead_letter_queue(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, transacted: bool
) -> None:
    app = Application(jmsql_factory)
    policy = RedeliveryPolicy(maximum_deliveries=2, delay=0.0)
    happened = Events()

    if transacted:

        @app.listener("orders", redelivery=policy)
        async def fail_in_transaction(message: Message, rows: AsyncConnection) -> None:
            await rows.execute(insertion(message))
            happened.tell("called")
            raise RuntimeError("it always fails")
    else:

        @app.listener("orders", redelivery=policy, transacted=False)
        async def fail() -> None:
            happened.tell("called")
            raise RuntimeError("it always fails")

    async with app.running():
        send(jmsql_factory, "orders", "a")
        assert [await happened.next(), await happened.next()] == ["called", "called"]
        dead_letters = "select count(*) from jmsql.messages where queue = 'DLQ'"
        await until(lambda: database.rows(dead_letters) == [(1,)])
    assert happened.are_over
    assert database.handled() == []
    ((error,),) = database.rows("select properties ->> 'JMS_jmsql_LastError' from jmsql.messages")
    assert "RuntimeError: it always fails" in error


@pytest.mark.parametrize("is_async", [True, False], ids=["async def", "def"])
async def test_the_end_of_the_block_waits_for_running_handlers_and_takes_no_more(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, is_async: bool
) -> None:
    app = Application(jmsql_factory)
    happened, leave, leave_thread = Events(), asyncio.Event(), threading.Event()

    if is_async:

        @app.listener("orders")
        async def handle(message: Message, rows: AsyncConnection) -> None:
            happened.tell("began")
            await leave.wait()
            await rows.execute(insertion(message))
    else:

        @app.listener("orders")
        def handle_in_thread(message: Message, rows: sqlalchemy.Connection) -> None:
            happened.tell("began")
            leave_thread.wait(PATIENCE)
            rows.execute(insertion(message))

    send(jmsql_factory, "orders", "a", "b")
    running = app.running()
    await running.__aenter__()
    await happened.next()
    ending = asyncio.create_task(running.__aexit__(None, None, None))
    await asyncio.sleep(0.05)
    assert not ending.done()
    leave.set()
    leave_thread.set()
    await ending
    assert happened.are_over
    assert database.handled() == [("a", 1)]
    assert database.queued() == 1


async def wait_for_ever(_: AsyncConnection) -> None:
    await asyncio.Event().wait()


async def sleep_in_a_statement(rows: AsyncConnection) -> None:
    await rows.execute(sqlalchemy.text("select pg_sleep(600)"))


async def ignore_the_cancellation(rows: AsyncConnection) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await rows.execute(sqlalchemy.text("select 1"))


@pytest.mark.parametrize("wait", [wait_for_ever, sleep_in_a_statement], ids=["in Python", "in a statement"])
async def test_handlers_that_run_at_the_deadline_are_cancelled_and_rolled_back(
    jmsql_factory: ConnectionFactory,
    database: WorkerDatabase,
    caplog: pytest.LogCaptureFixture,
    wait: Callable[[AsyncConnection], Awaitable[None]],
) -> None:
    app = Application(jmsql_factory)
    happened = Events()

    @app.listener("orders")
    async def handle(message: Message, rows: AsyncConnection) -> None:
        await rows.execute(insertion(message))
        happened.tell("began")
        await wait(rows)

    async with app.running(drain_timeout=0.1):
        send(jmsql_factory, "orders", "a")
        await happened.next()
    assert "has not finished within 0.1 s" in caplog.text
    assert database.handled() == []
    assert database.queued() == 1


async def test_a_handler_may_finish_though_it_is_cancelled(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app = Application(jmsql_factory)
    happened = Events()

    @app.listener("orders")
    async def handle(message: Message, rows: AsyncConnection) -> None:
        await rows.execute(insertion(message))
        happened.tell("began")
        await ignore_the_cancellation(rows)

    async with app.running(drain_timeout=0.0):
        send(jmsql_factory, "orders", "a")
        await happened.next()
    assert database.handled() == [("a", 1)]
    assert database.queued() == 0


async def test_run_async_handles_messages_until_it_is_cancelled(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app = Application(jms.ConnectionFactory(jmsql_factory.url))
    happened, leave = Events(), asyncio.Event()

    @app.listener("orders")
    async def handle(message: Message, rows: AsyncConnection) -> None:
        await rows.execute(insertion(message))
        happened.tell("began")
        await leave.wait()

    working = asyncio.create_task(app.run_async())
    send(jmsql_factory, "orders", "a")
    await happened.next()
    working.cancel()
    await asyncio.sleep(0.05)
    assert not working.done()
    leave.set()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert database.handled() == [("a", 1)]
    assert database.queued() == 0


async def test_a_registry_shows_the_handlers_metrics_while_they_run(jmsql_factory: ConnectionFactory) -> None:
    app, registry = Application(jmsql_factory), CollectorRegistry()
    happened, leave = Events(), asyncio.Event()

    @app.listener("orders")
    async def handle(text: str) -> None:
        happened.tell(text)
        await leave.wait()

    def shown(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"jmsql_worker_{name}", labels)

    [listener] = app.listeners
    async with app.running(registry=registry, timings=WorkerTimings(check_interval=0.01)):
        send(jmsql_factory, "orders", "a")
        await happened.next()
        assert shown("running_handlers") == 1
        leave.set()
        handled = {"listener": listener.name, "outcome": "handled"}
        await until(lambda: shown("messages_total", **handled) == 1)
        assert shown("handler_seconds_count", listener=listener.name) == 1
    assert list(registry.collect()) == []


def break_down(session: jmsql.Session) -> None:
    thread = threading.Thread(target=session.close)
    thread.start()
    thread.join()


async def break_down_in_event_loop(session: jms.Session) -> None:
    await asyncio.create_task(session.close())


@pytest.mark.parametrize("handler", [break_down_in_event_loop, break_down], ids=["async def", "def"])
async def test_it_ends_with_an_error_if_a_listener_takes_no_more_messages(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, handler: Callable[..., object]
) -> None:
    app = Application(jmsql_factory)
    app.listener("orders")(handler)
    send(jmsql_factory, "orders", "a")
    with pytest.raises(jmsql.JMSException, match="takes no more messages: IllegalStateException") as raised:
        async with asyncio.timeout(PATIENCE):
            await app.run_async()
    assert isinstance(raised.value.__cause__, jmsql.IllegalStateException)
    assert database.queued() == 1
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_a_transaction_that_is_held_for_long_is_named_and_a_handler_without_one_is_not(
    jmsql_factory: ConnectionFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Application(jmsql_factory)
    was_named = asyncio.Event()
    named: list[str] = []

    def is_named(record: logging.LogRecord) -> bool:
        if "has held a transaction open" in record.getMessage():
            named.append(getattr(record, "listener"))  # noqa: B009 - of the record's `extra`
            was_named.set()
        return True

    monkeypatch.setattr(logging.getLogger("jmsql.worker"), "filters", [is_named])
    has_begun = asyncio.Event()

    @app.listener("calls")
    async def call() -> None:
        has_begun.set()
        await was_named.wait()

    @app.listener("orders")
    async def handle(rows: AsyncConnection) -> None:
        await has_begun.wait()
        await rows.execute(sqlalchemy.text("select 1"))
        await was_named.wait()

    async with app.running(warn_transaction_after=0.01):
        send(jmsql_factory, "calls", "a")
        send(jmsql_factory, "orders", "a")
        async with asyncio.timeout(PATIENCE):
            await was_named.wait()
    assert [name.rpartition(".")[2] for name in named] == ["handle"]


async def test_handlers_go_on_when_their_connections_were_cut(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    app = Application(jmsql_factory)
    happened = Events()

    @app.listener("orders")
    async def handle(message: Message, rows: AsyncConnection) -> None:
        await rows.execute(insertion(message))
        if not happened.are_over or message.get_int_property("JMSXDeliveryCount") == 1:
            happened.tell("began")
            await rows.execute(sqlalchemy.text("select pg_terminate_backend(pg_backend_pid())"))

    with caplog.at_level(logging.CRITICAL):
        async with app.running(concurrency=2):
            send(jmsql_factory, "orders", "a")
            await happened.next()
            await until(lambda: len(database.handled()) == 1 and database.queued() == 0)
    assert database.handled() == [("a", 2)]


async def test_the_lifespan_of_an_application_ends_in_order(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, jmsql_clean_url: str
) -> None:
    app = Application(jmsql_factory)

    @app.listener("orders")
    async def handle(message: Message, rows: AsyncConnection) -> None:
        await rows.execute(insertion(message))

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        async with app.running(concurrency=2):
            yield

    for text in ("a", "b"):
        async with lifespan():
            send(jmsql_factory, "orders", text)
            await until(lambda text=text: text in dict(database.handled()) and database.queued() == 0)  # type: ignore[misc]
    assert database.handled() == [("a", 1), ("b", 1)]


@pytest.mark.parametrize("arguments", [{"concurrency": 0}, {"drain_timeout": -1}])
async def test_invalid_arguments_of_running_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"concurrency|drain_timeout"):
        async with Application().running(**arguments):
            pass


async def test_a_server_that_is_not_there_is_a_jms_exception() -> None:
    app = Application(ConnectionFactory("postgresql://127.0.0.1:1/nowhere"))

    @app.listener("orders")
    async def handle() -> None: ...

    with pytest.raises(jmsql.ResourceAllocationException) as raised:
        await app.run_async()
    assert isinstance(raised.value.__cause__, psycopg.OperationalError)


def connections(database: WorkerDatabase, name: str) -> int:
    return int(database.rows(f"select count(*) from pg_stat_activity where application_name = '{name}'")[0][0])


def named(factory: ConnectionFactory, name: str) -> ConnectionFactory:
    url = sqlalchemy.make_url(factory.url or "").update_query_dict({"application_name": name})
    return replace(factory, url=url.render_as_string(hide_password=False))


@pytest.mark.parametrize("is_async", [True, False], ids=["async def", "def"])
async def test_there_are_three_connections_more_than_handlers_that_run(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, is_async: bool
) -> None:
    name = "worker whose connections are counted"
    app = Application(named(jmsql_factory, name))
    happened, leave, leave_thread = Events(), asyncio.Event(), threading.Event()

    async def handle(message: Message, database: AsyncConnection) -> None:
        await database.execute(insertion(message))
        happened.tell("began")
        await leave.wait()

    def handle_in_thread(message: Message, database: sqlalchemy.Connection) -> None:
        database.execute(insertion(message))
        happened.tell("began")
        leave_thread.wait(PATIENCE)

    for queue in ("orders", "letters", "parcels"):
        app.listener(queue)(handle if is_async else handle_in_thread)
    async with app.running(concurrency=10):
        await until(lambda: connections(database, name) <= 3)
        send(jmsql_factory, "orders", "a", "b", "c", "d")
        send(jmsql_factory, "letters", "e")
        for _ in range(5):
            await happened.next()
        await until(lambda: connections(database, name) <= 5 + 3)
        assert happened.are_over
        leave.set()
        leave_thread.set()
        await until(lambda: len(database.handled()) == 5 and connections(database, name) <= 3)


async def test_listeners_take_connections_in_turn_and_leave_nothing_on_them(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app = Application(jmsql_factory)
    happened = Events()

    async def handle(body: str, database: AsyncConnection) -> None:
        found = (await database.execute(sqlalchemy.text("select pg_backend_pid()"))).scalar_one()
        timeout = (await database.execute(sqlalchemy.text("show statement_timeout"))).scalar_one()
        if body == "setting":
            await database.execute(sqlalchemy.text("set statement_timeout = '1h'"))
        happened.tell(f"{found} {timeout}")

    app.listener("orders")(handle)
    app.listener("letters")(handle)
    processes = []
    async with app.running(concurrency=3):
        for number in range(8):
            send(jmsql_factory, "letters" if number % 2 else "orders", "setting" if number > 5 else "plain")
            process, timeout = (await happened.next()).split()
            assert timeout == "0"
            processes.append(process)
            await until(lambda: database.queued() == 0)
    assert len(set(processes[:6])) < 6, "they are used again"


async def test_idle_connections_that_were_cut_are_not_used(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    name = "worker whose connections are cut"
    app = Application(named(jmsql_factory, name))

    @app.listener("orders")
    async def handle(message: Message, database: AsyncConnection) -> None:
        await database.execute(insertion(message))

    async with app.running(concurrency=2):
        for number, text in enumerate(("a", "b", "c"), 1):
            send(jmsql_factory, "orders", text)
            await until(lambda number=number: len(database.handled()) == number and database.queued() == 0)  # type: ignore[misc]
            database.rows(f"select pg_terminate_backend(pid) from pg_stat_activity where application_name = '{name}'")
    assert [text for text, _ in database.handled()] == ["a", "b", "c"]


async def test_listeners_that_take_each_others_messages_are_named(
    jmsql_factory: ConnectionFactory, caplog: pytest.LogCaptureFixture
) -> None:
    application = Application(jmsql_factory)

    def ship(order: str) -> None: ...

    async def bill(order: str) -> None: ...

    for handler in (ship, bill):
        application.listener("orders")(handler)
    async with application.running():
        pass
    (warning,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert "ship and" in warning
    assert "bill take each other's messages: each message of queue://orders goes to one of them." in warning
