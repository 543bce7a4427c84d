"""Processes that die are replaced, and those with old code too."""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

import pytest

from jmsql import ConnectionFactory
from jmsql.store.connections.database_url import parse_url
from jmsql.testing import wait_for
from tests.integration.worker.conftest import PATIENCE, StartWorker, Worker, WorkerDatabase, WriteApplication
from tests.integration.worker.test_draining import WAITING, is_alive, wait_until_begun
from tests.integration.worker.test_handlers import send
from tests.spark.subprocesses import children_of


def stamping(version: str) -> str:
    return f"""
@app.listener("orders")
def handle(message, database):
    database.execute(sqlalchemy.text("insert into handled values (:text)"), {{
        "text": message.get_body(str) + " by {version}"
    }})
"""


def test_the_log_names_server_and_database(start_worker: StartWorker, jmsql_clean_url: str) -> None:
    worker = start_worker(WAITING)
    worker.wait_until_ready()
    assert f"Handling messages in {parse_url(jmsql_clean_url).place} with 1 process." in worker.log


@pytest.mark.usefixtures("fresh_processes")
def test_a_killed_process_is_replaced_and_loses_nothing(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(WAITING)
    send(jmsql_factory, "orders", "a", "b", "c")
    child = wait_until_begun(worker)
    os.kill(child, signal.SIGKILL)
    wait_for(lambda: len({process for _, process in worker.began()}) == 2, PATIENCE)
    worker.give_leave()
    database.wait_until_handled(3)
    assert [text for text, _ in database.handled()] == ["a", "b", "c"]
    assert f"process {child}, was killed by SIGKILL" in worker.log
    assert worker.stop() == 0


LISTENERS = """
@app.listener("orders", selector="JMSPriority > 1", concurrency=3)
def ship(message, database):
    database.execute(sqlalchemy.text("insert into handled values (:text)"), {
        "text": message.get_body(str) + " by the old"
    })


@app.listener(jmsql.Topic("news"), subscription="desk", transacted=False)
def note(message):
    pass
"""


@pytest.mark.usefixtures("fresh_processes")
@pytest.mark.usefixtures("fresh_processes")
def test_a_worker_goes_on_while_the_system_lets_it_start_no_process(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(WAITING, "--processes", "2", "--timing", "minimum_restart_delay=0.01")
    worker.give_leave()
    worker.wait_until_ready()
    supervisor = worker.process.pid
    (first, _), (second, _) = children_of(supervisor)
    limits = resource.prlimit(supervisor, resource.RLIMIT_NOFILE)
    resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (3, limits[1]))
    os.kill(first, signal.SIGKILL)
    worker.wait_for_log("No process can be started")
    worker.send_signal(signal.SIGHUP)
    worker.wait_for_log("The old processes go on")
    assert is_alive(second)
    send(jmsql_factory, "orders", "a")
    database.wait_until_handled(1)
    resource.prlimit(supervisor, resource.RLIMIT_NOFILE, limits)
    wait_for(lambda: len(list(children_of(supervisor))) == 2, PATIENCE)
    assert worker.stop() == 0


def test_a_hang_up_brings_new_code_and_lists_the_listeners_once(
    start_worker: StartWorker,
    write_application: WriteApplication,
    jmsql_factory: ConnectionFactory,
    database: WorkerDatabase,
) -> None:
    worker = start_worker(LISTENERS, "--concurrency", "2", "--processes", "2")
    send(jmsql_factory, "orders", "a")
    database.wait_until_handled(1)
    worker.wait_until_ready()
    handles = [line.partition("supervisor: ")[2] for line in worker.log.splitlines() if " handles " in line]
    assert handles == [
        "messaging.ship handles queue://orders, selector JMSPriority > 1: 3 at a time in each process, transacted.",
        (
            "messaging.note handles topic://news, the durable subscription 'desk': 2 at a time in each process, "
            "not transacted."
        ),
    ]
    write_application(LISTENERS.replace("the old", "the new").replace("JMSPriority > 1", "JMSPriority > 2"))
    worker.send_signal(signal.SIGHUP)
    worker.wait_for_log("worker [12] has ended", times=2)
    worker.wait_for_log("messaging.ship handles queue://orders, selector JMSPriority > 2: 3 at a time")
    send(jmsql_factory, "orders", "b")
    database.wait_until_handled(2)
    assert [text for text, _ in database.handled()] == ["a by the old", "b by the new"]
    assert worker.stop() == 0
    assert worker.log.count(" handles ") == 4


def test_handlers_that_run_at_a_hang_up_finish(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(WAITING)
    send(jmsql_factory, "orders", "a")
    worker.wait_until_ready()
    child = wait_until_begun(worker)
    worker.send_signal(signal.SIGHUP)
    send(jmsql_factory, "orders", "b")
    other = wait_until_begun(worker, "b")
    assert child != other
    worker.give_leave()
    database.wait_until_handled(2)
    assert database.handled() == [("a", 1), ("b", 1)]
    wait_for(lambda: not is_alive(child), PATIENCE)
    assert worker.stop() == 0


def test_changed_files_bring_new_code_if_that_is_wanted_and_leave_the_old_at_work_if_it_does_not_start(
    start_worker: StartWorker,
    write_application: WriteApplication,
    jmsql_factory: ConnectionFactory,
    database: WorkerDatabase,
) -> None:
    worker = start_worker(stamping("the old"), "--reload")
    worker.wait_until_ready()
    write_application("def shape():\n    raise SystemError('broken')\n\nshape()")
    worker.wait_for_log("Source files have changed")
    worker.wait_for_log("The old processes go on: messaging cannot be imported: SystemError: broken")
    worker.wait_for_log("in shape\n")
    write_application("this is no Python")
    worker.send_signal(signal.SIGHUP)
    worker.wait_for_log("The old processes go on: messaging cannot be imported: SyntaxError")
    send(jmsql_factory, "orders", "a")
    database.wait_until_handled(1)
    write_application(stamping("the new"))
    worker.wait_for_log("worker 1 has ended")
    send(jmsql_factory, "orders", "b")
    database.wait_until_handled(2)
    assert [text for text, _ in database.handled()] == ["a by the old", "b by the new"]
    assert worker.stop() == 0


def test_handlers_go_on_when_the_server_has_cut_their_connections(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(stamping("the worker"))
    worker.wait_until_ready()
    ended = database.rows(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where datname = current_database() and application_name = 'jmsql worker 1'"
    )
    assert len(ended) >= 2, "that of a session, and that of the client"
    send(jmsql_factory, "orders", "a")
    database.wait_until_handled(1)
    assert worker.stop() == 0


HUNG_UP_EARLY = """
import os, signal
from jmsql.cli import application, main

run = application.run


def run_after_hang_up():
    os.kill(os.getpid(), signal.SIGHUP)
    run()


application.run = run_after_hang_up
main()
"""


def test_a_hang_up_before_the_supervisor_is_loaded_does_not_end_the_worker(
    write_application: WriteApplication, jmsql_clean_url: str, database: WorkerDatabase, tmp_path: Path
) -> None:
    write_application(WAITING)
    worker = Worker(tmp_path, jmsql_clean_url, (), ("-c", HUNG_UP_EARLY))
    worker.wait_until_ready()
    assert worker.stop() == 0


LEAVING_ORPHANS = """
import subprocess

@app.listener("orders")
def handle(message, database):
    subprocess.run(["sh", "-c", "sleep 0.1 & echo $! >orphan"])
    store(database, message)
"""
AS_IN_A_CONTAINER = """
import ctypes
from jmsql.cli import main

PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # it is given orphans, as the first process of a container is
main()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl")
def test_a_supervisor_reaps_orphans_that_it_is_given(
    write_application: WriteApplication,
    jmsql_factory: ConnectionFactory,
    jmsql_clean_url: str,
    database: WorkerDatabase,
    tmp_path: Path,
) -> None:
    write_application(LEAVING_ORPHANS)
    worker = Worker(tmp_path, jmsql_clean_url, (), ("-c", AS_IN_A_CONTAINER))
    try:
        send(jmsql_factory, "orders", "a")
        database.wait_until_handled(1)
        orphan = int((tmp_path / "orphan").read_text())
        wait_for(lambda: not is_alive(orphan), PATIENCE)  # a zombie would be
    finally:
        assert worker.stop() == 0
