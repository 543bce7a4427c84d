"""Messages that an administrator cancels while a worker has them."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection

import jmsql
from jmsql import ConnectionFactory
from jmsql.admin import Administration, Cancellation
from jmsql.testing import wait_for
from jmsql.worker import Application, HandlerCall
from tests.integration.worker.conftest import PATIENCE, StartWorker, WorkerDatabase

SLEEP = sqlalchemy.text("select pg_sleep(600)")
INSERTION = sqlalchemy.text("insert into handled values (:text, 0, 0)")


def send_one(factory: ConnectionFactory, text: str) -> str:
    with factory.create_context() as context:
        message = context.create_text_message(text)
        context.create_producer().send(jmsql.Queue("orders"), message)
        assert message.jms_message_id is not None
        return message.jms_message_id


class Observed:
    """The calls of the handlers of a test."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.cleaned: list[str] = []

    def run(self, text: str, work: Callable[[], Any]) -> None:
        """Note that a plain function has begun, and that its cleanup runs."""
        self.began.append(text)
        try:
            if text == "slow":
                work()
        finally:
            self.cleaned.append(text)

    async def await_for(self, text: str, work: Callable[[], Any]) -> None:
        """Note that a coroutine function has begun, and that its cleanup runs."""
        self.began.append(text)
        try:
            if text == "slow":
                await work()
        finally:
            self.cleaned.append(text)


def loop_forever() -> None:
    while True:
        time.sleep(0.002)


def loop_until_cancelled(call: HandlerCall) -> None:
    while not call.is_cancelled:
        time.sleep(0.002)


def thread_at_a_statement(app: Application, seen: Observed) -> None:
    @app.listener("orders")
    def handle(body: str, rows: sqlalchemy.Connection) -> None:
        rows.execute(INSERTION, {"text": body})
        seen.run(body, lambda: rows.execute(SLEEP))


def thread_in_a_loop(app: Application, seen: Observed) -> None:
    @app.listener("orders")
    def handle(body: str, rows: sqlalchemy.Connection) -> None:
        rows.execute(INSERTION, {"text": body})
        seen.run(body, loop_forever)


def thread_without_a_transaction(app: Application, seen: Observed) -> None:
    @app.listener("orders", transacted=False)
    def handle(body: str) -> None:
        seen.run(body, loop_forever)


def thread_that_looks(app: Application, seen: Observed) -> None:
    @app.listener("orders")
    def handle(body: str, call: HandlerCall, rows: sqlalchemy.Connection) -> None:
        rows.execute(INSERTION, {"text": body})
        seen.run(body, lambda: loop_until_cancelled(call))


def thread_that_catches_it(app: Application, seen: Observed) -> None:
    def endure() -> None:
        try:
            loop_forever()
        except asyncio.CancelledError:
            return

    @app.listener("orders")
    def handle(body: str, rows: sqlalchemy.Connection) -> None:
        rows.execute(INSERTION, {"text": body})
        seen.run(body, endure)


def coroutine(app: Application, seen: Observed) -> None:
    @app.listener("orders")
    async def handle(body: str, rows: AsyncConnection) -> None:
        await rows.execute(INSERTION, {"text": body})
        await seen.await_for(body, lambda: asyncio.sleep(600))


def coroutine_at_a_statement(app: Application, seen: Observed) -> None:
    @app.listener("orders")
    async def handle(body: str, rows: AsyncConnection) -> None:
        await rows.execute(INSERTION, {"text": body})
        await seen.await_for(body, lambda: rows.execute(SLEEP))


def coroutine_without_a_transaction(app: Application, seen: Observed) -> None:
    @app.listener("orders", transacted=False)
    async def handle(body: str) -> None:
        await seen.await_for(body, lambda: asyncio.sleep(600))


def coroutine_that_catches_it(app: Application, seen: Observed) -> None:
    async def endure() -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            return

    @app.listener("orders")
    async def handle(body: str, rows: AsyncConnection) -> None:
        await rows.execute(INSERTION, {"text": body})
        await seen.await_for(body, endure)


