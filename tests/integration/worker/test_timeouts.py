"""Handlers that take longer than they may: they are ended, and their messages have failed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any

import pytest

from jmsql import ConnectionFactory, JMSException, Message, Queue, RedeliveryPolicy
from jmsql.testing import wait_for
from jmsql.worker import Application, HandlerCall, Reject, RetryAfter, WorkerTimings
from tests.integration.worker.conftest import PATIENCE, StartWorker, WorkerDatabase
from tests.integration.worker.test_handlers import send
from tests.integration.worker.test_running import until

FAILED = "select delivery_count, last_error from jmsql.messages where queue = 'orders' and last_error <> ''"
HANDLERS = """
@app.listener("orders", transacted={transacted}, timeout=1.5, redelivery=jmsql.RedeliveryPolicy(2, delay=600.0))
{prefix}def handle({parameters}):
    text = message.get_body(str)
    Path(f"began {{text}} {{os.getpid()}}").touch()
    if text == "slow":
        try:
            {wait}
        finally:
            Path("cleaned").touch()


def wait_stubbornly(message):
    try:
        wait_for_leave(message)
    except TimeoutError:
        wait_for_leave(message)


def send_forever(context):
    while True:
        context.create_producer().send(jmsql.Queue("sent"), "text")


@app.listener("others", concurrency=2)
def others(message, database):
    wait_for_leave(message)
    store(database, message)
"""
WAITS = {
    "a thread in a statement": (
        "",
        "message, database",
        'database.execute(sqlalchemy.text("select pg_sleep(600)"))',
        True,
    ),
    "a thread in code of its own": ("", "message", "wait_for_leave(message)", True),
    "a thread in code of its own, not transacted": ("", "message", "wait_for_leave(message)", False),
    "a thread that sends": ("", "message, context", "send_forever(context)", True),
    "a coroutine": ("async ", "message", "await asyncio.sleep(600)", True),
    "a coroutine, not transacted": ("async ", "message", "await asyncio.sleep(600)", False),
    "a coroutine in a statement": (
        "async ",
        "message, database",
        'await database.execute(sqlalchemy.text("select pg_sleep(600)"))',
        True,
    ),
}


@pytest.mark.parametrize("kind", WAITS)
def test_a_handler_that_can_be_ended_is_ended(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase, kind: str
) -> None:
    prefix, parameters, wait, transacted = WAITS[kind]
    worker = start_worker(HANDLERS.format(prefix=prefix, parameters=parameters, wait=wait, transacted=transacted))
    send(jmsql_factory, "orders", "slow", "quick")
    wait_for(lambda: "quick" in dict(worker.began()) and database.rows(FAILED), PATIENCE)
    [(count, error)] = database.rows(FAILED)
    assert count == 1
    assert error.endswith("TimeoutError: The handler has taken longer than its timeout of 1.5 s.\n")
    if kind.startswith("a thread in code"):
        assert error.count("TimeoutError: ") == 1, error
        assert "in wait_for_leave" in error
    assert (worker.directory / "cleaned").exists()
    assert database.rows("select from jmsql.messages where queue = 'sent'") == []
    assert len({process for _, process in worker.began()}) == 1, "its process goes on"
    assert "another thread takes its place" not in worker.log
    assert worker.stop() == 0


@pytest.mark.parametrize("transacted", [True, False])
def test_another_thread_takes_the_place_of_one_that_ends_late(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase, transacted: bool
) -> None:
    source = HANDLERS.format(prefix="", parameters="message", wait="wait_stubbornly(message)", transacted=transacted)
    worker = start_worker(source, "--timing", "cancel_timeout=0.2", "--drain-timeout", "600")
    send(jmsql_factory, "orders", "slow")
    worker.wait_for_log("handle on queue://orders has not ended at its time-out; another thread takes its place")
    [(count, error)] = wait_for(lambda: database.rows(FAILED), PATIENCE)
    assert (count, error) == (1, "TimeoutError: The handler has taken longer than its timeout of 1.5 s.\n")
    send(jmsql_factory, "orders", "quick")
    wait_for(lambda: "quick" in dict(worker.began()), PATIENCE)
    worker.give_leave()
    send(jmsql_factory, "others", "other")
    wait_for(lambda: database.handled() == [("other", 1)], PATIENCE)
    assert len({process for _, process in worker.began()}) == 1, "its process goes on"
    assert worker.stop() == 0


def test_a_process_goes_on_whose_thread_ends_late_while_its_dead_letter_hook_runs(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory
) -> None:
    source = """
threads = []
may_end = threading.Event()


def run_on(message, error):
    may_end.set()
    threads[0].join()
    time.sleep(1)  # the process looks at its threads four times meanwhile, which is no event
    Path("ran on").touch()


