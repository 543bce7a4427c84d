"""Handlers that fork: a child is no second worker, and keeps nothing of its parent's open."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import jmsql
from jmsql import Connection, ConnectionFactory, Queue
from jmsql.testing import wait_for
from tests.integration.worker.conftest import PATIENCE, StartWorker, WorkerDatabase
from tests.integration.worker.test_draining import is_alive, wait_until_begun
from tests.integration.worker.test_handlers import send

LEAVING = """
import multiprocessing, sys
from jmsql.worker import Reject

FORKS = multiprocessing.get_context("fork")


def square(number):
    return number * number


@app.listener("orders")
{prefix}def handle(message):
    text = message.get_body(str)
    if text == "pool":  # ends its processes by SIGTERM
        with FORKS.Pool(2) as pool:
            result = pool.map(square, [1, 2])
    elif (child := os.fork()) == 0:
        if text == "returns":
            return
        elif text == "raises":
            raise Reject("by the child")
        sys.exit(7)
    else:
        _, status = os.waitpid(child, 0)
        result = os.waitstatus_to_exitcode(status)
    Path(f"result {{text}} {{result}}").touch()
"""


@pytest.mark.parametrize("prefix", ["", "async "])
def test_a_forked_child_ends_where_it_would_go_on_as_a_second_worker(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase, tmp_path: Path, prefix: str
) -> None:
    worker = start_worker(LEAVING.format(prefix=prefix), "--drain-timeout", "5")
    send(jmsql_factory, "orders", "exits", "returns", "raises", "pool")

    def results() -> list[str]:
        return sorted(path.name.removeprefix("result ") for path in tmp_path.glob("result *"))

    wait_for(lambda: len(results()) == 4 and database.queued() == 0, PATIENCE)
    assert results() == ["exits 7", "pool [1, 4]", "raises 1", "returns 0"]
    assert database.rows("select count(*) from jmsql.dead_letters") == [(0,)]
    assert worker.stop() == 0
    assert "worker 2" not in worker.log


def test_a_listener_that_forks_goes_on_alone(connection: Connection, jmsql_factory: ConnectionFactory) -> None:
    handled: list[str] = []

    def handle(message: jmsql.Message) -> None:
        if (child := os.fork()) != 0:
            os.waitpid(child, 0)
            handled.append(message.get_body(str) or "")

    with connection.create_session() as session, session.create_consumer(Queue("orders")) as consumer:
        consumer.message_listener = handle
        connection.start()
        send(jmsql_factory, "orders", "a", "b")
        wait_for(lambda: handled == ["a", "b"], PATIENCE)


HELPED = """
import multiprocessing


@app.listener("orders")
def handle(message):
    is_first = message.get_body(str) == "begins" and not message.jms_redelivered
    if is_first:
        helper = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        helper.start()
        Path(f"began helper {helper.pid}").touch()
    Path(f"began {message.get_body(str)} {os.getpid()}").touch()
    if is_first:
        time.sleep(600)
"""


def test_a_helper_that_outlives_its_process_hides_neither_the_death_nor_the_messages(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory
) -> None:
    worker = start_worker(HELPED)
    send(jmsql_factory, "orders", "begins")
    child, helper = wait_until_begun(worker, "begins"), wait_until_begun(worker, "helper")
    try:
        os.kill(child, signal.SIGKILL)
        send(jmsql_factory, "orders", "another")
        assert wait_until_begun(worker, "another") != child
        wait_for(lambda: [text for text, _ in worker.began()].count("begins") == 2, PATIENCE)
        assert is_alive(helper)
    finally:
        for text, process in worker.began():
            if text == "helper":
                os.kill(process, signal.SIGKILL)
    assert worker.stop() == 0
