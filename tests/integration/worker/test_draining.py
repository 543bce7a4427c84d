"""How a worker ends: what runs finishes, or is rolled back and handled by another."""

from __future__ import annotations

import os
import re
import signal

import pytest

from jmsql import ConnectionFactory, Topic
from jmsql.testing import wait_for
from tests.integration.worker.conftest import PATIENCE, StartWorker, Worker, WorkerDatabase
from tests.integration.worker.test_handlers import send

WAITING = """
@app.listener("orders")
def handle(message, database):
    store(database, message)
    wait_for_leave(message)
"""
FAILING_IN_ALL_BUT_ONE_PROCESS = (
    """
from jmsql.testing import wait_for

try:
    Path("imported").mkdir()
except FileExistsError:
    wait_for(lambda: list(Path().glob("began*")), 60)  # until the other one handles a message
    raise RuntimeError("It is there already.") from None
"""
    + WAITING
)
OF_ALL_KINDS = (
    WAITING
    + """
@app.listener("letters", transacted=False)
def write(message):
    wait_for_leave(message)


@app.listener(jmsql.Topic("news"), subscription="durable")
def note(message, database):
    store(database, message)
    wait_for_leave(message)


@app.listener(jmsql.Topic("rumours"), subscription="shared", durable=False)
def hear(message, database):
    store(database, message)
    wait_for_leave(message)


@app.listener("awaited")
async def wait(message, database):
    await database.execute(insertion(message))
    await await_leave(message)
"""
)
LONG = (
    WAITING
    + """
@app.listener("statements")
def work(message, database):
    store(database, message)
    Path(f"began {message.get_body(str)} {os.getpid()}").touch()
    if not Path("leave").exists():
        database.execute(sqlalchemy.text("select pg_sleep(600)"))


@app.listener("letters", transacted=False)
def write(message):
    wait_for_leave(message)


@app.listener("awaited")
async def wait(message, database):
    await database.execute(insertion(message))
    await await_leave(message)


@app.listener("awaitedstatements")
async def wait_in_statement(message, database):
    await database.execute(insertion(message))
    Path(f"began {message.get_body(str)} {os.getpid()}").touch()
    if not Path("leave").exists():
        await database.execute(sqlalchemy.text("select pg_sleep(600)"))
"""
)
BLOCKING_THE_LOOP = """
@app.listener("orders")
async def handle(message, database):
    await database.execute(insertion(message))
    wait_for_leave(message)
"""


LEFT = [("letter that waits",), ("order that waits",)]


def wait_until_begun(worker: Worker, text: str = "a") -> int:
    """Wait until the handler of a message waits; return its process."""
    begun = wait_for(lambda: [process for name, process in worker.began() if name == text], PATIENCE)
    return begun[-1]


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_handlers_finish_and_takes_no_more(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase, number: signal.Signals
) -> None:
    worker = start_worker(OF_ALL_KINDS, "--log-level", "debug")
    worker.wait_until_ready()
    send(jmsql_factory, "orders", "order", "order that waits")
    send(jmsql_factory, "letters", "letter", "letter that waits")
    send(jmsql_factory, "awaited", "awaited")
    with jmsql_factory.create_context() as context:
        context.create_producer().send(Topic("news"), "news")
        context.create_producer().send(Topic("rumours"), "rumour")
    for text in ("order", "letter", "news", "rumour", "awaited"):
        wait_until_begun(worker, text)
    worker.send_signal(number)
    worker.wait_for_log("no more messages")
    worker.wait_for_log("handlers to finish", times=2)  # those of threads and of the event loop
    worker.give_leave()
    assert worker.exit_code() == 0
    assert database.handled() == [("awaited", 1), ("news", 1), ("order", 1), ("rumour", 1)]
    wait_for(lambda: database.rows("select body from jmsql.messages order by 1") == LEFT)


def test_messages_that_run_at_the_deadline_are_rolled_back_and_handled_elsewhere(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    """In Python, in a statement, and without a transaction; in a thread and in an event loop."""
    worker = start_worker(LONG, "--drain-timeout", "0.5")
    queues = ("orders", "statements", "letters", "awaited", "awaitedstatements")
    for queue in queues:
        send(jmsql_factory, queue, queue)
    [child] = {wait_until_begun(worker, queue) for queue in queues}
    assert worker.stop() == 1
    for listener in ("handle", "work", "write", "wait", "wait_in_statement"):
        assert re.search(rf"{listener} .*has not finished within 0.5 s", worker.log), worker.log
    assert not is_alive(child)
    assert database.handled() == []
    assert database.queued() == 5
    outcomes = (
        "select delivery_count, retry_count, interruption_count, last_error, next_attempt, first_failed_at"
        " from jmsql_internal.delivery natural left join jmsql_internal.delivery_outcome"
    )
    assert database.rows(outcomes) == [(1, 1, 1, None, None, None)] * 5, "none has failed"
    assert "failed in delivery" not in worker.log
    assert re.search("write .*; it is given up, and the message is delivered again", worker.log)

    worker.give_leave()
    other = start_worker(LONG)
    database.wait_until_handled(4)
    assert database.handled() == [("awaited", 2), ("awaitedstatements", 2), ("orders", 2), ("statements", 2)]
    assert other.stop() == 0


def test_a_handler_that_blocks_the_event_loop_is_cut_off_at_the_deadline(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(BLOCKING_THE_LOOP, "--drain-timeout", "0.1")
    send(jmsql_factory, "orders", "a")
    child = wait_until_begun(worker)
    assert worker.stop() == 1
    assert re.search("handle .*has not finished, and does not let the process end in order", worker.log), worker.log
    assert not is_alive(child)
    assert database.handled() == []
    assert database.queued() == 1


def test_a_second_signal_ends_it_at_once(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(WAITING, "--drain-timeout", "600")
    send(jmsql_factory, "orders", "a")
    child = wait_until_begun(worker)
    worker.send_signal(signal.SIGTERM)
    worker.wait_for_log("no more messages")
    worker.send_signal(signal.SIGTERM)
    assert worker.exit_code() == 128 + signal.SIGTERM
    assert not is_alive(child)
    assert database.handled() == []
    assert database.queued() == 1


def test_the_first_signal_cuts_nothing_off_while_a_failed_start_drains(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    send(jmsql_factory, "orders", "a")
    worker = start_worker(FAILING_IN_ALL_BUT_ONE_PROCESS, "--processes", "2", "--drain-timeout", "600")
    wait_until_begun(worker)
    worker.wait_for_log("cannot be imported")
    worker.send_signal(signal.SIGTERM)
    worker.wait_for_log("no more messages")
    worker.give_leave()
    assert worker.exit_code() == 2
    assert database.handled() == [("a", 1)]


def test_processes_end_in_order_when_their_supervisor_is_killed(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(WAITING)
    send(jmsql_factory, "orders", "a", "b")
    wait_until_begun(worker)
    clients = (
        "select 1 from pg_stat_activity where datname = current_database() and application_name = 'jmsql worker 1'"
    )
    assert database.rows(clients)
    worker.send_signal(signal.SIGKILL)
    worker.exit_code()
    worker.give_leave()
    wait_for(lambda: not database.rows(clients), PATIENCE)
    assert database.handled()[0] == ("a", 1)
    assert len(database.handled()) + database.queued() == 2