KINDS = [
    thread_at_a_statement,
    thread_in_a_loop,
    thread_without_a_transaction,
    thread_that_looks,
    thread_that_catches_it,
    coroutine,
    coroutine_at_a_statement,
    coroutine_without_a_transaction,
    coroutine_that_catches_it,
]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_message_that_is_handled_is_cancelled_and_its_handler_ends(
    jmsql_factory: ConnectionFactory,
    database: WorkerDatabase,
    caplog: pytest.LogCaptureFixture,
    kind: Callable[[Application, Observed], None],
) -> None:
    app, seen = Application(jmsql_factory), Observed()
    kind(app, seen)
    caplog.set_level("INFO", "jmsql.worker")
    with Administration(jmsql_factory) as administration:
        administration.create("orders", history=True)
        async with app.running(concurrency=1):
            cancelled = send_one(jmsql_factory, "slow")
            await asyncio.to_thread(wait_for, lambda: seen.began == ["slow"], PATIENCE)
            assert await asyncio.to_thread(administration.cancel, cancelled) is Cancellation.asked
            assert await asyncio.to_thread(administration.cancel, cancelled) is Cancellation.gone
            await asyncio.to_thread(wait_for, lambda: seen.cleaned == ["slow"], PATIENCE)
            send_one(jmsql_factory, "quick")
            await asyncio.to_thread(wait_for, lambda: database.queued() == 0 and "quick" in seen.cleaned, PATIENCE)
        assert seen.began == ["slow", "quick"], "it comes again"
        assert "slow" not in dict(database.handled()), "it is half done"
        outcomes = [past.entry.outcome for past in administration.history.messages("orders")]
        assert outcomes == ["acknowledged", "cancelled"]
    assert [record.levelname for record in caplog.records if "was cancelled in delivery 1" in record.message] == [
        "INFO"
    ]
    assert not [record for record in caplog.records if record.levelname in {"WARNING", "ERROR"}]


@pytest.mark.parametrize("is_async", [False, True])
async def test_messages_that_are_claimed_ahead_are_not_handled_once_they_are_cancelled(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, is_async: bool
) -> None:
    app = Application(jmsql_factory)
    handled: list[str] = []
    goes_on, waits = threading.Event(), threading.Event()

    def note(body: str) -> bool:
        handled.append(body)
        return body == "8"

    if is_async:

        @app.listener("orders")
        async def handle(body: str) -> None:
            if note(body):
                waits.set()
                await asyncio.to_thread(goes_on.wait, PATIENCE)

    else:

        @app.listener("orders")
        def handle_in_thread(body: str) -> None:
            if note(body):
                waits.set()
                goes_on.wait(PATIENCE)

    sent = [send_one(jmsql_factory, str(number)) for number in range(40)]
    with Administration(jmsql_factory) as administration:
        async with app.running(concurrency=1):
            assert await asyncio.to_thread(waits.wait, PATIENCE)
            outcomes = [await asyncio.to_thread(administration.cancel, each) for each in sent[10:]]
            goes_on.set()
            await asyncio.to_thread(wait_for, lambda: database.queued() == 0, PATIENCE)
    assert set(outcomes) <= {Cancellation.removed, Cancellation.asked}
    assert handled == [str(number) for number in range(10)]


async def test_a_handler_that_has_committed_has_won(jmsql_factory: ConnectionFactory, database: WorkerDatabase) -> None:
    app = Application(jmsql_factory)

    @app.listener("orders")
    def handle(body: str, rows: sqlalchemy.Connection) -> None:
        rows.execute(INSERTION, {"text": body})

    async with app.running(concurrency=1):
        sent = send_one(jmsql_factory, "a")
        await asyncio.to_thread(database.wait_until_handled, 1)
    with Administration(jmsql_factory) as administration:
        assert administration.cancel(sent) is Cancellation.gone
    assert dict(database.handled()) == {"a": 0}


