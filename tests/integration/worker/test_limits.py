"""Processes that reach a limit of messages or memory end in order, and others take their places."""

from __future__ import annotations

import os
import signal

import pytest

from jmsql import ConnectionFactory
from jmsql.testing import wait_for
from tests.integration.worker.conftest import PATIENCE, StartWorker, WorkerDatabase
from tests.integration.worker.test_draining import is_alive, wait_until_begun
from tests.integration.worker.test_handlers import send
from tests.integration.worker.test_metrics import scrape

STORING = """
@app.listener("orders")
{kind} handle(message: jmsql.Message, database: {connection}) -> None:
    {await_} database.execute(insertion(message))
"""
PLAIN = STORING.format(kind="def", connection="sqlalchemy.Connection", await_="")
COROUTINE = "from sqlalchemy.ext.asyncio import AsyncConnection\n" + STORING.format(
    kind="async def", connection="AsyncConnection", await_="await"
)


@pytest.mark.parametrize("source", [PLAIN, COROUTINE])
def test_a_process_receives_as_many_messages_as_it_may_and_is_replaced(
    source: str, start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(source, "--max-messages", "2", "--health-port", "0")
    send(jmsql_factory, "orders", "a", "b", "c", "d", "e")
    database.wait_until_handled(5)
    assert [text for text, _ in database.handled()] == ["a", "b", "c", "d", "e"]
    assert database.rows("select count(*) from handled group by process order by 1") == [(1,), (2,), (2,)]
    assert database.rows("select max(delivery_count) from handled") == [(1,)]
    worker.wait_for_log(r"worker 1, process \d+, has received 2 messages, and --max-messages is 2\. Another process")
    worker.wait_for_log("worker [12] has ended", times=2)
    found = scrape(worker)
    assert found["jmsql_worker_replaced_processes_total", "messages"] == 2.0
    assert found["jmsql_worker_restarts_total",] == 0.0
    assert worker.stop() == 0


WAITING_AND_STORING = """
@app.listener("slow")
def wait(message, database):
    wait_for_leave(message)
    store(database, message)


@app.listener("orders")
def handle(message, database):
    store(database, message)
"""


def test_a_message_that_takes_long_finishes_while_another_process_goes_on(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(WAITING_AND_STORING, "--max-messages", "2", "--drain-timeout", "0.5")
    send(jmsql_factory, "slow", "long")
    former = wait_until_begun(worker, "long")
    send(jmsql_factory, "orders", "a")
    worker.wait_for_log("has received 2 messages")
    send(jmsql_factory, "orders", "b")
    wait_for(lambda: len(database.handled()) == 2, PATIENCE)
    assert is_alive(former)
    worker.give_leave()
    database.wait_until_handled(3)
    assert database.handled() == [("a", 1), ("b", 1), ("long", 1)]
    wait_for(lambda: not is_alive(former), PATIENCE)
    assert worker.stop() == 0


STARTING_A_THREAD = """
import threading


@app.listener("orders")
def handle(message, database):
    threading.Thread(target=time.sleep, args=[600], name="mailer", daemon=False).start()
    store(database, message)
"""


def test_a_process_that_retires_ends_without_the_threads_that_its_handlers_have_left(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(STARTING_A_THREAD, "--max-messages", "1", "--drain-timeout", "0.5")
    send(jmsql_factory, "orders", "a")
    worker.wait_for_log("worker 1 has handled its messages, and ends without its threads mailer")
    worker.wait_for_log("worker 1 has ended")
    assert database.handled() == [("a", 1)]
    assert worker.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_retires_can_still_be_ended(
    number: signal.Signals, start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(WAITING_AND_STORING, "--max-messages", "1", "--drain-timeout", "0.5")
    send(jmsql_factory, "slow", "long")
    former = wait_until_begun(worker, "long")
    worker.wait_for_log("has received 1 messages")
    if number == signal.SIGTERM:
        assert worker.stop() == 1
        assert "wait on queue://slow has not finished within 0.5 s" in worker.log
        assert database.queued() == 1
    else:
        os.kill(former, number)
        worker.give_leave()
        database.wait_until_handled(1)
        assert database.handled() == [("long", 2)]
        assert worker.stop() == 0


STOPPED_AT_ITS_END = """
import os, signal, sys

class Last:
    def __del__(self, kill=os.kill, process=os.getpid(), number=signal.SIGTERM):
        kill(process, number)

sys.last = Last()  # which Python ends last

@app.listener("orders")
def handle(message, database):
    store(database, message)
"""


@pytest.mark.usefixtures("fresh_processes")
def test_a_process_that_is_told_to_stop_when_its_work_is_done_has_ended_in_order(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(STOPPED_AT_ITS_END, "--max-messages", "1")
    send(jmsql_factory, "orders", "a")
    database.wait_until_handled(1)
    worker.wait_for_log("has ended")
    assert "was killed" not in worker.log
    assert worker.stop() == 0


GROWING = """
kept = []

@app.listener("orders")
def handle(message, database):
    kept.append(b"x" * 400 * 1024 * 1024)
    store(database, message)
"""


@pytest.mark.usefixtures("fresh_processes")
def test_a_process_that_has_grown_is_replaced_and_logs_its_first_size(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(GROWING, "--max-memory", "400", "--health-port", "0")
    worker.wait_until_ready()
    for text in "ab":
        send(jmsql_factory, "orders", text)
        worker.wait_for_log(r"has \d+ MiB of memory, and --max-memory is 400 MiB\. Another", times="ab".index(text) + 1)
    database.wait_until_handled(2)
    assert len(database.rows("select distinct process from handled")) == 2
    worker.wait_for_log(r"It began with \d+ MiB\. If that happens again and again, raise --max-memory\.")
    assert scrape(worker)["jmsql_worker_replaced_processes_total", "memory"] == 2.0
    assert worker.stop() == 0


def test_a_limit_of_memory_below_that_of_the_application_is_refused_at_once(start_worker: StartWorker) -> None:
    worker = start_worker(PLAIN + COROUTINE.replace("handle", "handle_too"), "--max-memory", "10")
    assert worker.exit_code() == 2
    assert "of memory before its first message, and --max-memory allows 10 MiB. Raise it." in worker.log
    assert worker.log.count("\n") == 1