@app.listener("orders", timeout=0.2, redelivery=jmsql.RedeliveryPolicy(1), on_dead_letter=run_on)
def handle(body: str):
    threads.append(threading.current_thread())
    Path(f"began {body} {os.getpid()}").touch()
    if body == "slow":
        may_end.wait()
"""
    worker = start_worker(source, "--timing", "cancel_timeout=0.2")
    send(jmsql_factory, "orders", "slow")
    worker.wait_for_log("another thread takes its place")
    assert (worker.directory / "ran on").exists()
    send(jmsql_factory, "orders", "quick")
    wait_for(lambda: "quick" in dict(worker.began()), PATIENCE)
    assert len({process for _, process in worker.began()}) == 1, "its process goes on"
    assert worker.stop() == 0


@pytest.mark.parametrize(("prefix", "transacted"), [("", True), ("async ", True)])
def test_a_thread_that_cannot_be_ended_is_lost_and_its_process_replaced_once_the_others_have_finished(
    start_worker: StartWorker,
    jmsql_factory: ConnectionFactory,
    database: WorkerDatabase,
    prefix: str,
    transacted: bool,
) -> None:
    source = HANDLERS.format(prefix=prefix, parameters="message", wait="time.sleep(600)", transacted=transacted)
    worker = start_worker(source, "--timing", "cancel_timeout=0.5", "--drain-timeout", "5")
    send(jmsql_factory, "others", "other")
    wait_for(lambda: "other" in dict(worker.began()), PATIENCE)
    send(jmsql_factory, "orders", "slow")
    worker.wait_for_log("handle on queue://orders does not end, and takes no more messages")
    if not prefix:  # a coroutine that blocks its event loop keeps its message until the process ends
        [(count, error)] = wait_for(lambda: database.rows(FAILED), PATIENCE)
        assert (count, error) == (1, "TimeoutError: The handler has taken longer than its timeout of 1.5 s.\n")
    assert database.handled() == []
    worker.give_leave()
    [first] = {process for text, process in worker.began() if text == "other"}

    with jmsql_factory.create_context() as context:

        def is_replaced() -> bool:  # a thread that waits for a message may still get one
            context.create_producer().send(Queue("orders"), "quick")
            return any(text == "quick" and process != first for text, process in worker.began())

        wait_for(is_replaced, PATIENCE)
    wait_for(lambda: database.handled() == [("other", 1)], PATIENCE)
    assert ("slow", first) in worker.began()
    if not prefix:
        assert database.rows(FAILED)[0][0] == 1
        assert worker.stop() == 0


async def test_in_an_application_of_its_own_a_lost_thread_ends_the_block(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    application = Application(jmsql_factory)
    ends: list[bool] = []

    @application.listener("orders", timeout=0.2)
    def handle(text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not ends and time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                time.sleep(0.01)

    send(jmsql_factory, "orders", "slow")
    with pytest.raises(JMSException, match="takes no more messages: TimeoutError"):
        async with application.running(drain_timeout=0.5, timings=WorkerTimings(cancel_timeout=0.2)):
            await asyncio.sleep(PATIENCE)
    [(count, error)] = database.rows(FAILED)
    assert count == 1
    assert "TimeoutError: The handler has taken longer" in error
    ends.append(True)


@pytest.mark.parametrize("options", [{}, {"transacted": False}, {"chunk": 2}], ids=str)
async def test_a_thread_that_ends_late_takes_no_message_while_its_dead_letter_hook_runs(
    jmsql_factory: ConnectionFactory, options: dict[str, Any]
) -> None:
    application = Application(jmsql_factory)
    begun: list[threading.Thread] = []
    may_end = threading.Event()

    def run_on(message: Message, error: BaseException) -> None:
        send(jmsql_factory, "orders", "next")
        may_end.set()
        wait_for(lambda: len(begun) == 2 or not begun[0].is_alive(), PATIENCE)

    def handle(body: str | list[str]) -> None:
        begun.append(threading.current_thread())
        if body in ("slow", ["slow"]):
            may_end.wait(PATIENCE)

    def handle_one(body: str) -> None:
        handle(body)

    def handle_several(body: list[str]) -> None:
        handle(body)

    application.listener(
        "orders", timeout=0.2, redelivery=RedeliveryPolicy(maximum_deliveries=1), on_dead_letter=run_on, **options
    )(handle_several if "chunk" in options else handle_one)
    async with application.running(timings=WorkerTimings(cancel_timeout=0.2)):
        send(jmsql_factory, "orders", "slow")
        await until(lambda: len(begun) == 2)
    assert begun[0] is not begun[1]


@pytest.mark.parametrize("options", [{}, {"transacted": False}, {"chunk": 2}], ids=str)
async def test_a_thread_given_up_has_its_failure_callbacks_called_once_and_at_once(
    jmsql_factory: ConnectionFactory, options: dict[str, Any]
) -> None:
    told: list[tuple[BaseException, bool]] = []
    threads: list[threading.Thread] = []
    may_end = threading.Event()

    def handle(body: Any) -> None:
        threads.append(threading.current_thread())
        if len(threads) == 1:
            may_end.wait(PATIENCE)

    def handle_one(body: str, call: HandlerCall) -> None:
        call.failure_callbacks.append(lambda error: told.append((error, may_end.is_set())))
        handle(body)

    def handle_several(body: list[str], call: HandlerCall) -> None:
        handle_one("", call)

    application = Application(jmsql_factory)
    application.listener("orders", timeout=0.2, redelivery=RedeliveryPolicy(maximum_deliveries=1), **options)(
        handle_several if "chunk" in options else handle_one
    )
    async with application.running(timings=WorkerTimings(cancel_timeout=0.2)):
        send(jmsql_factory, "orders", "slow")
        await until(lambda: bool(told))
        may_end.set()
        await until(lambda: not threads[0].is_alive())
    [(error, was_late)] = told
    assert isinstance(error, TimeoutError)
    assert not was_late


@pytest.mark.parametrize("is_async", [False, True])
async def test_the_time_out_is_the_outcome_whatever_the_cleanup_raises(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, *, is_async: bool
) -> None:
    application = Application(jmsql_factory)
    errors = {"a": OSError("cleanup"), "b": RetryAfter(0.0), "c": Reject("cleanup"), "d": SystemExit()}
    options: Any = {"timeout": 0.2, "redelivery": RedeliveryPolicy(maximum_deliveries=1)}

    if is_async:

        @application.listener("orders", **options)
        async def handle(text: str) -> None:
            try:
                await asyncio.sleep(600)
            finally:
                raise errors[text]

    else:

        @application.listener("orders", **options)
        def handle_in_thread(text: str) -> None:
            try:
                while True:
                    time.sleep(0.01)
            finally:
                raise errors[text]

    send(jmsql_factory, "orders", *errors)
    async with application.running(concurrency=4):
        await until(lambda: database.rows("select count(*) from jmsql.dead_letters") == [(4,)])
    dead = database.rows("select reason, deliveries, error from jmsql.dead_letters")
    error = "TimeoutError: The handler has taken longer than its timeout of 0.2 s."
    assert dead == [("maximum deliveries", 1, error)] * 4


@pytest.mark.parametrize("fails", [False, True])
async def test_the_functions_after_the_handler_have_no_time_out(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    application = Application(jmsql_factory)
    calls: list[HandlerCall] = []
    texts: list[str] = []
    looks: list[float] = []

    async def take_long(*_: object) -> None:
        def overdue(now: float) -> float:
            looks.append(now)
            return 3600.0

        monkeypatch.setattr(calls[0].deadline, "overdue", overdue)
        await until(lambda: len(looks) >= 4)

    @application.listener("orders", timeout=600, on_dead_letter=take_long)
    async def handle(text: str, call: HandlerCall) -> None:
        calls.append(call)
        texts.append(text)
        if text == "a":
            call.after_commit(take_long)
            if fails:
                raise Reject("no")

    async with application.running(drain_timeout=0.5, timings=WorkerTimings(check_interval=0.01)):
        send(jmsql_factory, "orders", "a", "b")
        await until(lambda: texts == ["a", "b"])
        await until(lambda: not database.rows("select from jmsql.messages where queue = 'orders'"))


@pytest.mark.parametrize(("timeout", "error"), [(0, ValueError), (-1, ValueError), ("soon", TypeError)])
def test_a_timeout_that_cannot_be_is_refused(timeout: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="timeout"):
        Application().listener("orders", timeout=timeout)(lambda message: None)


def test_a_process_that_is_silent_is_killed_and_its_message_handled_by_another(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    """Code that never lets Python's other threads run: nothing in the process can end it, or tell of it."""
    source = """
import ctypes


@app.listener("orders", timeout=1.5, redelivery=jmsql.RedeliveryPolicy(5, delay=0.1))
def handle(message, database):
    Path(f"began {message.get_body(str)} {os.getpid()}").touch()
    if message.get_int_property("JMSXDeliveryCount") == 1:
        ctypes.PyDLL(None).sleep(600)  # and does not give the interpreter to others meanwhile
    store(database, message)
"""
    worker = start_worker(source, "--timing", "silence_timeout=6")
    send(jmsql_factory, "orders", "hangs")
    database.wait_until_handled(1)
    assert database.handled() == [("hangs", 2)]
    assert len({process for _, process in worker.began()}) == 2
    worker.wait_for_log("worker 1 is silent: it is killed, since its handlers have time-outs")
    worker.wait_for_log("was killed by SIGKILL")
    assert worker.stop() == 0