async def test_a_chunk_is_handled_without_the_message_that_was_cancelled(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app = Application(jmsql_factory)
    began, goes_on = threading.Event(), threading.Event()

    @app.listener("orders", chunk=10, redelivery=jmsql.RedeliveryPolicy(20, delay=0.01))
    def store(bodies: list[str], rows: sqlalchemy.Connection) -> None:
        for body in bodies:
            rows.execute(INSERTION, {"text": body})
        if len(bodies) > 1:
            began.set()
            goes_on.wait(PATIENCE)

    sent = [send_one(jmsql_factory, str(number)) for number in range(8)]
    with Administration(jmsql_factory) as administration:
        async with app.running(concurrency=1):
            assert await asyncio.to_thread(began.wait, PATIENCE)
            assert await asyncio.to_thread(administration.cancel, sent[1]) is Cancellation.asked
            goes_on.set()
            await asyncio.to_thread(wait_for, lambda: database.queued() == 0, PATIENCE)
    assert sorted(text for text, _ in database.handled()) == ["0", "2", "3", "4", "5", "6", "7"]
    assert database.rows("select from jmsql.dead_letters") == []


@pytest.mark.parametrize("runs", [True, False])
async def test_a_result_that_is_kept_says_cancelled(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, runs: bool
) -> None:
    app, seen = Application(jmsql_factory), Observed()

    @app.listener("orders", keep_result=60)
    def handle(body: str) -> None:
        seen.run(body, loop_forever)

    with jmsql_factory.create_context() as context, Administration(jmsql_factory) as administration:
        async with app.running(concurrency=1):
            first = send_one(jmsql_factory, "slow")
            await asyncio.to_thread(wait_for, lambda: seen.began == ["slow"], PATIENCE)
            cancelled = first if runs else jmsql.send(context, "orders", "waits")
            result = jmsql.result(context, cancelled)
            waiting = asyncio.create_task(asyncio.to_thread(result.get, PATIENCE))
            await asyncio.to_thread(administration.cancel, cancelled)
            with pytest.raises(jmsql.JobFailed) as caught:
                await waiting
            await asyncio.to_thread(administration.cancel, first)
        assert jmsql.result(context, cancelled).state == "cancelled"
    assert caught.value.state == "cancelled"


async def test_a_notification_that_no_cancellation_has_sent_ends_nothing(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    """Every role may notify."""
    app, seen = Application(jmsql_factory), Observed()
    thread_that_looks(app, seen)
    leave = threading.Event()

    @app.listener("others")
    async def others(body: str) -> None:
        seen.began.append(body)
        await asyncio.to_thread(leave.wait, PATIENCE)

    async with app.running(concurrency=1):
        sent = send_one(jmsql_factory, "slow")
        await asyncio.to_thread(wait_for, lambda: seen.began == ["slow"], PATIENCE)
        [(sequence,)] = database.rows("select sequence from jmsql_internal.message")
        for payload in (f"cancelled {sequence}", "cancelled", "cancelled 99999999999999999999", "cancelled -1"):
            database.rows(f"notify jmsql, '{payload}'")
        await asyncio.sleep(0.3)
        assert seen.cleaned == []
        assert database.queued() == 1
        with Administration(jmsql_factory) as administration:
            assert await asyncio.to_thread(administration.cancel, sent) is Cancellation.asked
        await asyncio.to_thread(wait_for, lambda: seen.cleaned == ["slow"], PATIENCE)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_handler_that_ends_for_a_lost_claim_is_not_cancelled(
    jmsql_factory: ConnectionFactory,
    database: WorkerDatabase,
    caplog: pytest.LogCaptureFixture,
    kind: Callable[[Application, Observed], None],
) -> None:
    """Its message comes again. The maintenance frees claims of clients whose control connection has ended."""
    app, seen = Application(jmsql_factory), Observed()
    kind(app, seen)
    async with app.running(concurrency=1):
        sent = send_one(jmsql_factory, "slow")
        await asyncio.to_thread(wait_for, lambda: seen.began == ["slow"], PATIENCE)
        database.rows(
            "with freed as (delete from jmsql_internal.delivery returning connection_id) "
            "select pg_terminate_backend(c.server_process_id) from jmsql_internal.connection c "
            "join freed using (connection_id)"
        )
        await asyncio.to_thread(wait_for, lambda: seen.began == ["slow", "slow"], PATIENCE)
        [record] = [each for each in caplog.records if "in delivery 1" in each.message]
        with Administration(jmsql_factory) as administration:
            assert await asyncio.to_thread(administration.cancel, sent) is Cancellation.asked
        await asyncio.to_thread(wait_for, lambda: seen.cleaned == ["slow", "slow"], PATIENCE)
    assert record.levelname == "WARNING"
    assert "whose claim was lost: it is delivered again" in record.message


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_commit_that_fails_beside_a_false_notification_has_failed(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    """Every role may notify. The log names the failure, and the failure has its consequences."""
    database.rows("alter table handled add constraint once unique (text) deferrable initially deferred")
    dead: list[jmsql.Message] = []
    app = Application(jmsql_factory, on_dead_letter=lambda message, _: dead.append(message))

    def notify() -> None:
        for (sequence,) in database.rows("select sequence from jmsql_internal.message"):
            database.rows(f"notify jmsql, 'cancelled {sequence}'")

    if is_async:

        @app.listener("orders", redelivery=jmsql.RedeliveryPolicy(1))
        async def handle(body: str, rows: AsyncConnection) -> None:
            for _ in range(2):
                await rows.execute(INSERTION, {"text": body})
            await asyncio.to_thread(notify)

    else:

        @app.listener("orders", redelivery=jmsql.RedeliveryPolicy(1))
        def handle_in_thread(body: str, rows: sqlalchemy.Connection) -> None:
            for _ in range(2):
                rows.execute(INSERTION, {"text": body})
            notify()

    async with app.running(concurrency=1):
        send_one(jmsql_factory, "a")
        # The dead letter is there before the log says so.
        wanted = "in delivery 1 of the message"
        await asyncio.to_thread(wait_for, lambda: any(wanted in each.message for each in caplog.records), PATIENCE)
    assert [record.levelname for record in caplog.records if wanted in record.message] == ["ERROR"]
    assert len(dead) == database.queued() == 1


def test_a_message_whose_worker_is_killed_while_it_is_cancelled_is_gone_or_handled_once(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    source = """
@app.listener("orders", redelivery=jmsql.RedeliveryPolicy(20, delay=0.01))
def handle(message, database):
    Path(f"began {message.get_body(str)} {os.getpid()}").touch()
    store(database, message)
    if message.get_body(str) == "slow" and message.get_int_property("JMSXDeliveryCount") == 1:
        time.sleep(600)
"""
    worker = start_worker(source, "--concurrency", "1")
    cancelled = send_one(jmsql_factory, "slow")
    wait_for(worker.began, PATIENCE)
    [(_, process)] = worker.began()
    killer = threading.Thread(target=os.kill, args=(process, signal.SIGKILL))
    with Administration(jmsql_factory) as administration:
        killer.start()
        outcome = administration.cancel(cancelled)
        killer.join()
    send_one(jmsql_factory, "quick")
    wait_for(lambda: "quick" in dict(database.handled()), PATIENCE)
    wait_for(lambda: database.queued() == 0, PATIENCE)
    assert outcome in {Cancellation.asked, Cancellation.removed}
    assert dict(database.handled()).keys() == {"quick"}
    assert database.rows("select from jmsql.dead_letters") == []
    assert worker.stop() == 0


def test_a_worker_counts_cancelled_messages_and_says_so(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    source = """
@app.listener("orders")
def handle(message):
    wait_for_leave(message)
"""
    worker = start_worker(source)
    cancelled = send_one(jmsql_factory, "slow")
    wait_for(worker.began, PATIENCE)
    with psycopg.connect(database.connection.info.dsn, password=database.connection.info.password) as connection:
        assert connection.execute("select jmsql.cancel(%s)", (cancelled,)).fetchall() == [("asked",)]
    worker.wait_for_log(r"handle on queue://orders was cancelled in delivery 1 of the message ID:")
    assert worker.stop() == 0
