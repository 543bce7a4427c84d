"""What handlers do that is the worker's to do, or not theirs: the message has failed, and the next ones are handled."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection

import jmsql.asyncio
from jmsql import ConnectionFactory, IllegalStateException, JMSContext, JMSException, Queue, RedeliveryPolicy, Session
from jmsql.testing import wait_for
from jmsql.worker import Application, HandlerCall
from tests.integration.worker.conftest import PATIENCE, WorkerDatabase
from tests.integration.worker.test_handlers import send, texts_in

ORDERS = Queue("orders")
ONCE_MORE = RedeliveryPolicy(maximum_deliveries=2, delay=0.01)
INSERTION = sqlalchemy.text("insert into handled values (:text, 0, :count)")


def count_deliveries(message: jmsql.Message) -> int:
    return message.get_int_property("JMSXDeliveryCount")


def deaths(database: WorkerDatabase) -> list[tuple[Any, ...]]:
    return database.rows("select body, reason, error from jmsql.dead_letters order by body")


async def handled(app: Application, factory: ConnectionFactory, is_done: Callable[[], object], *texts: str) -> None:
    """Have messages handled, by one task, until something is true."""
    async with app.running(concurrency=1):
        for text in texts:
            send(factory, "orders", text)
        await asyncio.to_thread(wait_for, is_done, PATIENCE)


# The end of the transaction


@pytest.mark.parametrize("by_sql", [False, True])
async def test_a_message_whose_handler_rolls_the_transaction_back_comes_again(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, by_sql: bool
) -> None:
    app = Application(jmsql_factory)

    @app.listener(ORDERS, redelivery=ONCE_MORE)
    def handle(message: jmsql.Message, rows: sqlalchemy.Connection) -> None:
        count = count_deliveries(message)
        rows.execute(INSERTION, {"text": message.get_body(str), "count": count})
        if count == 1 and by_sql:
            rows.exec_driver_sql("rollback")
        elif count == 1:
            rows.rollback()

    await handled(app, jmsql_factory, lambda: database.rows("select from handled"), "a")
    assert database.rows("select text, delivery_count from handled") == [("a", 2)]
    assert deaths(database) == []


async def test_a_message_whose_coroutine_rolls_the_transaction_back_comes_again(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app = Application(jmsql_factory)

    @app.listener(ORDERS, redelivery=ONCE_MORE)
    async def handle(message: jmsql.Message, rows: AsyncConnection) -> None:
        count = count_deliveries(message)
        await rows.execute(INSERTION, {"text": message.get_body(str), "count": count})
        if count == 1:
            await rows.rollback()

    await handled(app, jmsql_factory, lambda: database.rows("select from handled"), "a")
    assert database.rows("select text, delivery_count from handled") == [("a", 2)]


async def test_rolling_back_an_empty_transaction_fails_no_message(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app, texts = Application(jmsql_factory), list[str]()

    @app.listener(ORDERS)
    def handle(text: str, rows: sqlalchemy.Connection, context: JMSContext) -> None:
        context.create_producer().send(Queue("sent"), text)
        rows.rollback()
        texts.append(text)

    await handled(app, jmsql_factory, lambda: len(texts) == 2, "a", "b")
    assert texts == ["a", "b"]
    assert texts_in(jmsql_factory, "sent") == ["a", "b"]


# What a handler is given is for its call alone


async def test_a_handler_may_close_its_context(jmsql_factory: ConnectionFactory, database: WorkerDatabase) -> None:
    app, refused = Application(jmsql_factory), list[str]()

    @app.listener(ORDERS)
    def handle(text: str, context: JMSContext) -> None:
        with context:
            context.create_producer().send(Queue("sent"), text)
        with pytest.raises(IllegalStateException, match="closed"):
            context.create_producer()
        refused.append(text)

    await handled(app, jmsql_factory, lambda: len(refused) == 2, "a", "b")
    assert texts_in(jmsql_factory, "sent") == ["a", "b"]


async def test_a_coroutine_may_close_its_context(jmsql_factory: ConnectionFactory, database: WorkerDatabase) -> None:
    app, closed = Application(jmsql_factory), list[str]()

    @app.listener(ORDERS)
    async def handle(text: str, context: jmsql.asyncio.JMSContext) -> None:
        async with context:
            await context.create_producer().send(Queue("sent"), text)
        closed.append(text)

    await handled(app, jmsql_factory, lambda: len(closed) == 2, "a", "b")
    assert texts_in(jmsql_factory, "sent") == ["a", "b"]


async def test_a_handler_that_closes_its_session_has_failed_and_the_next_message_is_handled(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app, texts = Application(jmsql_factory), list[str]()

    @app.listener(ORDERS, redelivery=RedeliveryPolicy(maximum_deliveries=1))
    def handle(text: str, session: Session) -> None:
        if text == "a":
            session.close()
        texts.append(text)

    await handled(app, jmsql_factory, lambda: "b" in texts, "a", "b")
    assert texts == ["b"]
    assert [(body, reason) for body, reason, _ in deaths(database)] == [("a", "maximum deliveries")]
    assert "leave closing it to the worker" in deaths(database)[0][2].lower()


async def test_code_that_outlives_a_handler_sends_nothing_in_another_transaction(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app, said, has_returned = Application(jmsql_factory), list[BaseException | None](), threading.Event()

    def send_late(context: JMSContext, producer: Any) -> None:
        assert has_returned.wait(PATIENCE)
        for attempt in (context.create_producer, lambda: producer.send(Queue("late"), "late")):
            try:
                attempt()
            except IllegalStateException as error:
                said.append(error)
            else:
                said.append(None)

    @app.listener(ORDERS)
    def handle(text: str, context: JMSContext) -> None:
        if text == "a":
            threading.Thread(target=send_late, args=(context, context.create_producer())).start()
        else:
            has_returned.set()
            wait_for(lambda: len(said) == 2, PATIENCE)

    await handled(app, jmsql_factory, lambda: len(said) == 2, "a", "b")
    assert [type(error) for error in said] == [IllegalStateException] * 2
    assert "has returned" in str(said[0])
    assert texts_in(jmsql_factory, "late") == []


# What a handler leaves on the connection


@pytest.mark.parametrize("statement", ["set default_transaction_read_only = on", "set statement_timeout = '1h'"])
async def test_a_handlers_settings_do_not_hold_for_the_next_message(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, statement: str
) -> None:
    app, seen = Application(jmsql_factory), list[Any]()

    @app.listener(ORDERS)
    def handle(text: str, rows: sqlalchemy.Connection) -> None:
        asked = "select current_setting('statement_timeout'), current_setting('default_transaction_read_only')"
        seen.append(tuple(rows.exec_driver_sql(asked).one()))
        rows.exec_driver_sql(statement)

    await handled(app, jmsql_factory, lambda: len(seen) == 3, "a", "b", "c")
    assert seen == [("0", "off")] * 3


async def test_a_connection_that_a_handler_has_detached_is_its_own(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app, texts = Application(jmsql_factory), list[str]()

    @app.listener(ORDERS, redelivery=RedeliveryPolicy(maximum_deliveries=1))
    def handle(text: str, rows: sqlalchemy.Connection) -> None:
        texts.append(text)
        if text == "a":
            rows.detach()

    await handled(app, jmsql_factory, lambda: len(texts) == 2, "a", "b")


# What a handler raises


class Speechless(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


async def test_an_error_that_cannot_be_written_fails_its_message_alone(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app, texts = Application(jmsql_factory), list[str]()

    @app.listener(ORDERS, redelivery=RedeliveryPolicy(maximum_deliveries=1))
    def handle(text: str) -> None:
        texts.append(text)
        if text == "a":
            raise Speechless

    await handled(app, jmsql_factory, lambda: len(texts) == 2, "a", "b")
    assert [(body, reason) for body, reason, _ in deaths(database)] == [("a", "maximum deliveries")]
    assert "Speechless" in deaths(database)[0][2]


async def test_a_dead_letter_tells_the_error_of_a_statement_and_of_a_group(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app = Application(jmsql_factory)

    @app.listener(ORDERS, redelivery=RedeliveryPolicy(maximum_deliveries=1))
    def handle(text: str, rows: sqlalchemy.Connection) -> None:
        if text == "a":
            rows.exec_driver_sql("select 1/0")
        raise ExceptionGroup("two things", [ValueError("one"), ValueError("two")])

    await handled(app, jmsql_factory, lambda: len(deaths(database)) == 2, "a", "b")
    assert [error for _, _, error in deaths(database)] == [
        "sqlalchemy.exc.DataError: (psycopg.errors.DivisionByZero) division by zero",
        "ExceptionGroup: two things (2 sub-exceptions)",
    ]


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_log_filter_that_fails_changes_no_outcome(
    jmsql_factory: ConnectionFactory,
    database: WorkerDatabase,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    *,
    is_async: bool,
) -> None:
    app, texts = Application(jmsql_factory), list[str]()
    options: Any = {"redelivery": RedeliveryPolicy(maximum_deliveries=1)}
    logger = logging.getLogger("jmsql.worker")

    def refuse(record: logging.LogRecord) -> bool:
        if record.exc_info or hasattr(record, "message_id"):
            raise KeyError("bug in a filter")
        return True

    def work(text: str, call: HandlerCall) -> None:
        texts.append(text)
        call.after_commit(lambda: 1 // 0)
        if text == "a":
            raise ValueError("no")

    if is_async:

        @app.listener(ORDERS, **options)
        async def handle(text: str, call: HandlerCall) -> None:
            work(text, call)

    else:
        app.listener(ORDERS, **options)(work)

    caplog.set_level(logging.DEBUG, "jmsql.worker")
    logger.addFilter(refuse)
    try:
        await handled(app, jmsql_factory, lambda: len(texts) == 3 and database.queued() == 1, "a", "b", "c")
    finally:
        logger.removeFilter(refuse)
    assert deaths(database) == [("a", "maximum deliveries", "ValueError: no")]
    assert "bug in a filter" in capsys.readouterr().err


async def test_a_callback_that_cancels_its_own_task_ends_the_block_with_an_error(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app = Application(jmsql_factory)

    async def cancel() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    @app.listener(ORDERS)
    async def handle(text: str, call: HandlerCall) -> None:
        call.after_commit(cancel)

    send(jmsql_factory, "orders", "a")
    with pytest.raises(JMSException, match="takes no more messages: CancelledError"):
        async with app.running():
            await asyncio.sleep(PATIENCE)
