"""How a worker ends: what runs finishes, or is rolled back and handled by another."""

from __future__ import annotations

import os
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
IN_A_STATEMENT = """
@app.listener("orders")
def handle(message, database):
    store(database, message)
    Path(f"began {message.get_body(str)} {os.getpid()}").touch()
    if not Path("leave").exists():
        database.execute(sqlalchemy.text("select pg_sleep(600)"))
"""


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
def test_a_signal_lets_what_runs_finish_and_takes_no_more(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase, number: signal.Signals
) -> None:
    worker = start_worker(WAITING)
    send(jmsql_factory, "orders", "a", "b")
    wait_until_begun(worker)
    worker.send_signal(number)
    worker.wait_for_log("no more messages")
    worker.give_leave()
    assert worker.exit_code() == 0
    assert database.handled() == [("a", 1)]
    assert database.queued() == 1


@pytest.mark.parametrize("source", [WAITING, IN_A_STATEMENT], ids=["in Python", "in a statement"])
def test_what_runs_at_the_deadline_is_rolled_back_and_handled_elsewhere(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase, source: str
) -> None:
    worker = start_worker(source, "--drain-timeout", "0.5")
    send(jmsql_factory, "orders", "a")
    child = wait_until_begun(worker)
    assert worker.stop() == 1
    assert "has not finished within 0.5 s" in worker.log
    assert not is_alive(child)
    assert database.handled() == []

    worker.give_leave()
    other = start_worker(source)
    database.wait_until_handled(1)
    assert database.handled() == [("a", 2)]
    assert other.stop() == 0


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


def test_a_message_that_is_not_transacted_is_handled_to_its_end(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(
        """
@app.listener("orders", transacted=False)
def handle(message):
    wait_for_leave(message)
"""
    )
    send(jmsql_factory, "orders", "a", "b")
    wait_until_begun(worker)
    worker.send_signal(signal.SIGTERM)
    worker.wait_for_log("no more messages")
    worker.give_leave()
    assert worker.exit_code() == 0
    assert database.queued() == 1


def test_what_is_not_transacted_and_runs_at_the_deadline_is_handled_elsewhere(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    source = """
@app.listener("orders", transacted=False)
def handle(message):
    wait_for_leave(message)
"""
    worker = start_worker(source, "--drain-timeout", "0.1")
    send(jmsql_factory, "orders", "a")
    wait_until_begun(worker)
    assert worker.stop() == 1
    assert database.queued() == 1
    worker.give_leave()
    other = start_worker(source)
    wait_for(lambda: database.queued() == 0, PATIENCE)
    assert other.stop() == 0


@pytest.mark.parametrize("durable", [True, False])
def test_a_handler_of_a_subscription_finishes_too(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase, durable: bool
) -> None:
    worker = start_worker(
        f"""
@app.listener(jmsql.Topic("news"), subscription="desk", durable={durable})
def handle(message, database):
    store(database, message)
    wait_for_leave(message)
""",
        "--concurrency",
        "2",
    )
    worker.wait_until_ready()
    with jmsql_factory.create_context() as context:
        context.create_producer().send(Topic("news"), "a")
    wait_until_begun(worker)
    worker.send_signal(signal.SIGTERM)
    worker.wait_for_log("no more messages")
    worker.give_leave()
    assert worker.exit_code() == 0
    assert database.handled() == [("a", 1)]
    wait_for(lambda: database.queued() == 0)
